#!/usr/bin/env python3
"""Runs a bench in namespaces of its own (mounts, processes, network), so that nothing of it stays, also when it is
killed: bench/world.py [OPTION...] COMMAND [WORD...]. Needs root.

There /run is empty but for netns, state and tmp, which are where `ip netns`, lastbyte and temporary files go, and
the loopback interface is up. LASTBYTE_BENCH_INSIDE is set for the command.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys

INSIDE = "LASTBYTE_BENCH_INSIDE"


def main():
    if os.environ.get(INSIDE) == "new":
        return settle_in(sys.argv[1:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--result", help="the file that what it prints is kept in")
    parser.add_argument("--talk-apart", action="store_true", help="keep stdout alone")
    parser.add_argument("--needs", action="append", default=[], help="a program without which it does not begin")
    parser.add_argument("--same-processes", action="store_true", help="stay in the PID namespace")
    parser.add_argument("--nice", type=int, default=0)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return enter(**vars(parser.parse_args()))


def is_entered():
    return INSIDE in os.environ


def enter(command, result=None, talk_apart=False, needs=(), same_processes=False, nice=0):
    """Returns the exit code of the command."""
    if os.geteuid() != 0:
        return refuse(f"{command[0]}: needs root")
    for program in needs:
        if not shutil.which(program):
            return refuse(f"{command[0]}: needs {program}: its target of make builds or installs it")
    processes = [] if same_processes else ["--pid", "--mount-proc"]
    # They end with this process, also if it is killed.
    unshare = ["unshare", "--mount", "--propagation", "private", "--net", *processes, "--fork", "--kill-child", "--"]
    first = ["setpriv", "--pdeathsig", "KILL", "nice", "-n", str(nice), *unshare, sys.executable,
             os.path.abspath(__file__), *command]
    environment = os.environ | {INSIDE: "new", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        if result is None:
            return subprocess.run(first, env=environment, check=False).returncode
        os.makedirs(os.path.dirname(result), exist_ok=True)
        talk = None if talk_apart else subprocess.STDOUT
        with open(result, "wb", buffering=0) as kept, subprocess.Popen(
                first, env=environment, stdout=subprocess.PIPE, stderr=talk, bufsize=0) as inside:
            while printed := inside.stdout.read(1 << 16):
                sys.stdout.buffer.write(printed)
                sys.stdout.buffer.flush()
                kept.write(printed)
        return inside.returncode
    except KeyboardInterrupt:
        return 130


def settle_in(command):
    """The first process of the new namespaces: it has to say itself that signals end it, and collects what others
    leave behind.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(130))
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    for name in ("netns", "state", "tmp"):
        os.mkdir(f"/run/{name}")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    own = {INSIDE: "settled", "LASTBYTE_STATE_DIR": "/run/state", "TMPDIR": "/run/tmp"}
    child = os.posix_spawnp("setpriv", ["setpriv", "--pdeathsig", "KILL", *command], os.environ | own)
    while True:
        process, status = os.wait()
        if process == child:
            return os.waitstatus_to_exitcode(status)


def refuse(why):
    print(why, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
