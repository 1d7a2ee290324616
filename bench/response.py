#!/usr/bin/env python3
"""Compares windows that were measured with what papers say of them.

  bench/response.py LOSS=FILE...

Each FILE is what `lastbyte lab --save` wrote of runs over a path of 50 ms without a queue's losses, LOSS
its share of lost packets, such as 0.001. For each congestion control: the mean window of the paper's
response function, the mean of the window from the fifth second on, both in packets, and their ratio.
"""

import json
import math
import statistics
import sys

RTT_S = 0.05
SEGMENT = 1448  # bytes in a packet with timestamps, over 1500
SLOW_START_S = 5


def reno(p):
    return math.sqrt(1.5 / p)


def cubic(p):
    return max(1.054 * (RTT_S / p) ** 0.75, reno(p))


def highspeed(p):
    return 0.12 / p**0.835 if p < 0.0015 else reno(p)


def bic(p):
    """The mean window where 1 / p packets lie between two losses; bic.bpf.c has the equations."""

    def between(w):
        n1 = max(math.ceil(w / 8 / 32) - 2, 0)
        n2 = math.log2(max((w / 8 - 32 * n1) / 0.01, 1)) + 2
        y = (7 / 4 * w + 32 * (n1 - 1)) * n1 / 2 + w * n2 - 2 * (w / 8 - 32 * n1) + 0.01
        return y, y / (n1 + n2)

    low, high = 1.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if between(middle)[0] < 1 / p else (low, middle)
    return max(between(low)[1], reno(p))


def htcp(p):
    """Its growth between losses, summed up (htcp.bpf.c has some values), at a backoff of 0.8."""
    low, high = 1.0, 1e6
    for _ in range(200):
        top = (low + high) / 2
        # Grows from 0.8 of the top: Reno's 2 (1 - beta) a round trip for a second, then faster.
        window, seconds, packets = 0.8 * top, 0.0, 0.0
        while window < top:
            late = max(seconds - 1, 0)
            faster = (1 + 10 * late + (late / 2) ** 2) * RTT_S / 0.1
            window += 2 * 0.2 * max(faster, 1)
            packets += window
            seconds += RTT_S
        mean = packets / max(seconds / RTT_S, 1)
        low, high = (top, high) if packets < 1 / p else (low, top)
    return mean


RESPONSES = {
    "reno": reno,
    "lb_reno": reno,
    "cubic": cubic,
    "lb_cubic": cubic,
    "lb_vegas": reno,
    "lb_bic": bic,
    "lb_highspeed": highspeed,
    "lb_htcp": htcp,
    "lb_hybla": lambda p: RTT_S / 0.025 * reno(p),
    "lb_illinois": lambda p: math.sqrt(75 / p),
    "lb_scalable": lambda p: max(0.075 / p, reno(p)),
    "lb_veno": lambda p: math.sqrt(4.5 / p),
    "lb_yeah": lambda p: 0.08 / p if math.sqrt(7.5 / p) > 100 else math.sqrt(7.5 / p),
}


def windows(path):
    """Mean windows of each congestion control, one a run."""
    means = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            run = json.loads(line)
            if run.get("type") != "run":
                continue
            for flow in run["flows"]:
                samples = [
                    sample["cwnd_bytes"] / SEGMENT
                    for sample in flow["sent"]["samples"]
                    if sample["at_s"] >= SLOW_START_S
                ]
                if samples:
                    name = flow["sent"]["congestion"]
                    means.setdefault(name, []).append(statistics.fmean(samples))
    return means


def main():
    points = []
    for word in sys.argv[1:]:
        loss, _, path = word.partition("=")
        points.append((float(loss), windows(path)))
    if not points:
        sys.exit(__doc__)
    print("packets: paper, measured (ratio), means of the window after slow start")
    print(f"{'':14}" + "".join(f"{100 * loss:>19.2f} %" for loss, _ in points))
    for name, response in RESPONSES.items():
        row = f"{name:14}"
        for loss, means in points:
            if name not in means:
                row += f"{'-':>21}"
                continue
            paper, measured = response(loss), statistics.fmean(means[name])
            row += f"{paper:8.0f} {measured:5.0f} ({measured / paper:.2f})"
        print(row)


main()
