#!/usr/bin/env python3
"""How often `doctor --fail-on loss` passes a program that always loses bytes: it should be never.

    fail_on.py [--runs N] [--tiers A,B] [--busy] [--program FILE]

Each run has a network namespace of its own, and is one of tests/programs/bad.py: 1 MB written to a peer whose
greeting is never read, and closed. Tiers take turns. `--busy` keeps two computing processes for each processor beside
it. Exit codes of the doctor: 1 a loss was found, 2 a loss could not be ruled out, 0 a false pass. Ends with 1 if there
was one. Needs root and the binary LASTBYTE (target/release/lastbyte).
"""

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys

TREE = pathlib.Path(__file__).resolve().parents[2]
LASTBYTE = os.environ.get("LASTBYTE", str(TREE / "target/release/lastbyte"))
LIMIT_S = 60


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--tiers", default="bpf,tracefs,procfs")
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--program", default=str(TREE / "tests/programs/bad.py"))
    words = parser.parse_args()
    tiers = words.tiers.split(",")
    outcomes = {tier: collections.Counter() for tier in tiers}
    codes = {tier: collections.Counter() for tier in tiers}
    burners = start_burners() if words.busy else []
    try:
        for run in range(words.runs):
            for tier in tiers:
                code, found = watch(tier, words.program)
                outcomes[tier][code] += 1
                codes[tier].update([" ".join(found) or "none"])
            if (run + 1) % 20 == 0:
                print(f"{run + 1} of {words.runs}", file=sys.stderr, flush=True)
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    load = "busy" if words.busy else "idle"
    for tier in tiers:
        counts = ", ".join(f"exit {code} {n} times" for code, n in sorted(outcomes[tier].items()))
        named = ", ".join(f"{name} {n}" for name, n in codes[tier].most_common())
        print(json.dumps({"tier": tier, "load": load, "runs": words.runs, "exits": counts, "found": named}))
    return 1 if any(outcomes[tier][0] for tier in tiers) else 0


def watch(tier, program):
    doctor = [LASTBYTE, "doctor", "--tier", tier, "--fail-on", "loss", "--", "/usr/bin/python3", program]
    alone = ["unshare", "--net", "--", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *doctor]
    done = subprocess.run(alone, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    found = sorted(set(re.findall(r"^(LB\d+)  loss", done.stderr, re.M)))
    return done.returncode, found


def start_burners():
    """Ended with this program, however it ends."""
    count = 2 * (os.cpu_count() or 1)
    words = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-c", "while True: pass"]
    return [subprocess.Popen(words) for _ in range(count)]


if __name__ == "__main__":
    sys.exit(main())
