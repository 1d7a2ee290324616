"""Runs each test with each proxy in turn, and keeps each sample: bench/gate.sh runs it, in its namespaces.

    python3 measure.py PART... > samples.jsonl

The parts are those of TESTS. A sample is a line of JSON: round, test, proxy, and figures with their
units, or an error.
"""

import ctypes
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import namedtuple

import proxies

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import processes  # noqa: E402

LOAD = os.environ["GATE_LOAD"]
ROUNDS = int(os.environ["ROUNDS"])
BYTES = int(os.environ["BYTES"])  # of a run of bulk, all flows together
MS = int(os.environ["MS"])  # of a run of connects and of ping
FLOWS = int(os.environ["FLOWS"])  # idle ones
AT_ONCE = 64  # rows of connects
IDLE = 3  # s, from the last byte of all flows until memory is looked at

# socat has a process for each flow, and they cost what they cost, however many there are.
FEWER_FLOWS = {"socat": min(200, FLOWS)}


def main():
    tests = [test for part in sys.argv[1:] for test in TESTS[part]]
    turn = subjects()
    for number in range(ROUNDS):
        for place, test in enumerate(tests):
            first = (number + place) % len(turn)
            for proxy in turn[first:] + turn[:first]:
                sample = {"round": number + 1, "test": test, "proxy": proxy}
                if (measured := taken(test, proxy)) is not None:
                    print(json.dumps(sample | measured), flush=True)
        say(f"round {number + 1} of {ROUNDS} is over")


def subjects():
    asked = os.environ.get("PROXIES", "").split(",") if os.environ.get("PROXIES") else None
    all_of_them = [proxies.GATE, *proxies.PEERS, proxies.DIRECT]
    if not proxies.has_gate():
        say("NOT MEASURED: this lastbyte has no command gate; the peers alone are")
        all_of_them.remove(proxies.GATE)
    return [each for each in all_of_them if asked is None or each in asked]


def taken(test, proxy):
    """The figures of one run, None where there is nothing to measure."""
    kind, argument = test.rsplit("-", 1)
    measure = {"bulk": bulk, "connects": connects, "ping": ping, "idle": idle, LASTING: connects}[kind]
    if measure is idle and proxy == proxies.DIRECT:
        return None
    try:
        with Bed(proxy, KERNELS if kind == LASTING else PLENTY) as bed:
            others = Others(bed)
            return measure(bed, int(argument)) | {"others_percent": others.percent()}
    except (Failed, subprocess.TimeoutExpired, OSError) as error:
        say(f"{proxy}: {test}: {error}")
        return {"error": str(error)}


# --- the tests -----------------------------------------------------------------------------------

# As connects, but with the kernel's own settings for ports, and for so long that all of them have been
# in use: what a proxy meets whose clients do not stop.
LASTING = "lasting-connects"
LASTING_MS = 2 * MS

# The number is that of flows, rows or connections; of idle the bytes that each flow has moved before.
TESTS = {
    "bulk": ["bulk-1", "bulk-8"],
    "connects": [f"connects-{AT_ONCE}", f"{LASTING}-{AT_ONCE}"],
    "ping": ["ping-1", "ping-32"],
    "memory": ["idle-1024", "idle-1048576"],
}


def bulk(bed, flows):
    before = bed.cpu()
    told = bed.load("bulk", flows=flows, bytes=BYTES)
    user, system = bed.cpu_since(before)
    gb = told["bytes"] / 1e9
    figures = {"gb_per_s": gb / told["seconds"], "seconds": told["seconds"]}
    if bed.roots:
        figures |= {"user_s_per_gb": user / gb, "sys_s_per_gb": system / gb}
        figures |= {"cpu_s_per_gb": (user + system) / gb}
    return figures


def connects(bed, rows):
    before = bed.cpu()
    told = bed.load("connects", **{"at-once": rows, "ms": bed.settings.ms})
    user, system = bed.cpu_since(before)
    completed = told["completed"]
    figures = {"per_s": completed / told["seconds"], "completed": completed}
    figures |= {"failed": told["failed"], "errors": told["errors"]}
    if bed.roots and completed:
        figures |= {"user_us": user * 1e6 / completed, "sys_us": system * 1e6 / completed}
        figures |= {"cpu_us": (user + system) * 1e6 / completed}
    return figures


def ping(bed, connections):
    return bed.load("ping", connections=connections, ms=MS)


def idle(bed, moved):
    flows = FEWER_FLOWS.get(bed.proxy, FLOWS)
    before = bed.memory()
    command = bed.command("hold", flows=flows, bytes=moved)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as load:
        try:
            if not load.stdout.readline():
                raise Failed(f"{flows} flows could not be held")
            time.sleep(IDLE)
            after = bed.memory()
        finally:
            load.kill()
    # KB are 1000 bytes here, and 1024 in /proc.
    grown = {key: (after[key] - before[key]) * 1.024 / flows for key in after}
    return {"flows": flows} | {f"{key}_kb_per_flow": value for key, value in grown.items()}


# --- one proxy between client and upstream -------------------------------------------------------


class Failed(Exception):
    """A run that did not come to its end."""


class Bed:
    """A network of its own with the upstream and one proxy, both fresh, and both gone afterwards."""

    def __init__(self, proxy, settings):
        self.proxy, self.settings = proxy, settings
        self.to = proxies.UPSTREAM if proxy == proxies.DIRECT else proxies.LISTEN
        self.started, self.roots = [], []

    def __enter__(self):
        enter_a_network(self.settings)
        self.folder = tempfile.TemporaryDirectory()
        try:
            self.start([LOAD, "serve", f"listen={proxies.UPSTREAM}"])
            wait_for_echo(proxies.UPSTREAM)
            for command in proxies.commands_of(self.proxy, self.folder.name):
                self.roots.append(self.start(command))
            wait_for_echo(self.to)
            # The child that served this one connection has ended by then.
            time.sleep(0.3)
            self.at_rest = len(processes.tree(self.roots))
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self, command):
        log = open(f"{self.folder.name}/log", "ab")
        with log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.started.append(process)
        return process.pid

    def __exit__(self, *_):
        for pid in processes.tree([process.pid for process in self.started]):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for process in self.started:
            process.wait()
        self.folder.cleanup()

    def command(self, mode, **words):
        return [LOAD, mode, f"to={self.to}", *(f"{key}={value}" for key, value in words.items())]

    def load(self, mode, **words):
        """What the load said of itself."""
        command = self.command(mode, **words)
        ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
        if ran.returncode != 0:
            raise Failed(ran.stderr.strip())
        return json.loads(ran.stdout)

    def cpu(self):
        return processes.times(processes.tree(self.roots))

    def cpu_since(self, before):
        """When its part is done: children that served one flow have ended, and nothing runs on."""
        until = time.monotonic() + 5
        last = self.cpu()
        while time.monotonic() < until:
            time.sleep(0.1)
            now = self.cpu()
            if now == last and len(processes.tree(self.roots)) <= self.at_rest:
                break
            last = now
        return now[0] - before[0], now[1] - before[1]

    def memory(self):
        """Of all its processes, in units of 1024 bytes: proc(5), smaps_rollup."""
        keys = {"Pss": "pss", "Private_Dirty": "dirty", "Rss": "rss"}
        found = processes.memory(processes.tree(self.roots), *keys)
        return {keys[key]: value for key, value in found.items()}


class Others:
    """How much of the machine others took from a run: with much of it, the figures are not to be believed."""

    def __init__(self, bed):
        self.bed = bed
        self.began, self.before = time.monotonic(), self.used()

    def percent(self):
        available = (time.monotonic() - self.began) * os.cpu_count()
        return max(0, self.used() - self.before) / available * 100

    def used(self):
        """Processor time in s that is nobody's here: the machine's, less ours."""
        ours = sum(processes.times(processes.tree([process.pid for process in self.bed.started])))
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
            usage = resource.getrusage(who)
            ours += usage.ru_utime + usage.ru_stime
        return processes.machine_s() - ours


def wait_for_echo(address):
    """Until a byte comes back through it."""
    host, port = address.split(":")
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            with socket.create_connection((host, int(port)), timeout=1) as tried:
                tried.sendall(b"E!")
                if tried.recv(1) == b"!":
                    name = tried.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
                    if name.rstrip(b"\0") != b"cubic":
                        raise Failed(f"the congestion control is {name}")
                    return
        except OSError:
            pass
        time.sleep(0.02)
    raise Failed(f"nothing relays at {address} after 10 s")


# --- the system ----------------------------------------------------------------------------------

# How a network is set, and how long a run of connects is in it, in ms.
Settings = namedtuple("Settings", "sysctls ms")

COMMON = {
    "net/ipv4/tcp_max_tw_buckets": "1000000",
    "net/ipv4/tcp_max_syn_backlog": "16384",
    "net/core/somaxconn": "16384",
}
KERNELS = Settings(COMMON, LASTING_MS)
# An end of a connection that is remembered may be used again after 0.1 s, so that no proxy runs out
# of ports towards the one upstream.
PLENTY = Settings(
    COMMON
    | {
        "net/ipv4/ip_local_port_range": "10000 65535",
        "net/ipv4/tcp_tw_reuse": "1",
        "net/ipv4/tcp_tw_reuse_delay": "100",
    },
    MS,
)
NEWER = {"net/ipv4/tcp_tw_reuse_delay"}  # Linux 6.14

CLONE_NEWNET = 0x4000_0000  # sched.h
LIBC = ctypes.CDLL(None, use_errno=True)


def enter_a_network(settings):
    """A new one for this process and what it starts: nothing is left in it from the run before."""
    if LIBC.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    # The default of a network may be set to what the machine's owner has allowed alone. A route's
    # holds for whoever asks for nothing: both sockets of all proxies.
    for network in ("127.0.0.0/8", "127.0.0.1"):
        local = f"local {network} dev lo table local proto kernel scope host src 127.0.0.1"
        command = ["ip", "route", "replace", *local.split(), "congctl", "cubic"]
        subprocess.run(command, check=True)
    for name, value in settings.sysctls.items():
        if name in NEWER and not os.path.exists(f"/proc/sys/{name}"):
            continue
        with open(f"/proc/sys/{name}", "w") as file:
            file.write(value)


def say(words):
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
