"""50 links at once: links that stay, and links that each run a program."""

import os
import re
import subprocess
import time

import processes
from bed import LASTBYTE, about_this_machine, lastbyte, p50_p99, ping_means, ping_times, spread

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
    share = lambda cpu, seconds: f"{(processes.cpu_s(carriers) - cpu) / seconds * 100:.6g} % of a processor, all together"
    before = processes.cpu_s(carriers)
    time.sleep(5)
    print(f"idle: {share(before, 5)}")
    begun, before = time.monotonic(), processes.cpu_s(carriers)
    texts = [text for text, _ in all_of(
        ["link", "exec", f"n{number}", "near", "--", "ping", "-n", "-c", "20", "-i", "0.2", "far"] for number in range(LINKS))]
    print(f"a ping each, 5 a second: {share(before, time.monotonic() - begun)}")
    tell_pings(texts)
    kept = sum('"broken_promise":null' in lastbyte("link", "stats", f"n{number}", "--json") for number in range(LINKS))
    print(f"promises: {kept} of {LINKS} kept")
    begun = time.monotonic()
    for number in range(LINKS):
        lastbyte("link", "down", f"n{number}")
    print(f"link down, one after the other: {time.monotonic() - begun:.6g} s; {lastbyte('link', 'list').strip()}")


def links_that_run():
    def look():
        time.sleep(3)
        print(f"link run, all begun together, 2 processes each: {memory_of(f'{re.escape(LASTBYTE)} link run|link-init')}")

    said = all_of((["link", "run", "usa-malaysia", "--seed", str(number), "--", "ping", "-n", "-c", "5", "far"]
                   for number in range(LINKS)), look)
    tell_pings([text for text, _ in said])
    reports = [report for _, report in said]
    kept = sum("kept its promise" in report for report in reports)
    late = [ms for report in reports for ms in re.findall(r"([0-9.]+) ms at 99 %", report)]
    print(f"promises: {kept} of {LINKS} kept; worst 99 %: {max(late, key=float, default='-')} ms late")


def all_of(commands, meanwhile=lambda: None):
    """What all of these printed, out and err, run at once. Those that failed are counted, not followed."""
    running = [subprocess.Popen([LASTBYTE, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
               for words in commands]
    meanwhile()
    said = [one.communicate() for one in running]
    failed = sum(one.returncode != 0 for one in running)
    if failed:
        print(f"{failed} of {len(running)} FAILED")
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
