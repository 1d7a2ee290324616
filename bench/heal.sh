#!/usr/bin/env bash
# Measures uploads by a program that has fixed its send buffer, before and after `lastbyte heal
# --unlock-buffers`: 33 emulated paths, each beside a control that nobody heals.
#
#   make bench-heal                everything, about 25 minutes on a machine that does nothing else
#   bench/heal.sh quick            5 paths, one round, about 2 minutes
#   bench/heal.sh table            the table, the plot and the document once more, of the last whole run
#
# Needs root. It runs in namespaces of its own (mounts, processes, network), so that nothing of it stays,
# also when it is killed. What it prints is kept in bench/results/heal.txt, every run in
# bench/results/heal.jsonl; the plot is docs/measured/heal.svg, and docs/measured/heal.md has the summary.
# What was asked otherwise than a whole run goes to files of another name, and leaves the document alone.
#
# PATHS, ROUNDS, SEED (of the draw), SNDBUF (bytes the program asks for), CONGESTION (of the program: cubic,
# bbr), WRITER (polled, blocking: see bench/heal/ends.py) and WINDOW_S change what their names say; LASTBYTE
# names the binary.
set -euo pipefail

cd "$(dirname "$0")/.."
export LASTBYTE=${LASTBYTE:-$PWD/target/release/lastbyte}
export PYTHONDONTWRITEBYTECODE=1

main() {
  local part=${1:-all}
  if [[ $# -gt 1 || ($part != all && $part != quick && $part != table) ]]; then
    echo "bench/heal.sh: say quick or table, or nothing for all" >&2
    exit 2
  fi
  how_many "$part"
  if [[ $part == table ]]; then
    python3 bench/heal/table.py bench/results/heal.jsonl docs/measured/heal.svg docs/measured/heal.md
    return
  fi
  if [[ -z ${LASTBYTE_BENCH_INSIDE:-} ]]; then
    # Ahead of what else the machine does: a link that is late makes its run void.
    # In a PID namespace heal looks at our connections alone, and finds them as it does elsewhere.
    exec bench/isolated.py --result "bench/results/$name.txt" --stdout-only --nice -10 --needs "$LASTBYTE" \
      bench/heal.sh "$@"
  fi
  about_this_machine "$@"
  python3 bench/heal/measure.py > "$samples"
  echo
  if [[ $name == heal ]]; then
    python3 bench/heal/table.py "$samples" docs/measured/heal.svg docs/measured/heal.md
  else
    python3 bench/heal/table.py "$samples" "bench/results/$name.svg"
  fi
  echo
  echo "Each run as it was taken: $samples; load $(cut -d ' ' -f 1-3 /proc/loadavg) at the end," \
    "$((SECONDS / 60)) minutes later"
}

# Only what was measured whole, and as the document says, may replace what it has.
how_many() {
  if [[ $1 == quick ]]; then PATHS=${PATHS:-5} ROUNDS=${ROUNDS:-1}; fi
  export PATHS=${PATHS:-33} ROUNDS=${ROUNDS:-2} SEED=${SEED:-1} SNDBUF=${SNDBUF:-65536}
  export CONGESTION=${CONGESTION:-cubic} WRITER=${WRITER:-polled} WINDOW_S=${WINDOW_S:-3}
  name=heal
  if [[ $CONGESTION != cubic ]]; then name+=-$CONGESTION; fi
  if [[ $WRITER != polled ]]; then name+=-$WRITER; fi
  if [[ $SEED != 1 ]]; then name+=-seed$SEED; fi
  if [[ $SNDBUF != 65536 ]]; then name+=-$SNDBUF; fi
  if ((PATHS < 33 || ROUNDS < 2)) || [[ $WINDOW_S != 3 ]]; then name+=-quick; fi
  samples=bench/results/$name.jsonl
}

about_this_machine() {
  echo "# Uploads before and after lastbyte heal --unlock-buffers"
  echo "$(date -u '+%Y-%m-%d %H:%M UTC'); Linux $(uname -r), $(nproc) processors;" \
    "bench/heal.sh $*; load $(cut -d ' ' -f 1-3 /proc/loadavg) at the beginning"
  cat << WORDS
A program ($WRITER writes) sets SO_SNDBUF $SNDBUF and $CONGESTION and uploads without end; tcp_wmem is
$(tr '\t' ' ' < /proc/sys/net/ipv4/tcp_wmem). Seed of the draw: $SEED; paths: $PATHS; rounds: $ROUNDS, one run at a
time. A run: $WINDOW_S s counted, healed while it writes, a pause of 2 s and 15 round trips, $WINDOW_S s counted;
its control, next to it in turn, is the same without being healed. Bytes are counted where they arrive.
"beside": healed / control, both after. Mbit/s are medians of the rounds.

WORDS
}

main "$@"
