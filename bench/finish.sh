#!/usr/bin/env bash
# Measures what it costs a server to end a connection: plain close, two homemade waits for an empty
# send queue, and finish.
#
#   make bench-finish              everything, about 15 minutes on a machine that does nothing else
#   bench/finish.sh quick          everything with few connections, under a minute
#   bench/finish.sh story          one part: story, loopback, link, unread, calls or blocking
#
# Needs root and strace. It runs in namespaces of its own (mounts, processes, network), so that
# nothing of it stays, also when it is killed. What it prints is kept in bench/results/finish.txt.
#
# ROUNDS, CONNECTIONS (a round's, of each ending), REQUESTS (of the story) and CALLS (connections
# whose system calls are counted) change what their names say; LASTBYTE and COST name the binaries.
set -euo pipefail

cd "$(dirname "$0")/.."
lastbyte=${LASTBYTE:-$PWD/target/release/lastbyte}
cost=${COST:-$PWD/target/release/examples/finish_cost}
parts=(story loopback link unread calls blocking)

main() {
  local part=${1:-all} each
  if [[ $part != all && $part != quick && " ${parts[*]} " != *" $part "* ]]; then
    echo "bench/finish.sh: say quick, or one of ${parts[*]}, or nothing for all" >&2
    exit 2
  fi
  if [[ -z ${LASTBYTE_BENCH_INSIDE:-} ]]; then
    exec bench/world.py --result "bench/results/finish${1:+-$1}.txt" --needs "$lastbyte" --needs "$cost" \
      --needs strace bench/finish.sh "$@"
  fi
  how_many "$part"
  about_this_machine "$@"
  if [[ $part != all && $part != quick ]]; then parts=("$part"); fi
  for each in "${parts[@]}"; do
    echo
    "measure_$each"
  done
}

how_many() {
  quick=false
  if [[ $1 == quick ]]; then
    quick=true
    rounds=${ROUNDS:-3} connections=${CONNECTIONS:-200} requests=${REQUESTS:-5} calls=${CALLS:-100}
  else
    rounds=${ROUNDS:-10} connections=${CONNECTIONS:-1000} requests=${REQUESTS:-275}
    calls=${CALLS:-500}
  fi
}

about_this_machine() {
  echo "# What it costs a server to end a connection"
  echo "$(date -u '+%Y-%m-%d %H:%M UTC'); Linux $(uname -r), $(nproc) processors;" \
    "bench/finish.sh $*; load $(cut -d ' ' -f 1-3 /proc/loadavg) at the beginning"
  cat << 'WORDS'
One server process of one thread (tokio) and one client process, each on a processor of its own. A
line of request, an answer, and the server ends the connection. Each ending has its turn in each
round. CPU is the server thread's, user and system, for one connection: median (least to most) of
the rounds; what the kernel does for the client is not in it. Beside close: the same round's close.
Complete: every byte came and then the end of the stream, as the client saw it. Proven: what the
ending waits for was seen. Wake-ups are those of an ending before it was over.
WORDS
}

# --- the server and its clients ------------------------------------------------------------------

# Runs a server, and then the client with the words given. The server ends with it.
over_loopback() {
  # shellcheck disable=SC2086 # words
  on_processor 0 ${under:-} "$cost" serve tcp=127.0.0.1:7001 tls=127.0.0.1:7002 cert=/run/cert \
    unix=/run/cost &
  on_processor 1 timeout 600 "$cost" ask "$@" quit=1
  wait $!
  rm -f /run/cost
}

# The path's options are one word. Nothing there speaks Unix.
over_link() {
  local options
  read -ra options <<< "$1"
  shift
  timeout 900 "$lastbyte" link run --quiet "${options[@]}" \
    --far "exec taskset -c 0 '$cost' serve tcp=[::]:7001 tls=[::]:7002 cert=/run/cert" -- \
    taskset -c $((1 % $(nproc))) timeout 800 "$cost" ask "$@" cert=/run/cert
}

# Without a second processor both share the first.
on_processor() {
  local which=$(($1 % $(nproc)))
  shift
  taskset -c "$which" "$@"
}

tcp=tcp=127.0.0.1:7001
tls=(tls=127.0.0.1:7002 cert=/run/cert)
unix=unix=/run/cost

# --- the story -----------------------------------------------------------------------------------

# A gopher server that armed EPOLLOUT until its queue was empty spent 18 s of processor time on 275
# requests, under 1 s without that, and 4 s with TLS. 18 s for 275 are 65 ms each: its waits were
# about a round trip long.
measure_story() {
  local path="--rtt 66ms"
  echo "## The story: $requests requests as they came, one by one, over $path"
  echo "The server waits for an empty queue by asking whenever the socket is writable, which it"
  echo "always is. As told, for 275 requests: 18 s with the wait, under 1 s without, 4 s with TLS."
  echo
  over_link "$path" tcp=far:7001 name="$path" rounds=1 connections="$requests" at-once=1 \
    warm-up=1 endings=close,spin,acked
  over_link "$path" tls=far:7002 name="$path" rounds=1 connections="$requests" at-once=1 \
    warm-up=1 endings=close,acked
}

# --- the table -----------------------------------------------------------------------------------

measure_loopback() {
  echo "## Over loopback"
  # A few per cent are looked for here: more rounds, and shorter ones.
  over_loopback "$tcp" "${tls[@]}" "$unix" name=loopback rounds="$((rounds * 4))" \
    connections="$((connections / 4))"
  echo
  over_loopback "$tcp" "${tls[@]}" "$unix" name=loopback rounds="$((rounds * 4))" \
    connections="$((connections / 10))" bytes=100000
}

measure_link() {
  echo "## Over a path of 50 ms"
  over_link "--rtt 50ms" tcp=far:7001 tls=far:7002 name="--rtt 50ms" rounds="$rounds" connections="$connections" \
    at-once=200
  if $quick; then return; fi
  echo
  over_link "--rtt 50ms" tcp=far:7001 tls=far:7002 name="--rtt 50ms" rounds="$rounds" \
    connections="$((connections / 5))" at-once=64 bytes=100000
}

measure_unread() {
  echo "## With one byte of the client left unread at the server"
  over_loopback "$tcp" "$unix" name=loopback rounds="$rounds" connections="$((connections / 5))" \
    bytes=1000000 at-once=16 trailing=1
  echo
  over_link "--rtt 50ms" tcp=far:7001 name="--rtt 50ms" rounds="$rounds" \
    connections="$((connections / 5))" bytes=100000 trailing=1
}

# --- system calls --------------------------------------------------------------------------------

# strace changes when things happen, so that these runs tell of numbers alone. A run without any
# connection is taken off.
measure_calls() {
  local ending
  echo "## System calls of the server for one connection, of $calls counted by strace"
  count_calls tcp "$tcp" close,spin,poll,acked,closed
  count_calls tls "${tls[*]}" close,poll,acked,closed
  count_calls unix "$unix" close,poll,acked,closed
  echo
  echo "The last calls of one connection, by itself:"
  for ending in close acked closed; do last_calls tcp "$tcp" "$ending"; done
  for ending in close acked closed; do last_calls unix "$unix" "$ending"; done
}

# Words of the client are one word here.
count_calls() {
  local transport=$1 words ending
  read -ra words <<< "$2"
  for ending in ${3//,/ }; do
    traced some "$calls" "${words[@]}" endings="$ending"
    traced none 0 "${words[@]}" endings="$ending"
    printf '%-4s %-7s' "$transport" "$ending"
    calls_of_one "$calls"
  done
}

traced() {
  local which=$1 connections=$2
  shift 2
  under="strace -f -c -U calls,name -o /run/calls.$which" over_loopback "$@" rounds=1 at-once=16 \
    connections="$connections" warm-up=0 > /run/told
}

# Name and number, most often called first; what is less than a hundredth belongs to the frame.
calls_of_one() {
  awk -v n="$1" '
    $1 ~ /^[0-9]+$/ && $2 != "total" { calls[$2] += FILENAME ~ /some$/ ? $1 : -$1 }
    END { for (name in calls) if (calls[name] / n >= 0.01) printf "%.2f %s\n", calls[name] / n, name }
  ' /run/calls.some /run/calls.none | sort -k 1,1gr -k 2 |
    awk '{ all += $1; text = text " " $2 " " $1 } END { printf " %6.2f:%s\n", all, text }'
}

# From the answer on.
last_calls() {
  local transport=$1 words
  read -ra words <<< "$2"
  under="strace -f -o /run/list" over_loopback "${words[@]}" endings="$3" rounds=1 connections=1 \
    at-once=1 warm-up=0 > /run/told
  printf '%-4s %-7s' "$transport" "$3"
  calls_after_answer
}

# The connection is that whose answer has 4096 bytes.
calls_after_answer() {
  awk '/(sendto|write)\(.*= 4096$/ { on = 1; match($0, /\(([0-9]+),/); fd = substr($0, RSTART, RLENGTH) }
    on { line = $0; sub(/^[0-9]+ +/, "", line); name = line; sub(/\(.*/, "", name)
      if (name == "ioctl" || name == "getsockopt") { split(line, word, ", "); name = name " " \
        (name == "ioctl" ? word[2] : word[3]) }
      printf " %s;", name
      if (name == "close" && index($0, substr(fd, 1, length(fd) - 1) ")")) exit }
    END { print "" }' /run/list
}

# --- the blocking face ---------------------------------------------------------------------------

measure_blocking() {
  local ending
  echo "## The blocking face, one connection after the other: system calls for one connection"
  for ending in close acked closed; do
    blocking "$calls" "$ending" "strace -c -U calls,name -o /run/calls.some" "$tcp"
    blocking 0 "$ending" "strace -c -U calls,name -o /run/calls.none" "$tcp"
    printf 'tcp  %-7s' "$ending"
    calls_of_one "$calls"
  done
  for ending in close acked closed; do
    blocking 1 "$ending" "strace -o /run/list" "$tcp"
    printf 'tcp  %-7s' "$ending"
    calls_after_answer
  done
  for ending in close acked closed; do
    blocking 1 "$ending" "strace -o /run/list" "$unix"
    printf 'unix %-7s' "$ending"
    calls_after_answer
  done
}

blocking() {
  # shellcheck disable=SC2086 # words
  on_processor 0 $3 "$cost" serve-blocking "$4" &
  on_processor 1 timeout 60 "$cost" ask "$4" rounds=1 connections="$1" at-once=1 endings="$2" \
    warm-up=0 quit=1 > /run/told
  wait $!
  rm -f /run/cost
}

main "$@"
