#!/usr/bin/env python3
"""What the doctor finds where a machine refuses it something: each program on each kind of machine.

    matrix.py build                      the programs, into target/matrix
    matrix.py run [--columns A,B] [--rows A,B] [--rounds N] [--output FILE]
                                         one JSON line for each run; as root
    matrix.py render FILE...             those lines as a table of Markdown

A run has a network namespace of its own, which goes with it. Bytes lost are counted by the peer: what the
program wrote and the peer never got. Needs the debug build of lastbyte, cc, curl, nginx and iproute2; what is
not there is NOT TESTED. The kinds of machine are played on this one (`COLUMNS` says how), but for `kernel`,
which is the machine as it is: scripts/kernels.sh runs that on others.
"""

import argparse
import json
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

TREE = pathlib.Path(__file__).resolve().parents[2]
BUILT = TREE / "target" / "matrix"
LASTBYTE = TREE / "target" / "debug" / "lastbyte"
PYTHON = "/usr/bin/python3"  # one that an ordinary user can run too
LIMIT_S = 240  # where processors are emulated all takes ten times as long

# --- kinds of machine ------------------------------------------------------------------------------

MAP_ITERATORS = "iter/bpf_sk_storage_map,iter/bpf_map_elem,iter/sockmap"
MOUNT_TRACEFS = "mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing"
NO_TRACEFS = "! mountpoint -q /sys/kernel/tracing || umount /sys/kernel/tracing; umount -q /sys/kernel/debug || :"
# What a container of docker has by default.
CAPABILITIES = (
    "-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,+net_bind_service,+net_raw,"
    "+sys_chroot,+mknod,+audit_write,+setfcap"
)
NOBODY = ["--reuid", "65534", "--regid", "65534", "--clear-groups"]

# Title; a command in the private mount namespace first; words before the doctor's; namespaces more.
COLUMNS = {
    "all": ("all BPF", "", [], []),
    "no-map-iterators": ("no BPF iterators over maps", "", ["REFUSE", MAP_ITERATORS], []),
    "no-iterators": ("no BPF iterators", "", ["REFUSE", "iter"], []),
    "denied": ("BPF refused, tracefs mounted", MOUNT_TRACEFS, ["REFUSE", "all"], []),
    "no-btf": ("no BTF", f"mount -t tmpfs none /sys/kernel/btf; {MOUNT_TRACEFS}", [], []),
    "no-tracefs": ("BPF refused, tracefs not mounted", NO_TRACEFS, ["REFUSE", "all"], []),
    "no-tracing": (
        "BPF and tracefs refused (no CAP_SYS_ADMIN)",
        NO_TRACEFS,
        ["REFUSE", "all", "setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"],
        [],
    ),
    "user": ("no root", "", ["setpriv", *NOBODY, "--inh-caps=-all", "--bounding-set=-all"], []),
    "container": (
        "container",
        NO_TRACEFS,
        ["setpriv", f"--bounding-set={CAPABILITIES}", "--inh-caps=-all"],
        ["--pid", "--fork", "--mount-proc", "--uts", "--ipc"],
    ),
    "kernel": (f"Linux {platform.release().split('-')[0]}", "", [], []),
}

# --- programs --------------------------------------------------------------------------------------

# The patient, what its peer does, and the bytes that are lost by what both of them said.
UNREAD = "hold wait:350 send:6 wait:200 read"
LATE = "hold wait:350 send:1 wait:200 read"


def missing(patient, peer):
    return patient["written"] - peer["received"]


PATIENTS = {
    "LB101": ("lb101_unread", UNREAD, missing),
    "LB102": ("lb102_exit", LATE, lambda patient, peer: missing(patient, peer) + peer["sent"]),
    "LB103": ("lb103_linger", LATE, missing),
    "LB104": ("lb104_late_data", LATE, lambda patient, peer: missing(patient, peer) + peer["sent"]),
    "LB105": ("lb105_unconfirmed", "read:1000 send:1 wait:350 reset", lambda patient, peer: patient["written"] - peer["taken"]),
    "LB107": ("lb107_unix", UNREAD, lambda patient, peer: peer["sent"] - patient["read"]),
}

ROWS = {
    "quiz": ("`lastbyte quiz`", "LB101"),
    "short-close": ("both ends, closed with unread input at once", "LB101"),
    "short-later": ("the same after 100 ms", "LB101"),
    "short-linger": ("both ends, SO_LINGER 0", "LB103"),
    "short-sendfile": ("both ends, `sendfile` and close", "LB101"),
    "short-exit": ("both ends, exit with unread input", "LB101"),
    "LB101": ("closed with unread input", "LB101"),
    "LB102": ("exit with unacknowledged data", "LB102"),
    "LB103": ("SO_LINGER 0", "LB103"),
    "LB104": ("data came after close", "LB104"),
    "LB105": ("peer resets", "LB105"),
    "LB107": ("Unix socket closed with unread input", "LB107"),
    "curl": ("healthy: curl, 5 MB", None),
    "nginx": ("healthy: nginx, 20 requests", None),
}


class NotTested(Exception):
    """Something is not on this machine."""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["build", "run", "render", "cell"])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--columns", default=",".join(name for name in COLUMNS if name != "kernel"))
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output")
    words = parser.parse_args()
    if words.what == "build":
        build()
    elif words.what == "cell":
        print(json.dumps(cell(*words.files)), flush=True)
    elif words.what == "render":
        lines = [json.loads(line) for name in words.files for line in open(name, encoding="utf-8")]
        print(render(lines))
    else:
        sys.exit(run(words))


def build():
    BUILT.mkdir(parents=True, exist_ok=True)
    sources = {name: TREE / "clinic" / "c" / f"{name}.c" for name, _, _ in PATIENTS.values()}
    sources["refuse"] = TREE / "bench" / "doctor" / "refuse.c"
    for name, source in sources.items():
        subprocess.run(["cc", "-O2", "-o", BUILT / name, source], check=True)


def run(words):
    """Each round plays each cell once, so that a noisy spell meets all of them."""
    to = open(words.output, "w", encoding="utf-8") if words.output else sys.stdout
    bad = 0
    for round_number in range(words.rounds):
        for column in words.columns.split(","):
            for row in words.rows.split(","):
                result = in_namespaces(column, row) | {"column": column, "row": row, "round": round_number}
                bad += verdict_of(result)[1]
                print(json.dumps(result), file=to, flush=True)
                print(f"{round_number} {column:17} {row:15} {verdict_of(result)[0]}", file=sys.stderr, flush=True)
    return 1 if bad else 0


def in_namespaces(column, row):
    more = COLUMNS[column][3]
    words = ["unshare", "--net", "--mount", *more, sys.executable, __file__, "cell", column, row]
    done = subprocess.run(words, capture_output=True, text=True, timeout=3 * LIMIT_S, check=False)
    if done.returncode != 0:
        return {"broken": done.stderr.strip()[-600:]}
    return json.loads(done.stdout)


# --- one run, in its namespaces --------------------------------------------------------------------


def cell(column, row):
    _, first, before, _ = COLUMNS[column]
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    if first:
        subprocess.run(["sh", "-c", first], check=True)
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="matrix-"))
    scratch.chmod(0o777)
    try:
        before = [str(BUILT / "refuse") if word == "REFUSE" else word for word in before]
        return Cell(scratch, before, column).play(row)
    except NotTested as why:
        return {"not_tested": str(why), "kernel": platform.release()}
    finally:
        shutil.rmtree(scratch)


class Cell:
    """A place for one program under the doctor."""

    def __init__(self, scratch, before, column):
        self.scratch, self.before, self.column = scratch, before, column
        self.answer = scratch / "answer"

    def play(self, row):
        if row in PATIENTS:
            lost, code = self.patient(*PATIENTS[row])
        elif row.startswith("short-"):
            lost, code = self.short(row.removeprefix("short-"))
        else:
            lost, code = getattr(self, row)()
        lines = [json.loads(line) for line in self.answer.read_text(encoding="utf-8").splitlines()]
        end = lines[-1]
        found = [line for line in lines if line["type"] == "finding" and line["class"] == "loss"]
        notes = [line for line in lines if line["type"] == "finding" and line["class"] == "note"]
        return {
            "kernel": platform.release(),
            "tier": end["tier"],
            "lost": lost,
            "exit": code,
            "codes": sorted({line["code"] for line in found}),
            "notes": {line["code"]: line["bytes"] for line in notes},
            "bytes": end["bytes_lost"],
            "precision": end["bytes_lost_precision"],
            "sees_each_loss": end["sees_each_loss"],
        }

    def watch(self, program, **more):
        doctor = [LASTBYTE, "doctor", "--json", "--all", "--fail-on", "loss", "--output", self.answer, "--"]
        environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", HOME=str(self.scratch))
        return subprocess.Popen([*self.before, *doctor, *program], cwd=self.scratch, env=environment, **more)

    def watch_to_end(self, program):
        process = self.watch(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        said, talk = process.communicate(timeout=LIMIT_S)
        if not self.answer.exists():
            raise RuntimeError(f"the doctor ended with {process.returncode}: {talk}")
        return said, process.returncode

    def quiz(self):
        # Over a path where one can be made, else over loopback, where all may arrive.
        path = [] if self.column in ("user", "container") else ["--rtt", "20ms"]
        said, code = self.watch_to_end([LASTBYTE, "quiz", "--method", "close", "--runs", "1", "--json", *path])
        line = json.loads(said.splitlines()[0])
        return line["written_bytes"] - line["arrived_bytes"], code

    def short(self, kind):
        said, code = self.watch_to_end([PYTHON, TREE / "bench" / "doctor" / "short.py", kind])
        line = json.loads(said.splitlines()[-1])
        return line["written"] - line["received"], code

    def patient(self, program, steps, lost):
        at, host = "127.0.0.1", []
        if program == "lb107_unix":
            at = f"unix:{self.scratch}/socket"
        peer_words = [PYTHON, TREE / "clinic" / "peer.py", "serve", at, *steps.split()]
        peer = subprocess.Popen(peer_words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        port = json.loads(peer.stdout.readline())["port"]
        if program == "lb107_unix":
            (self.scratch / "socket").chmod(0o777)
            host = ["unix", f"{self.scratch}/socket"]
        else:
            host = [at, str(port)]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        process = self.watch([BUILT / program, "sick", *host], text=True, **pipes)
        timer = threading.Timer(LIMIT_S, process.kill)
        timer.start()
        said = {}
        for line in process.stdout:
            said |= json.loads(line)
            if "written" in line:
                peer.stdin.write("\n")
                peer.stdin.flush()
        code = process.wait()
        timer.cancel()
        peer.stdin.close()
        told = json.loads(peer.stdout.read().splitlines()[-1])
        peer.wait(LIMIT_S)
        return lost(said, told), code

    def curl(self):
        need("curl")
        (self.scratch / "file").write_bytes(bytes(5_000_000))
        server = [PYTHON, "-u", "-m", "http.server", "--bind", "127.0.0.1", "--directory", self.scratch, "0"]
        server = subprocess.Popen(server, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            port = server.stdout.readline().split(" port ")[1].split()[0]
            url = f"http://127.0.0.1:{port}/file"
            got, code = self.watch_to_end(["curl", "-q", "-sS", "-o", "got", "-w", "%{size_download}", "--noproxy", "*", url])
        finally:
            server.kill()
            server.wait()
        return 5_000_000 - int(got), code

    def nginx(self):
        need("curl")
        place = self.scratch
        (place / "file").write_bytes(bytes(500_000))
        temporary = "".join(f"{kind}_temp_path {place}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (place / "nginx.conf").write_text(
            f"daemon off; pid {place}/nginx.pid; error_log /dev/null; worker_processes 2; events {{}}\n"
            f"http {{ access_log off; sendfile on; {temporary} server {{ listen 127.0.0.1:8080; root {place}; }} }}\n"
        )
        nginx = need("nginx")
        program = [nginx, "-e", "/dev/null", "-p", place, "-c", place / "nginx.conf"]
        process = self.watch(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + LIMIT_S
        curl = ["curl", "-q", "-sS", "-o", "/dev/null", "-w", "%{size_download}", "--noproxy", "*", "http://127.0.0.1:8080/file"]
        lost, served = 0, 0
        while served < 20 and time.monotonic() < until:
            done = subprocess.run(curl, capture_output=True, text=True, check=False)
            if done.returncode == 7 and served == 0:
                time.sleep(0.05)  # not listening yet
                continue
            lost += 500_000 - int(done.stdout)
            served += 1
        time.sleep(0.2)
        os.kill(int((place / "nginx.pid").read_text(encoding="utf-8")), signal.SIGQUIT)
        code = process.wait(LIMIT_S)
        if served < 20:
            raise RuntimeError("nginx did not answer")
        return lost, code


def need(program):
    found = shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if found is None:
        raise NotTested(f"there is no {program} here")
    return found


# --- the table -------------------------------------------------------------------------------------


def verdict_of(result):
    """In words, and whether it is a fault of the doctor's."""
    if "not_tested" in result:
        return "NOT TESTED", False
    if "broken" in result:
        return "BROKEN: " + result["broken"].splitlines()[-1], True
    row = result["row"] if "row" in result else ""
    lost, told, codes = result["lost"], result["bytes"], result["codes"]
    if not lost:
        # The quiz by loopback: a greeting was left unread, though all that was written arrived.
        if codes == ["LB110"] and told == 0 and ROWS[row][1]:
            return "LB110, at least 0 of 0", False
        if codes:
            return f"FALSE ALARM: {' '.join(codes)}", True
        return ("none" if result["sees_each_loss"] else "none, in doubt"), False
    if not codes:
        noted = result.get("notes", {})
        if result["exit"] == 2 and ROWS[row][1] in noted:
            return f"a note of {ROWS[row][1]}, {noted[ROWS[row][1]] or 0:,} of {lost:,}; in doubt (exit 2)", False
        if result["exit"] == 2:
            return "in doubt (exit 2)", False
        return "MISSED", True
    expected = ROWS[row][1]
    is_near = abs(told - lost) <= lost / 10
    holds = {"exact": told == lost, "at_most": told >= lost, "at_least": told <= lost, "about": is_near}
    if not holds[result["precision"]]:
        return f"WRONG: {' '.join(codes)}, {result['precision']} {told:,} of {lost:,}", True
    how = {"exact": "exactly", "at_most": "at most", "at_least": "at least", "about": "about"}[result["precision"]]
    name = " ".join(codes) if expected in codes or "LB110" in codes else f"{' '.join(codes)} (is {expected})"
    return (f"{name}, exactly" if how == "exactly" else f"{name}, {how} {told:,} of {lost:,}"), False


def render(lines):
    """One row for each program; in a cell what the runs said, each answer with how often."""
    columns = []
    for line in lines:
        if (title := title_of(line)) not in columns:
            columns.append(title)
    kernels = sorted({line["kernel"] for line in lines if "kernel" in line})
    out = [f"Kernels: {', '.join(kernels)}.", ""]
    for title in columns:
        of_column = [line for line in lines if title_of(line) == title]
        tiers = sorted({line["tier"] for line in of_column if "tier" in line})
        out += [f"### {title} (tier {', '.join(tiers)})", "", "| Program | Reported; bytes of bytes that the peer counted |", "|---|---|"]
        for row, (name, expected) in ROWS.items():
            said = {}
            for line in (line for line in of_column if line["row"] == row):
                said.setdefault(shape(line), []).append(verdict_of(line)[0])
            if said:
                words = "; ".join(f"{len(one)} × {one[0]}" for one in said.values())
                out.append(f"| {name}{f' ({expected})' if expected else ''} | {words} |")
        out.append("")
    faults = sum(verdict_of(line)[1] for line in lines)
    untested = sum("not_tested" in line for line in lines)
    out.append(f"{len(lines)} runs, {faults} faults, {untested} not tested.")
    return "\n".join(out)


def title_of(line):
    if line["column"] == "kernel" and "kernel" in line:
        return f"Linux {line['kernel']}"
    return COLUMNS[line["column"]][0]


def shape(line):
    """Answers of one kind are counted together, whatever their numbers."""
    text, fault = verdict_of(line)
    return "".join(one for one in text if not one.isdigit()) if not fault else text


if __name__ == "__main__":
    main()
