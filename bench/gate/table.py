"""Makes the table of what measure.py kept, and judges it: bench/gate.sh runs it.

    python3 table.py samples.jsonl [DOCUMENT]

With a document, the table goes there too, between its two marks.
"""

import json
import os
import statistics
import sys
from collections import namedtuple

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from document import publish  # noqa: E402

import proxies

Row = namedtuple("Row", "title test key digits more_is_better")
# `added` is what is above the run without a proxy of the same round.
ROWS = [
    Row("throughput, 1 flow, GB/s", "bulk-1", "gb_per_s", 2, True),
    Row("throughput, 8 flows, GB/s", "bulk-8", "gb_per_s", 2, True),
    Row("processor time per GB, 1 flow, s", "bulk-1", "cpu_s_per_gb", 3, False),
    Row("processor time per GB, 8 flows, s", "bulk-8", "cpu_s_per_gb", 3, False),
    Row("connections per second, 64 at once", "connects-64", "per_s", 0, True),
    Row("processor time per connection, µs", "connects-64", "cpu_us", 1, False),
    Row("the same without end, per second", "lasting-connects-64", "per_s", 0, True),
    Row("the same without end, processor time, µs", "lasting-connects-64", "cpu_us", 1, False),
    Row("added round trip, 1 connection, p50, µs", "ping-1", "added p50_us", 1, False),
    Row("added round trip, 1 connection, p99, µs", "ping-1", "added p99_us", 1, False),
    Row("added round trip, 32 connections, p50, µs", "ping-32", "added p50_us", 1, False),
    Row("added round trip, 32 connections, p99, µs", "ping-32", "added p99_us", 1, False),
    Row("memory per idle flow after 1 KiB, KB", "idle-1024", "pss_kb_per_flow", 2, False),
    Row("memory per idle flow after 1 MiB, KB", "idle-1048576", "pss_kb_per_flow", 2, False),
]

# Printed with all samples, and not judged.
DETAILS = [
    Row(f"{part} time per GB, bulk-{flows}, s", f"bulk-{flows}", f"{part}_s_per_gb", 3, False)
    for flows in (1, 8)
    for part in ("user", "sys")
]
DETAILS += [
    Row("user time per connection, µs", "connects-64", "user_us", 1, False),
    Row("sys time per connection, µs", "connects-64", "sys_us", 1, False),
    Row("user time per lasting connection, µs", "lasting-connects-64", "user_us", 1, False),
    Row("sys time per lasting connection, µs", "lasting-connects-64", "sys_us", 1, False),
    Row("round trip, 1 connection, p50, µs", "ping-1", "p50_us", 1, False),
    Row("round trip, 1 connection, p99, µs", "ping-1", "p99_us", 1, False),
    Row("round trip, 32 connections, p50, µs", "ping-32", "p50_us", 1, False),
    Row("round trip, 32 connections, p99, µs", "ping-32", "p99_us", 1, False),
    Row("private dirty memory after 1 KiB, KB", "idle-1024", "dirty_kb_per_flow", 2, False),
    Row("private dirty memory after 1 MiB, KB", "idle-1048576", "dirty_kb_per_flow", 2, False),
]

# Goals of the gate besides that of every row, to be at or ahead of the best peer.
SHARE_OF_SPLICE = 0.8  # of HAProxy's processor time per GB, with splice
IDLE_KB = 6


def main():
    with open(sys.argv[1]) as lines:
        samples = [json.loads(line) for line in lines]
    text = table(samples)
    print(text)
    if len(sys.argv) > 2:
        publish(sys.argv[2], "gate", text)
    print_samples(samples)


def table(samples):
    shown = [each for each in proxies.HEADINGS if any(s["proxy"] == each for s in samples)]
    has_gate = proxies.GATE in shown
    heading = ["median (least to most)", *(proxies.HEADINGS[each] for each in shown)]
    heading += ["best peer", *(["gate beside it", "goal"] if has_gate else [])]
    lines, met = [], 0
    for row in ROWS:
        found = {proxy: figures(samples, row, proxy) for proxy in shown}
        if not any(found.values()):
            continue
        best = best_peer(row, found)
        line = [row.title, *(cell(row, found[proxy]) for proxy in shown)]
        line.append(proxies.HEADINGS.get(best, "-"))
        if has_gate:
            misses = judge(row, found, best)
            met += not misses
            line += [beside(row, found, best), "MISS: " + "; ".join(misses) if misses else "met"]
        lines.append(line)
    notes = [markdown(heading, lines), ""]
    if has_gate:
        notes.append(f"Goals met in {met} of {len(lines)} rows.")
    return "\n".join([*notes, *went_wrong(samples), others(samples)])


def others(samples):
    """Whether the machine was ours."""
    taken = [s["others_percent"] for s in samples if "others_percent" in s]
    words = ""
    if statistics.median(taken) > 2:
        words = " (provisional: this was no quiet machine)"
    middle, most = statistics.median(taken), max(taken)
    return f"Others took {middle:.1f} % of the processors in the median run, {most:.1f} % at most{words}."


def figures(samples, row, proxy):
    """Of one proxy, in the order of the rounds."""
    of_row = [s for s in samples if s["test"] == row.test and "error" not in s]
    mine = [s for s in of_row if s["proxy"] == proxy]
    if not row.key.startswith("added "):
        return [s[row.key] for s in mine if row.key in s]
    key = row.key.removeprefix("added ")
    direct = {s["round"]: s[key] for s in of_row if s["proxy"] == proxies.DIRECT}
    if proxy == proxies.DIRECT:
        return []
    return [s[key] - direct[s["round"]] for s in mine if s["round"] in direct]


def best_peer(row, found):
    medians = {peer: statistics.median(found[peer]) for peer in proxies.PEERS if found.get(peer)}
    choose = max if row.more_is_better else min
    return choose(medians, key=medians.get) if medians else None


def judge(row, found, best):
    """Each goal that the gate misses, in words."""
    if not found[proxies.GATE]:
        return ["no figure"]
    gate, misses = statistics.median(found[proxies.GATE]), []
    if best is not None:
        peer = statistics.median(found[best])
        if (gate < peer) if row.more_is_better else (gate > peer):
            both = (found[proxies.GATE], found[best])
            overlap = max(map(min, both)) <= min(map(max, both))
            within = ", within the spread" if overlap else ""
            misses.append(f"behind {proxies.HEADINGS[best]}{within}")
    splice = found.get(proxies.HAPROXY_SPLICE)
    if row.key == "cpu_s_per_gb" and splice:
        share = gate / statistics.median(splice)
        if share > SHARE_OF_SPLICE:
            misses.append(f"{share:.2f} of HAProxy's with splice, not {SHARE_OF_SPLICE}")
    if row.key == "pss_kb_per_flow" and gate > IDLE_KB:
        misses.append(f"more than {IDLE_KB} KB")
    return misses


def beside(row, found, best):
    """How many times as good: above 1 the gate is ahead. Where one adds nothing there is no number."""
    if best is None or not found[proxies.GATE]:
        return "-"
    gate, peer = statistics.median(found[proxies.GATE]), statistics.median(found[best])
    if gate <= 0 or peer <= 0:
        return "-"
    return f"{gate / peer if row.more_is_better else peer / gate:.2f}"


def went_wrong(samples):
    """What is not in the figures: runs without a result, connections that failed."""
    lines = []
    for proxy, heading in proxies.HEADINGS.items():
        mine = [s for s in samples if s["proxy"] == proxy]
        for test in dict.fromkeys(s["test"] for s in mine if "error" in s):
            errors = [s["error"] for s in mine if s["test"] == test and "error" in s]
            lines.append(f"{heading}: {len(errors)} runs of {test} failed: {errors[0]}")
        failed, all_of_them = (sum(s.get(key, 0) for s in mine) for key in ("failed", "completed"))
        if failed:
            lines.append(f"{heading}: {failed} of {failed + all_of_them} connections failed.")
    return lines


def print_samples(samples):
    print("\nAll samples, in the order of the rounds:")
    for row in ROWS + DETAILS:
        for proxy in proxies.HEADINGS:
            if found := figures(samples, row, proxy):
                each = " ".join(f"{value:.{row.digits}f}" for value in found)
                print(f"  {row.title}: {proxies.HEADINGS[proxy]}: {each}")


# --- words ---------------------------------------------------------------------------------------


def cell(row, found):
    if not found:
        return "-"
    middle, least, most = (
        f"{value:,.{row.digits}f}" for value in (statistics.median(found), min(found), max(found))
    )
    return middle if least == most else f"{middle} ({least} to {most})"


def markdown(heading, rows):
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


if __name__ == "__main__":
    main()
