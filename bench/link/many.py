"""50 links at once: links that stay, and links that each run a program."""

import os
import re
import time

import processes
from bed import LASTBYTE, Program, about_this_machine, lastbyte, p50_p99, ping_means, ping_times, spread

LINKS = int(os.environ.get("LINKS") or 50)
CARRIERS = "link-carry"


def measure():
    print(f"# {LINKS} links of usa-malaysia (217 ms) at once")
    about_this_machine()
    links_that_stay()
    links_that_run()


def links_that_stay():
    begun = time.monotonic()
    for number in range(LINKS):
        lastbyte("link", "up", f"n{number}", "usa-malaysia", "--seed", str(number))
    print(f"link up, one after the other: {time.monotonic() - begun:.6g} s; their carriers: {memory_of(CARRIERS)}")
    carriers = processes.matching(CARRIERS)
    idle = since(carriers)
    time.sleep(5)
    print(f"idle: {idle()}")
    pinging = since(carriers)
    command = "link exec n{} near -- ping -n -c 20 -i 0.2 far"
    texts, _ = all_of(command.format(number).split() for number in range(LINKS))
    print(f"a ping each, 5 a second: {pinging()}")
    tell_pings(texts)
    kept = sum('"broken_promise":null' in lastbyte("link", "stats", f"n{number}", "--json") for number in range(LINKS))
    print(f"promises: {kept} of {LINKS} kept")
    begun = time.monotonic()
    for number in range(LINKS):
        lastbyte("link", "down", f"n{number}")
    print(f"link down, one after the other: {time.monotonic() - begun:.6g} s; {lastbyte('link', 'list').strip()}")


def since(pids):
    """Tells, when asked, what these took of a processor since now."""
    begun, before = time.monotonic(), processes.cpu_s(pids)
    share = lambda: (processes.cpu_s(pids) - before) / (time.monotonic() - begun)
    return lambda: f"{share() * 100:.6g} % of a processor, all together"


def links_that_run():
    def look():
        time.sleep(3)
        pattern = f"{re.escape(LASTBYTE)} link run|link-init"
        print(f"link run, all begun together, 2 processes each: {memory_of(pattern)}")

    command = "link run usa-malaysia --seed {} -- ping -n -c 5 far"
    texts, reports = all_of((command.format(number).split() for number in range(LINKS)), look)
    tell_pings(texts)
    kept = sum("kept its promise" in report for report in reports)
    late = [ms for report in reports for ms in re.findall(r"([0-9.]+) ms at 99 %", report)]
    print(f"promises: {kept} of {LINKS} kept; worst 99 %: {max(late, key=float, default='-')} ms late")


def all_of(commands, meanwhile=lambda: None):
    """What all of these printed, out and err, run at once. Those that failed are counted, not followed."""
    running = [Program(LASTBYTE, *words) for words in commands]
    meanwhile()
    codes, *said = zip(*(one.end() for one in running))
    if any(codes):
        print(f"{sum(map(bool, codes))} of {len(codes)} FAILED")
    return said


def tell_pings(texts):
    found = ping_times(texts)
    sent = sum(int(count) for text in texts for count in re.findall(r"(\d+) packets transmitted", text))
    p50, p99 = p50_p99(found)
    print(f"round trips: {len(found)} of {sent} pings answered; {p50} ms at the median, {p99} at 99 %, "
          f"{max(found, key=float, default='-')} at most")
    each = spread(ping_means(texts) or ["nan"])
    print(f"each link's mean: {each.median} ms at the median, {each.low} to {each.high}")


def memory_of(pattern):
    """Each process's pages, and its share of them."""
    pids = processes.matching(pattern)
    found = processes.memory(pids, "Rss", "Pss")
    return f"{len(pids)} processes, RSS {found['Rss'] / 1e3:.1f} MB, PSS {found['Pss'] / 1e3:.1f} MB in all"
