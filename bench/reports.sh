#!/usr/bin/env bash
# Measures the kernel's congestion controls with three buffer settings over five scenarios, and
# writes one page for each to target/reports (REPORTS names another directory), and the tables to
# bench/results/reports.txt. The page of bufferbloat is kept in docs/measured/reports, as an example.
#
#   make reports                     all five, about 30 minutes, root
#   bench/reports.sh policed         one of them
#
# A run of the fast scenario is shorter: its runs go one after the other.
set -euo pipefail

cd "$(dirname "$0")/.."
lastbyte=target/release/lastbyte
results=bench/results/reports.txt
reports=${REPORTS:-target/reports}
scenarios=(usa-malaysia transatlantic-1g bufferbloat wifi-lossy policed)

report() {
  local scenario=$1 seconds=20 rounds=5..8
  if [[ $scenario == transatlantic-1g ]]; then
    seconds=10
    rounds=5
  fi
  echo "## $scenario"
  "$lastbyte" lab "$scenario" --congestion reno,bbr,cubic --buffer auto,128KiB,4MiB \
    --seconds "$seconds" --rounds "$rounds" --report "$reports/$scenario.html" || true
  echo
}

main() {
  mkdir -p "$reports"
  if [[ $# -gt 0 ]]; then
    for scenario in "$@"; do report "$scenario"; done
    return
  fi
  for scenario in "${scenarios[@]}"; do report "$scenario"; done | tee "$results"
}

main "$@"
