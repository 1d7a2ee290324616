#!/usr/bin/env bash
# Tortures TCP proxies, each with what plain TCP does beside it: no proxy, HAProxy with splice and
# without, nginx stream with its half-close and without, socat, rathole, and the gate; three of them
# once more with a link of 50 ms before the upstream.
#
#   make bench-torture             everything, about 40 minutes
#   bench/proxies.sh NAME...       some of: direct haproxy haproxy-splice nginx nginx-half-close socat
#                                  rathole gate direct-link haproxy-link gate-link
#   bench/proxies.sh table         the table, from what was played last of each
#
# Needs root and what `scripts/ensure.sh gate` installs. It runs in namespaces of its own (mounts,
# processes, network), so that nothing of it stays, also when it is killed. Each case with its runs is
# kept in target/torture/NAME.jsonl; the table, unless some are named, in bench/results/torture.txt and
# in docs/gate-torture.md.
#
# OPTIONS (words for bench/torture, such as '--runs 1') changes how it is played; LASTBYTE, TORTURE and
# RATHOLE name the binaries.
set -euo pipefail

cd "$(dirname "$0")/.."
lastbyte=${LASTBYTE:-$PWD/target/release/lastbyte}
export TORTURE=${TORTURE:-$PWD/target/release/torture}
rathole=${RATHOLE:-$PWD/target/peers/bin/rathole}
read -ra options <<< "${OPTIONS:-}"
kept=target/torture
PATH=$PATH:/usr/sbin # where haproxy and nginx lie
proxies=(direct haproxy haproxy-splice nginx nginx-half-close socat rathole gate)
proxies+=(direct-link haproxy-link gate-link)

# In a network namespace of its own every port is free. To what is for documentation there is no way
# from there (RFC 5737).
listen=127.0.0.1:7001 upstream=127.0.0.1:7000
listen_unreachable=127.0.0.1:7003 unreachable=192.0.2.1:9
control=127.0.0.1:7002 # between the two halves of rathole

main() {
  local name
  if [[ ${1:-} == table ]]; then
    write_tables
    return
  fi
  for name; do
    if [[ " ${proxies[*]} " != *" $name "* ]]; then
      echo "bench/proxies.sh: say table, or some of ${proxies[*]}, or nothing for all" >&2
      exit 2
    fi
  done
  mkdir -p "$kept"
  if [[ -z ${LASTBYTE_BENCH_INSIDE:-} ]]; then
    bench/world.py --needs "$TORTURE" bench/proxies.sh "$@"
    if [[ $# == 0 ]]; then write_tables; fi
    return
  fi
  scratch=/run/tmp
  pids=() inside=() # the proxy's processes, and the command that starts them elsewhere
  if [[ $# == 0 ]]; then set -- "${proxies[@]}"; fi
  for name; do torture_one "$name"; done
}

# --- one proxy -----------------------------------------------------------------------------------

# The last case kills the proxy; it gets one of its own for that.
torture_one() {
  local name=$1
  echo "$name:" >&2
  if ! is_here "$name"; then
    echo "bench/proxies.sh: NOT TESTED: $name is not here, or this binary does not know it" >&2
    rm -f "$kept/$name.jsonl"
    return
  fi
  case $name in
    direct) play --proxy "$upstream" --upstream "$upstream" > "$scratch/rows" ;;
    *-link) torture_over_link "${name%-link}" > "$scratch/rows" ;;
    *)
      start "$name" "$listen" "$upstream" "$listen_unreachable" "$unreachable"
      play --proxy "$listen" --upstream "$upstream" --unreachable "$listen_unreachable" \
        --stop "kill -TERM ${pids[*]}" > "$scratch/rows"
      end_all
      start "$name" "$listen" "$upstream" "$listen_unreachable" "$unreachable"
      play --proxy "$listen" --upstream "$upstream" --only stop/killed \
        --kill "kill -KILL ${pids[*]}" > "$scratch/killed"
      grep -v '"stop/killed"' "$scratch/rows" > "$scratch/others"
      cat "$scratch/others" "$scratch/killed" > "$scratch/rows"
      end_all
      ;;
  esac
  cp "$scratch/rows" "$kept/$name.jsonl"
}

# A case that fails is what this looks for: only misuse ends it.
play() {
  local code=0
  bench/torture --json "${options[@]}" "$@" 2> "$scratch/talk" || code=$?
  if [[ $code -gt 1 ]]; then
    cat "$scratch/talk" >&2
    exit 2
  fi
}

# The client and the proxy are in the near namespace, the server in the far one. Without a proxy the
# client connects over the link.
torture_over_link() {
  local far where=(--proxy-namespace /run/netns/lastbyte-torture-near)
  where+=(--upstream-namespace /run/netns/lastbyte-torture-far)
  "$lastbyte" link up torture --rtt 50ms > /dev/null
  inside=("$lastbyte" link exec torture near --)
  far=$("${inside[@]}" getent ahostsv4 far | awk 'NR == 1 { print $1 }'):7000
  if [[ $1 == direct ]]; then
    play --proxy "$far" --upstream "$far" "${where[@]}"
  else
    start "$1" "$listen" "$far" "$listen_unreachable" "$unreachable"
    play --proxy "$listen" --upstream "$far" --unreachable "$listen_unreachable" "${where[@]}"
    end_all
  fi
  inside=()
  "$lastbyte" link down torture > /dev/null
}

# Whether it can be started here; the words of a gate must be known to the binary.
is_here() {
  case $1 in
    *-link) [[ -x $lastbyte ]] && is_here "${1%-link}" ;;
    direct) ;;
    haproxy*) command -v haproxy > /dev/null ;;
    nginx*) command -v nginx > /dev/null ;;
    socat) command -v socat > /dev/null ;;
    rathole) [[ -x $rathole ]] ;;
    gate) "$lastbyte" gate --help > /dev/null 2>&1 ;;
  esac
}

# Starts a proxy from one address to another, and a second such pair; waits until it listens.
start() {
  local name=$1
  shift
  "start_${name//-/_}" "$@"
  wait_for_listener
}

wait_for_listener() {
  local looks
  for ((looks = 0; looks < 100; looks++)); do
    if "${inside[@]}" ss --listening --tcp --numeric | grep -q "$listen"; then return; fi
    sleep 0.1
  done
  cat "$scratch/proxy.log" >&2
  echo "bench/proxies.sh: the proxy does not listen" >&2
  exit 2
}

in_background() {
  "${inside[@]}" "$@" > /dev/null 2>> "$scratch/proxy.log" < /dev/null &
  pids+=($!)
}

end_all() {
  local pid
  for pid in "${pids[@]}"; do
    kill -KILL "$pid" 2> /dev/null || true
    { wait "$pid" || true; } 2> /dev/null
  done
  pids=()
}

# --- the proxies ---------------------------------------------------------------------------------

# None has a time limit that a case could meet; whatever else they do by default, they do.

start_gate() { in_background "$lastbyte" gate --log none "$1=$2" "$3=$4"; }

start_haproxy() { haproxy_with "" "$@"; }
start_haproxy_splice() { haproxy_with "option splice-auto" "$@"; }

# A process has 20,000 descriptors here: a connection takes two, a pipe two.
haproxy_with() {
  cat > "$scratch/haproxy.cfg" << HAPROXY
global
  maxconn 9000
  maxpipes 500
defaults
  mode tcp
  $1
  timeout connect 5s
  timeout client 1h
  timeout server 1h
listen one
  bind $2
  server upstream $3
listen two
  bind $4
  server upstream $5
HAPROXY
  in_background haproxy -db -q -f "$scratch/haproxy.cfg"
}

start_nginx() { nginx_with "" "$@"; }
start_nginx_half_close() { nginx_with "proxy_half_close on;" "$@"; }

nginx_with() {
  cat > "$scratch/nginx.conf" << NGINX
load_module /usr/lib/nginx/modules/ngx_stream_module.so;
user root;
daemon off;
master_process off;
pid $scratch/nginx.pid;
worker_rlimit_nofile 20000;
events { worker_connections 9000; }
stream {
  proxy_connect_timeout 5s;
  proxy_timeout 1h;
  $1
  server { listen $2 backlog=4096; proxy_pass $3; }
  server { listen $4 backlog=4096; proxy_pass $5; }
}
NGINX
  in_background nginx -e /dev/null -c "$scratch/nginx.conf"
}

start_socat() {
  in_background socat -t 60 "TCP4-LISTEN:${1#*:},bind=${1%:*},fork,reuseaddr,backlog=4096" "TCP4:$2"
  in_background socat -t 60 "TCP4-LISTEN:${3#*:},bind=${3%:*},fork,reuseaddr,backlog=4096" "TCP4:$4"
}

start_rathole() {
  cat > "$scratch/server.toml" << SERVER
[server]
bind_addr = "$control"
default_token = "bench"
[server.services.one]
bind_addr = "$1"
[server.services.two]
bind_addr = "$3"
SERVER
  cat > "$scratch/client.toml" << CLIENT
[client]
remote_addr = "$control"
default_token = "bench"
[client.services.one]
local_addr = "$2"
[client.services.two]
local_addr = "$4"
CLIENT
  in_background "$rathole" --server "$scratch/server.toml"
  in_background "$rathole" --client "$scratch/client.toml"
}

# --- the table -----------------------------------------------------------------------------------

# A column for each proxy that has been tried, in text and between the marks of the document.
write_tables() {
  python3 - "$kept" docs/gate-torture.md "${proxies[@]}" > bench/results/torture.txt << 'PYTHON'
import json, os, sys

kept, document, *names = sys.argv[1:]
BEGIN, END = "<!-- torture -->", "<!-- /torture -->"


def rows_of(name):
    path = f"{kept}/{name}.jsonl"
    if not os.path.exists(path):
        return None
    with open(path) as file:
        return {row["case"]: row for row in map(json.loads, file)}


def cell(row):
    if row is None or row["of"] == 0:
        return "-"
    count = f"{row['good']}/{row['of']}"
    if row["good"] == row["of"]:
        return count
    faults = [fault for run in row["runs"] for fault in run["faults"]]
    whole = f", all bytes {row['whole']}" if "answer" in row["case"] and "early" in row["case"] else ""
    return f"{count}{whole}: {faults[0]}"


columns = {name: rows for name in names if (rows := rows_of(name)) is not None}
cases = list(dict.fromkeys(case for rows in columns.values() for case in rows))
table = [["case", *columns]]
for case in cases:
    table.append([case, *(cell(rows.get(case)) for rows in columns.values())])
good = lambda rows: sum(1 for r in rows.values() if r["of"] and r["good"] == r["of"])
played = lambda rows: sum(1 for r in rows.values() if r["of"])
table.append(["**as plain TCP**", *(f"{good(r)} of {played(r)}" for r in columns.values())])

widths = [max(len(line[at]) for line in table) for at in range(len(table[0]))]
for line in table:
    print("  ".join(text.ljust(width) for text, width in zip(line, widths)).replace("**", "").rstrip())
print("\nFigures and all kinds of outcomes:\n")
for name, rows in columns.items():
    for row in rows.values():
        if row["of"]:
            print(f"{name:17} {row['case']:34} {row['seen']}  {row['note']}".rstrip())

marked = [f"| {' | '.join(table[0])} |", "|" + "---|" * len(table[0])]
for line in table[1:]:
    cells = [f"**{text}**" if at and ": " in text else text for at, text in enumerate(line)]
    marked.append(f"| {' | '.join(cells)} |")
with open(document) as file:
    text = file.read()
before, after = text.split(BEGIN)[0], text.split(END)[1]
with open(document, "w") as file:
    file.write(before + BEGIN + "\n" + "\n".join(marked) + "\n" + END + after)
PYTHON
  cat bench/results/torture.txt
}

main "$@"
