#!/usr/bin/env bash
# What scripts/kernels.sh has another kernel do, as its first process: makes a machine of the files that
# it was given, runs the checks of FOLDER/told/checks, writes down there how each ended, and goes.
set -uo pipefail

main() {
  out=$1
  # shellcheck source=/dev/null
  . "$out/told/settings"
  cd /
  make_machine
  run_checks
  sync
  echo o > /proc/sysrq-trigger
  sleep 60
}

make_machine() {
  mount -t proc proc /proc
  mount -t sysfs sysfs /sys
  mount -t devtmpfs devtmpfs /dev
  mkdir -p /dev/pts /dev/shm
  mount -t devpts devpts /dev/pts
  mount -t tmpfs tmpfs /dev/shm
  mount -t tmpfs tmpfs /run
  mount -t tracefs tracefs /sys/kernel/tracing
  mount -t bpf bpf /sys/fs/bpf
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
  ln -s /proc/self/fd /dev/fd
  ln -s /proc/self/fd/0 /dev/stdin
  ln -s /proc/self/fd/1 /dev/stdout
  ln -s /proc/self/fd/2 /dev/stderr
  mkdir -p /lib/modules
  ln -sfn "$out/modules/lib/modules/$(uname -r)" "/lib/modules/$(uname -r)"
  ip link set lo up
  for module in tcp_diag udp_diag unix_diag veth tun tcp_bbr sch_fq; do modprobe "$module"; done
}

run_checks() {
  local name seconds command code begin outcome=passed
  while read -r name seconds command; do
    begin=$SECONDS
    # In a session of its own: children of the first process are hung up on with whoever is stopped.
    # shellcheck disable=SC2016 # they are that shell's
    setsid -w bash -c 'timeout -k 5 "$0" bash -c "$1"; exit $?' "$seconds" "$command" \
      > "$out/told/$name" 2>&1 < /dev/null
    code=$?
    echo "$name: $code after $((SECONDS - begin)) s; NOT TESTED: $(grep -c -e "NOT TESTED" -e "left out:" "$out/told/$name")" >> "$out/told/summary"
    if [[ $code != 0 ]]; then outcome="failed: $name"; fi
  done < "$out/told/checks"
  dmesg | grep -E 'BUG:|WARNING:|Oops|Call Trace' | head -20 > "$out/told/kernel-complaints"
  echo "$outcome" > "$out/told/outcome"
}

main "$@"
