#!/usr/bin/env bash
# Measures TCP proxies side by side: the gate, HAProxy with splice and without, nginx stream, socat,
# rathole, and no proxy at all as the bound.
#
#   make bench-gate                everything, about half an hour on a machine that does nothing else
#   bench/gate.sh quick            everything with one short round; the document stays as it is
#   bench/gate.sh bulk             one part: bulk, connects, ping or memory
#   bench/gate.sh table            the table once more, of the samples of the last whole run
#
# Needs root and what `scripts/ensure.sh gate` installs. It runs in namespaces of its own (mounts,
# processes, network), so that nothing of it stays, also when it is killed. What it prints is kept in
# bench/results/gate.txt, every sample in bench/results/gate.jsonl, the table in the document.
#
# ROUNDS, PROXIES (names of bench/gate/proxies.py, with commas), BYTES (of a run of bulk), MS (of a run
# of connects or ping) and FLOWS (idle ones) change what their names say; LASTBYTE, GATE_LOAD and
# RATHOLE name the binaries, DOCUMENT the file for the table (DOCUMENT= is none).
set -euo pipefail

cd "$(dirname "$0")/.."
export LASTBYTE=${LASTBYTE:-$PWD/target/release/lastbyte}
export GATE_LOAD=${GATE_LOAD:-$PWD/target/release/examples/gate_load}
export RATHOLE=${RATHOLE:-$PWD/target/peers/bin/rathole}
export PYTHONDONTWRITEBYTECODE=1
PATH=$PATH:/usr/sbin # where haproxy and nginx lie
parts=(bulk connects ping memory)

main() {
  local part=${1:-all}
  if [[ $part != all && $part != quick && $part != table && " ${parts[*]} " != *" $part "* ]]; then
    echo "bench/gate.sh: say quick, table, or one of ${parts[*]}, or nothing for all" >&2
    exit 2
  fi
  samples=bench/results/gate${1:+-$1}.jsonl
  if [[ $part == table ]]; then
    python3 bench/gate/table.py bench/results/gate.jsonl
    return
  fi
  if [[ -z ${LASTBYTE_BENCH_INSIDE:-} ]]; then
    exec bench/isolated.py --result "bench/results/gate${1:+-$1}.txt" --needs "$GATE_LOAD" --needs "$RATHOLE" \
      --needs haproxy --needs nginx --needs socat bench/gate.sh "$@"
  fi
  how_many "$part"
  ulimit -n "$(ulimit -H -n)"
  about_this_machine "$@"
  if [[ $part != all && $part != quick ]]; then parts=("$part"); fi
  python3 bench/gate/measure.py "${parts[@]}" > "$samples"
  echo
  python3 bench/gate/table.py "$samples" ${DOCUMENT:+"$DOCUMENT"}
  echo
  echo "Each run as it was taken: $samples; load $(cut -d ' ' -f 1-3 /proc/loadavg) at the end"
}

how_many() {
  export ROUNDS=${ROUNDS:-5} BYTES=${BYTES:-8000000000} MS=${MS:-3000} FLOWS=${FLOWS:-4000}
  local document=docs/measured/gate.md
  if [[ $1 != all ]]; then document=; fi
  DOCUMENT=${DOCUMENT-$document}
  if [[ $1 == quick ]]; then
    export ROUNDS=1 BYTES=2000000000 MS=1000 FLOWS=1000
    DOCUMENT=
  fi
}

about_this_machine() {
  echo "# TCP proxies side by side"
  echo "$(date -u '+%Y-%m-%d %H:%M UTC'); Linux $(uname -r), $(nproc) processors;" \
    "bench/gate.sh $*; load $(cut -d ' ' -f 1-3 /proc/loadavg) at the beginning"
  PYTHONPATH=bench/gate python3 -c 'import proxies; print(proxies.versions())'
  cat << WORDS
All over loopback in one machine: client, proxy and upstream share its processors, and nothing is
pinned. In $ROUNDS rounds all proxies have their turn in each test, each time fresh, in a
network of its own whose congestion control is cubic. GB are 10^9 bytes, KB 1000. Throughput:
$((BYTES / 1000000)) MB to the client, by its own count and time; it discards them without a copy, so that it
costs little. Processor time is the proxy's, user and system, of all its processes. Connections: connect,
one byte each way, close, the client first, for $MS ms, with ports in plenty; without end: for twice as
long, with the kernel's own range of ports and its second until one may be used again. Round trips: 64 bytes there and back,
what is above those without a proxy in the same round. Memory: what the proxy's processes have grown
(Pss), $FLOWS flows later (200 for socat, which has a process for each), 3 s after the last byte.
WORDS
}

main "$@"
