#!/usr/bin/env python3
"""Runs a benchmark in new namespaces (mount, PID, network): bench/isolated.py [OPTION...] COMMAND [ARGUMENT...]

All that the command leaves behind ends with it, also when it or this program is killed. Inside, /run is empty except
for the directories of `ip netns` (netns), lastbyte (state) and temporary files (tmp), and the loopback interface is
up. LASTBYTE_BENCH_INSIDE is set. Needs root.
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
    parser.add_argument("--result", help="also write stdout and stderr to this file")
    parser.add_argument("--stdout-only", action="store_true", help="write only stdout to the file")
    parser.add_argument("--needs", action="append", default=[], help="refuse if this program is missing")
    parser.add_argument("--no-pid-namespace", action="store_true", help="stay in the PID namespace")
    parser.add_argument("--nice", type=int, default=0)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return run(**vars(parser.parse_args()))


def is_inside():
    return INSIDE in os.environ


def run(command, result=None, stdout_only=False, needs=(), no_pid_namespace=False, nice=0):
    """Returns the exit code of the command."""
    name = os.path.relpath(command[1] if command[0] == sys.executable else command[0])
    if os.geteuid() != 0:
        return refuse(f"{name}: needs root")
    for program in needs:
        if not shutil.which(program):
            return refuse(f"{name}: needs {program}: its target of make builds or installs it")
    pid = [] if no_pid_namespace else ["--pid", "--mount-proc"]
    # The namespaces end with this process, also if it is killed.
    unshare = ["unshare", "--mount", "--propagation", "private", "--net", *pid, "--fork", "--kill-child", "--"]
    first = ["setpriv", "--pdeathsig", "KILL", "nice", "-n", str(nice), *unshare, sys.executable,
             os.path.abspath(__file__), *command]
    environment = os.environ | {INSIDE: "new", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        if result is None:
            return subprocess.run(first, env=environment, check=False).returncode
        os.makedirs(os.path.dirname(result), exist_ok=True)
        stderr = None if stdout_only else subprocess.STDOUT
        with open(result, "wb", buffering=0) as kept, subprocess.Popen(
                first, env=environment, stdout=subprocess.PIPE, stderr=stderr, bufsize=0) as inside:
            while printed := inside.stdout.read(1 << 16):
                sys.stdout.buffer.write(printed)
                sys.stdout.buffer.flush()
                kept.write(printed)
        return inside.returncode
    except KeyboardInterrupt:
        return 130


def settle_in(command):
    """Runs as the first process of the PID namespace: signals do not end it by default, and it reaps orphans."""
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
