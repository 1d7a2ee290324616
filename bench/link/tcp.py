"""TCP through a link, beside the kernel alone; small packets, many of them; and whether TCP gets what a loss, a window
or a rate allows it.
"""

import json
import math
import re
import statistics
import sys
from collections import defaultdict, namedtuple

import processes
from bed import (CONGESTIONS, ROOT, ROUNDS, SECONDS, Table, about_this_machine, doubts, iperf3_over_link, iperf3_server,
                 lastbyte, output, said_by_iperf3, scratch, spread, verdict)

# --- throughput ------------------------------------------------------------------------------------

# A veth pair carries up to 64 KiB in one piece; with `veth-split` the sending kernel cuts that into packets before
# the device, as it does before a link that has to decide about each one.
PATHS = {
    "nothing": "--rtt 0ms",
    "lossy": "--loss 0.01%",
    "split": "--rate 100gbit --queue 100MB",
    "reorder": "--rate 100gbit --queue 100MB --set jitter=1ns --set reorder=true",
}
WAYS = ("veth", "veth-split", *PATHS)

Sample = namedtuple("Sample", "gbit_per_s machine_s_per_gb link_s_per_gb")


def throughput():
    print(f"# TCP through a link: {ROUNDS} rounds of {SECONDS} s in turn, iperf3's receiver, Gbit/s")
    about_this_machine()
    make_veth("veth")
    make_veth("veth-split")
    for side in ("near", "far"):
        output(*f"ip netns exec veth-split-{side} ethtool -K v0 tso off gso off gro off".split())
    samples = defaultdict(list)
    for number in range(1, ROUNDS + 1):
        for congestion in CONGESTIONS:
            for way in WAYS:
                samples[way, congestion].append(one_run(way, congestion, number))
    tell_throughput(samples)


def one_run(way, congestion, seed):
    words, link = ("-C", congestion, "-t", SECONDS), None
    before = processes.machine_s()
    if way in PATHS:
        iperf, link, _ = iperf3_over_link(f"{PATHS[way]} --seed {seed}", *words)
        doubts(f"{way} {congestion}", link)
    else:
        iperf = iperf3_over_veth(way, *words)
    machine_s = processes.machine_s() - before
    received = iperf["sum_received"]
    gb = received["bytes"] / 1e9
    return Sample(received["bits_per_second"] / 1e9, machine_s / gb, link and link["cpu_s"] / gb)


def tell_throughput(samples):
    table = Table("over:<10  with:<5  median:7.2f min:7.2f max:7.2f  of veth:7.2f  link, s/GB:>12  machine, s/GB:15.2f")
    for congestion in CONGESTIONS:
        for way in WAYS:
            rates, machines, links = zip(*samples[way, congestion])
            rate = spread(rates)
            if way == "veth":
                base = rate.median
            link = f"{spread(links).median:.2f}" if way in PATHS else "-"
            table.row(way, congestion, *rate, rate.median / base, link, spread(machines).median)
    print("veth: two namespaces and no emulator; veth-split: the same, one packet at a time.")
    for way, path in PATHS.items():
        print(f"{way}: link run {path}")
    print("link: processor seconds of the link's process; machine: of everything, sender and\n"
          "receiver included, and of other programs if the machine is not quiet; both per 1e9 bytes.")


def make_veth(name):
    """A veth pair between two namespaces."""
    near, far = f"{name}-near", f"{name}-far"
    for words in (f"netns add {near}", f"netns add {far}",
                  f"link add name v0 netns {near} type veth peer name v0 netns {far}",
                  f"-n {near} addr add 198.18.1.1/24 dev v0", f"-n {far} addr add 198.18.1.2/24 dev v0",
                  f"-n {near} link set v0 up", f"-n {far} link set v0 up"):
        output("ip", *words.split())


def iperf3_over_veth(name, *words):
    file = scratch() / "iperf.json"
    with iperf3_server("ip", "netns", "exec", f"{name}-far"):
        client = f"ip netns exec {name}-near iperf3 -c 198.18.1.2 -J".split()
        file.write_text(output(*client, *map(str, words)))
    return said_by_iperf3(file)


# --- packets ---------------------------------------------------------------------------------------


def packets():
    """iperf3 wakes up each millisecond and sends what is due, 100 packets at once: a link that keeps up with that keeps
    up with an even stream. What the far kernel got and its socket had no room for is the receiving program's loss (it
    was not scheduled in time), not the link's, and is counted apart.
    """
    print(f"# 100,000 packets/s of 64 bytes for {SECONDS} s, RTT 2 ms, {ROUNDS} rounds")
    about_this_machine()
    table = Table("sent:7d  link got:8d  delivered:9d  unasked:7d  read:7d  socket full:11d  no-port:7d  link CPU:>8  "
                  "late p50, p99, max (ms):<1")
    for number in range(1, ROUNDS + 1):
        iperf, link, datagrams = iperf3_over_link(
            f"--rtt 2ms --seed {number}", "-u", "-l", 64, "-b", "51.2M", "-t", SECONDS, "-w", "4M")
        read, strange, overflow = datagrams[0], datagrams[1], datagrams[4]
        late = ", ".join(str(link[f"late_{share}_ms"]) for share in ("p50", "p99", "max"))
        table.row(iperf["sum_sent"]["packets"], link["up"]["packets"], link["up"]["delivered_packets"],
                  link["device_drops_packets"], read, overflow, strange, f"{link['cpu_s']:.2f}s", late)
    print("sent: datagrams of the test; link got, delivered: with the few of its control connection;\n"
          "unasked: drops that nobody asked the link for. At the far kernel: read by the program,\n"
          "found its socket full, found none. What is missing there lay unread in the program's socket\n"
          "when it closed that.")


# --- limits ----------------------------------------------------------------------------------------

SEGMENT = 1448  # of every 1500 bytes, with timestamps


def limits():
    about_this_machine()
    of_loss()
    print()
    of_window()
    print()
    of_rate()


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
    table = Table("loss:>6  lost:7d  p:8.5f  RTT ms:7.2f  got:7.2f  Mathis:7.2f  got/Mathis:>12  Padhye:8.2f  "
                  "got/Padhye:<1.2f")
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
            table.row(share, lost, p, rtt * 1e3, got, mathis, verdict(got / mathis, 0.25, 2), padhye, got / padhye)


def padhye_mbit(rtt, p):
    """Padhye et al. 1998 (equation 30, b = 1, no window limit) adds the time-outs of a Reno without SACK; Linux has
    SACK, RACK and tail loss probes, so it should lie above, and near Mathis. T0 is Linux's least: RTT + 200 ms.
    """
    timeouts = (rtt + 0.2) * min(3 * math.sqrt(3 * p / 8), 1) * p * (1 + 32 * p * p)
    return SEGMENT * 8 / 1e6 / (rtt * math.sqrt(2 * p / 3) + timeouts)


ENDS = ROOT / "bench/link/window.py"


def of_window():
    """The window over the round trip. What is provable is the window that the receiver announces: window.py has how.
    Reno, because without a loss its slow start ends at the window and nowhere else. Whole segments are in flight.
    """
    report = scratch() / "link.json"
    print(f"# a receive window over RTT 50 ms: {ROUNDS} rounds of {SECONDS} s without the first 2, Mbit/s")
    table = Table("clamped:9d  told:9d  srtt ms:8.2f  got:7.2f  window/RTT:10.2f  ratio:<1")
    for window in (32768, 131072, 524288):
        for _ in range(ROUNDS):
            said = lastbyte("link", "run", "-q", "--rtt", "50ms", "--report", str(report),
                            "--far", f"{sys.executable} {ENDS} far {window} {SECONDS}",
                            "--", sys.executable, str(ENDS), "near", str(SECONDS))
            doubts(f"window {window}", json.loads(report.read_text()))
            told, rtt = re.search(r"^near (\S+) (\S+)", said, re.MULTILINE).groups()
            got = float(re.search(r"^far (\S+)", said, re.MULTILINE)[1])
            whole = int(told) // SEGMENT * SEGMENT * 8 / 0.05 / 1e6
            table.row(window, int(told), float(rtt), got, whole, verdict(got / whole, 0.05))


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
    table = Table("rate:5d  with:<5  median:8.3f min:8.3f max:8.3f  limit:8.3f  ratio:<1")
    for (rate, congestion), values in found.items():
        got, limit = spread(values), rate * SEGMENT / 1500
        table.row(rate, congestion, *got, limit, verdict(got.median / limit, 0.05))
