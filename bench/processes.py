"""Reads processes from /proc: which exist, and the processor time and memory they used. See proc(5)."""

import glob
import os
import re

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Fields of proc_pid_stat(5), counted behind the name; times in clock ticks.
PARENT, UTIME, STIME, CUTIME, CSTIME = 1, 11, 12, 13, 14


def every():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def words(pid):
    """Its command line in one; empty for one that is gone, a zombie, or the kernel's."""
    return text_of(f"/proc/{pid}/cmdline").replace("\0", " ").strip()


def matching(pattern):
    """The processes whose command line matches, without this one."""
    return [pid for pid in every() if pid != os.getpid() and re.search(pattern, words(pid))]


def stat(pid):
    """All zeros for a process that is gone: whoever waited for it has its times."""
    fields = text_of(f"/proc/{pid}/stat").rpartition(") ")[2].split()
    return [0] + [int(field) for field in fields[1:20]] if fields else [0] * 20


def is_zombie(pid):
    return ") Z" in text_of(f"/proc/{pid}/stat")


def tree(roots):
    """These processes and all below them."""
    children = {}
    for pid in every():
        children.setdefault(stat(pid)[PARENT], []).append(pid)
    found = list(roots)
    for pid in found:
        found += children.get(pid, ())
    return found


def times(pids):
    """Processor time in s, user and system, with that of children that have ended."""
    ticks = [stat(pid) for pid in pids]
    user = sum(fields[UTIME] + fields[CUTIME] for fields in ticks)
    system = sum(fields[STIME] + fields[CSTIME] for fields in ticks)
    return user / TICKS_PER_SECOND, system / TICKS_PER_SECOND


def cpu_s(pids):
    """Processor time in s of their living threads, exact to the nanosecond instead of the tick."""
    tasks = [task for pid in pids for task in glob.glob(f"/proc/{pid}/task/*/schedstat")]
    return sum(int((text_of(task).split() or [0])[0]) for task in tasks) / 1e9


def machine_s():
    """Processor time in s that the whole machine was busy, so far."""
    user, nice, system, _, _, irq, softirq = map(int, text_of("/proc/stat").split()[1:8])
    return (user + nice + system + irq + softirq) / TICKS_PER_SECOND


def memory(pids, *keys):
    """Of all of them together, in units of 1024 bytes, each of these keys of smaps_rollup."""
    found = dict.fromkeys(keys, 0)
    for pid in pids:
        for key, _, rest in (line.partition(":") for line in text_of(f"/proc/{pid}/smaps_rollup").splitlines()):
            if key in found:
                found[key] += int(rest.split()[0])
    return found


def links_of(pid):
    """The targets of its descriptors, and the network namespace of each thread."""
    for link in glob.glob(f"/proc/{pid}/task/*/ns/net") + glob.glob(f"/proc/{pid}/fd/*"):
        try:
            yield os.readlink(link)
        except OSError:
            continue


def text_of(file):
    """The text of a file; empty if the process is gone."""
    try:
        with open(file, encoding="utf-8", errors="replace") as opened:
            return opened.read()
    except (FileNotFoundError, ProcessLookupError):
        return ""
