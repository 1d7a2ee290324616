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
  if [[ -z ${BENCH_DOCTOR_WORLD:-} ]]; then
    enter_a_world "$@"
    return
  fi
  trap 'exit 130' INT TERM
  mount -t tmpfs tmpfs /run
  mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
  ip link set lo up
  sysctl -q -w net.ipv4.ip_local_port_range="10000 65535" net.ipv4.tcp_tw_reuse=1 \
    net.ipv4.tcp_max_tw_buckets=2000
  ulimit -n "$(ulimit -H -n)"
  echo "# What the doctor costs"
  echo "$(date -u '+%Y-%m-%d %H:%M UTC'); Linux $(uname -r), $(nproc) processors;" \
    "bench/doctor.sh $*; load $(cut -d ' ' -f 1-3 /proc/loadavg) at the beginning"
  python3 bench/doctor/measure.py "$@"
  echo "Load $(cut -d ' ' -f 1-3 /proc/loadavg) at the end"
}

enter_a_world() {
  if [[ $(id -u) != 0 ]]; then
    echo "bench/doctor.sh: needs root" >&2
    exit 2
  fi
  for program in "$LASTBYTE" "$GATE_LOAD" python3 ip; do
    if ! command -v "$program" > /dev/null; then
      echo "bench/doctor.sh: needs $program: 'make bench-doctor' builds all" >&2
      exit 2
    fi
  done
  local parts
  parts=$(IFS=-; echo "$*")
  mkdir -p bench/results
  export SAMPLES=bench/results/doctor${parts:+-$parts}.jsonl
  # Not in a PID namespace: the kernel's trace points have the machine's numbers.
  BENCH_DOCTOR_WORLD=new setpriv --pdeathsig KILL unshare --mount --propagation private --net \
    --fork --kill-child -- "$BASH" bench/doctor.sh "$@" 2>&1 |
    tee "bench/results/doctor${parts:+-$parts}.txt"
}

main "$@"
