"""100 runs of four kinds, each fifth killed at a random moment.

After each it is compared, for up to 5 s, with what there was at first. A killed `link up` is taken back with undo,
as its words say.
"""

import os
import random
import time
from collections import Counter

import processes
from bed import LASTBYTE, Program, about_this_machine, lastbyte, output

RUNS = int(os.environ.get("RUNS") or 100)
SEED = int(os.environ.get("SEED") or time.time())


def measure():
    print(f"# {RUNS} runs, each fifth killed with -9 at a random moment: what is left, SEED={SEED}")
    about_this_machine()
    chance = random.Random(SEED)
    first = findings()
    show_that_it_counts(first)
    killed = hit = failed = dirty = 0
    for number in range(RUNS):
        if number % 5 == 0:
            killed += 1
            hit += kill_one(number, chance, first)
        elif said := finish_one(number):
            failed += 1
            tell(number, "failed", said.splitlines())
        now = look_until(first, 50)
        if now != first:
            dirty += 1
            tell(number, "left", [f"< {line}" for line in (first - now).elements()]
                 + [f"> {line}" for line in (now - first).elements()])
            first = now
    lastbyte("undo", "--all")
    print(f"{RUNS} runs: {killed} to be killed, of which {hit} had not ended before; {failed} of the others\n"
          f"failed; {dirty} left something behind")
    print(f"after undo --all: {lastbyte('changes').strip()}")
    print("lines of networks, kept ones, interfaces, routes, mounts, processes, temporary files: "
          f"{sum(first.values())} at first, {sum(now.values())} now")


def tell(number, what, lines):
    print(f"run {number} of kind {number % KINDS} {what}:", *lines, sep="\n  ")


def show_that_it_counts(first):
    """A count that never sees anything would prove nothing."""
    lastbyte("link", "up", "control", "--rtt", "1ms")
    print(f"for comparison, a link that is up: {sum((findings() - first).values())} lines more")
    lastbyte("link", "down", "control")


# --- the runs --------------------------------------------------------------------------------------

PING = ["ping", "-q", "-c", "3", "-i", "0.1", "far"]
KINDS, STAYS = 4, 3


def steps_of(number):
    """The words of each kind, which end by themselves within half a second or so."""
    name = f"n{number}"
    run = ["link", "run", "-q", "--rtt", "5ms"]
    return [
        [[*run, "--", *PING]],
        [[*run, "--far", "iperf3 -s -1 > /dev/null", "--", "iperf3", "-c", "far", "-n", "4M"]],
        [["lab", "--rtt", "5ms", "--bytes", "1MB", "--rounds", "2", "--congestion", "cubic"]],
        [["link", "up", name, "--rtt", "5ms"], ["link", "exec", name, "near", "--", *PING], ["link", "down", name]],
    ][number % KINDS]


def finish_one(number):
    """What it said if it failed."""
    for words in steps_of(number):
        code, out, err = finish(words)
        if code != 0:
            return f"{' '.join(words[:2])} ended with {code}:\n{out}{err}"
    return ""


def kill_one(number, chance, first):
    """A link that stays is killed on its way up, in use, or on its way down: as late as each takes about, so that most
    are hit while they do something. Returns whether it had not ended before.
    """
    steps = steps_of(number)
    victim = chance.randrange(len(steps))
    hit = False
    # What never came up cannot be used.
    for at, words in enumerate(steps if victim > 0 else steps[:1]):
        if at == victim:
            # This process alone: what it started has to notice.
            killed = Program(LASTBYTE, *words)
            time.sleep(chance.random() * {"up": 0.015, "down": 0.06}.get(words[1], 0.2))
            killed.process.kill()
            hit = killed.end()[0] == -9
        else:
            finish(words)
    if number % KINDS == STAYS:
        # The carrier of a link whose `link up` was killed goes on until it has entered itself.
        look_until(first, 30, lambda: finish(["undo", "--all"]))
    return hit


def finish(words):
    return Program("timeout", "-k", "1", "30", LASTBYTE, *words).end()


# --- what there is ---------------------------------------------------------------------------------


def look_until(first, looks, before_each=lambda: None):
    """Until all is as at first, or so often: the kernel ends namespaces some time after their last process."""
    for _ in range(looks):
        before_each()
        if (now := findings()) == first:
            break
        time.sleep(0.1)
    return now


def findings():
    """All that can be left behind in these namespaces, a line each."""
    lines = [f"interface {line.split()[1]}" for line in output("ip", "-o", "link").splitlines()]
    for family in ("-4", "-6"):
        lines += [f"route {line}" for line in output("ip", family, "route", "show", "table", "all").splitlines()]
    unique = {f"mount {line}" for line in processes.text_of("/proc/self/mountinfo").splitlines()}
    unique |= {f"kept {name}" for name in os.listdir("/run/netns")}
    unique |= {f"temporary {name}" for name in os.listdir("/run/tmp")}
    for pid in processes.every():
        unique |= {f"network {target}" for target in processes.links_of(pid) if target.startswith("net:[")}
        # What has ended is gone when somebody collects it.
        words = processes.words(pid)
        if words and "bench/link" not in words and not processes.is_zombie(pid):
            unique.add(f"process {words}")
    return Counter([*lines, *unique])
