"""The nearest rival: rattan, of crates.io (0.1.1 builds in 5 minutes as it is, without clang or libbpf).

It runs a program behind a link whose other end is the namespace that it was started in. Its loss comes after its
rate, ours before; its queue counts IP bytes, as ours. `rattan link` loses the same packets in each run (its seed is
fixed), so its words are made into a configuration, in which the loss becomes a kind of cell that takes a seed.
"""

import itertools
import os
import re
import shutil
import subprocess
import time
from collections import defaultdict, namedtuple

import processes
from bed import (CONGESTIONS, LASTBYTE, ROUNDS, SECONDS, Program, Table, about_this_machine, doubts, iperf3_over_link,
                 iperf3_server, output, p50_p99, ping_means, ping_times, said_by_iperf3, scratch, spread)

RATTAN = os.environ.get("RATTAN") or shutil.which("rattan")
WHO = ("lastbyte", "rattan")

Path = namedtuple("Path", "rtt_ms rate_mbit loss_percent queue_bytes")
PATHS = {
    "usa-malaysia": Path(217, 95, 0.034, 2576875),
    "slow": Path(30, 20, 0, 250000),
    "wireless": Path(8, 40, 1, 500000),
}


def measure():
    print(f"# lastbyte and rattan, in turn: {ROUNDS} rounds of {SECONDS * 2} s")
    if RATTAN is None:
        print("NOT MEASURED: there is no rattan in PATH, and RATTAN does not name it")
        return
    print(f"{output(RATTAN, '--version').splitlines()[0]}, {output(LASTBYTE, '--version').strip()}")
    about_this_machine()
    sent, pinged = defaultdict(list), defaultdict(list)
    for number in range(1, ROUNDS + 1):
        for name in PATHS:
            for congestion in CONGESTIONS:
                sent["lastbyte", name, congestion].append(send_over_lastbyte(name, congestion, number))
                sent["rattan", name, congestion].append(send_over_rattan(name, congestion, number))
            pinged["lastbyte", name].append(ping_over_lastbyte(name))
            pinged["rattan", name].append(ping_over_rattan(name, number))
    table_of_rates(sent)
    table_of_pings(pinged)


def our_words(name):
    path = PATHS[name]
    loss = f"--loss {path.loss_percent}% " if path.loss_percent else ""
    return f"--rtt {path.rtt_ms}ms {loss}--rate {path.rate_mbit}mbit --queue {path.queue_bytes}B"


def its_words(path):
    """It takes each direction by itself."""
    for way in ("uplink", "downlink"):
        values = {"bandwidth": f"{path.rate_mbit}Mbps", "queue": "droptail", "delay": f"{path.rtt_ms * 500}us",
                  "queue-args": f'{{"byte_limit":{path.queue_bytes}}}'}
        if path.loss_percent:
            values["loss"] = f"{path.loss_percent / 100:g}"
        for name, value in values.items():
            yield from (f"--{way}-{name}", value)


def send_over_lastbyte(name, congestion, seed):
    iperf, link, _ = iperf3_over_link(f"{our_words(name)} --seed {seed}", "-C", congestion, "-t", SECONDS * 2)
    doubts(f"{name} {congestion}", link)
    return rate_and_cpu(iperf, link["cpu_s"])


def send_over_rattan(name, congestion, seed):
    file = scratch() / "iperf.json"
    file.unlink(missing_ok=True)
    client = f'iperf3 -c "$RATTAN_BASE" -4 -J -C {congestion} -t {SECONDS * 2} > {file}\nsleep 0.4'
    with iperf3_server():
        cpu = over_rattan(name, seed, client)
    return rate_and_cpu(said_by_iperf3(file), cpu)


def rate_and_cpu(iperf, cpu_s):
    received = iperf["sum_received"]
    return received["bits_per_second"] / 1e6, cpu_s / (received["bytes"] / 1e9)


def over_rattan(name, seed, script):
    """Runs a shell's words behind it; returns the processor seconds of its own threads, not of what it started."""
    # A word that begins with a dash would be taken for an option of its own, so these are in a file.
    near, config = scratch() / "near.sh", scratch() / "rattan.toml"
    near.write_text(script)
    config.write_text(configuration(name, seed))
    with subprocess.Popen([RATTAN, "run", "--config", config, "--left", "sh", near], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as ran:
        # Threads that end take theirs with them; it has to be idle for a moment before it ends.
        most = 0
        while ran.poll() is None:
            most = max(most, processes.cpu_s([ran.pid]))
            time.sleep(0.1)
    return most


def configuration(name, seed):
    """What it is to run: a path with losses by this seed, another one each way."""
    text = output(RATTAN, "link", *its_words(PATHS[name]), "--generate").split("\n[commands]")[0]
    trace = scratch() / "loss.toml"
    for pattern in re.findall(r"^pattern = (.*)$", text, re.MULTILINE):
        trace.write_text(f'[StaticLossConfig]\nloss = {pattern}\nduration = "1h"\n')
    text = re.sub(r"^pattern = .*\n?", "", text, flags=re.MULTILINE)
    seeds = itertools.count(seed, 1000)
    replay = lambda _: f'type = "LossReplay"\ntrace = "{trace}"\nseed = {next(seeds)}'
    return re.sub(r'^type = "Loss".*$', replay, text, flags=re.MULTILINE) + "\n"


# 100 of a ping's round trips; the first may have to find its neighbour.
PING = "ping -n -c 100 -i 0.02"


def ping_over_lastbyte(name):
    _, printed, _ = Program(LASTBYTE, "link", "run", "-q", *our_words(name).split(), "--", *PING.split(), "far").end()
    return printed


def ping_over_rattan(name, seed):
    file = scratch() / "ping"
    over_rattan(name, seed, f'{PING} "$RATTAN_BASE" > {file}')
    return file.read_text()


def table_of_rates(sent):
    table = Table("path:<12  with:<5  over:<8  median:7.2f min:7.2f max:7.2f  of limit:8.3f  link, s/GB:12.2f")
    for name, path in PATHS.items():
        for congestion in CONGESTIONS:
            medians = []
            for who in WHO:
                rates, cpus = map(spread, zip(*sent[who, name, congestion]))
                medians.append(rates.median)
                table.row(name, congestion, who, *rates, rates.median / path.rate_mbit / 1448 * 1500, cpus.median)
            print(f"              lastbyte / rattan = {medians[0] / medians[1]:.6g}")


def table_of_pings(pinged):
    print("round trips of an idle link, ms: asked; mean (the rounds' median), median and 99 % of ping")
    for name, path in PATHS.items():
        for who in WHO:
            mean, _ = p50_p99(ping_means(pinged[who, name]))
            p50, p99 = p50_p99(ping_times(pinged[who, name]))
            print(f"{name:12}  {who:8}  {path.rtt_ms:5d}  {mean:>8} {p50:>8} {p99:>8}")
