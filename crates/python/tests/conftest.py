"""Pairs of connected sockets on this machine, and readers that count."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator

import lastbyte
import pytest

MILLION = 1_000_000
SECOND = 10.0
"""How long anything may take that should take no time."""


def connected() -> tuple[socket.socket, socket.socket]:
    """Two ends of one TCP connection over loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname(), timeout=SECOND)
        far, _ = listener.accept()
    near.settimeout(None)
    far.settimeout(SECOND)
    return near, far


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = connected()
    with near, far:
        yield near, far


@pytest.fixture
def stuck(pair: tuple[socket.socket, socket.socket]) -> tuple[socket.socket, socket.socket]:
    """A pair whose far end does not read, with more written at the near end than it has room for."""
    fill(pair[0])
    return pair


def fill(sock: socket.socket) -> int:
    """Writes until nothing more fits; returns how many bytes did."""
    sock.setblocking(False)
    written, quiet = 0, 0
    # The kernel moves bytes from one buffer to the other in the background.
    while quiet < 3:
        try:
            written += sock.send(bytes(65_536))
            quiet = 0
        except BlockingIOError:
            quiet += 1
            threading.Event().wait(0.01)
    sock.setblocking(True)
    return written


def reset(sock: socket.socket) -> None:
    """Closes with a reset."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


class Reader(threading.Thread):
    """Reads to the end and counts."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(daemon=True)
        lastbyte.prepare(sock)
        self.sock, self.bytes, self.end = sock, 0, None
        self.start()

    def run(self) -> None:
        with contextlib.suppress(ConnectionResetError):
            while data := self.sock.recv(65_536):
                self.bytes += len(data)
        self.end = lastbyte.observed_end(self.sock, self.bytes)

    def result(self) -> tuple[int, lastbyte.End | None]:
        self.join(SECOND)
        assert not self.is_alive(), "the reader has not come to an end"
        return self.bytes, self.end


class Later(threading.Thread):
    """Does something once the near end has half-closed: once a finish waits."""

    def __init__(self, sock: socket.socket, action) -> None:
        super().__init__(daemon=True)
        self.number, self.action, self.at = os.dup(sock.fileno()), action, 0.0
        self.start()

    def run(self) -> None:
        try:
            ends = time.monotonic() + SECOND
            while lastbyte.info(self.number).state is not lastbyte.State.FIN_WAIT_1:
                assert time.monotonic() < ends, "the finish does not half-close"
                time.sleep(0.001)
            self.at = time.monotonic()
            self.action()
        finally:
            os.close(self.number)


@contextlib.contextmanager
def silent_port() -> Iterator[int]:
    """A port of this machine that does not answer: its queue is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = listener.getsockname()
        for _ in range(2):
            filling = stack.enter_context(socket.socket())
            filling.setblocking(False)
            filling.connect_ex(address)
        yield address[1]


def refusing_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture(autouse=True, scope="session")
def _dialers_are_there() -> None:
    """They are made once, and keep descriptors of their own."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for resolver in ("dns", "system"):
            address = ("localhost", listener.getsockname()[1])
            with contextlib.suppress(OSError):
                lastbyte.create_connection(address, SECOND, resolver=resolver).close()


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture(autouse=True)
def _nothing_is_left_open() -> Iterator[None]:
    before = open_descriptors()
    yield
    ends = time.monotonic() + SECOND
    # Sockets of the test and threads that end belong to other fixtures.
    while open_descriptors() > before and time.monotonic() < ends:
        time.sleep(0.01)
    assert open_descriptors() <= before
