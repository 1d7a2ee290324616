#!/usr/bin/env python3
"""Measures what an emulated link is judged by: how fast it is, how true, and what it leaves behind.

  make bench-link                        everything, about 35 minutes on a machine that does nothing else
  bench/link/measure.py throughput       one part: throughput, packets, limits, rattan, left-behind, many
                                         or programs

Needs root, iperf3 and tmux. It runs in namespaces of its own (mounts, processes, network), so that all it finds there
is its own, and nothing of it stays. What it prints is kept in bench/results/link.txt.

ROUNDS, SECONDS_PER_RUN (at least 4), RUNS, LINKS and SEED change what their names say; LASTBYTE and RATTAN name the
binaries.
"""

import os
import subprocess
import sys

import bed
import isolated
import left_behind
import many
import programs
import rattan
import tcp

PARTS = {
    "throughput": tcp.throughput,
    "packets": tcp.packets,
    "limits": tcp.limits,
    "rattan": rattan.measure,
    "left-behind": left_behind.measure,
    "many": many.measure,
    "programs": programs.measure,
}
# Says which part a process of its own measures.
PART = "BENCH_LINK_PART"


def main():
    asked = sys.argv[1:]
    if len(asked) > 1 or not set(asked) <= {*PARTS, "all"}:
        return isolated.refuse(f"bench/link/measure.py: say one of {' '.join(PARTS)}, or nothing for all")
    if PART in os.environ:
        return measure(os.environ[PART])
    again = [sys.executable, __file__, *asked]
    if not isolated.is_inside():
        result = bed.ROOT / "bench/results" / ("-".join(["link", *asked]) + ".txt")
        return isolated.run(again, result, needs=[bed.LASTBYTE, "iperf3", "tmux"])
    # A process for each part: one that fails does not stop the others.
    for part in PARTS if asked in ([], ["all"]) else asked:
        if subprocess.run(again, env=os.environ | {PART: part}, check=False).returncode != 0:
            print(f"{part}: FAILED, see above")
        print()
    return 0


def measure(part):
    try:
        PARTS[part]()
    except bed.Failed as why:
        print(f"bench/link: {why}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
