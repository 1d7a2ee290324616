"""What all parts use: a link with iperf3 over it, what both say, and how figures are put."""

import contextlib
import functools
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections import namedtuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))  # for what benches share
import processes  # noqa: E402

LASTBYTE = os.environ.get("LASTBYTE") or str(ROOT / "target/release/lastbyte")
SECONDS = int(os.environ.get("SECONDS_PER_RUN") or 10)
ROUNDS = int(os.environ.get("ROUNDS") or 3)
CONGESTIONS = ("cubic", "bbr")


class Failed(Exception):
    """Something did not come to its end."""


@functools.cache
def scratch():
    return pathlib.Path(tempfile.mkdtemp())


def lastbyte(*words):
    """What it printed."""
    return output(LASTBYTE, *words)


def output(*command):
    code, printed, complaints = Program(*command).end()
    if code != 0:
        raise Failed(f"{' '.join(command)} ended with {code}: {complaints.strip()[-300:]}")
    return printed


class Program:
    """One that runs. What it prints goes to files: a pipe would also wait for what it leaves behind."""

    def __init__(self, *command):
        self.files = [tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")]
        out, err = self.files
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    def end(self):
        """Waits for it; its exit code, and what it printed, out and err."""
        code, texts = self.process.wait(), []
        for file in self.files:
            with file:
                file.seek(0)
                texts.append(file.read())
        return code, *texts


Run = namedtuple("Run", "iperf link datagrams")

# The near end's shell: $0 is the file for what iperf3 says. The server has a moment to count.
CLIENT = """if [ -n "$1" ]; then echo "4096 16384 $1" > /proc/sys/net/ipv4/tcp_wmem; fi
shift; iperf3 -c far -4 -J "$@" > "$0"; sleep 0.4"""


def iperf3_over_link(path, *words, send_buffer=""):
    """iperf3 from near to far over a path with these options: what it said, what the link said that it did, and the
    far host's counters of datagrams. The near kernel may size its buffers up to `send_buffer`.
    """
    iperf, link, snmp = (scratch() / name for name in ("iperf.json", "link.json", "snmp"))
    iperf.unlink(missing_ok=True)
    lastbyte("link", "run", *path.split(), "--quiet", "--report", str(link),
             "--far", f"iperf3 -s -1 > /dev/null; cat /proc/net/snmp > {snmp}",
             "--", "sh", "-c", CLIENT, str(iperf), str(send_buffer), *map(str, words))
    [_, datagrams] = [line.split()[1:] for line in snmp.read_text().splitlines() if line.startswith("Udp:")]
    return Run(said_by_iperf3(iperf), json.loads(link.read_text()), [int(count) for count in datagrams])


def said_by_iperf3(file):
    said = json.loads(file.read_text())
    if "error" in said:
        raise Failed(f"iperf3: {said['error']}")
    return said["end"]


@contextlib.contextmanager
def iperf3_server(*inside):
    """It serves one test, on the host that these words lead to."""
    with subprocess.Popen([*inside, "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL) as server:
        try:
            if not soon(lambda: ":5201" in output(*inside, "ss", "-Htln")):
                raise Failed("the server does not listen")
            yield
        finally:
            server.kill()


def soon(looks):
    """Looks every 50 ms, at most for 10 s, whether something is so."""
    until = time.monotonic() + 10
    while not (found := looks()) and time.monotonic() < until:
        time.sleep(0.05)
    return found


def doubts(name, link):
    """What the link says against a run."""
    if link["broken_promise"]:
        print(f"{name}: do not believe this run: {link['broken_promise']}")


Spread = namedtuple("Spread", "median low high")


def spread(values):
    """Figures, or what a program printed of them."""
    ordered = sorted(values, key=float)
    return Spread(ordered[(len(ordered) - 1) // 2], ordered[0], ordered[-1])


def verdict(ratio, within, digits=3):
    """A ratio, and whether it is as near to 1 as it should be."""
    return f"{ratio:.{digits}f} {'inside' if abs(ratio - 1) <= within else 'SHORT'}"


class Table:
    """Prints rows under a heading: columns such as `median:7.2f`, with the spaces between them."""

    def __init__(self, text):
        columns = re.findall(r"(\S.*?):([<>]?(\d+)\S*)(\s*)", text)
        self.rows = "".join(f"{{:{form}}}{gap}" for _, form, _, gap in columns)
        sides = {True: "<", False: ">"}
        print("".join(f"{name:{sides[form[0] == '<']}{width}}{gap}" for name, form, width, gap in columns))

    def row(self, *cells):
        print(self.rows.format(*cells))


def about_this_machine():
    iperf3 = " ".join(output("iperf3", "--version").split()[:2])
    print(f"Linux {os.uname().release.split('-')[0]}, {os.cpu_count()} processors, {iperf3}, busy before: load "
          f"{os.getloadavg()[0]:.2f}")


# --- ping: ms as it printed them, which from 100 on are without decimals for single round trips -----


def ping_times(texts):
    return [time for text in texts for time in re.findall(r"time=([0-9.]+) ms", text)]


def ping_means(texts):
    return [mean for text in texts for mean in re.findall(r"\nrtt min/avg/max/mdev = [0-9.]+/([0-9.]+)/", text)]


def p50_p99(found):
    ordered = sorted(found, key=float) or ["-"]
    return ordered[(len(ordered) - 1) // 2], ordered[math.ceil(len(ordered) * 0.99) - 1]
