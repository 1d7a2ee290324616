#!/usr/bin/env python3
"""Prints what each congestion control took beside a flow of cubic: bench/shares.py FILE, of `lab --save`."""

import json
import statistics
import sys


def main():
    names, shares = [], {}
    with open(sys.argv[1], encoding="utf-8") as lines:
        for line in lines:
            one = json.loads(line)
            if one.get("type") == "plan":
                names = [subject.get("own", {}).get("congestion", "?") for subject in one["subjects"]]
            if one.get("type") == "beside":
                own, cubic = one["subject_bits_per_s"], one["cubic_bits_per_s"]
                place = (one["subject"], one["queue_bdp"])
                shares.setdefault(place, []).append(100 * own / (own + cubic))
    for (subject, queue), taken in sorted(shares.items()):
        name = names[subject] if subject < len(names) else subject
        each = ", ".join(f"{share:.0f}" for share in taken)
        print(f"{name:10} queue {queue:g} BDP: takes {statistics.median(taken):3.0f} % ({each})")


main()
