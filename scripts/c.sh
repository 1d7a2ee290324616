#!/usr/bin/env bash
# Searches all C of the tree, BPF too, for faults: with clang's static analyser and with cppcheck. Whatever one of
# them finds is a failure. What cppcheck does not know of BPF is in scripts/c-suppressions.txt, with the reason.
set -euo pipefail

cd "$(dirname "$0")/.."

# Wants an algorithm to walk with.
walk=crates/congestion/tests/native/walk.c

main() {
  local sources programs
  mapfile -t sources < <(git ls-files '*.c' ':!*.bpf.c' ":!$walk")
  mapfile -t programs < <(git ls-files '*.bpf.c')
  local ours=(-I crates/capi/include -I clinic/c -I crates/congestion/bpf)
  local source failed=0
  for source in "${sources[@]}"; do
    analyse -D_GNU_SOURCE "${ours[@]}" "$source" || failed=1
  done
  analyse -w -D'ALGORITHM="reno.bpf.c"' -DTABLE=lb_reno -DBOUNDED=1 "${ours[@]}" "$walk" || failed=1
  # As crates/bpf/src/compile.rs compiles them.
  for source in "${programs[@]}"; do
    analyse -target bpf -mcpu=v3 -O2 -g "$source" || failed=1
  done
  local check=(cppcheck --quiet "--enable=warning,performance,portability" --error-exitcode=1)
  "${check[@]}" --std=c11 "${ours[@]}" "${sources[@]}" || failed=1
  "${check[@]}" --suppressions-list=scripts/c-suppressions.txt "${programs[@]}" || failed=1
  echo "c.sh: ${#sources[@]} sources and ${#programs[@]} of BPF, by $(clang --version | head -1) and $(cppcheck --version)"
  return "$failed"
}

# clang prints what it finds and ends with 0.
analyse() {
  local found
  found=$(clang --analyze -Xclang -analyzer-output=text "$@" -o /dev/null 2>&1) || { echo "$found"; return 1; }
  if [[ -n $found ]]; then
    echo "$found"
    return 1
  fi
}

main
