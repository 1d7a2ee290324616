#!/usr/bin/env python3
"""Uploads over emulated paths, before and after `lastbyte heal --unlock-buffers`: a JSON line for each run.

bench/heal.sh starts it, in namespaces of its own and with all it needs in the environment.
"""

import bisect
import json
import math
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

LASTBYTE = os.environ["LASTBYTE"]
ENDS = str(pathlib.Path(__file__).with_name("ends.py"))
ROUNDS = int(os.environ["ROUNDS"])
PATHS = int(os.environ["PATHS"])
SEED = int(os.environ["SEED"])
SNDBUF = int(os.environ["SNDBUF"])
CONGESTION = os.environ["CONGESTION"]
WRITER = os.environ["WRITER"]
WINDOW_S = float(os.environ["WINDOW_S"])
ASKED = {"seed": SEED, "sndbuf": SNDBUF, "congestion": CONGESTION, "writer": WRITER, "window_s": WINDOW_S}

# --- the draw --------------------------------------------------------------------------------------

TABLE = 33  # paths of the reference
RTT_MS = (5, 300)
RATE_MBIT = (2, 200)
LOSS = (1e-5, 5e-3)
LOSSLESS = 1 / 3  # of the paths
QUEUE_BYTES = (30_000, 4_000_000)  # 20 packets; what is deep for a router


def draw(seed, count):
    """Paths by chance, but spread: each of round trip, rate and loss has one path in each of so many equal parts
    of its range. Of 33 paths drawn freely the median gain, reckoned, is 1.1 or 2.5 by the seed alone.

    Round trips and losses are even by their logarithm, as they are about things of all sizes, rates even as they
    are: a path of a few Mbit/s is full by any buffer, and a draw even by logarithm has half its paths below 20.
    The queue is one bandwidth-delay product, within what a router has.
    """
    chance = random.Random(seed)
    rtt, rate, loss = (spread(chance, count) for _ in range(3))
    return [path(*shares) for shares in zip(rtt, rate, loss)]


def spread(chance, count):
    # By random() alone, which is the same in all versions of Python; sort is a shuffle then.
    shares = [(number + chance.random()) / count for number in range(count)]
    return sorted(shares, key=lambda _: chance.random())


def path(rtt_share, rate_share, loss_share):
    rtt = round(between(RTT_MS, rtt_share), 1)
    rate = round(RATE_MBIT[0] + (RATE_MBIT[1] - RATE_MBIT[0]) * rate_share, 1)
    loss = 0.0
    if loss_share >= LOSSLESS:
        loss = float(f"{between(LOSS, (loss_share - LOSSLESS) / (1 - LOSSLESS)):.2g}")
    product = rtt * rate * 125
    queue = round(min(max(product, QUEUE_BYTES[0]), QUEUE_BYTES[1]))
    return {"rtt_ms": rtt, "rate_mbit": rate, "loss": loss, "bdp_bytes": round(product), "queue_bytes": queue}


def between(ends, share):
    return ends[0] * math.exp(share * math.log(ends[1] / ends[0]))


# --- the runs --------------------------------------------------------------------------------------

PORT = 5201
TRIES = 3
ARMS = ("healed", "control")
# Until the first window: the connection has to fill its buffer. Until the second: its window grows from where
# the buffer had stopped it, and what is lost by that has to be sent again.
WARM_S, WARM_TRIPS = 1.0, 6
GROW_S, GROW_TRIPS = 2.0, 15
LINK_DEADLINE_S = 60


def main():
    paths = draw(SEED, max(PATHS, TABLE))[:PATHS]
    # Rounds outside: what the machine does meanwhile meets all paths, and both arms of each.
    for round_number in range(1, ROUNDS + 1):
        for number, one in enumerate(paths, 1):
            for arm in ARMS if (round_number + number) % 2 else ARMS[::-1]:
                sample = {"path": number, **one, "round": round_number, "arm": arm, **ASKED}
                sample |= believed(one, arm, round_number)
                print(json.dumps(sample), flush=True)
                say(sample)


class Void(Exception):
    """A run that tells nothing of what is measured."""


def believed(one, arm, seed):
    """A run over a link that kept its promises. Others are void, repeated, and told."""
    void = []
    for _ in range(TRIES):
        try:
            return in_scratch(one, arm, seed) | {"voided": void}
        except Void as why:
            void.append(str(why))
    return {"voided": void, "error": f"{TRIES} runs were void, at last: {void[-1]}"}


def in_scratch(one, arm, seed):
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="heal-"))
    try:
        return run(scratch, one, arm, seed)
    finally:
        shutil.rmtree(scratch)


def run(scratch, one, arm, seed):
    """Both arms of a round have the same seed: the same packets of theirs are lost."""
    at = {name: str(scratch / name) for name in ("near", "far", "stop", "report")}
    load = os.getloadavg()[0]
    link = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", LASTBYTE, "link", "run", "--quiet", "--seed", str(seed),
         "--rtt", f"{one['rtt_ms']}ms", "--rate", f"{one['rate_mbit']}mbit", "--loss", f"{one['loss'] * 100:.6f}%",
         "--queue", str(one["queue_bytes"]), "--report", at["report"],
         "--far", f"exec {sys.executable} {ENDS} receive {PORT} {at['far']}",
         "--", sys.executable, ENDS, "upload", str(PORT), str(SNDBUF), CONGESTION, WRITER, at["stop"], at["near"]],
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        times = conduct(link, at, one, arm)
    finally:
        pathlib.Path(at["stop"]).touch()
        try:
            talk = link.communicate(timeout=LINK_DEADLINE_S)[1]
        except subprocess.TimeoutExpired:
            link.kill()
            talk = "the link did not come down"
    if link.returncode != 0:
        raise Void(f"the link ended with {link.returncode}: {talk.strip()[-300:]}")
    report = json.loads(pathlib.Path(at["report"]).read_text(encoding="utf-8"))
    if report["broken_promise"]:
        raise Void(report["broken_promise"])
    return figures(at, times) | {"load": load, "link": report["up"], "late_p99_ms": report["late_p99_ms"]}


def conduct(link, at, one, arm):
    trip = one["rtt_ms"] / 1000
    connection = first_line(link, at["near"])
    if connection["congestion"] != CONGESTION:
        raise SystemExit(f"asked for {CONGESTION}, got {connection['congestion']}")
    time.sleep(WARM_S + WARM_TRIPS * trip)
    before = window()
    began = time.monotonic()
    if arm == "healed":
        heal(connection["cookie"])
    healed = time.monotonic()
    time.sleep(GROW_S + GROW_TRIPS * trip)
    return {"connected": connection["t"], "before": before, "heal": [began, healed], "after": window()}


def window():
    begin = time.monotonic()
    time.sleep(WINDOW_S)
    return [begin, time.monotonic()]


def heal(cookie):
    """As somebody beside the program does it: by the socket's number, from another namespace."""
    words = [LASTBYTE, "heal", "--socket", hex(cookie), "--unlock-buffers", "--yes", "--for", "0s", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    outcomes = [json.loads(line).get("outcome") for line in done.stdout.splitlines()]
    if done.returncode != 0 or outcomes != ["changed"]:
        raise Void(f"heal ended with {done.returncode}: {done.stdout}{done.stderr}")


def first_line(link, file):
    for _ in range(1000):
        text = pathlib.Path(file).read_text(encoding="utf-8") if os.path.exists(file) else ""
        if "\n" in text:
            return json.loads(text.split("\n")[0])
        if link.poll() is not None:
            break
        time.sleep(0.01)
    raise Void("the upload did not begin")


# --- figures ---------------------------------------------------------------------------------------

LOOKS = 10  # of one every 50 ms: fewer mean that the machine had no time for the sender either


def figures(at, times):
    far = lines_of(at["far"])
    near = lines_of(at["near"])[1:]
    found = {"heal_s": round(times["heal"][1] - times["heal"][0], 4)}
    for name in ("before", "after"):
        begin, end = times[name]
        arrived = arrived_by(far, end) - arrived_by(far, begin)
        found[name] = {"mbit": round(arrived * 8 / (end - begin) / 1e6, 4)} | kernels_word(near, begin, end)
    # Between the windows: what the growth itself lost.
    found["between"] = kernels_word(near, times["before"][1], times["after"][0])
    return found


def lines_of(file):
    # A line that the end has cut is none.
    return [json.loads(line) for line in pathlib.Path(file).read_text(encoding="utf-8").split("\n")[:-1]]


def arrived_by(far, when):
    """Bytes that the receiver had by then, between two of its lines in a straight line."""
    place = bisect.bisect(far, [when])
    if place in (0, len(far)):
        return far[min(place, len(far) - 1)][1]
    (t0, b0), (t1, b1) = far[place - 1], far[place]
    return b0 + (b1 - b0) * (when - t0) / (t1 - t0)


def kernels_word(near, begin, end):
    """What the sender's kernel says of this time; shares are of the time."""
    seen = [line for line in near if begin <= line["t"] <= end]
    if len(seen) < LOOKS:
        raise Void(f"{len(seen)} looks at the connection in {end - begin:.1f} s")
    first, last = seen[0], seen[-1]
    gone_us = (last["t"] - first["t"]) * 1e6
    trips = sorted(line["rtt_us"] for line in seen)
    return {
        "sndbuf_bytes": last["sndbuf"],
        "cwnd": last["cwnd"],
        "rtt_ms": round(trips[len(trips) // 2] / 1000, 2),
        "resent": last["resent"] - first["resent"],
        "sent": last["sent"] - first["sent"],
        "sndbuf_share": round(sum(waits_for_its_buffer(line) for line in seen) / len(seen), 3),
        "rwnd_share": round((last["rwnd_us"] - first["rwnd_us"]) / gone_us, 3),
    }


def waits_for_its_buffer(line):
    """Whether the window would let more out, and there is not one packet more: the program writes without end,
    so its buffer is full. (The kernel's own clock for this stands still where Nagle's algorithm holds back the
    rest of a packet, which it does here at nearly all times.)
    """
    in_flight = line["unacked"] - line["sacked"] - line["lost"] + line["retrans"]
    return in_flight < line["cwnd"] and line["unsent"] < line["mss"]


def say(sample):
    words = f"round {sample['round']} path {sample['path']:2} {sample['arm']:7} "
    if "error" in sample:
        words += sample["error"]
    else:
        before, after = sample["before"]["mbit"], sample["after"]["mbit"]
        words += f"{before:7.2f} -> {after:7.2f} Mbit/s, load {sample['load']:.1f}"
        words += f", {len(sample['voided'])} void before" if sample["voided"] else ""
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
