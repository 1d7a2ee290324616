#!/usr/bin/env python3
"""Measures what it costs a server to end a connection: plain close, two homemade waits for an empty send queue, and
finish.

  make bench-finish              everything, about 15 minutes on a machine that does nothing else
  bench/finish.py quick          everything with few connections, under a minute
  bench/finish.py story          one part: story, loopback, link, unread, calls or blocking

Needs root and strace. It runs in namespaces of its own (mounts, processes, network), so that nothing of it stays,
also when it is killed. What it prints is kept in bench/results/finish.txt.

ROUNDS, CONNECTIONS (a round's, of each ending), REQUESTS (of the story) and CALLS (connections whose system calls are
counted) change what their names say; LASTBYTE and COST name the binaries.
"""

import datetime
import os
import pathlib
import re
import subprocess
import sys
from collections import Counter

import isolated

ROOT = pathlib.Path(__file__).resolve().parents[1]
LASTBYTE = os.environ.get("LASTBYTE") or str(ROOT / "target/release/lastbyte")
COST = os.environ.get("COST") or str(ROOT / "target/release/examples/finish_cost")
ASKED = sys.argv[1:]
IS_QUICK = ASKED == ["quick"]


def how_many(name, all_of_it, quick):
    return int(os.environ.get(name) or (quick if IS_QUICK else all_of_it))


ROUNDS, CONNECTIONS = how_many("ROUNDS", 10, 3), how_many("CONNECTIONS", 1000, 200)
REQUESTS, CALLS = how_many("REQUESTS", 275, 5), how_many("CALLS", 500, 100)


def main():
    if len(ASKED) > 1 or not set(ASKED) <= {*PARTS, "all", "quick"}:
        return isolated.refuse(f"bench/finish.py: say quick, or one of {' '.join(PARTS)}, or nothing for all")
    if not isolated.is_inside():
        result = ROOT / "bench/results" / ("-".join(["finish", *ASKED]) + ".txt")
        return isolated.run([sys.executable, __file__, *ASKED], result, needs=[LASTBYTE, COST, "strace"])
    about_this_machine()
    for part in [part for part in PARTS if ASKED in ([], ["all"], ["quick"], [part])]:
        print()
        PARTS[part]()
    return 0


def about_this_machine():
    now = datetime.datetime.now(datetime.timezone.utc)
    load = " ".join(f"{load:.2f}" for load in os.getloadavg())
    print("# What it costs a server to end a connection")
    print(f"{now:%Y-%m-%d %H:%M} UTC; Linux {os.uname().release}, {os.cpu_count()} processors; "
          f"bench/finish.py {' '.join(ASKED)}; load {load} at the beginning")
    print("""One server process of one thread (tokio) and one client process, each on a processor of its own. A
line of request, an answer, and the server ends the connection. Each ending has its turn in each
round. CPU is the server thread's, user and system, for one connection: median (least to most) of
the rounds; what the kernel does for the client is not in it. Beside close: the same round's close.
Complete: every byte came and then the end of the stream, as the client saw it. Proven: what the
ending waits for was seen. Wake-ups are those of an ending before it was over.""")


# --- the server and its clients --------------------------------------------------------------------

TCP = "tcp=127.0.0.1:7001"
TLS = ["tls=127.0.0.1:7002", "cert=/run/cert"]
UNIX = "unix=/run/cost"


def over_loopback(*words, serve=("serve", TCP, *TLS, UNIX), under=(), talk=None):
    """Runs a server, and then the client with these words. The server ends with it."""
    with subprocess.Popen([*on_processor(0), *under, COST, *serve]) as server:
        subprocess.run([*on_processor(1), "timeout", "600", COST, "ask", *words, "quit=1"], stdout=talk, check=True)
    if server.returncode != 0:
        raise SystemExit(f"the server ended with {server.returncode}")
    pathlib.Path("/run/cost").unlink(missing_ok=True)


def over_link(path, *words):
    """Nothing there speaks Unix."""
    serve = f"exec {' '.join(on_processor(0))} '{COST}' serve tcp=[::]:7001 tls=[::]:7002 cert=/run/cert"
    client = [*on_processor(1), "timeout", "800", COST, "ask", f"name={path}", *words, "cert=/run/cert"]
    link = ["timeout", "900", LASTBYTE, "link", "run", "--quiet", *path.split(), "--far", serve, "--"]
    subprocess.run([*link, *client], check=True)


def on_processor(which):
    """Without a second processor both share the first."""
    return ["taskset", "-c", str(which % os.cpu_count())]


# --- the story -------------------------------------------------------------------------------------


def story():
    """A gopher server that armed EPOLLOUT until its queue was empty spent 18 s of processor time on 275 requests, under
    1 s without that, and 4 s with TLS. 18 s for 275 are 65 ms each: its waits were about a round trip long.
    """
    path = "--rtt 66ms"
    print(f"## The story: {REQUESTS} requests as they came, one by one, over {path}\n"
          "The server waits for an empty queue by asking whenever the socket is writable, which it\n"
          "always is. As told, for 275 requests: 18 s with the wait, under 1 s without, 4 s with TLS.\n")
    one_by_one = ["rounds=1", f"connections={REQUESTS}", "at-once=1", "warm-up=1"]
    over_link(path, "tcp=far:7001", *one_by_one, "endings=close,spin,acked")
    over_link(path, "tls=far:7002", *one_by_one, "endings=close,acked")


# --- the table -------------------------------------------------------------------------------------


def loopback():
    print("## Over loopback")
    # A few per cent are looked for here: more rounds, and shorter ones.
    rounds = ["name=loopback", f"rounds={ROUNDS * 4}"]
    over_loopback(TCP, *TLS, UNIX, *rounds, f"connections={CONNECTIONS // 4}")
    print()
    over_loopback(TCP, *TLS, UNIX, *rounds, f"connections={CONNECTIONS // 10}", "bytes=100000")


def link():
    print("## Over a path of 50 ms")
    both = ["tcp=far:7001", "tls=far:7002", f"rounds={ROUNDS}"]
    over_link("--rtt 50ms", *both, f"connections={CONNECTIONS}", "at-once=200")
    if not IS_QUICK:
        print()
        over_link("--rtt 50ms", *both, f"connections={CONNECTIONS // 5}", "at-once=64", "bytes=100000")


def unread():
    print("## With one byte of the client left unread at the server")
    fewer = [f"rounds={ROUNDS}", f"connections={CONNECTIONS // 5}", "trailing=1"]
    over_loopback(TCP, UNIX, "name=loopback", *fewer, "bytes=1000000", "at-once=16")
    print()
    over_link("--rtt 50ms", "tcp=far:7001", *fewer, "bytes=100000")


# --- system calls ----------------------------------------------------------------------------------

# strace changes when things happen, so that these runs tell of numbers alone.
TRACE = pathlib.Path("/run/trace")
COUNTING = ["strace", "-c", "-U", "calls,name", "-o", str(TRACE)]
LISTING = ["strace", "-o", str(TRACE)]


def calls():
    print(f"## System calls of the server for one connection, of {CALLS} counted by strace")
    for name, words in (("tcp", [TCP]), ("tls", TLS), ("unix", [UNIX])):
        for ending in ("close", *(["spin"] if name == "tcp" else []), "poll", "acked", "closed"):
            run = lambda number, under: traced(number, ending, [*under, "-f"], *words, "at-once=16")
            print(f"{name:4} {ending:7} {calls_of_one(run)}")
    print("\nThe last calls of one connection, by itself:")
    for name, words in (("tcp", TCP), ("unix", UNIX)):
        for ending in ("close", "acked", "closed"):
            traced(1, ending, [*LISTING, "-f"], words, "at-once=1")
            print(f"{name:4} {ending:7}{calls_after_answer()}")


def blocking():
    print("## The blocking face, one connection after the other: system calls for one connection")
    run = lambda number, under: traced(number, ending, under, TCP, "at-once=1", serve=("serve-blocking", TCP))
    for ending in ("close", "acked", "closed"):
        print(f"tcp  {ending:7} {calls_of_one(run)}")
    for name, words in (("tcp", TCP), ("unix", UNIX)):
        for ending in ("close", "acked", "closed"):
            traced(1, ending, LISTING, words, "at-once=1", serve=("serve-blocking", words))
            print(f"{name:4} {ending:7}{calls_after_answer()}")


def traced(connections, ending, under, *words, **options):
    """The words of strace before the server."""
    over_loopback(*words, f"endings={ending}", "rounds=1", f"connections={connections}", "warm-up=0", under=under,
                  talk=subprocess.DEVNULL, **options)


def calls_of_one(run):
    """Name and number, most often called first. A run without any connection is taken off; what is less than a
    hundredth belongs to the frame.
    """
    run(CALLS, COUNTING)
    found = counted()
    run(0, COUNTING)
    found.subtract(counted())
    each = sorted((-round(count / CALLS, 2), name) for name, count in found.items() if count / CALLS >= 0.01)
    return f"{-sum(count for count, _ in each):6.2f}:" + "".join(f" {name} {-count:.2f}" for count, name in each)


def counted():
    lines = re.findall(r"^ *(\d+) (\w+)$", TRACE.read_text(), re.MULTILINE)
    return Counter({name: int(count) for count, name in lines if name != "total"})


def calls_after_answer():
    """The connection is that whose answer has 4096 bytes."""
    names, connection = "", None
    for line in TRACE.read_text().splitlines():
        if answer := re.search(r"(?:sendto|write)\((\d+),.*= 4096$", line):
            connection = answer[1]
        if connection is None:
            continue
        name, _, words = re.sub(r"^\d+ +", "", line).partition("(")
        # What is asked of the socket.
        place = {"ioctl": 1, "getsockopt": 2}.get(name)
        names += f" {name} {words.split(', ')[place]};" if place else f" {name};"
        if name == "close" and words.startswith(f"{connection})"):
            break
    return names


PARTS = {"story": story, "loopback": loopback, "link": link, "unread": unread, "calls": calls, "blocking": blocking}

if __name__ == "__main__":
    sys.exit(main())
