#!/usr/bin/env bash
# Measures what the doctor costs those that it watches, and what it costs itself.
#
#   make bench-doctor          everything, about ten minutes on a machine that does nothing else
#   bench/doctor.sh PART...    parts: connects, bulk, own, memory, start, recording
#
# Needs root. It runs in namespaces of its own (mounts, network), so that nothing of it stays, also
# when it is killed. What it prints is kept in bench/results/doctor.txt, every sample in
# bench/results/doctor.jsonl.
#
# ROUNDS, MS (of a run of connects) and BYTES (of a run of bulk) change what their names say; LASTBYTE and
# GATE_LOAD name the binaries.
set -euo pipefail

cd "$(dirname "$0")/.."
export LASTBYTE=${LASTBYTE:-$PWD/target/release/lastbyte}
export GATE_LOAD=${GATE_LOAD:-$PWD/target/release/examples/gate_load}
export ROUNDS=${ROUNDS:-7} MS=${MS:-3000} BYTES=${BYTES:-8000000000}
export PYTHONDONTWRITEBYTECODE=1

main() {
  if [[ -z ${LASTBYTE_BENCH_INSIDE:-} ]]; then
    local parts
    parts=$(IFS=-; echo "$*")
    export SAMPLES=bench/results/doctor${parts:+-$parts}.jsonl
    # The kernel's trace points have the machine's numbers of processes.
    exec bench/isolated.py --result "bench/results/doctor${parts:+-$parts}.txt" --no-pid-namespace \
      --needs "$LASTBYTE" --needs "$GATE_LOAD" bench/doctor.sh "$@"
  fi
  mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
  sysctl -q -w net.ipv4.ip_local_port_range="10000 65535" net.ipv4.tcp_tw_reuse=1 \
    net.ipv4.tcp_max_tw_buckets=2000
  ulimit -n "$(ulimit -H -n)"
  echo "# What the doctor costs"
  echo "$(date -u '+%Y-%m-%d %H:%M UTC'); Linux $(uname -r), $(nproc) processors;" \
    "bench/doctor.sh $*; load $(cut -d ' ' -f 1-3 /proc/loadavg) at the beginning"
  python3 bench/doctor/measure.py "$@"
  echo "Load $(cut -d ' ' -f 1-3 /proc/loadavg) at the end"
}

main "$@"
