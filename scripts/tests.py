#!/usr/bin/env python3
"""Runs the tests with cargo-nextest, and says what was not tested, and why.

  scripts/tests.py test    the quick tests
  scripts/tests.py gate    those, and the slow ones that do not rest on how fast the machine is just then
  scripts/tests.py soak    everything; writes down what came of it in tests/soak.jsonl
  scripts/tests.py last-soak    says how old the last of these is, and what came of it
  scripts/tests.py may-release    ends with 1 unless the last of these passed, on this code, within 14 days

.config/nextest.toml says which tests these are, and which run alone. A test that cannot run here says NOT TESTED and
why; a run that the machine spoiled is VOID. Both are collected. On a machine that can run all tests (root, a kernel
that describes its types) a reason that tests/not-tested.txt does not have is a failure.

Ends with 0 if all is well, 1 if a test failed or was left out, 2 if nothing could be run. Needs `make test`'s tools.
"""

import datetime
import json
import os
import pathlib
import subprocess
import sys
import time
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOLS = ROOT / "target/tools/bin"
SLOWEST = 20
# All that the tests want built, in one run of cargo, so that each thing is built once: also the library for C and
# the examples, which a plain `cargo test` leaves out. The Python package has tests of its own (scripts/python.sh).
# `lastbyte_testing::built` names this command.
BUILD = ["cargo", "build", "--workspace", "--exclude", "lastbyte-python", "--all-targets", "--locked"]
# What soak runs after the tests in Rust. The last one takes an hour.
STAGES = (
    ["make", "--no-print-directory", "test-c"],
    ["make", "--no-print-directory", "test-miri"],
    ["make", "--no-print-directory", "test-sanitizer"],
    ["scripts/python.sh", "soak"],
    ["make", "--no-print-directory", "test-kernels"],
)
# A soak that is older says too little of what is to be released.
LASTS_DAYS = 14
# Set where this program runs itself again, among mounts of its own.
INSIDE = "LASTBYTE_TESTS_INSIDE"


def main():
    kind = sys.argv[1] if len(sys.argv) == 2 else ""
    if kind == "last-soak":
        return tell_last_soak()
    if kind == "may-release":
        return may_release()
    if kind not in ("test", "gate", "soak"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    enter_mounts_of_our_own()
    os.environ["PATH"] = f"{TOOLS}:{os.environ['PATH']}"
    profile = "soak" if kind == "soak" else "default"
    command = ["cargo", "nextest", "run", "--workspace", "--locked", "--profile", profile]
    if kind != "test":
        command += ["--run-ignored", "all"]
    report = ROOT / "target/nextest" / profile / "junit.xml"
    report.unlink(missing_ok=True)
    if run(BUILD) != 0:
        print("tests: not everything could be built, so nothing was run", file=sys.stderr)
        return 2
    code = run(command)
    if not report.exists():
        print("tests: nothing was run", file=sys.stderr)
        return 2
    tests = read(report)
    if kind != "test":
        tell_slowest(tests)
    tell("VOID", "runs that the machine spoiled, and that were repeated", tests)
    tell("NOT TESTED", "what could not be tested here", tests)
    unexpected = [one for one in said(tests, "NOT TESTED") if not is_expected(one)]
    if kind == "soak":
        failures = [test.name for test in tests if test.has_failed]
        failures += [f"{name} | {reason}" for name, reason in unexpected if can_all()]
        failures += [" ".join(stage) for stage in STAGES if run(stage) != 0]
        record(tests, failures)
        code = len(failures)
    # The quick tests do without the programs that the others install.
    return judge(code, unexpected if kind != "test" else [])


def run(command):
    print(" ".join(command), file=sys.stderr)
    began = time.monotonic()
    code = subprocess.run(command, cwd=ROOT).returncode
    print(f"tests: that took {time.monotonic() - began:.0f} s", file=sys.stderr)
    return code


def enter_mounts_of_our_own():
    """A file system for pinned BPF objects is mounted on most machines; where it is not, it is for the tests alone."""
    if os.environ.get(INSIDE) or os.geteuid() != 0 or os.path.ismount("/sys/fs/bpf"):
        return
    script = 'mount -t bpf bpf /sys/fs/bpf 2> /dev/null; exec "$@"'
    again = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]
    if subprocess.run([*again, "true"], stderr=subprocess.DEVNULL).returncode == 0:
        os.environ[INSIDE] = "1"
        os.execvp(again[0], [*again, sys.executable, *sys.argv])


class Test:
    """One test: its name, seconds, and what it said of itself."""

    def __init__(self, suite, case):
        self.name = f"{suite.get('name')} {case.get('name')}"
        self.seconds = float(case.get("time", 0))
        self.has_failed = any(case.find(kind) is not None for kind in ("failure", "error"))
        self.is_flaky = case.find("flakyFailure") is not None
        kinds = ("system-err", "system-out")
        self.lines = [line for kind in kinds for part in case.iter(kind) for line in (part.text or "").splitlines()]


def read(report):
    root = xml.etree.ElementTree.parse(report).getroot()
    return [Test(suite, case) for suite in root.iter("testsuite") for case in suite.iter("testcase")]


def said(tests, word):
    """Pairs of a test's name and a reason, each once."""
    pairs = [
        (test.name, line.split(f"{word}: ", 1)[1])
        for test in tests
        for line in test.lines
        # After what libtest has printed of the same line.
        if f"{word}: " in line and (line.startswith(word) or line.startswith("test "))
    ]
    return list(dict.fromkeys(pairs))


def tell(word, what, tests):
    pairs = said(tests, word)
    if pairs:
        print(f"\n{word}, {what}:")
    for name, reason in pairs:
        print(f"  {name}\n      {reason[:400]}")


def tell_slowest(tests):
    print(f"\nThe {SLOWEST} slowest of {len(tests)} tests, {sum(test.seconds for test in tests):.0f} s in all:")
    for test in sorted(tests, key=lambda test: -test.seconds)[:SLOWEST]:
        print(f"  {test.seconds:6.1f} s  {test.name}")


def is_expected(pair):
    """Whether tests/not-tested.txt has it: lines of `TEST | a part of the reason | why that is no fault`."""
    name, reason = pair
    for line in (ROOT / "tests/not-tested.txt").read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        listed, part, _ = (word.strip() for word in line.split("|", 2))
        if listed == name and part in reason:
            return True
    return False


def can_all():
    """Whether this machine can run every test: what is not tested then is a failure."""
    return os.geteuid() == 0 and os.path.exists("/sys/kernel/btf/vmlinux")


def judge(code, unexpected):
    if unexpected and can_all():
        print("\nThis machine can run these, or tests/not-tested.txt has to say why it cannot:")
        for name, reason in unexpected:
            print(f"  {name} | {reason[:400]}")
        return 1
    return 0 if code == 0 else 1


def record(tests, failures):
    """A line for each soak: `make ci` says how old the last one is."""

    def asked(*command):
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()

    line = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%MZ"),
        "commit": asked("git", "rev-parse", "--short=12", "HEAD"),
        "is_clean": not asked("git", "status", "--porcelain", "--untracked-files=no"),
        "kernel": os.uname().release,
        "passed": sum(not test.has_failed for test in tests),
        "failed": len(failures),
        "void_runs": len(said(tests, "VOID")),
        "not_tested": len(said(tests, "NOT TESTED")),
        "flaky": sum(test.is_flaky for test in tests),
        "seconds": round(sum(test.seconds for test in tests)),
        "failures": failures,
    }
    with (ROOT / "tests/soak.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def last_soak():
    """The last line, or None."""
    file = ROOT / "tests/soak.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return json.loads(lines[-1]) if lines else None


def days_since(soak):
    then = datetime.datetime.strptime(soak["date"], "%Y-%m-%dT%H:%MZ").replace(tzinfo=datetime.timezone.utc)
    return (datetime.datetime.now(datetime.timezone.utc) - then).days


def may_release():
    """Whether what is here may be released, by the last soak; says why not."""
    soak = last_soak()
    if soak is None:
        why = "there was no soak"
    elif soak["failed"]:
        why = f"the last soak failed: {', '.join(soak['failures'])}"
    elif not soak["is_clean"]:
        why = "the last soak was of files that were not committed"
    elif days_since(soak) > LASTS_DAYS:
        why = f"the last soak is {days_since(soak)} days old"
    elif not is_same_code(soak["commit"]):
        why = f"more than documents changed since the last soak, of commit {soak['commit']}"
    else:
        return 0
    print(f"release: refused, {why} (make soak)", file=sys.stderr)
    return 1


def is_same_code(commit):
    """Its own record, and documents, may have come since."""
    changed = ["git", "diff", "--quiet", commit, "--", ".", ":!docs", ":!*.md", ":!bench/results", ":!tests/soak.jsonl"]
    return subprocess.run(changed, cwd=ROOT).returncode == 0


def tell_last_soak():
    last = last_soak()
    if last is None:
        print("soak: never run: nothing that rests on rates and times was judged (make soak)")
        return 0
    print(
        f"soak: {days_since(last)} days ago, commit {last['commit']}, Linux {last['kernel']}: {last['passed']} passed, "
        f"{last['failed']} failed, {last['void_runs']} runs void, {last['not_tested']} not tested (make soak)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
