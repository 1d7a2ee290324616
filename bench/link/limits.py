"""Whether TCP gets over a link what a loss, a window or a rate allows it."""

import json
import math
import re
import statistics
import sys
from collections import defaultdict

from bed import (CONGESTIONS, ROOT, ROUNDS, SECONDS, about_this_machine, doubts, iperf3_over_link, lastbyte, scratch, spread,
                 verdict)

SEGMENT = 1448  # of every 1500 bytes, with timestamps


def measure():
    about_this_machine()
    of_loss()
    print()
    of_window()
    print()
    of_rate()


# --- a loss ----------------------------------------------------------------------------------------

FLOWS = 10


def of_loss():
    """Reno against the models.

    Mathis et al. 1997: rate = MSS / RTT * C / sqrt(p). Their C is 1.22 for periodic losses and an acknowledgement of
    each segment, 0.87 for one of every second; 1.31 and 0.94 for random losses (their simulations). Linux counts the
    segments that an acknowledgement covers, not the acknowledgements, so its window grows by one segment per round
    trip however they are delayed: the models hold with b = 1, and C = 1.22 is what we are judged by. p is what the
    link says it lost, of all that it got; the RTT is the sender's own mean.
    """
    seconds = SECONDS * 4
    print(f"# reno at a loss, RTT 50 ms, no rate: {ROUNDS} rounds of {seconds} s, {FLOWS} flows; Mbit/s a flow")
    print(f"{'loss':>6}  {'lost':>7}  {'p':>8}  {'RTT ms':>7}  {'got':>7}  {'Mathis':>7}  {'got/Mathis':>12}  {'Padhye':>8}  "
          "got/Padhye")
    for share in ("0.1%", "0.3%", "1%"):
        for number in range(1, ROUNDS + 1):
            # No queue, no rate: the flows do not meet. The first 5 s are slow start, and left out.
            iperf, link, _ = iperf3_over_link(
                f"--rtt 50ms --loss {share} --seed {number}", "-C", "reno", "-P", FLOWS, "-O", 5, "-t", seconds)
            doubts(f"loss {share}", link)
            got = iperf["sum_received"]["bits_per_second"] / FLOWS / 1e6
            rtt = statistics.fmean(stream["sender"]["mean_rtt"] for stream in iperf["streams"]) / 1e6
            lost = link["up"]["lost_packets"]
            p = lost / link["up"]["packets"]
            mathis = SEGMENT * 8 / rtt * math.sqrt(3 / 2 / p) / 1e6
            padhye = padhye_mbit(rtt, p)
            print(f"{share:>6}  {lost:7d}  {p:8.5f}  {rtt * 1e3:7.2f}  {got:7.2f}  {mathis:7.2f}  {got / mathis:5.2f} "
                  f"{verdict(got / mathis, 0.25):>6}  {padhye:8.2f}  {got / padhye:.2f}")


def padhye_mbit(rtt, p):
    """Padhye et al. 1998 (equation 30, b = 1, no window limit) adds the time-outs of a Reno without SACK; Linux has
    SACK, RACK and tail loss probes, so it should lie above, and near Mathis. T0 is Linux's least: RTT + 200 ms.
    """
    timeouts = (rtt + 0.2) * min(3 * math.sqrt(3 * p / 8), 1) * p * (1 + 32 * p * p)
    return SEGMENT * 8 / 1e6 / (rtt * math.sqrt(2 * p / 3) + timeouts)


# --- a window --------------------------------------------------------------------------------------

ENDS = ROOT / "bench/link/window.py"


def of_window():
    """The window over the round trip. What is provable is the window that the receiver announces: window.py has how.
    Reno, because without a loss its slow start ends at the window and nowhere else. Whole segments are in flight.
    """
    report = scratch() / "link.json"
    print(f"# a receive window over RTT 50 ms: {ROUNDS} rounds of {SECONDS} s without the first 2, Mbit/s")
    print(f"{'clamped':>9}  {'told':>9}  {'srtt ms':>8}  {'got':>7}  {'window/RTT':>10}  ratio")
    for window in (32768, 131072, 524288):
        for _ in range(ROUNDS):
            said = lastbyte("link", "run", "-q", "--rtt", "50ms", "--report", str(report),
                            "--far", f"{sys.executable} {ENDS} far {window} {SECONDS}",
                            "--", sys.executable, str(ENDS), "near", str(SECONDS))
            doubts(f"window {window}", json.loads(report.read_text()))
            told, rtt = re.search(r"^near (\S+) (\S+)", said, re.MULTILINE).groups()
            got = float(re.search(r"^far (\S+)", said, re.MULTILINE)[1])
            whole = int(told) // SEGMENT * SEGMENT * 8 / 0.05 / 1e6
            print(f"{window:9d}  {int(told):9d}  {float(rtt):8.2f}  {got:7.2f}  {whole:10.2f}  {got / whole:.3f} "
                  f"{verdict(got / whole, 0.05)}")


# --- a rate ----------------------------------------------------------------------------------------

RATES_MBIT = (1, 10, 100, 1000)


def of_rate():
    """The first 2 s are left out: what the first round trips cost. The queue is a time, because one bandwidth-delay
    product of 1 Mbit/s would be less than two packets. The kernel's own 4 MB of send buffer would be the limit at
    1 Gbit/s.
    """
    print(f"# a rate, RTT 20 ms, queue 100 ms, no loss: {ROUNDS} rounds of {SECONDS} s in turn, Mbit/s")
    found = defaultdict(list)
    for number in range(1, ROUNDS + 1):
        for rate in RATES_MBIT:
            for congestion in CONGESTIONS:
                iperf, link, _ = iperf3_over_link(
                    f"--rtt 20ms --rate {rate}mbit --queue 100ms --seed {number}", "-C", congestion, "-O", 2, "-t",
                    SECONDS, "-l", 4096 if rate < 100 else 131072, send_buffer=67108864)
                doubts(f"{rate} Mbit/s {congestion}", link)
                found[rate, congestion].append(iperf["sum_received"]["bits_per_second"] / 1e6)
    print(f"{'rate':>5}  {'with':5}  {'median':>8} {'min':>8} {'max':>8}  {'limit':>8}  ratio")
    for (rate, congestion), values in found.items():
        got, limit = spread(values), rate * SEGMENT / 1500
        print(f"{rate:5d}  {congestion:5}  {got.median:8.3f} {got.low:8.3f} {got.high:8.3f}  {limit:8.3f}  "
              f"{got.median / limit:.3f} {verdict(got.median / limit, 0.05)}")
