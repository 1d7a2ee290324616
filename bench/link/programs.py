"""Programs in a link: exit codes, terminals, signals, and what outlives its parent."""

import itertools
import os
import re
import shutil
import subprocess

import processes
from bed import LASTBYTE, Failed, about_this_machine, lastbyte, output, scratch, soon

failures = []


def measure():
    print("# programs in a link: exit codes, terminals, signals, and what outlives its parent")
    about_this_machine()
    without_a_terminal()
    that_outlive()
    with_a_terminal()
    print(f"{len(failures)} failed")
    if failures:
        raise Failed(", ".join(failures))


def expect(what, is_so):
    print(f"{'ok  ' if is_so else 'FAIL'}  {what}")
    if not is_so:
        failures.append(what)


# --- without a terminal ----------------------------------------------------------------------------


def in_link(*words, far=None, given=""):
    options = ["--far", far] if far else []
    return subprocess.run([LASTBYTE, "link", "run", "-q", "lan", *options, "--", *words], input=given, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)


def without_a_terminal():
    for what, code, words in (
        ("exit code 0 is kept", 0, ["true"]),
        ("exit code 42 is kept", 42, ["sh", "-c", "exit 42"]),
        ("a program ended by TERM gives 143", 143, ["sh", "-c", "kill -TERM $$"]),
        ("a program that is not there gives 127", 127, ["no-such-program"]),
    ):
        expect(what, in_link(*words).returncode == code)
    expect("standard input goes through", in_link("wc", "-l", given="a\nb\n").stdout.strip() == "2")
    piped = output("sh", "-c", '"$0" link run -q lan -- seq 1000000 | head -n 1', LASTBYTE)
    expect("a pipe closed early ends it quietly", piped == "1\n")
    expect("100 MB of output go through", len(in_link("head", "-c", "100000000", "/dev/zero").stdout) == 100_000_000)


def that_outlive():
    sleeper = "sleep 86417"
    daemon = f"setsid nohup {sleeper} > /dev/null 2>&1 &"
    parent = in_link("sh", "-c", f"{daemon} exit 3")
    expect("a parent's exit code is kept where its child goes on", parent.returncode == 3)
    expect("a daemon on the near end has ended with the link", soon(lambda: not is_running(sleeper)))
    in_link("true", far=f"({daemon}); sleep 0.2; exec iperf3 -s")
    expect("a daemon on the far end has ended with the link", soon(lambda: not is_running(sleeper)))
    lastbyte("link", "up", "daemons", "lan")
    lastbyte("link", "exec", "daemons", "near", "--", "sh", "-c", daemon)
    expect("a daemon in a link that stays has ended with its command", soon(lambda: not is_running(sleeper)))
    lastbyte("link", "down", "daemons")


def is_running(pattern):
    return bool(processes.matching(pattern))


# --- with a terminal -------------------------------------------------------------------------------

SLEEPER = "sleep 86418"
# What it says of a file is longer than the screen is wide, and would have to be answered.
VIM = "./l vim -u NONE --cmd 'set shm+=F' new"

# Steps: a line that is typed on an empty screen, a list of keys, or a size; then a pattern that the screen is to
# show, or the exit code that the shell is to say, or a question; then what that proves, if it does.
PROGRAMS = (
    ("./l stty size", "^6 20", "the terminal's size is seen"),
    ("./l top", "^top - ", "top draws on 20 by 6"),
    ((60, 20), r"(^.+\n+){8}", "top fills the screen after a resize to 60 by 20"),
    (["q"], 0, "top quits at q with code 0"),
    ((20, 6), ">", None),
    ("./l less text", "^5$", "less shows the beginning"),
    (["G"], "^500$", "less goes to the end"),
    (["q"], 0, "less quits at q with code 0"),
)
EDITOR = (
    (VIM, "^~", "vim draws"),
    (["i", "hello", "Escape", "C-z"], "Stopped", "vim is suspended by Ctrl-Z"),
    ("fg", "^hello", "and is back with its text"),
    ([":wq", "Enter"], 0, "vim ends with code 0"),
    (["Enter"], lambda: "hello" in (scratch() / "new").read_text().splitlines(), "vim wrote its file"),
    (VIM, "^hello", None),
    ([":cq", "Enter"], 1, "vim ends with code 1 at :cq"),
)
SIGNALS = (
    (f"./l {SLEEPER}", lambda: is_running(f"^{SLEEPER}"), None),
    (["C-c"], 130, "Ctrl-C ends a sleep with 130"),
    ("./l ping -i.2 far", "icmp_seq", None),
    (["C-c"], 0, "Ctrl-C is ping's to handle: it ends with 0"),
    ("./l ping -i.2 far", "icmp_seq", None),
    (["C-z"], "Stopped", "Ctrl-Z gives the shell back"),
    ("fg", "icmp_seq", "fg lets it go on"),
    (["C-c"], 0, "and Ctrl-C then ends it with 0"),
    (f"./l {SLEEPER}", lambda: is_running(f"^{SLEEPER}"), None),
    (["C-\\"], 131, "Ctrl-\\ ends a sleep with 131"),
    # In a link that stays.
    ("./e ping -i.2 far", "icmp_seq", None),
    (["C-z"], "Stopped", "Ctrl-Z gives the shell back from a link that stays"),
    ("fg", "icmp_seq", "fg lets it go on there"),
    (["C-c"], 0, "Ctrl-C ends it there"),
    (f"./l {SLEEPER}", lambda: is_running(f"^{SLEEPER}"), None),
)


def with_a_terminal():
    (scratch() / "text").write_text("".join(f"{number}\n" for number in range(1, 501)))
    # The words are short: the screen is narrow.
    for name, words in (("l", "link run -q lan"), ("e", "link exec screens near")):
        (scratch() / name).write_text(f'#!/bin/sh\nexec "{LASTBYTE}" {words} -- "$@"\n')
        (scratch() / name).chmod(0o755)
    with Terminal() as terminal:
        terminal.play(PROGRAMS)
        if shutil.which("vim"):
            terminal.play(EDITOR)
        else:
            print("NOT TESTED: there is no vim")
    lastbyte("link", "up", "screens", "lan")
    with Terminal() as terminal:
        terminal.play(SIGNALS)
    expect("a terminal that is closed ends all of it", soon(lambda: not is_running(SLEEPER)))
    pinged = subprocess.run([LASTBYTE, "link", "exec", "screens", "near", "--", "ping", "-q", "-c", "1", "far"],
                            capture_output=True, check=False)
    expect("but a link that stays", pinged.returncode == 0)
    lastbyte("link", "down", "screens")


class Terminal:
    """A terminal of 20 by 6 with a shell in it. Each has a server of its own: the one before may still be ending."""

    servers = itertools.count(1)

    def __enter__(self):
        self.server = f"screen{next(self.servers)}"
        self.asked = itertools.count(1)
        self.tmux("new-session", "-d", "-x", "20", "-y", "6", "PS1='> ' bash --norc --noprofile -i")
        self.tmux("set-option", "-g", "window-size", "manual")
        self.play((((20, 6), ">", None), (f"cd {scratch()}", ">", None)))
        return self

    def __exit__(self, *_):
        self.tmux("kill-server")

    def tmux(self, *words):
        return subprocess.run(["tmux", "-L", self.server, "-f", "/dev/null", *map(str, words)], text=True, check=False,
                              capture_output=True, env=os.environ | {"TMUX_TMPDIR": str(scratch())}).stdout

    def play(self, steps):
        for does, sees, what in steps:
            if isinstance(does, tuple):
                self.tmux("resize-window", "-x", does[0], "-y", does[1])
            elif isinstance(does, list):
                self.tmux("send-keys", *does)
            else:
                self.types(f"clear; {does}")
            is_so = self.sees(sees)
            if what:
                expect(what, is_so)

    def sees(self, sees):
        if isinstance(sees, int):
            # The program before may still read keys. Each asking has its number, because the screen scrolls.
            self.sees(r">\s*\Z")
            number = next(self.asked)
            self.types(f"echo {number}:$?")
            return self.sees(f"^{number}:{sees}$")
        shown = lambda: re.search(sees, self.tmux("capture-pane", "-p", "-J"), re.MULTILINE)
        return soon(sees if callable(sees) else shown)

    def types(self, line):
        self.tmux("send-keys", "-l", "--", line)
        self.tmux("send-keys", "Enter")
