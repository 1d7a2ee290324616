"""What the doctor costs: bench/doctor.sh runs it, in its namespaces.

    python3 measure.py [PART...]

A watched run and one without take turns, the first of a round another one each time. A ratio is that of two
runs of one round; given is the median of those, with the least and the most.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import processes  # noqa: E402

LASTBYTE = os.environ["LASTBYTE"]
LOAD = os.environ["GATE_LOAD"]
ROUNDS = int(os.environ["ROUNDS"])
MS = int(os.environ["MS"])
BYTES = int(os.environ["BYTES"])
SAMPLES = os.environ["SAMPLES"]

# What watches, by the name of the arm; {server} is the server's process.
ARMS = {
    "not watched": None,
    "always on": ["--calls", "never"],
    "with windows": ["--calls", "windows"],
    "its calls too": ["--pid", "{server}", "--calls", "watched"],
    "tracefs": ["--tier", "tracefs", "--calls", "never"],
    "procfs": ["--tier", "procfs"],
}


def main():
    parts = sys.argv[1:] or list(PARTS)
    with open(SAMPLES, "w") as samples:
        for part in parts:
            for line in PARTS[part](samples):
                print(line, flush=True)


# --- what it costs others ------------------------------------------------------------------------


def connects(samples):
    yield "## A server of short connections"
    yield f"connect, one byte each way, close, for {MS / 1000:.0f} s; connections per second"
    yield from beside(samples, "connects", lambda to: load("connects", to, "at-once=64", f"ms={MS}"),
                      lambda told: told["completed"] / told["seconds"])


def bulk(samples):
    yield "## A bulk flow"
    yield f"{BYTES / 1e9:.0f} GB over loopback, counted at the receiver; GB/s"
    yield from beside(samples, "bulk", lambda to: load("bulk", to, "flows=1", f"bytes={BYTES}"),
                      lambda told: told["bytes"] / told["seconds"] / 1e9)


def beside(samples, test, run, figure):
    figures = {arm: [] for arm in ARMS}
    own = {arm: [] for arm in ARMS}
    for number in range(ROUNDS):
        arms = list(ARMS)
        arms = arms[number % len(arms):] + arms[:number % len(arms)]
        for arm in arms:
            with Server() as server, Doctor(arm, server.pid) as doctor:
                before, began = doctor.cpu(), time.monotonic()
                told = run(server.address)
                spent = (doctor.cpu() - before) / (time.monotonic() - began)
            figures[arm].append(figure(told))
            own[arm].append(spent)
            sample = {"test": test, "round": number + 1, "arm": arm, "figure": figure(told),
                      "doctor_cpu": spent, "end": doctor.told}
            print(json.dumps(sample), file=samples, flush=True)
    yield f"{'':15} {'median':>9} {'least':>9} {'most':>9}   of not watched       doctor's CPU"
    for arm, values in figures.items():
        ratios = [value / free for value, free in zip(values, figures["not watched"])]
        yield (f"{arm:15} {statistics.median(values):9.5g} {min(values):9.5g} {max(values):9.5g}   "
               f"{statistics.median(ratios):.3f} ({min(ratios):.3f}..{max(ratios):.3f})  "
               f"{statistics.median(own[arm]) * 100:5.1f} %")
    yield ""


# --- what it costs itself ------------------------------------------------------------------------

WATCHED_S = 10


def own_cpu(samples):
    yield "## Its own processor time"
    yield f"1,000 sockets (500 connections), looked at for {WATCHED_S} s; share of one processor"
    for arm in [arm for arm in ARMS if ARMS[arm] is not None]:
        values, looks = [], []
        for number in range(max(3, ROUNDS // 2)):
            with Server() as server, Held(server.address, 500), Doctor(arm, server.pid) as doctor:
                time.sleep(2)
                before, began = doctor.cpu(), time.monotonic()
                time.sleep(WATCHED_S)
                values.append((doctor.cpu() - before) / (time.monotonic() - began))
            looks.append(doctor.told["looks_per_s"])
            print(json.dumps({"test": "own", "round": number + 1, "arm": arm, "cpu": values[-1],
                              "end": doctor.told}), file=samples, flush=True)
        yield (f"{arm:15} {statistics.median(values) * 100:5.2f} % "
               f"({min(values) * 100:.2f}..{max(values) * 100:.2f}), "
               f"{statistics.median(looks):.1f} looks a second ({min(looks):.1f}..{max(looks):.1f})")
    yield ""


def memory(samples):
    yield "## Its memory"
    yield "20,000 sockets (10,000 connections), after 15 s; MB (10^6 bytes), pages that are mapped twice counted once (Pss)"
    for arm in [arm for arm in ARMS if ARMS[arm] is not None]:
        with Server() as server, Doctor(arm, server.pid) as doctor:
            empty = doctor.pss()
            with Held(server.address, 9_900):
                time.sleep(15)
                full = doctor.pss()
                kernel = doctor.maps()
        print(json.dumps({"test": "memory", "arm": arm, "empty_bytes": empty, "full_bytes": full,
                          "maps_bytes": kernel, "end": doctor.told}), file=samples, flush=True)
        yield f"{arm:15} {full / 1e6:6.1f} MB, {empty / 1e6:.1f} before; BPF maps {kernel / 1e6:.1f} MB"
    yield ""


# --- how long one waits for it -------------------------------------------------------------------

STARTS = 10
# A program that says when it began.
FIRST = ["bash", "-c", "echo $EPOCHREALTIME"]


def starts(samples):
    yield "## From the command to the program's first line"
    yield f"{STARTS} times in turn, ms; the program is a shell that says what time it is"
    arms = {"not watched": [], **{tier: ["doctor", "--tier", tier, "--"] for tier in ("bpf", "tracefs", "procfs")}}
    took = {arm: [] for arm in arms}
    for number in range(STARTS):
        for arm, words in arms.items():
            before = time.time()
            told = subprocess.run([*([LASTBYTE, *words] if words else []), *FIRST], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True, check=True, timeout=60)
            took[arm].append((float(told.stdout) - before) * 1000)
            print(json.dumps({"test": "start", "round": number + 1, "arm": arm, "ms": took[arm][-1]}),
                  file=samples, flush=True)
    for arm, values in took.items():
        yield f"{arm:15} {statistics.median(values):6.1f} ms at the median, {max(values):.1f} at most"
    yield ""


# --- what it writes down ---------------------------------------------------------------------------

RECORDED_S = 10


def recording(samples):
    yield "## A recording"
    yield (f"the machine with 1,000 sockets that wait and a server of short connections, as fast as they go, "
           f"{RECORDED_S} s; MB (10^6 bytes) a second")
    for name, words in RECORDED.items():
        with tempfile.NamedTemporaryFile(suffix=".zst") as file:
            ARMS["recorded"] = [*words, "--record", file.name]
            with Server() as server, Held(server.address, 500), Doctor("recorded", server.pid) as doctor:
                began = time.monotonic()
                told = load("connects", server.address, "at-once=64", f"ms={RECORDED_S * 1000}")
                over = time.monotonic() - began + 1
            rate = os.path.getsize(file.name) / over
            again = subprocess.run([LASTBYTE, "doctor", "--replay", file.name, "--json"], stdout=subprocess.PIPE,
                                   text=True, check=True).stdout.splitlines()
        del ARMS["recorded"]
        same = findings_in(doctor.lines) == findings_in(again)
        print(json.dumps({"test": "recording", "arm": name, "bytes_per_s": rate, "same": same,
                          "connections": told["completed"], "end": doctor.told}), file=samples, flush=True)
        yield (f"{name:15} {rate / 1e6:6.3f} MB/s, {told['completed'] / told['seconds']:.0f} connections a second; "
               f"a replay finds {'the same' if same else 'SOMETHING ELSE'}")
    yield ""


RECORDED = {
    "bpf": ["--tier", "bpf"],
    "bpf, its calls": ["--tier", "bpf", "--pid", "{server}"],
    "procfs": ["--tier", "procfs"],
}


def findings_in(lines):
    """What was found, and what servers took."""
    told = [json.loads(line) for line in lines]
    return [one for one in told if one["type"] == "finding"], told[-1]["served"]


PARTS = {"connects": connects, "bulk": bulk, "own": own_cpu, "memory": memory, "start": starts,
         "recording": recording}

# --- programs --------------------------------------------------------------------------------------


class Server:
    def __enter__(self):
        self.address = f"127.0.0.1:{port()}"
        self.process = start([LOAD, "serve", f"listen={self.address}"])
        self.pid = self.process.pid
        if "ready" not in self.process.stdout.readline():
            raise SystemExit("the server did not start")
        return self

    def __exit__(self, *_):
        end(self.process)


class Held:
    """Connections that are held until the end."""

    def __init__(self, to, flows):
        self.process = start([LOAD, "hold", f"to={to}", f"flows={flows}", "bytes=1024"])
        self.process.stdout.readline()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end(self.process)


class Doctor:
    def __init__(self, arm, server):
        self.process, self.told = None, None
        if ARMS[arm] is None:
            return
        words = [word.format(server=server) for word in ARMS[arm]]
        self.process = start([LASTBYTE, "doctor", "--json", *words])
        began = json.loads(self.process.stdout.readline())
        if began["type"] != "began":
            raise SystemExit(f"the doctor did not begin: {began}")
        # What it reads at its beginning is not what it costs.
        time.sleep(1)

    def __enter__(self):
        return self

    def cpu(self):
        """Seconds of processor time so far, its own and the kernel's for it."""
        return sum(processes.times([self.process.pid])) if self.process else 0.0

    def pss(self):
        return processes.memory([self.process.pid], "Pss")["Pss"] * 1024

    def maps(self):
        """Memory of its BPF maps in the kernel, as fdinfo tells."""
        total = 0
        folder = f"/proc/{self.process.pid}/fdinfo"
        for entry in os.listdir(folder):
            for line in open(f"{folder}/{entry}"):
                if line.startswith("memlock:"):
                    total += int(line.split()[1])
        return total

    def __exit__(self, *_):
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            lines = self.process.communicate(timeout=20)[0].splitlines()
            self.lines = lines
            self.told = json.loads(lines[-1]) if lines else None


def start(words):
    """A program that ends with this one, also when this one is killed."""
    return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *words], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)


def load(mode, to, *words):
    told = subprocess.run([LOAD, mode, f"to={to}", *words], stdout=subprocess.PIPE, text=True, check=True,
                          timeout=300)
    return json.loads(told.stdout.splitlines()[-1])


def end(process):
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream:
            stream.close()


def port():
    """A new one each time: the former server's may still be waited for."""
    port.last = getattr(port, "last", 7000) + 1
    return port.last


main()
