#!/usr/bin/env bash
# Measures dials: how long each of several programs takes to be connected where something is wrong,
# what they do then, and what dials cost.
#
#   make bench-dial                everything, about 20 minutes on a machine that does nothing else
#   bench/dial.sh quick            everything with one round; docs/measured/dial.md stays as it is
#   bench/dial.sh table            one part: table, features, cost or shares
#
# Needs root, python3, curl, go and node. It runs in namespaces of its own (mounts, processes,
# network), with files of its own in /etc there, so that nothing of it stays, also when it is killed.
# What it prints is kept in bench/results/dial.txt, and its tables in docs/measured/dial.md.
#
# ROUNDS, ROWS (names of bench/dial/names.py, with commas), DIALS and AT_ONCE (of the cost) change what
# their names say; LASTBYTE and DIAL_BENCH name the binaries, DOCUMENT the file for the tables
# (DOCUMENT= is none).
set -euo pipefail

cd "$(dirname "$0")/.."
export LASTBYTE=${LASTBYTE:-$PWD/target/release/lastbyte}
export DIAL_BENCH=${DIAL_BENCH:-$PWD/target/release/examples/dial_bench}
export GO_PEER=$PWD/target/dial-peer
parts=(table features cost shares)

main() {
  local part=${1:-all} each
  if [[ $part != all && $part != quick && " ${parts[*]} " != *" $part "* ]]; then
    echo "bench/dial.sh: say quick, or one of ${parts[*]}, or nothing for all" >&2
    exit 2
  fi
  if [[ -z ${LASTBYTE_BENCH_INSIDE:-} ]]; then
    exec bench/isolated.py --result "bench/results/dial${1:+-$1}.txt" --needs "$LASTBYTE" --needs "$DIAL_BENCH" \
      --needs curl --needs go --needs node bench/dial.sh "$@"
  fi
  how_many "$part"
  # Without cgo, Go resolves names itself.
  CGO_ENABLED=0 GO111MODULE=off go build -o "$GO_PEER" bench/dial/peer.go
  settle_in
  about_this_machine "$@"
  if [[ $part != all && $part != quick ]]; then parts=("$part"); fi
  for each in "${parts[@]}"; do
    echo
    "say_of_$each"
    echo
    in_bed "$each"
  done
}

how_many() {
  export ROUNDS=${ROUNDS:-5} DOCUMENT=${DOCUMENT-docs/measured/dial.md}
  if [[ $1 == quick ]]; then ROUNDS=1 DOCUMENT=; fi
}

# Names are resolved as the files say that are put into /etc here.
settle_in() {
  cp -a /etc /run/etc
  rm -f /run/etc/{resolv.conf,hosts,gai.conf,nsswitch.conf}
  echo "nameserver $(name_of DNS)" > /run/etc/resolv.conf
  printf '127.0.0.1 localhost\n::1 localhost\n' > /run/etc/hosts
  echo 'hosts: files dns' > /run/etc/nsswitch.conf
  mount --bind /run/etc /etc
  export BED_LOG=/run/bed.log
  allow_many_connections
}

# One that is closed is forgotten at once: none of 10,000 has to pass over those of the runs before.
allow_many_connections() {
  ulimit -n "$(ulimit -H -n)"
  echo 1024 65535 > /proc/sys/net/ipv4/ip_local_port_range
  echo 65535 > /proc/sys/net/core/somaxconn
  echo 65535 > /proc/sys/net/ipv4/tcp_max_syn_backlog
  echo 0 > /proc/sys/net/ipv4/tcp_max_tw_buckets
}

# A new bed for each part, so that the links' own words about themselves are about that part.
in_bed() {
  make_bed
  python3 bench/dial/measure.py check
  echo
  python3 bench/dial/measure.py "$1"
  echo
  "$LASTBYTE" link down bed
}

make_bed() {
  "$LASTBYTE" link up bed bench/dial/network.toml > /dev/null
  on client allow_many_connections
  on server allow_many_connections
  on client furnish_client
  on server furnish_server
  : > "$BED_LOG"
  local said=''
  exec {served}< <(exec "$LASTBYTE" link exec bed server -- python3 bench/dial/bed.py "$BED_LOG")
  read -r -u "$served" said || true
  if [[ $said != ready ]]; then
    echo "bench/dial.sh: the bed did not come up" >&2
    exit 2
  fi
}

# Runs a function of this script on a host of the bed.
on() {
  "$LASTBYTE" link exec bed "$1" -- "$BASH" -euc "$(declare -f "$2" name_of); $2"
}

# A value of bench/dial/names.py; the words of a list in one line.
name_of() {
  PYTHONPATH=bench/dial python3 -c 'import sys, names
value = getattr(names, sys.argv[1])
print(value if isinstance(value, str) else " ".join(value))' "$1"
}

furnish_client() {
  ip addr add "$(name_of CLIENT4)/32" dev path0
  ip addr add "$(name_of CLIENT6)/128" dev path0 nodad
  ip addr add "$(name_of CLIENT6_SLOW)/128" dev path1 nodad
  ip route add "$(name_of NET4)" dev path0 src "$(name_of CLIENT4)"
  ip route add "$(name_of NET6)" dev path0 src "$(name_of CLIENT6)"
  ip route add "$(name_of NET6_SLOW)" dev path1 src "$(name_of CLIENT6_SLOW)"
}

# What has no address here is thrown away without a word.
furnish_server() {
  local each
  for each in $(name_of LIVE4) $(name_of DNS); do ip addr add "$each/32" dev lo; done
  for each in $(name_of LIVE6) $(name_of REFUSING6) $(name_of SLOW6); do
    ip addr add "$each/128" dev lo nodad
  done
  for each in NET4 NET6 NET6_SLOW; do ip route add blackhole "$(name_of "$each")"; done
  ip route add "$(name_of CLIENT4)" dev path0
  ip route add "$(name_of CLIENT6)" dev path0
  ip route add "$(name_of CLIENT6_SLOW)" dev path1
}

about_this_machine() {
  echo "# Dials"
  echo "$(date -u '+%Y-%m-%d %H:%M UTC'); Linux $(uname -r), $(nproc) processors;" \
    "bench/dial.sh $*; load $(cut -d ' ' -f 1-3 /proc/loadavg) at the beginning"
  echo "$("$LASTBYTE" --version); $(curl --version | head -1 | cut -d ' ' -f 1-2);" \
    "$(python3 --version); $(go env GOVERSION), its own resolver (CGO_ENABLED=0);" \
    "Node $(node --version)"
}

say_of_table() {
  cat << 'WORDS'
## Time to connected

Two hosts, 20 ms apart, and a DNS server on the far one. Each client measures itself, from its call to
the connection; it has 20 s, and a process of its own, but for the later dials of lastbyte, which follow
the first in its process. In each round all clients have their turn in each row. Median (least to most);
in a row whoever took 10 s, or 2 s twice, is not asked again. Possible: by our delays, given how many
dead addresses the dial had to try. Met: the first dial at most the larger of 3 ms and 5 % above that,
later ones 3 ms above a round trip, no peer ahead by more than 3 ms, and none connected where we did not.
WORDS
}

say_of_features() {
  cat << 'WORDS'
## Which client does what

The cases of "Lazy Eye Inspection" (2024), as the far host saw them: when questions and first segments
came.
WORDS
}

say_of_cost() {
  cat << 'WORDS'
## What dials cost

To a server on loopback that takes all; each wave's connections stay until all are there. CPU is the
client process's, less what it takes to start and dial nothing. One processor for the client and one for
the server, but for Go as it comes, which has all.
WORDS
}

say_of_shares() {
  echo "## Who gets the load"
}

main "$@"
