#!/usr/bin/env python3
"""The table of what bench/heal/measure.py has measured, its plot, and the summary in a document.

    table.py SAMPLES SVG [DOCUMENT]
"""

import json
import math
import os
import statistics
import sys
import textwrap

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from document import publish  # noqa: E402

SLOWER = 0.95  # of before: what is below has to be explained
FULL = 0.93  # of what the rate can carry: the path is full
GOODPUT = 1448 / 1500  # payload with timestamps, of an IP packet
LIMITED = 0.5  # of the time
LINE_WIDTH = 116  # of the document
ARMS = ("healed", "control")


def main(samples_file, svg_file, document=None):
    with open(samples_file, encoding="utf-8") as lines:
        samples = [json.loads(line) for line in lines]
    paths = [Path(mine) for mine in grouped(samples)]
    measured = sorted((path for path in paths if path.ratios), key=lambda path: path.ratio)
    print(table(paths))
    print()
    print("\n".join(words(samples, paths, measured)))
    with open(svg_file, "w", encoding="utf-8") as file:
        file.write(plot(measured, samples[0]))
    if document:
        publish(document, "heal", markdown(samples, paths, measured, os.path.basename(svg_file)))


def grouped(samples):
    numbers = sorted({sample["path"] for sample in samples})
    return [[sample for sample in samples if sample["path"] == number] for number in numbers]


class Path:
    """All runs over one path."""

    def __init__(self, samples):
        self.spec = samples[0]
        self.errors = [sample["error"] for sample in samples if "error" in sample]
        self.healed, self.control = (
            [sample for sample in samples if sample["arm"] == arm and "error" not in sample] for arm in ARMS
        )
        self.ratios, self.drifts = (
            [run["after"]["mbit"] / run["before"]["mbit"] for run in runs] for runs in (self.healed, self.control)
        )
        others = {run["round"]: run["after"]["mbit"] for run in self.control}
        # Of the same round: the same packets are lost in both.
        self.against = [run["after"]["mbit"] / others[run["round"]] for run in self.healed if run["round"] in others]
        alike = {run["round"]: run["before"]["mbit"] for run in self.control}
        self.alike = [run["before"]["mbit"] / alike[run["round"]] for run in self.healed if run["round"] in alike]
        self.ratio = statistics.median(self.ratios) if self.ratios else None
        self.drift = statistics.median(self.drifts) if self.drifts else None

    def of(self, phase, key):
        """The median of the healed runs."""
        return statistics.median(run[phase][key] for run in self.healed)

    def name(self):
        loss = f"{self.spec['loss'] * 100:.2g} %" if self.spec["loss"] else "no loss"
        return f"{self.spec['rtt_ms']:.4g} ms, {self.spec['rate_mbit']:.4g} Mbit/s, {loss}"

    def was_held_by_its_buffer(self):
        return self.of("before", "sndbuf_share") > LIMITED

    def held_by(self):
        """What limited it after it was healed."""
        if self.of("after", "mbit") >= FULL * GOODPUT * self.spec["rate_mbit"]:
            return "the path's rate"
        if self.of("after", "sndbuf_share") > LIMITED:
            return f"send buffer of {self.of('after', 'sndbuf_bytes') / 2**20:.1f} MiB"
        if self.of("after", "rwnd_share") > LIMITED:
            return "receive window"
        if self.spec["congestion"] != "cubic":
            return "congestion control"
        lost = self.of("between", "resent") + self.of("after", "resent")
        where = "lost packets" if self.spec["loss"] else "full queue"
        return f"cwnd, after {where}" if lost else "cwnd, still growing"


# --- words -----------------------------------------------------------------------------------------


def table(paths):
    lines = [
        f"{'':4} {'RTT ms':>6} {'Mbit/s':>6} {'loss %':>7} {'BDP kB':>7}  {'before':>7} {'after':>7}"
        f"  {'after/before':>20}  {'control':>18}  {'beside':>6}  held by, after (before)"
    ]
    for path in paths:
        spec = path.spec
        begin = (
            f"{spec['path']:4} {spec['rtt_ms']:6.1f} {spec['rate_mbit']:6.1f} {spec['loss'] * 100:7.4f}"
            f" {spec['bdp_bytes'] / 1e3:7.0f}"
        )
        if not path.ratios:
            lines.append(f"{begin}  NOT MEASURED: {path.errors[0]}")
            continue
        before = "buffer" if path.was_held_by_its_buffer() else "other"
        beside = f"{statistics.median(path.against):.2f}" if path.against else "-"
        lines.append(
            f"{begin}  {path.of('before', 'mbit'):7.2f} {path.of('after', 'mbit'):7.2f}"
            f"  {spread(path.ratios):>20}  {spread(path.drifts):>18}  {beside:>6}  {path.held_by()} ({before})"
        )
    return "\n".join(lines)


def spread(values):
    if not values:
        return "-"
    return f"{statistics.median(values):.2f} ({min(values):.2f}..{max(values):.2f})"


def words(samples, paths, measured):
    """The summary, a line or paragraph each."""
    ratios = [path.ratio for path in measured]
    drifts = [path.drift for path in measured if path.drifts]
    held = [path.ratio for path in measured if path.was_held_by_its_buffer()]
    free = [path.ratio for path in measured if not path.was_held_by_its_buffer()]
    rounds = max(sample["round"] for sample in samples)
    voided = sum(len(sample["voided"]) for sample in samples)
    loads = [sample["load"] for sample in samples if "load" in sample]
    yield (
        f"{len(measured)} paths, {rounds} rounds; after / before, each path by the median of its rounds: median "
        f"{statistics.median(ratios):.2f}, best {max(ratios):.2f}, worst {min(ratios):.2f}. "
        f"Controls, never healed: median {spread(drifts)}."
    )
    alike = [one for path in paths for one in path.alike]
    yield (
        "Beside the control in the same seconds of its run, with the same packets lost: "
        f"{spread([statistics.median(path.against) for path in measured if path.against])}. What chance makes of this: "
        f"the same before, when nobody was healed yet, in each round: {spread(alike)}."
    )
    yield f"Held by the send buffer before: {of_these(held)}. By something else: {of_these(free)}."
    yield (
        f"{len(samples)} runs counted; {voided} more were void, as the link had not kept its promise, and repeated; "
        f"load of the machine {spread(loads)}, on {os.cpu_count()} processors."
    )
    for path in paths:
        for error in path.errors:
            yield f"A run over {path.name()} has no figure: {error}"
    slower = [path for path in measured if path.ratio < SLOWER]
    if not slower:
        yield f"No path got slower than {SLOWER} of before."
    for path in slower:
        yield f"Slower: {path.name()}: {spread(path.ratios)}; {why_slower(path)}"


def of_these(ratios):
    return f"{len(ratios)} paths, {spread(ratios)}" if ratios else "none"


def why_slower(path):
    """What the runs say of it, with their figures."""
    beside = statistics.median(path.against) if path.against else None
    told = f"its control {spread(path.drifts)}, beside it {beside:.2f}. " if beside else "no control counted. "
    if beside and beside >= SLOWER:
        told += "The control, which lost the same packets, fell as well: the path's losses, not the heal. "
    elif path.was_held_by_its_buffer():
        told += "The buffer had held it before. "
    else:
        told += "The buffer had not held it before: there was nothing to gain. "
    windows, trips, resent = (
        [path.of(phase, key) for phase in ("before", "between", "after")] for key in ("cwnd", "rtt_ms", "resent")
    )
    told += (
        f"Before, between and in the window after: cwnd {figures(windows)} packets, round trip {figures(trips)} ms, "
        f"sent again {figures(resent)}"
    )
    if path.spec["loss"] == 0 and resent[1] + resent[2] > resent[0]:
        told += "; nothing is lost on this path but what its queue drops: freed from its buffer, it fills the queue"
    return told + "."


def figures(values):
    return ", ".join(f"{value:.0f}" for value in values)


def markdown(samples, paths, measured, picture):
    asked = samples[0]
    parts = [
        f"![Each path's rate after, as a multiple of before, sorted]({picture})",
        f"\nSeed {asked['seed']}, SO_SNDBUF {asked['sndbuf']:,}, {asked['congestion']}, {asked['writer']} writes.",
    ]
    for line in words(samples, paths, measured):
        item = line.startswith("Slower: ")
        folded = textwrap.fill(f"- {line}" if item else line, LINE_WIDTH, subsequent_indent="  " * item)
        parts.append(("" if item and parts[-1].lstrip().startswith("- ") else "\n") + folded)
    return "\n".join(parts)


# --- the plot --------------------------------------------------------------------------------------

WIDTH, LEFT, RIGHT, TOP, LINE, BOTTOM = 600, 190, 46, 64, 15, 34
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
INK, QUIET, GRID, GAIN, LOSS = "#222", "#666", "#ddd", "#1766a6", "#b5391f"


def plot(measured, asked):
    """A line for each path, the largest ratio first: a bar from 1, its rounds' range, and its control."""
    height = TOP + LINE * len(measured) + BOTTOM
    values = [value for path in measured for value in path.ratios + path.drifts] + [0.8, 2]
    low, high = min(values) / 1.08, max(values) * 1.08

    def across(value):
        share = math.log(value / low) / math.log(high / low)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    title = f"Upload rate after heal --unlock-buffers, as a multiple of before: {len(measured)} paths, sorted"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        f' role="img" aria-label="{title}" font-family="sans-serif" font-size="11" fill="{INK}">',
        f"<title>{title}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        text(10, 18, "Upload rate after the buffer was unlocked, as a multiple of before", size=14, weight="bold"),
        text(10, 35, legend(measured, asked), ink=QUIET),
        text(10, TOP - 8, "round trip, rate, loss", ink=QUIET),
    ]
    bottom = TOP + LINE * len(measured)
    for tick in (tick for tick in TICKS if low <= tick <= high):
        ink, dash = (INK, "") if tick == 1 else (GRID, ' stroke-dasharray="2 2"')
        parts.append(f'<path d="M{across(tick)} {TOP - 4}V{bottom + 4}" stroke="{ink}"{dash}/>')
        parts += [text(across(tick), y, f"{tick}x", anchor="middle") for y in (TOP - 8, bottom + 17)]
    for number, path in enumerate(reversed(measured)):
        parts += row(path, TOP + LINE * number + LINE / 2, across)
    return "\n".join([*parts, "</svg>", ""])


def legend(measured, asked):
    median = statistics.median(path.ratio for path in measured)
    return (
        f"SO_SNDBUF {asked['sndbuf']:,}, {asked['congestion']}; median {median:.2f}x; "
        "line: the rounds, circle: control, never healed"
    )


def row(path, y, across):
    ink = LOSS if path.ratio < SLOWER else GAIN
    begin, end = sorted((across(1), across(path.ratio)))
    yield text(10, y + 4, path.name())
    yield f'<rect x="{begin}" y="{y - 4}" width="{max(end - begin, 1):.1f}" height="8" fill="{ink}" opacity="0.45"/>'
    yield f'<path d="M{across(min(path.ratios))} {y}H{across(max(path.ratios))}" stroke="{ink}" stroke-width="1.5"/>'
    yield f'<circle cx="{across(path.ratio)}" cy="{y}" r="3.5" fill="{ink}"/>'
    if path.drifts:
        yield f'<circle cx="{across(path.drift)}" cy="{y}" r="3" fill="#fff" stroke="{QUIET}"/>'
    yield text(WIDTH - 8, y + 4, f"{path.ratio:.2f}", anchor="end", ink=ink)


def text(x, y, what, size=None, weight=None, anchor=None, ink=None):
    more = {"font-size": size, "font-weight": weight, "text-anchor": anchor, "fill": ink}
    words_of_it = "".join(f' {key}="{value}"' for key, value in more.items() if value)
    return f'<text x="{x}" y="{y}"{words_of_it}>{what}</text>'


if __name__ == "__main__":
    main(*sys.argv[1:])
