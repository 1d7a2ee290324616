#!/usr/bin/env bash
# Measures the congestion controls of the catalogue, beside the kernel's own and what was published of
# them, counted at the receiver. Tables go to bench/results/cc.txt, pages to target/reports (REPORTS
# names another directory); docs/measured/reports has one of them, as an example.
#
#   make bench-cc                    all parts, about 90 minutes, root
#   bench/cc.sh table alike          some of them
#
# Nothing of it is left loaded, however it ends: what the lab loads goes with its process.
set -euo pipefail

cd "$(dirname "$0")/.."
lastbyte=target/release/lastbyte
costs=target/release/examples/congestion_cost
results=bench/results/cc.txt
reports=${REPORTS:-target/reports}
parts=(table cdg alike delay response bbr share cost)

# Lasting what no algorithm is limited by: the reference case asked for 4 MB and got 8.
window=4MiB
# How many runs at once: each has a link of its own, and a run whose link was late does not count.
at_once=18

lab() {
  "$lastbyte" lab "$@" || true
  echo
}

# 1. The reference case: 17 algorithms, queues of 0.1, 1 and 4 bandwidth-delay products. Which queue the
# path of 2018 had was not published. Then with the loss that its figure for Reno tells of.
table() {
  sweep "queue 0.1bdp" --queue 0.1bdp
  sweep "queue 1bdp" --queue 1bdp --report "$reports/cc-usa-malaysia.html"
  sweep "queue 4bdp" --queue 4bdp
  sweep "loss 0.08%" --loss 0.08%
}

sweep() {
  echo "## usa-malaysia, $1"
  lab usa-malaysia "${@:2}" --congestion all --buffer "$window" --seconds 20 --rounds 3 \
    --parallel "$at_once" --no-latency --fairness never
}

# Its oddity: cdg made 0.891 Mbit/s with large buffers, 6.53 with the default ones.
cdg() {
  echo "## usa-malaysia, cdg by buffers"
  lab usa-malaysia --congestion cdg --buffer "auto,128KiB,$window" --seconds 20 --rounds 5 \
    --parallel "$at_once" --fairness never
}

# 2. The method: reno and cubic in BPF beside the kernel's own.
alike() {
  local scenario rounds
  for scenario in usa-malaysia bufferbloat wifi-lossy policed; do
    echo "## alike, $scenario"
    # Few losses decide a run there.
    if [[ $scenario == usa-malaysia ]]; then rounds=20; else rounds=5; fi
    lab "$scenario" --congestion reno,lb_reno,cubic,lb_cubic --buffer auto:16MiB --seconds 20 \
      --rounds "$rounds" --parallel 4 --fairness never --report "$reports/cc-alike-$scenario.html"
  done
}

# Those that look at delay hold the queue low.
delay() {
  echo "## bufferbloat, the queue"
  lab bufferbloat --congestion cubic,bbr,lb_bbr,vegas,nv,cdg,lp,yeah,illinois,veno,westwood,htcp \
    --buffer auto:16MiB --seconds 20 --rounds 3 --parallel 4 --fairness never
  echo "## a link that marks, dctcp beside cubic"
  lab --rtt 10ms --rate 100mbit --queue 1MB --set 'ecn=30kB' --congestion dctcp,cubic,reno \
    --buffer auto:16MiB --seconds 15 --rounds 3 --parallel 2 --fairness never
}

# The window that a loss rate allows, against what the papers say.
response() {
  local loss scratch points=()
  scratch=$(mktemp -d)
  for loss in 0.0003 0.001 0.003 0.01; do
    lab --rtt 50ms --rate 500mbit --loss "$(awk "BEGIN { print $loss * 100 }")%" --queue 4bdp \
      --buffer auto:32MiB --seconds 30 --rounds 3 --parallel 7 --fairness never --no-latency \
      --congestion reno,lb_reno,cubic,lb_cubic,bic,highspeed,htcp,hybla,illinois,scalable,vegas,veno,yeah \
      --save "$scratch/$loss.json" > "$scratch/$loss.txt"
    points+=("$loss=$scratch/$loss.json")
  done
  echo "## response to loss, RTT 50 ms, 500 Mbit/s, 3 rounds of 30 s"
  bench/response.py "${points[@]}"
  rm -r "$scratch"
}

# 3. lb_bbr and brutal beside the kernel's bbr and cubic. The rate of brutal is what the path can carry.
bbr() {
  beside usa-malaysia 88mbit
  beside longfat-1g 900mbit
  beside china-lossy 92mbit
  beside bufferbloat 18mbit
  beside policed 18mbit
}

beside() {
  local scenario=$1 rate=$2 at_once=4 buffer=auto:64MiB report=()
  if [[ $scenario == longfat-1g ]]; then at_once=1 buffer=auto:128MiB; fi
  if [[ $scenario == usa-malaysia ]]; then report=(--report "$reports/cc-bbr.html"); fi
  echo "## lb_bbr, brutal at $rate, $scenario"
  lab "$scenario" --congestion "lb_bbr,brutal=$rate,bbr,cubic" --buffer "$buffer" --seconds 30 \
    --rounds 5 --parallel "$at_once" --fairness never "${report[@]}"
}

# One flow beside one of cubic, queues of 1 and 4 BDP.
share() {
  local scratch
  scratch=$(mktemp -d)
  echo "## shares beside cubic, 40 ms, 50 Mbit/s"
  lab --rtt 40ms --rate 50mbit --congestion lb_bbr,bbr,cubic --buffer auto:16MiB --seconds 20 \
    --rounds 3 --parallel 6 --no-latency --fairness always --save "$scratch/share.json"
  bench/shares.py "$scratch/share.json"
  rm -r "$scratch"
}

# 4. CPU.
cost() {
  echo "## CPU for a gigabyte over loopback"
  "$costs"
}

main() {
  local part
  for part in "$@"; do
    [[ " ${parts[*]} " == *" $part "* ]] || {
      echo "usage: bench/cc.sh [$(IFS='|'; echo "${parts[*]}")]..." >&2
      exit 2
    }
  done
  mkdir -p "$reports" bench/results
  if [[ $# -gt 0 ]]; then
    for part in "$@"; do "$part"; done
    return
  fi
  for part in "${parts[@]}"; do "$part"; done | tee "$results"
}

main "$@"
