#!/usr/bin/env bash
# Measures the lab against the reference case and against iperf3, interleaved, on this machine.
#
#   make bench-lab                 everything, about an hour
#   bench/lab.sh truth             one part: reference, buffers, truth, last-byte, limits, tables, claims or cost
#
# Needs root (for the links) and iperf3; xfr is measured too where it is in the PATH or in XFR. What
# it prints is kept in bench/results/lab.txt.
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

# One experiment, all subjects in turn over the same links, all counted in the same way: at the far
# host's kernel, our own sender by its receiver as well.
truth() {
  local xfr=${XFR:-xfr} subjects=() path
  for path in "usa-malaysia bbr" "--rtt=40ms --rate=50mbit cubic"; do
    local congestion=${path##* } where=${path% *}
    subjects=(--subject "iperf3 -c far -4 -t $seconds -C $congestion" --far "iperf3 -s -1")
    if command -v "$xfr" > /dev/null; then
      subjects+=(--subject "$xfr far -4 -q --no-tui --no-update-check -t $seconds --congestion $congestion"
        --far "$xfr serve --one-off --no-mdns")
    fi
    echo "# ${where}, $congestion, $seconds s: the lab's own sender, iperf3 and xfr"
    # iperf3 leaves bytes behind: that is what the verdict says.
    # shellcheck disable=SC2086
    "$lastbyte" lab $where --congestion "$congestion" --seconds "$seconds" --rounds 5 --fairness never \
      "${subjects[@]}" || true
    echo
  done
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

# What a made-up bottleneck is called, for each congestion control: the ignored tests print the table.
limits() {
  echo "# six bottlenecks and more: what held the sender back"
  cargo test --release --locked -q -p lastbyte-lab --test all -- limits:: --ignored --nocapture --test-threads=1
}

# The tables that the ignored tests print: round trips under load, shares, what probing costs, how often
# the rule for settling claims what is not so.
tables() {
  LASTBYTE_TABLES=1 cargo test --release --locked -q -p lastbyte-lab --test all \
    -- latency:: fairness:: --ignored --nocapture --test-threads=1
  LASTBYTE_TABLES=1 cargo test --release --locked -q -p lastbyte-stats the_table_of_rates \
    -- --ignored --nocapture
}

# Whether a line of a compared pair says that they differ: `worse` is told for one of two subjects.
differs() {
  "$lastbyte" lab --rtt 20ms --rate 50mbit --loss 0.02% --congestion cubic --seconds 2 --no-latency \
    --fairness never --seed "$1" --pacing "$2" --rounds 5..10 --json 2> /dev/null |
    grep -c '"type":"summary".*"place":"worse"' || true
}

# Before and after by two experiments, the second over a path of this rate.
compares() {
  local scratch
  scratch=$(mktemp -d)
  local rate
  for rate in 20mbit "$2"; do
    "$lastbyte" lab --rtt 20ms --rate "$rate" --loss 0.02% --congestion cubic --seconds 2 --no-latency \
      --fairness never --seed "$1" --rounds 5 --parallel 1 --save "$scratch/$rate.$RANDOM.json" > /dev/null 2>&1 || true
    sleep 0.1
  done
  # shellcheck disable=SC2012
  mapfile -t files < <(ls -tr "$scratch"/*.json)
  "$lastbyte" lab compare "${files[0]}" "${files[1]}" --json 2> /dev/null |
    grep '"measure":"received_bits_per_s"' | grep -vc '"verdict":"noise"' || true
  rm -rf "$scratch"
}

# Of 20 experiments, how often a difference was claimed; three at a time.
claims() {
  export lastbyte
  export -f differs compares
  count() { seq 1 20 | xargs -P 3 -I{} bash -c "$1" | awk '{ if ($1 > 0) n++ } END { print n + 0 }'; }
  echo "# claims in 20 experiments of 5 to 10 rounds of 2 s, cubic over 20 ms with 0.02 % loss"
  echo "within one experiment, the same subject twice (20 Mbit/s): $(count 'differs {} 20mbit,20mbit')"
  echo "within one experiment, the second 10 % faster (20 and 22 Mbit/s): $(count 'differs {} 20mbit,22mbit')"
  echo "lab compare, the same path twice (20 Mbit/s): $(count 'compares {} 20.0mbit')"
  echo "lab compare, a path with 10 % more rate (20 and 22 Mbit/s): $(count 'compares {} 22mbit')"
}

# What round-trip probes cost the load.
cost() {
  echo "# 20 Mbit/s, with probes and without"
  local round
  for ((round = 1; round <= 5; round++)); do
    for probes in "" --no-latency; do
      # shellcheck disable=SC2086
      "$lastbyte" lab --rtt 30ms --rate 20mbit --congestion cubic --seconds 10 --rounds 1 --seed "$round" \
        --fairness never --json $probes |
        sed -n "s/.*\"type\":\"summary\".*\"median_bits_per_s\":\([0-9]*\).*/${probes:-with probes} \1/p"
    done
  done
}

main() {
  case ${1:-all} in
    reference | buffers | truth | limits | tables | claims | cost) "$1" ;;
    last-byte) last_byte ;;
    all)
      reference; echo
      buffers; echo
      truth; echo
      last_byte; echo
      limits; echo
      tables; echo
      claims; echo
      cost
      ;;
    *)
      echo "bench/lab.sh: say reference, buffers, truth, last-byte, limits, tables, claims, cost or nothing for all" >&2
      exit 2
      ;;
  esac
}

mkdir -p bench/results
main "$@" 2>&1 | tee "bench/results/lab${1:+-$1}.txt"
