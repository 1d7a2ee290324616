"""lastbyte.finish over real sockets."""

from __future__ import annotations

import inspect
import os
import signal
import socket
import sys
import threading
import time

import lastbyte
import pytest
from conftest import MILLION, SECOND, Later, Reader, connected, fill, open_descriptors, reset
from lastbyte import Delivery, End, PeerEnd, Unproven


@pytest.mark.parametrize("round_", range(20))
def test_a_million_arrives_with_a_greeting_unread(pair, round_):
    near, far = pair
    far.sendall(b"220 welcome\r\n")
    reader = Reader(far)
    near.sendall(bytes(MILLION))
    with near:
        receipt = lastbyte.finish(near)
    assert receipt.level >= Delivery.ACKED
    assert (receipt.unacked, receipt.drained) == (0, 13)
    assert (receipt.written, receipt.sent, receipt.acked) == (None, None, None)
    assert 0 < receipt.took < 30
    assert reader.result() == (MILLION, End.FIN)


@pytest.mark.parametrize("timeout", [None, 0.0, 5.0], ids=["blocking", "non-blocking", "timeout"])
@pytest.mark.parametrize("by", ["socket", "number", "object"])
def test_every_form_of_a_socket_is_taken_and_stays_as_it_was(pair, timeout, by):
    near, far = pair
    near.settimeout(5.0)
    reader = Reader(far)
    near.sendall(bytes(MILLION))
    near.settimeout(timeout)

    class Holder:
        def fileno(self) -> int:
            return near.fileno()

    forms = {"socket": near, "number": near.fileno(), "object": Holder()}
    receipt = lastbyte.finish(forms[by])
    assert receipt.unacked == 0
    assert near.fileno() >= 0 and near.gettimeout() == timeout
    assert reader.result() == (MILLION, End.FIN)


def test_what_is_kept_can_be_read_afterwards(pair):
    near, far = pair
    near.sendall(b"question")
    far.sendall(b"answer")
    receipt = lastbyte.finish(near, drain=None)
    assert (receipt.level, receipt.drained) == (Delivery.ACKED, 0)
    assert near.recv(100) == b"answer"


def test_no_more_is_thrown_away_than_was_said(pair):
    near, far = pair
    far.sendall(b"0123456789")
    receipt = lastbyte.finish(near, drain=4)
    assert receipt.drained == 4
    assert near.recv(100) == b"456789"


def test_closed_is_proven_by_a_peer_that_answers_our_end(pair):
    near, far = pair
    near.sendall(b"all")
    reader = threading.Thread(target=lambda: (far.recv(10), far.recv(10), far.shutdown(1)))
    reader.start()
    try:
        receipt = lastbyte.finish(near, 5, want=Delivery.CLOSED)
    except lastbyte.FinishError as error:
        # How the peer ended cannot always be told of a socket that others read.
        assert error.why is Unproven.UNKNOWABLE and error.receipt.level is Delivery.ACKED
    else:
        assert (receipt.level, receipt.peer) == (Delivery.CLOSED, PeerEnd.FIN)
    reader.join()


def test_confirmed_is_refused_with_a_receipt(pair):
    near, far = pair
    reader = Reader(far)
    near.sendall(b"all")
    threading.Thread(target=lambda: (reader.join(), far.close())).start()
    with pytest.raises(lastbyte.FinishError) as caught:
        lastbyte.finish(near, 1, want=Delivery.CONFIRMED)
    assert caught.value.receipt.level >= Delivery.ACKED
    assert caught.value.receipt.unacked == 0


def test_a_peer_that_ended_first_proves_nothing_by_its_end(pair):
    near, far = pair
    far.shutdown(socket.SHUT_WR)
    near.sendall(b"late")
    with pytest.raises(lastbyte.FinishError) as caught:
        lastbyte.finish(near, 5, want=Delivery.CLOSED)
    assert caught.value.why is Unproven.EARLY_FIN
    assert caught.value.receipt.level is Delivery.ACKED


def test_a_reset_while_it_waits(stuck):
    near, far = stuck
    later = Later(near, lambda: reset(far))
    with pytest.raises(lastbyte.FinishReset) as caught:
        lastbyte.finish(near, 10)
    later.join()
    error = caught.value
    assert isinstance(error, ConnectionResetError)
    assert (error.why, error.receipt.peer) == (Unproven.RESET, PeerEnd.RESET)
    assert error.receipt.level < Delivery.ACKED
    assert "127.0.0.1:" in str(error) and "the connection was reset" in str(error)


def test_a_reset_before_it_began(pair):
    near, far = pair
    near.sendall(b"lost")
    reset(far)
    with pytest.raises(lastbyte.FinishError) as caught:
        lastbyte.finish(near, 10)
    assert caught.value.why is Unproven.NOT_CONNECTED
    assert caught.value.receipt.level is Delivery.WRITTEN


def late_by():
    """How much later than its timeout a finish ends, in seconds."""
    near, far = connected()
    with near, far:
        fill(near)
        began = time.monotonic()
        with pytest.raises(lastbyte.FinishTimeout) as caught:
            lastbyte.finish(near, 0.3)
        late = time.monotonic() - began - 0.3
    error = caught.value
    assert isinstance(error, TimeoutError) and isinstance(error, lastbyte.FinishError)
    assert (error.why, error.receipt.peer) == (Unproven.DEADLINE, PeerEnd.SILENT)
    assert error.receipt.unacked > 0 and error.receipt.took >= 0.3
    return late


def test_the_timeout_ends_it():
    assert 0 <= late_by() < SECOND


@pytest.mark.soak
def test_the_timeout_is_honoured_to_20_ms():
    late = sorted(late_by() for _ in range(5))
    assert late[0] >= 0 and late[3] <= 0.02, f"late by {late} s"


def test_what_timed_out_can_be_taken_up_again(stuck):
    near, far = stuck
    with pytest.raises(lastbyte.FinishTimeout):
        lastbyte.finish(near, 0.1)
    reader = Reader(far)
    assert lastbyte.finish(near, 10).unacked == 0
    near.close()
    assert reader.result()[1] is End.FIN


def test_other_threads_run_meanwhile(stuck):
    near, _ = stuck
    stop, gaps = threading.Event(), [0.0]

    def count():
        before = time.monotonic()
        while not stop.is_set():
            now = time.monotonic()
            gaps[0], before = max(gaps[0], now - before), now

    thread = threading.Thread(target=count)
    thread.start()
    with pytest.raises(lastbyte.FinishTimeout):
        lastbyte.finish(near, 2)
    stop.set()
    thread.join()
    assert gaps[0] < 1.5, f"another thread stood still for {gaps[0]} s"


@pytest.fixture
def interruptible():
    """What a shell starts in the background ignores SIGINT, and Python leaves it at that."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("to", ["process", "another thread"])
def test_ctrl_c_works_while_it_waits(stuck, to):
    near, _ = stuck

    def interrupt():
        if to == "process":
            os.kill(os.getpid(), signal.SIGINT)
        else:  # The main thread's wait is not interrupted by this one: it has to look.
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    before = open_descriptors()
    later = Later(near, interrupt)
    with pytest.raises(KeyboardInterrupt):
        lastbyte.finish(near, 30)
    took = time.monotonic() - later.at
    later.join()
    assert took < SECOND, f"it took {took} s"
    assert open_descriptors() <= before


def test_a_handler_that_does_not_raise_does_not_end_it(stuck):
    near, far = stuck
    seen = []
    former = signal.signal(signal.SIGUSR1, lambda *_: seen.append(Reader(far)))
    try:
        later = Later(near, lambda: os.kill(os.getpid(), signal.SIGUSR1))
        assert lastbyte.finish(near, 10).unacked == 0
        later.join()
        assert len(seen) == 1
        near.close()
        assert seen[0].result()[1] is End.FIN
    finally:
        signal.signal(signal.SIGUSR1, former)


def test_another_thread_may_close_the_socket_meanwhile(stuck):
    near, far = stuck
    readers = []

    def close_and_read():
        near.close()
        readers.append(Reader(far))

    later = Later(near, close_and_read)
    assert lastbyte.finish(near, 10).unacked == 0
    later.join()
    assert readers[0].result()[1] is End.FIN


def test_a_unix_socket_is_acked_when_its_peer_has_read():
    near, far = socket.socketpair()
    with near, far:
        far.sendall(b"greeting")
        reader = threading.Thread(target=lambda: [None for _ in iter(lambda: far.recv(999), b"")])
        near.sendall(bytes(10_000))
        reader.start()
        receipt = lastbyte.finish(near, 10)
        reader.join()
    assert (receipt.level, receipt.unacked, receipt.drained) == (Delivery.ACKED, 0, 8)


def test_a_unix_socket_that_nobody_reads_is_not_acked():
    near, far = socket.socketpair()
    with near, far:
        near.sendall(b"unread")
        with pytest.raises(lastbyte.FinishTimeout) as caught:
            lastbyte.finish(near, 0.1)
    assert (caught.value.receipt.level, caught.value.receipt.unacked) == (Delivery.SENT, None)


def test_a_closed_socket():
    sock = socket.socket()
    sock.close()
    for closed in (sock, -1, 1 << 20, 1 << 80, -(1 << 80)):
        refused(closed, Unproven.NOT_OPEN)
        with pytest.raises(OSError):
            lastbyte.info(closed)


def test_a_listening_socket():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        refused(sock, Unproven.LISTENING)


def test_a_socket_of_datagrams():
    near, far = socket.socketpair(type=socket.SOCK_DGRAM)
    with near, far:
        refused(near, Unproven.NO_STREAM)


def test_a_file_and_a_pipe():
    with open(os.devnull, "rb") as file:
        refused(file, Unproven.NO_SOCKET)
    for number in os.pipe():
        refused(number, Unproven.NO_SOCKET)
        os.close(number)


def refused(sock, why):
    with pytest.raises(lastbyte.NotAStream) as caught:
        lastbyte.finish(sock)
    error = caught.value
    assert isinstance(error, ValueError) and isinstance(error, lastbyte.FinishError)
    assert error.why is why and error.errno > 0
    assert error.receipt.level is Delivery.WRITTEN and error.receipt.unacked is None
    assert "bytes" not in str(error), "a receipt of nothing is no news"


def test_a_socket_that_was_never_connected():
    with socket.socket() as sock, pytest.raises(lastbyte.FinishError) as caught:
        lastbyte.finish(sock)
    assert caught.value.why is Unproven.NOT_CONNECTED


@pytest.mark.parametrize("wrong", ["4", None, 3.0, True, object(), b"", [1]])
def test_what_is_no_socket_at_all(wrong):
    for function in (lastbyte.finish, lastbyte.info, lastbyte.prepare):
        with pytest.raises(TypeError, match=r"a socket is wanted, .*: not \w+"):
            function(wrong)


@pytest.mark.parametrize(
    ("error", "options"),
    [
        (ValueError, {"timeout": -1}),
        (ValueError, {"timeout": float("nan")}),
        (ValueError, {"timeout": float("inf")}),
        (TypeError, {"timeout": None}),
        (TypeError, {"timeout": "3"}),
        (ValueError, {"want": 5}),
        (ValueError, {"want": "acked"}),
        (ValueError, {"drain": -1}),
        (ValueError, {"drain": 1 << 64}),
        (ValueError, {"drain": "all"}),
    ],
    ids=str,
)
def test_options_that_make_no_sense_do_nothing(pair, error, options):
    near, far = pair
    with pytest.raises(error, match=f"{next(iter(options))} must|is not a valid Delivery"):
        lastbyte.finish(near, **options)
    near.sendall(b"still open")
    assert far.recv(100) == b"still open"


def test_what_is_not_said_is_what_the_library_does():
    options = inspect.signature(lastbyte.finish).parameters
    said = tuple(options[name].default for name in ("timeout", "want", "drain"))
    assert said == lastbyte._lastbyte.DEFAULTS


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts in /proc")
def test_descriptors_are_given_back():
    before = open_descriptors()
    for _ in range(20):
        near, far = connected()
        with near, far:
            near.sendall(b"all")
            lastbyte.finish(near)
    assert open_descriptors() == before
