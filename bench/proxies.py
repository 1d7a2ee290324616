#!/usr/bin/env python3
"""Tortures TCP proxies, each with what plain TCP does beside it: no proxy, HAProxy with splice and without, nginx
stream with its half-close and without, socat, rathole, and the gate; three of them once more with a link of 50 ms
before the upstream.

  make bench-torture             everything, about 40 minutes
  bench/proxies.py NAME...       some of: direct haproxy haproxy-splice nginx nginx-half-close socat rathole gate
                                 direct-link haproxy-link gate-link
  bench/proxies.py table         the table, from what was played last of each

Needs root and what `scripts/ensure.sh gate` installs. It runs in namespaces of its own (mounts, processes, network),
so that nothing of it stays, also when it is killed. Each case with its runs is kept in target/torture/NAME.jsonl; the
table, unless some are named, in bench/results/torture.txt and in docs/measured/torture.md.

OPTIONS (words for bench/torture, such as '--runs 1') changes how it is played; LASTBYTE, TORTURE and RATHOLE name the
binaries.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import document
import isolated

ROOT = pathlib.Path(__file__).resolve().parents[1]
LASTBYTE = os.environ.get("LASTBYTE") or str(ROOT / "target/release/lastbyte")
TORTURE = os.environ.setdefault("TORTURE", str(ROOT / "target/release/torture"))
RATHOLE = os.environ.get("RATHOLE") or str(ROOT / "target/peers/bin/rathole")
OPTIONS = os.environ.get("OPTIONS", "").split()
KEPT = ROOT / "target/torture"
SCRATCH = pathlib.Path("/run/tmp")

# In a network namespace of its own every port is free. To what is for documentation there is no way from there
# (RFC 5737).
LISTEN, UPSTREAM = "127.0.0.1:7001", "127.0.0.1:7000"
LISTEN_UNREACHABLE, UNREACHABLE = "127.0.0.1:7003", "192.0.2.1:9"
CONTROL = "127.0.0.1:7002"  # between the two halves of rathole


def main():
    names = sys.argv[1:]
    if names == ["table"]:
        return write_tables()
    if unknown := set(names) - set(NAMES):
        return isolated.refuse(f"bench/proxies.py: no {', '.join(unknown)}: say table, or some of {' '.join(NAMES)}, or "
                            "nothing for all")
    os.environ["PATH"] += ":/usr/sbin"  # where haproxy and nginx lie
    if not isolated.is_inside():
        code = isolated.run([sys.executable, __file__, *names], needs=[TORTURE])
        return code or (0 if names else write_tables())
    KEPT.mkdir(parents=True, exist_ok=True)
    for name in names or NAMES:
        say(f"{name}:")
        file = KEPT / f"{name}.jsonl"
        if is_here(name):
            file.write_text("".join(torture_one(name)))
        else:
            say(f"bench/proxies.py: NOT TESTED: {name} is not here, or this binary does not know it")
            file.unlink(missing_ok=True)
    return 0


def say(words):
    print(words, file=sys.stderr, flush=True)


# --- one proxy -------------------------------------------------------------------------------------


def torture_one(name):
    """A line for each case."""
    if name.endswith("-link"):
        return torture_over_link(name.removesuffix("-link"))
    if name == "direct":
        return play("--proxy", UPSTREAM, "--upstream", UPSTREAM)
    with Proxy(name, UPSTREAM) as proxy:
        rows = play("--proxy", LISTEN, "--upstream", UPSTREAM, "--unreachable", LISTEN_UNREACHABLE,
                    "--stop", f"kill -TERM {proxy.pids()}")
    # The last case kills the proxy; it gets one of its own for that.
    with Proxy(name, UPSTREAM) as proxy:
        killed = play("--proxy", LISTEN, "--upstream", UPSTREAM, "--only", "stop/killed",
                      "--kill", f"kill -KILL {proxy.pids()}")
    return [row for row in rows if '"stop/killed"' not in row] + killed


def torture_over_link(name):
    """The client and the proxy are in the near namespace, the server in the far one. Without a proxy the client
    connects over the link.
    """
    where = ["--proxy-namespace", "/run/netns/lastbyte-torture-near", "--upstream-namespace",
             "/run/netns/lastbyte-torture-far"]
    subprocess.run([LASTBYTE, "link", "up", "torture", "--rtt", "50ms"], stdout=subprocess.DEVNULL, check=True)
    near = [LASTBYTE, "link", "exec", "torture", "near", "--"]
    far = printed(*near, "getent", "ahostsv4", "far").split()[0] + ":7000"
    if name == "direct":
        rows = play("--proxy", far, "--upstream", far, *where)
    else:
        with Proxy(name, far, near):
            rows = play("--proxy", LISTEN, "--upstream", far, "--unreachable", LISTEN_UNREACHABLE, *where)
    subprocess.run([LASTBYTE, "link", "down", "torture"], stdout=subprocess.DEVNULL, check=True)
    return rows


def play(*words):
    """A case that fails is what this looks for: only misuse ends it."""
    command = [ROOT / "bench/torture", "--json", *OPTIONS, *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode not in (0, 1):
        say(ran.stderr)
        sys.exit(2)
    return ran.stdout.splitlines(keepends=True)


def printed(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


class Proxy:
    """A proxy of this name from LISTEN to an upstream, and from another address to where no way leads."""

    def __init__(self, name, upstream, inside=()):
        self.commands = PROXIES[name]([(LISTEN, upstream), (LISTEN_UNREACHABLE, UNREACHABLE)])
        self.inside = inside  # words that lead to its host

    def __enter__(self):
        with open(SCRATCH / "proxy.log", "wb") as log:
            streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": log}
            self.started = [subprocess.Popen([*self.inside, *command], **streams) for command in self.commands]
        for _ in range(100):
            if LISTEN in printed(*self.inside, "ss", "--listening", "--tcp", "--numeric"):
                return self
            time.sleep(0.1)
        say((SCRATCH / "proxy.log").read_text())
        say("bench/proxies.py: the proxy does not listen")
        sys.exit(2)

    def pids(self):
        return " ".join(str(process.pid) for process in self.started)

    def __exit__(self, *_):
        for process in self.started:
            process.kill()
            process.wait()


# --- the proxies -----------------------------------------------------------------------------------

# Each takes the pairs of an address to listen on and one to connect to, and returns the commands. None has a time
# limit that a case could meet; whatever else they do by default, they do.


def is_here(name):
    """Whether it can be started here; the words of a gate must be known to the binary."""
    proxy = name.removesuffix("-link")
    programs = [{"direct": "true", "gate": LASTBYTE, "rathole": RATHOLE}.get(proxy, proxy.split("-")[0])]
    programs += [LASTBYTE] if proxy != name else []
    if not all(map(shutil.which, programs)):
        return False
    knows_gate = [LASTBYTE, "gate", "--help"]
    return proxy != "gate" or subprocess.run(knows_gate, capture_output=True, check=False).returncode == 0


def gate(pairs):
    return [[LASTBYTE, "gate", "--log", "none", *(f"{listen}={to}" for listen, to in pairs)]]


def haproxy(pairs, option=""):
    """A process has 20,000 descriptors here: a connection takes two, a pipe two."""
    text = f"""
global
  maxconn 9000
  maxpipes 500
defaults
  mode tcp
  {option}
  timeout connect 5s
  timeout client 1h
  timeout server 1h
"""
    for listen, to in pairs:
        text += f"listen {listen}\n  bind {listen}\n  server upstream {to}\n"
    return [["haproxy", "-db", "-q", "-f", written("haproxy.cfg", text)]]


def nginx(pairs, option=""):
    servers = "\n".join(f"  server {{ listen {listen} backlog=4096; proxy_pass {to}; }}" for listen, to in pairs)
    text = f"""
load_module /usr/lib/nginx/modules/ngx_stream_module.so;
user root;
daemon off;
master_process off;
pid {SCRATCH}/nginx.pid;
worker_rlimit_nofile 20000;
events {{ worker_connections 9000; }}
stream {{
  proxy_connect_timeout 5s;
  proxy_timeout 1h;
  {option}
{servers}
}}
"""
    return [["nginx", "-e", "/dev/null", "-c", written("nginx.conf", text)]]


def socat(pairs):
    for listen, to in pairs:
        host, port = listen.split(":")
        yield ["socat", "-t", "60", f"TCP4-LISTEN:{port},bind={host},fork,reuseaddr,backlog=4096", f"TCP4:{to}"]


def rathole(pairs):
    server = f'[server]\nbind_addr = "{CONTROL}"\ndefault_token = "bench"\n'
    client = f'[client]\nremote_addr = "{CONTROL}"\ndefault_token = "bench"\n'
    for name, (listen, to) in zip(("one", "two"), pairs):
        server += f'[server.services.{name}]\nbind_addr = "{listen}"\n'
        client += f'[client.services.{name}]\nlocal_addr = "{to}"\n'
    halves = {"server": server, "client": client}
    return [[RATHOLE, f"--{half}", written(f"{half}.toml", text)] for half, text in halves.items()]


def written(name, text):
    (SCRATCH / name).write_text(text)
    return str(SCRATCH / name)


PROXIES = {
    "haproxy": haproxy,
    "haproxy-splice": lambda pairs: haproxy(pairs, "option splice-auto"),
    "nginx": nginx,
    "nginx-half-close": lambda pairs: nginx(pairs, "proxy_half_close on;"),
    "socat": socat,
    "rathole": rathole,
    "gate": gate,
}
NAMES = ("direct", *PROXIES, "direct-link", "haproxy-link", "gate-link")

# --- the table -------------------------------------------------------------------------------------


def write_tables():
    """A column for each proxy that has been tried, in text and between the marks of the document."""
    columns = {name: rows for name in NAMES if (rows := rows_of(name)) is not None}
    table = [["case", *columns]]
    for case in dict.fromkeys(case for rows in columns.values() for case in rows):
        table.append([case, *(cell(rows.get(case)) for rows in columns.values())])
    played = [[row for row in rows.values() if row["of"]] for rows in columns.values()]
    good = [sum(row["good"] == row["of"] for row in rows) for rows in played]
    table.append(["**as plain TCP**", *(f"{count} of {len(rows)}" for count, rows in zip(good, played))])

    widths = [max(map(len, column)) for column in zip(*table)]
    lines = ["  ".join(map(str.ljust, line, widths)).replace("**", "").rstrip() for line in table]
    lines.append("\nFigures and all kinds of outcomes:\n")
    for name, rows in zip(columns, played):
        lines += [f"{name:17} {row['case']:34} {row['seen']}  {row['note']}".rstrip() for row in rows]
    text = "\n".join(lines) + "\n"
    print(text, end="")
    (ROOT / "bench/results/torture.txt").write_text(text)

    marked = [f"| {' | '.join(table[0])} |", "|" + "---|" * len(table[0])]
    for first, *others in table[1:]:
        cells = [f"**{text}**" if ": " in text else text for text in others]
        marked.append(f"| {' | '.join([first, *cells])} |")
    document.publish(ROOT / "docs/measured/torture.md", "torture", "\n".join(marked))
    return 0


def rows_of(name):
    file = KEPT / f"{name}.jsonl"
    if not file.exists():
        return None
    return {row["case"]: row for row in map(json.loads, file.read_text().splitlines())}


def cell(row):
    if row is None or row["of"] == 0:
        return "-"
    count = f"{row['good']}/{row['of']}"
    if row["good"] == row["of"]:
        return count
    faults = [fault for run in row["runs"] for fault in run["faults"]]
    whole = f", all bytes {row['whole']}" if "answer" in row["case"] and "early" in row["case"] else ""
    return f"{count}{whole}: {faults[0]}"


if __name__ == "__main__":
    sys.exit(main())
