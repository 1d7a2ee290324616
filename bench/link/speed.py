"""How fast a link is: TCP through it, beside the kernel alone, and small packets, many of them.

A veth pair carries up to 64 KiB in one piece; with `veth-split` the sending kernel cuts that into packets before
the device, as it does before a link that has to decide about each one.
"""

from collections import defaultdict, namedtuple

import processes
from bed import (CONGESTIONS, ROUNDS, SECONDS, about_this_machine, doubts, iperf3_over_link, iperf3_server, output,
                 said_by_iperf3, scratch, spread)

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
        output("ip", "netns", "exec", f"veth-split-{side}", "ethtool", "-K", "v0", "tso", "off", "gso", "off", "gro", "off")
    samples = defaultdict(list)
    for number in range(1, ROUNDS + 1):
        for congestion in CONGESTIONS:
            for way in WAYS:
                samples[way, congestion].append(one_run(way, congestion, number))
    table(samples)


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


def table(samples):
    print(f"{'over':10}  {'with':5}  {'median':>7} {'min':>7} {'max':>7}  {'of veth':>7}  {'link, s/GB':>12}  "
          f"{'machine, s/GB':>15}")
    for congestion in CONGESTIONS:
        for way in WAYS:
            rates, machines, links = zip(*samples[way, congestion])
            rate = spread(rates)
            if way == "veth":
                base = rate.median
            link = f"{spread(links).median:.2f}" if way in PATHS else "-"
            print(f"{way:10}  {congestion:5}  {rate.median:7.2f} {rate.low:7.2f} {rate.high:7.2f}  "
                  f"{rate.median / base:7.2f}  {link:>12}  {spread(machines).median:15.2f}")
    print("veth: two namespaces and no emulator; veth-split: the same, one packet at a time.")
    for way, path in PATHS.items():
        print(f"{way}: link run {path}")
    print("link: processor seconds of the link's process; machine: of everything, sender and\n"
          "receiver included, and of other programs if the machine is not quiet; both per 1e9 bytes.")


def make_veth(name):
    """A veth pair between two namespaces."""
    near, far = f"{name}-near", f"{name}-far"
    output("ip", "netns", "add", near)
    output("ip", "netns", "add", far)
    output("ip", "link", "add", "name", "v0", "netns", near, "type", "veth", "peer", "name", "v0", "netns", far)
    for number, host in enumerate((near, far), 1):
        output("ip", "-n", host, "addr", "add", f"198.18.1.{number}/24", "dev", "v0")
        output("ip", "-n", host, "link", "set", "v0", "up")


def iperf3_over_veth(name, *words):
    file = scratch() / "iperf.json"
    with iperf3_server("ip", "netns", "exec", f"{name}-far"):
        file.write_text(output("ip", "netns", "exec", f"{name}-near", "iperf3", "-c", "198.18.1.2", "-J", *map(str, words)))
    return said_by_iperf3(file)


def packets():
    """iperf3 wakes up each millisecond and sends what is due, 100 packets at once: a link that keeps up with that keeps up
    with an even stream. What the far kernel got and its socket had no room for is the receiving program's loss (it was
    not scheduled in time), not the link's, and is counted apart.
    """
    print(f"# 100,000 packets/s of 64 bytes for {SECONDS} s, RTT 2 ms, {ROUNDS} rounds")
    about_this_machine()
    print(f"{'sent':>7}  {'link got':>8}  {'delivered':>9}  {'unasked':>7}  {'read':>7}  {'socket full':>9} {'no-port':>8}  "
          f"{'link CPU':>8}  late p50, p99, max (ms)")
    for number in range(1, ROUNDS + 1):
        iperf, link, datagrams = iperf3_over_link(
            f"--rtt 2ms --seed {number}", "-u", "-l", 64, "-b", "51.2M", "-t", SECONDS, "-w", "4M")
        read, strange, overflow = datagrams[0], datagrams[1], datagrams[4]
        late = ", ".join(str(link[f"late_{share}_ms"]) for share in ("p50", "p99", "max"))
        print(f"{iperf['sum_sent']['packets']:7d}  {link['up']['packets']:8d}  {link['up']['delivered_packets']:9d}  "
              f"{link['device_drops_packets']:7d}  {read:7d}  {overflow:9d}  {strange:9d}  {link['cpu_s']:7.2f}s  {late}")
    print("sent: datagrams of the test; link got, delivered: with the few of its control connection;\n"
          "unasked: drops that nobody asked the link for. At the far kernel: read by the program,\n"
          "found its socket full, found none. What is missing there lay unread in the program's socket\n"
          "when it closed that.")
