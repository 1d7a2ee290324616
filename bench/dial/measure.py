"""Runs the clients in the bed, and says what they did: bench/dial.sh runs it, in its namespaces.

    python3 measure.py check | table | features | cost | shares
"""

import functools
import json
import os
import re
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import document  # noqa: E402

import names

HERE = os.path.dirname(os.path.abspath(__file__))
LASTBYTE, BENCH, GO = os.environ["LASTBYTE"], os.environ["DIAL_BENCH"], os.environ["GO_PEER"]
LOG = os.environ["BED_LOG"]
ROUNDS = int(os.environ["ROUNDS"])
DOCUMENT = os.environ.get("DOCUMENT", "")

TIMEOUT = 20  # s, for a dial: glibc gives up a question after 15
START_UP = 3  # s, that a client may take besides
LATER = 8  # dials after the first one
SLOW, VERY_SLOW = 2000, 10_000  # ms; whoever takes so long twice or once is not asked again in that row
EQUAL = 3  # ms; what differs by less is equal

CURL = [
    *("curl", "-q", "-s", "-o", "/dev/null", "--noproxy", "*", "--max-time", str(TIMEOUT)),
    *("-w", "%{time_connect} %{time_total} %{exitcode} %{remote_ip}"),
]
PEERS = ["curl", "asyncio", "create_connection", "Go", "Node"]
CLIENTS = ["lastbyte", *PEERS]
HEADINGS = {
    "lastbyte": "lastbyte",
    "curl": "curl",
    "asyncio": "Python asyncio, 0.25 s",
    "create_connection": "Python create_connection",
    "Go": "Go net.Dialer",
    "Node": "Node net.connect",
}


def command_of(client, name, count):
    """`curl` makes one dial a process. The others wait for a line before each further one."""
    port = str(names.PORT)
    return {
        "lastbyte": [BENCH, "times", f"host={name}", f"port={port}", f"count={count}"],
        "curl": [*CURL, f"http://{name}:{port}/"],
        "asyncio": [sys.executable, f"{HERE}/peer.py", "asyncio", name, port, str(count)],
        "create_connection": [
            *(sys.executable, f"{HERE}/peer.py", "create_connection", name, port, str(count))
        ],
        "Go": [GO, "times", name, port, str(count)],
        "Node": ["node", f"{HERE}/peer.mjs", name, port, str(count)],
    }[client]


# --- running -------------------------------------------------------------------------------------


def on(host, *command):
    return [LASTBYTE, "link", "exec", "bed", host, "--", *command]


class Dial:
    """What a client said of a dial: `ms` and `peer`, or `error`, which is None where time was over."""

    def __init__(self, ms=None, peer="", error=None, attempts=()):
        self.connected = ms is not None and error is None and ms <= TIMEOUT * 1e3
        self.ms, self.error = ms, error
        self.peer = re.sub(r"^\[?(.*?)\]?(:\d+)?$", r"\1", peer) if "[" in peer else bare(peer)
        self.attempts = attempts

    @property
    def family(self):
        return "6" if ":" in self.peer else "4"


def bare(peer):
    """Without a port; the address of lastbyte's timeline has one."""
    return peer.split(":")[0] if peer.count(":") == 1 else peer


def dials(client, name, count=1, between=None, limit=TIMEOUT):
    """Runs a client on the near host. `between` is called before each dial but the first."""
    command = command_of(client, names.full(name), count)
    if client == "lastbyte" and between is not None:
        command.append("step=1")
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        on("client", *command), stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )
    try:
        said = ""
        for _ in range(1, count if between else 1):
            said += process.stdout.readline()
            between()
            process.stdin.write("\n")
            process.stdin.flush()
        late = 0.5 if client == "create_connection" else START_UP
        rest, talk = process.communicate(timeout=limit + late)
        said += rest
    except (subprocess.TimeoutExpired, BrokenPipeError):
        process.kill()
        process.communicate()
        return [told(client, line) for line in said.splitlines()] + [Dial()]
    found = [told(client, line) for line in said.splitlines()]
    if not found:
        sys.exit(f"measure.py: {client} said nothing of {name}: {talk}")
    return found


def told(client, line):
    if client == "curl":
        connected, total, code, peer = (line.split(" ") + [""])[:4]
        if float(connected) > 0:
            return Dial(ms=float(connected) * 1e3, peer=peer)
        if code == "28":
            return Dial()
        return Dial(ms=float(total) * 1e3, error=f"curl ends with {code}")
    what = json.loads(line)
    if "error" in what and what["ms"] >= TIMEOUT * 1e3 - 500:
        return Dial(attempts=what.get("attempts", ()))
    return Dial(**what)


def one(client, name, **how):
    return dials(client, name, **how)[0]


class Log:
    """What the bed has entered since."""

    def __init__(self):
        self.at = os.path.getsize(LOG)

    def read(self):
        time.sleep(0.05)
        with open(LOG) as log:
            log.seek(self.at)
            return [json.loads(line) for line in log]

    def knocks(self):
        """The first SYN to each address, in their order: (address, when)."""
        first = {}
        for line in self.read():
            if line["what"] == "syn":
                first.setdefault(line["to"], line["at"])
        return sorted(first.items(), key=lambda knock: knock[1])

    def answered(self, kind):
        return next((e["at"] for e in self.read() if (e["what"], e.get("type")) == ("answer", kind)), None)


def set_slow_link(*words):
    command = [LASTBYTE, "link", "set", "bed", "--link", "slow", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def set_slow_rtt(rtt):
    set_slow_link("loss", "none", "rtt", f"{rtt}ms")
    # What is under way arrives as it was to, and nothing overtakes it.
    time.sleep(names.SLOW_RTT / 1e3)


# --- words ---------------------------------------------------------------------------------------


def ms(value):
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def spread(samples):
    if not samples:
        return "-"
    middle, least, most = map(ms, (statistics.median(samples), min(samples), max(samples)))
    return middle if least == most else f"{middle} ({least} to {most})"


def cell(found):
    """What became of several dials."""
    good = [dial.ms for dial in found if dial.connected]
    bad = [dial for dial in found if not dial.connected]
    words = [spread(good)] if good else []
    if bad:
        how = f"none in {TIMEOUT} s" if bad[0].error is None else f"fails after {(bad[0].ms or 0) / 1e3:.1f} s"
        words.append(how if not good else f"{len(bad)} of {len(found)}: {how}")
    return "; ".join(words)


def markdown(heading, rows):
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def publish(section, text):
    """Prints a section, and puts it into the document between its two marks."""
    print(text, flush=True)
    if DOCUMENT:
        document.publish(DOCUMENT, section, text)


# --- check ---------------------------------------------------------------------------------------

CHECK = r"""
import json, socket, sys, time
PORT = 7000
def connect(address, seconds):
    began = time.perf_counter()
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as tried:
        tried.settimeout(seconds)
        try:
            tried.connect((address, PORT))
            how = "live"
        except OSError as error:
            how = type(error).__name__
        return how, (time.perf_counter() - began) * 1e3
order = [each[4][0] for each in socket.getaddrinfo(sys.argv[1], PORT, type=socket.SOCK_STREAM)]
tried = {each: connect(each, 2.5) for each in sys.argv[2:]}
print(json.dumps([order, tried]))
"""


def check():
    """That the bed is what it says."""
    kinds = {each: "live" for each in (names.LIVE6[0], names.LIVE4[0], names.SLOW6)}
    kinds |= {names.REFUSING6: "ConnectionRefusedError"}
    kinds |= {each: "timeout" for each in (names.DEAD6[0], names.DEAD4[0])}
    program = on("client", sys.executable, "-c", CHECK, names.full("fine"), *kinds)
    told = subprocess.run(program, check=True, capture_output=True, text=True)
    order, tried = json.loads(told.stdout)
    expect(order == [names.LIVE6[0], names.LIVE4[0]], f"getaddrinfo has IPv6 first: {order}")
    for address, kind in kinds.items():
        how, took = tried[address]
        is_so = how in (kind, "TimeoutError" if kind == "timeout" else kind)
        expect(is_so, f"{address} is {kind}: {how} after {ms(took)} ms")
    far = {names.SLOW6: names.SLOW_RTT}
    for address in (names.LIVE6[0], names.LIVE4[0], names.REFUSING6, names.SLOW6):
        took, rtt = tried[address][1], far.get(address, names.RTT)
        expect(rtt <= took <= rtt + 5, f"{address} answers after {rtt} ms: {ms(took)}")
    ways = ", ".join(f"{each} {ms(tried[each][1])}" for each in (names.LIVE6[0], names.SLOW6))
    print(f"The bed is as it says: round trips in ms {ways}; the dead say nothing for 2.5 s.")


def expect(what, words):
    if not what:
        sys.exit(f"measure.py: the bed is not what it should be: not so that {words}")


# --- the table -----------------------------------------------------------------------------------


class Taken:
    """What the clients did in one row."""

    def __init__(self, row):
        self.row = row
        self.first = {client: [] for client in CLIENTS}
        self.later = []

    def measure(self, client):
        if client == "lastbyte":
            found = dials(client, self.row.name, count=1 + LATER)
            self.first[client].append(found[0])
            self.later += found[1:]
        elif not self.is_slow(client):
            self.first[client].append(one(client, self.row.name))

    def is_slow(self, client):
        took = [dial.ms if dial.connected else VERY_SLOW for dial in self.first[client]]
        return any(ms >= VERY_SLOW for ms in took) or sum(ms >= SLOW for ms in took) >= 2

    def samples(self, client):
        return [dial.ms for dial in self.first[client] if dial.connected]

    def excess(self):
        """By how much each first dial took longer than is possible with what it had to try."""
        return [
            dial.ms - possible(self.row, dial) for dial in self.first["lastbyte"] if dial.connected
        ]

    def possible(self):
        dials = [dial for dial in self.first["lastbyte"] if dial.connected]
        return [possible(self.row, dial) for dial in dials]


DELAY = 200  # ms, lastbyte's connection attempt delay
LIVE = {*names.LIVE4, *names.LIVE6}


def possible(row, dial):
    """Of our delays: the answer, what was tried in vain before the one that connected, a round trip."""
    in_vain = 0
    for address, _ in dial.attempts:
        address = Dial(peer=address).peer
        if address == dial.peer:
            break
        in_vain += 0 if address in LIVE else names.RTT if row.refused else DELAY
    rtt = names.SLOW_RTT if dial.peer == names.SLOW6 else names.RTT
    return row.first + in_vain + rtt


def verdicts(taken):
    """Each goal that the row misses, in words."""
    misses = []
    failed = [dial for dial in taken.first["lastbyte"] + taken.later if not dial.connected]
    connects = [peer for peer in PEERS if taken.samples(peer)]
    if failed:
        than = f", and {', '.join(connects)} did" if connects else ""
        misses.append(f"{len(failed)} dials did not connect{than}")
    mine = taken.samples("lastbyte")
    if not mine:
        return misses
    over = statistics.median(taken.excess())
    if over > max(EQUAL, 0.05 * statistics.median(taken.possible())):
        misses.append(f"first dial {ms(over)} ms above what is possible")
    later = [dial.ms for dial in taken.later if dial.connected]
    if later and statistics.median(later) > names.RTT + EQUAL:
        misses.append(f"later dials {ms(statistics.median(later) - names.RTT)} ms above a round trip")
    for peer in connects:
        behind = statistics.median(mine) - statistics.median(taken.samples(peer))
        if behind > EQUAL:
            misses.append(f"{ms(behind)} ms behind {peer}")
    return misses


def table():
    rows = [Taken(row) for row in names.ROWS if wanted(row)]
    for number in range(ROUNDS):
        for place, taken in enumerate(rows):
            turn = (number + place) % len(CLIENTS)
            for client in CLIENTS[turn:] + CLIENTS[:turn]:
                taken.measure(client)
        print(f"round {number + 1} of {ROUNDS} is over", file=sys.stderr, flush=True)
    heading = ["ms to connected", "possible", "lastbyte, first", "lastbyte, later"]
    heading += [HEADINGS[peer] for peer in PEERS] + ["verdict"]
    lines = []
    for taken in rows:
        line = [taken.row.title, spread(taken.possible()), cell(taken.first["lastbyte"])]
        line += [cell(taken.later)] + [cell(taken.first[peer]) for peer in PEERS]
        lines.append([*line, "MISS: " + "; ".join(misses) if (misses := verdicts(taken)) else "met"])
    met = sum(not verdicts(taken) for taken in rows)
    note = f"\n\nGoals met in {met} of {len(rows)} rows; rounds: {ROUNDS}."
    publish("table", markdown(heading, lines) + note)
    print_samples(rows)


def wanted(row):
    only = os.environ.get("ROWS", "")
    return not only or row.name in only.split(",")


def print_samples(rows):
    print("\nAll samples, in ms, in the order of the rounds (- is a dial that did not connect):")
    for taken in rows:
        found = {**taken.first, "lastbyte, later": taken.later}
        for client, all_dials in found.items():
            each = " ".join(ms(dial.ms) if dial.connected else "-" for dial in all_dials)
            print(f"  {taken.row.name}: {client}: {each}")
        for dial in taken.first["lastbyte"] + taken.later:
            if not dial.connected:
                print(f"  {taken.row.name}: lastbyte did not connect: {dial.error}")
    print(end="", flush=True)


# --- which client does what ----------------------------------------------------------------------

WAY = {"fast": names.RTT / 2, "slow": names.SLOW_RTT / 2}  # ms, one way
KNOWN_RTTS = [60, 140]


def features():
    rounds = min(ROUNDS, 3)
    asked = {
        "AAAA 1 s late: first attempt after the A answer, ms": resolution_delay,
        "IPv6 used if the AAAA answer comes after A's by, ms": aaaa_delays,
        "A 1 s late, AAAA not: connected after, ms": slow_a,
        "IPv6 dead: IPv4's attempt after IPv6's, ms": attempt_delay,
        "IPv6 used if its round trip is, ms": slow_ipv6,
        **{
            f"IPv6 dead, but a dial before knew it {rtt} ms away: IPv4's attempt after IPv6's, ms": (
                functools.partial(known_rtt, rtt)
            )
            for rtt in KNOWN_RTTS
        },
        "families of the attempts, 4 + 4 addresses dead": order,
        "those attempts' distances, ms": distances,
    }
    made = {}
    for words, measured in asked.items():
        found = {client: measured(client, rounds) for client in CLIENTS}
        made[words] = [words, *(found[client] for client in CLIENTS)]
        print(f"{words}: done", file=sys.stderr, flush=True)
    heading = ["", *(HEADINGS[client] for client in CLIENTS)]
    publish("features", markdown(heading, made.values()))


def resolution_delay(client, rounds):
    found = []
    for _ in range(rounds):
        log = Log()
        one(client, "aaaa-late")
        knocks, answered = log.knocks(), log.answered("A")
        if knocks and answered is not None:
            # Both ways are on the far host's side of what is asked for.
            found.append((knocks[0][1] - answered) * 1e3 - names.RTT)
    waits = found and statistics.median(found) > names.LATE - 50
    return spread(found) + (", waits for AAAA" if waits else "")


def aaaa_delays(client, _):
    return up_to(names.AAAA_DELAYS, lambda delay: one(client, f"aaaa-{delay}").family == "6")


def slow_a(client, rounds):
    found = [one(client, "a-late") for _ in range(rounds)]
    waits = all(dial.connected and dial.ms > names.LATE for dial in found)
    return cell(found) + (", waits for A" if waits else "")


def attempt_delay(client, rounds):
    found = []
    for _ in range(1 if client == "create_connection" else rounds):
        log = Log()
        one(client, "v6-dead")
        found += delays_between_families(log, 0)
    return spread(found) if found else f"never in {TIMEOUT} s"


def delays_between_families(log, ways):
    """Of the first IPv6 and the first IPv4; `ways` is by how much IPv6's came later than IPv4's would."""
    first = {}
    for address, at in log.knocks():
        first.setdefault("6" if ":" in address else "4", at)
    return [(first["4"] - first["6"]) * 1e3 + ways] if len(first) == 2 else []


def slow_ipv6(client, _):
    def used(rtt):
        set_slow_rtt(rtt)
        return one(client, "v6-slow").family == "6"

    try:
        return up_to(names.SLOW_RTTS, used)
    finally:
        set_slow_rtt(names.SLOW_RTT)


def up_to(steps, used):
    """The last step at which IPv6 was used, and the first at which it was not."""
    before = 0
    for step in steps:
        if not used(step):
            return f"< {step}" if before == 0 else f"{before}, not {step}"
        before = step
    return f"{before} and more"


def known_rtt(rtt, client, _):
    """The first dial learns the round trip, then IPv6 is lost behind the near host."""
    if client == "curl":
        return "-"
    marks = []

    def lose():
        set_slow_link("--way", "down", "loss", "100%")
        marks.append(Log())

    set_slow_rtt(rtt)
    try:
        dials(client, "v6-slow", count=2, between=lose, limit=4)
        found = delays_between_families(marks[0], rtt / 2 - names.RTT / 2) if marks else []
    finally:
        set_slow_rtt(names.SLOW_RTT)
    return spread(found) if found else "never in 4 s"


@functools.cache
def attempts_at_dead(client):
    log = Log()
    one(client, "all-dead")
    return log.knocks()


def order(client, _):
    return " ".join("6" if ":" in address else "4" for address, _ in attempts_at_dead(client))


def distances(client, _):
    times = [at for _, at in attempts_at_dead(client)]
    return " ".join(f"{(b - a) * 1e3:.0f}" for a, b in zip(times, times[1:])) or "-"


# --- cost ----------------------------------------------------------------------------------------

PORTS = "7001,7002,7003,7004"
TOTAL, AT_ONCE = int(os.environ.get("DIALS", 10_000)), int(os.environ.get("AT_ONCE", 5_000))


def cost_commands(host, total):
    go = [GO, "cost", host, PORTS, str(total), str(AT_ONCE)]
    of_python = [f"{HERE}/peer.py", "cost", host, PORTS, str(total), str(AT_ONCE)]
    words = [f"host={host}", f"ports={PORTS}", f"total={total}", f"at-once={AT_ONCE}"]
    first = ["taskset", "-c", "0"]
    return {
        "lastbyte": [*first, BENCH, "cost", *words],
        "Go, GOMAXPROCS=1": [*first, "env", "GOMAXPROCS=1", *go],
        "Go": go,
        "Python asyncio": [*first, sys.executable, *of_python],
    }


class Cost:
    def __init__(self, command):
        before = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(f"measure.py: {command} ended with {process.returncode}")
        told = json.loads(said)
        self.wall, self.failed = told["ms"], told["failed"]
        self.completed, self.peak = told["completed"], told["peak_kb"] / 1024
        self.user, self.system = usage.ru_utime * 1e3, usage.ru_stime * 1e3
        self.whole = (time.perf_counter() - before) * 1e3


def cost():
    last = str(os.cpu_count() - 1)
    command = ["taskset", "-c", last, sys.executable, f"{HERE}/sink.py", PORTS]
    sink = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        sink.stdout.readline()
        lines = []
        for host in ("127.0.0.1", "localhost"):
            lines += cost_of_dials_to(host)
    finally:
        sink.kill()
        sink.wait()
    heading = [f"{TOTAL:,} dials, {AT_ONCE:,} at once", "CPU, ms", "of it user", "of it system"]
    heading += ["beside lastbyte", "wall, ms", "peak RSS, MiB", "failed"]
    publish("cost", markdown(heading, lines))


def cost_of_dials_to(host):
    clients = list(cost_commands(host, TOTAL))
    found = {client: [] for client in clients}
    none = {client: [] for client in clients}
    for number in range(ROUNDS):
        turn = number % len(clients)
        for client in clients[turn:] + clients[:turn]:
            none[client].append(Cost(cost_commands(host, 0)[client]))
            found[client].append(Cost(cost_commands(host, TOTAL)[client]))
            time.sleep(0.5)
    lines, mine = [], 0.0
    for client, costs in found.items():
        user, system = less_start_up(costs, none[client])
        both = [u + s for u, s in zip(user, system)]
        mine = mine or statistics.median(both)
        line = [f"{client}, {host}", spread(both), spread(user), spread(system)]
        line += [f"{statistics.median(both) / mine:.2f}", spread([each.wall for each in costs])]
        line += [spread([each.peak for each in costs]), sum(each.failed for each in costs)]
        lines.append(line)
        expect_all(client, costs)
    return lines


def less_start_up(costs, none):
    user = statistics.median(each.user for each in none)
    system = statistics.median(each.system for each in none)
    return [each.user - user for each in costs], [each.system - system for each in costs]


def expect_all(client, costs):
    for each in costs:
        if each.completed + each.failed != TOTAL:
            sys.exit(f"measure.py: {client} did {each.completed} + {each.failed} dials")


# --- shares --------------------------------------------------------------------------------------

# The chi-square that chance alone exceeds once in a hundred times, by degrees of freedom.
CRITICAL = {2: 9.21, 3: 11.34}


def shares():
    lines = []
    for name, words in (("four", "4 live"), ("four-one-dead", "3 live, 1 dead")):
        live = [each for each in names.scripts()[names.full(name)][1].addresses if each in LIVE]
        for memory in ("none", "kept"):
            lines.append(shares_of(name, words, live, memory))
    heading = ["10,000 dials to 4 equal addresses", "share of each live address, %"]
    heading += ["chi-square", "chance exceeds it", "to the dead", "failed"]
    publish("shares", markdown(heading, lines))


def shares_of(name, words, live, memory):
    command = [BENCH, "shares", f"host={names.full(name)}", f"port={names.PORT}"]
    command += ["total=10000", "at-once=500", f"memory={memory}"]
    told = subprocess.run(on("client", *command), check=True, capture_output=True, text=True)
    what = json.loads(told.stdout)
    counts = {bare(peer): count for peer, count in what["shares"].items()}
    known = [counts.get(address, 0) for address in live]
    even = sum(known) / len(live)
    chi_square = sum((count - even) ** 2 for count in known) / even
    each = " ".join(f"{100 * count / sum(known):.1f}" for count in known)
    how = "one dialer" if memory == "kept" else "a new dialer each"
    often = "more than once in 100" if chi_square <= CRITICAL[len(live) - 1] else "less than once in 100"
    astray = sum(counts.values()) - sum(known)
    return [f"{words}, {how}", each, f"{chi_square:.1f}", often, astray, what["failed"]]


{"check": check, "table": table, "features": features, "cost": cost, "shares": shares}[sys.argv[1]]()
