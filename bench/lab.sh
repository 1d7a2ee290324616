#!/usr/bin/env bash
# Measures the lab against the reference case and against iperf3, interleaved, on this machine.
#
#   make bench-lab                 everything, about 15 minutes
#   bench/lab.sh reference         one part: reference, buffers, iperf3 or last-byte
#
# Needs root (for the links) and iperf3. What it prints is kept in bench/results/lab.txt.
set -euo pipefail

cd "$(dirname "$0")/.."
lastbyte=target/release/lastbyte
seconds=${SECONDS_PER_RUN:-20}
rounds=${ROUNDS:-3}
runs=${LAST_BYTE_RUNS:-100}

# The link's own words go to stderr; they are shown only where a promise was broken.
over_link() { "$lastbyte" link run --quiet "$@"; }

reference() {
  echo "# usa-malaysia, the kernel's congestion controls, buffers sized by the kernel"
  "$lastbyte" lab usa-malaysia --seconds "$seconds" --rounds "$rounds"
}

buffers() {
  echo "# usa-malaysia, bbr, four buffer settings"
  "$lastbyte" lab usa-malaysia --congestion bbr --buffer auto,auto:8MiB,4MiB,128KiB \
    --seconds "$seconds" --rounds "$rounds"
}

# The rate in bit/s of a lab run, from its summary line.
lab_rate() {
  "$lastbyte" lab usa-malaysia --congestion bbr --seconds "$seconds" --rounds 1 --seed "$1" --json |
    sed -n 's/.*"type":"summary".*"median_bits_per_s":\([0-9]*\).*/\1/p'
}

# The receiver's rate in bit/s, as the iperf3 server said it.
iperf3_rate() {
  over_link usa-malaysia --seed "$1" --far "iperf3 -s -1" -- \
    iperf3 -c far -4 -C bbr -t "$seconds" -f k |
    awk '/receiver/ { printf "%d\n", $7 * 1000 }'
}

median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

against_iperf3() {
  echo "# usa-malaysia, bbr, $seconds s: the receiver's figure of iperf3 and of the lab, in turn"
  local round ours=() theirs=() o t
  for ((round = 1; round <= rounds; round++)); do
    o=$(lab_rate "$round")
    t=$(iperf3_rate "$round")
    ours+=("$o")
    theirs+=("$t")
    awk -v r="$round" -v o="$o" -v t="$t" \
      'BEGIN { printf "round %d: lab %.1f Mbit/s, iperf3 %.1f Mbit/s\n", r, o / 1e6, t / 1e6 }'
  done
  o=$(printf '%s\n' "${ours[@]}" | median)
  t=$(printf '%s\n' "${theirs[@]}" | median)
  awk -v o="$o" -v t="$t" 'BEGIN {
    printf "medians: lab %.1f, iperf3 %.1f Mbit/s; iperf3 / lab = %.3f\n", o / 1e6, t / 1e6, t / o }'
}

last_byte() {
  echo "# 4 MiB over 100 ms RTT, cubic: $runs runs of the lab, 10 of iperf3 -n 4M"
  "$lastbyte" lab --rtt 100ms --congestion cubic --bytes 4M --rounds "$runs" || true
  local run
  for ((run = 1; run <= 10; run++)); do
    over_link --rtt 100ms --seed "$run" --far "iperf3 -s -1" -- \
      iperf3 -c far -4 -C cubic -n 4M -J |
      awk -F '[:,]' '/"sum_sent"/ { side = "sent" } /"sum_received"/ { side = "received" }
        /"bytes"/ && side { bytes[side] = $2 }
        END { printf "iperf3 -n 4M:%s bytes sent,%s received\n", bytes["sent"], bytes["received"] }'
  done
}

main() {
  case ${1:-all} in
    reference) reference ;;
    buffers) buffers ;;
    iperf3) against_iperf3 ;;
    last-byte) last_byte ;;
    all)
      reference; echo
      buffers; echo
      against_iperf3; echo
      last_byte
      ;;
    *)
      echo "bench/lab.sh: say reference, buffers, iperf3, last-byte or nothing for all" >&2
      exit 2
      ;;
  esac
}

mkdir -p bench/results
main "$@" 2>&1 | tee "bench/results/lab${1:+-$1}.txt"
