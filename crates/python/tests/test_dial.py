"""lastbyte.create_connection as what it takes the place of."""

from __future__ import annotations

import contextlib
import errno
import http.client
import http.server
import inspect
import multiprocessing
import os
import signal
import smtplib
import socket
import sys
import threading
import time
import unittest
import urllib.error
import urllib.request

import lastbyte
import pytest
from conftest import MILLION, SECOND, Reader, open_descriptors, refusing_port, silent_port
from lastbyte import Delivery, End

try:
    from test import test_socket as of_cpython
except ImportError:  # Where Python came without its tests.
    of_cpython = None

connect = lastbyte.create_connection


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
def address(listener):
    return listener.getsockname()


@pytest.fixture
def in_place(monkeypatch):
    """Ours in the place of the standard library's."""
    monkeypatch.setattr(socket, "create_connection", connect)


# --- as a socket ---------------------------------------------------------------------------------


def test_it_has_the_parameters_of_what_it_replaces():
    ours = inspect.signature(connect).parameters
    for name, parameter in inspect.signature(socket.create_connection).parameters.items():
        assert (ours[name].default, ours[name].kind) == (parameter.default, parameter.kind)


@pytest.mark.parametrize("resolver", ["dns", "system"])
@pytest.mark.parametrize("host", ["127.0.0.1", b"127.0.0.1", "localhost", None])
def test_every_form_of_a_host(address, host, resolver):
    with connect((host, address[1]), SECOND, resolver=resolver) as sock:
        assert type(sock) is socket.socket
        assert (sock.family, sock.type) == (socket.AF_INET, socket.SOCK_STREAM)
        assert sock.getpeername() == address
        assert not sock.get_inheritable()


def test_every_form_of_a_port(address, monkeypatch):
    for port in (str(address[1]), str(address[1]).encode()):
        connect(("127.0.0.1", port), SECOND).close()
    monkeypatch.setattr(socket, "getservbyname", lambda name, _: {"ours": address[1]}[name])
    connect(["127.0.0.1", "ours"], SECOND).close()


def test_the_time_out_becomes_that_of_the_socket(address):
    with connect(address, 7.5) as sock:
        assert sock.gettimeout() == 7.5
    with connect(address, None) as sock:
        assert sock.gettimeout() is None and os.get_blocking(sock.fileno())
    with connect(address) as sock:
        assert sock.gettimeout() is None
    socket.setdefaulttimeout(3)
    try:
        with connect(address) as sock:
            assert sock.gettimeout() == 3
        with connect(address, None) as sock:
            assert sock.gettimeout() is None
    finally:
        socket.setdefaulttimeout(None)


def test_a_million_arrives_and_its_end_is_known(listener, address):
    with connect(address, SECOND) as sock:
        far, _ = listener.accept()
        with far:
            reader = Reader(far)
            sock.sendall(bytes(MILLION))
            assert lastbyte.finish(sock).level >= Delivery.ACKED
            assert reader.result() == (MILLION, End.FIN)
            far.close()
        assert sock.recv(1) == b""
        assert lastbyte.observed_end(sock, 0) is not End.RESET


def test_where_it_connects_from(address):
    with connect(address, SECOND, ("127.0.0.2", 0)) as sock:
        assert sock.getsockname()[0] == "127.0.0.2"
    with connect(address, SECOND, ("", 0)) as sock:
        assert sock.getsockname()[0] == "127.0.0.1"
    port = refusing_port()
    with connect(address, SECOND, ("127.0.0.1", port)) as sock:
        assert sock.getsockname() == ("127.0.0.1", port)
    with pytest.raises(OSError) as caught:
        connect(address, SECOND, ("192.0.2.1", 0))
    assert caught.value.errno == errno.EADDRNOTAVAIL
    with pytest.raises(ValueError, match="port other than 0"):
        connect(address, SECOND, ("", 1234), congestion="reno")


def test_options_are_set_before_it_connects(address):
    with connect(address, SECOND, congestion="reno", family=socket.AF_INET) as sock:
        name = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        assert name.rstrip(b"\0") == b"reno"
    with pytest.raises(FileNotFoundError, match="TCP_CONGESTION"):
        connect(address, SECOND, congestion="no such")
    for nonsense in ({"resolver": "?"}, {"family": socket.AF_UNIX}):
        with pytest.raises(ValueError):
            connect(address, SECOND, **nonsense)
    with pytest.raises(TypeError):
        connect(address, SECOND, congestion=b"reno")


# --- what goes wrong -----------------------------------------------------------------------------


def test_a_refusal_names_who_refused():
    port = refusing_port()
    with pytest.raises(ConnectionRefusedError) as caught:
        connect(("127.0.0.1", port), SECOND)
    assert caught.value.errno == errno.ECONNREFUSED
    assert f"dial 127.0.0.1 port {port}: no address connected: connect -> 127.0.0.1:{port}" in str(
        caught.value
    )


def test_all_errors_on_demand():
    address = ("127.0.0.1", refusing_port())
    if sys.version_info < (3, 11):
        with pytest.raises(TypeError, match=r"3\.11"):
            connect(address, SECOND, all_errors=True)
        return
    with pytest.raises(ExceptionGroup) as caught:  # noqa: F821
        connect(address, SECOND, all_errors=True)
    assert [type(error) for error in caught.value.exceptions] == [ConnectionRefusedError]


def test_names_without_an_address():
    with pytest.raises(socket.gaierror) as caught:
        connect(("nobody.invalid", 80), 60)
    assert caught.value.errno == socket.EAI_NONAME, "RFC 6761 has told us, no server has to"
    assert "nobody.invalid" in str(caught.value)
    with pytest.raises(socket.gaierror) as caught:
        connect(("nobody.invalid", 80), 60, resolver="system")
    assert caught.value.errno in (socket.EAI_NONAME, socket.EAI_AGAIN)
    with pytest.raises(socket.gaierror) as caught:
        connect(("", 80), SECOND)
    assert caught.value.errno == socket.EAI_NONAME
    with pytest.raises(socket.gaierror) as caught:
        connect(("127.0.0.1", "no such service"), SECOND)
    assert caught.value.errno == socket.EAI_SERVICE


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (ConnectionRefusedError, (("127.0.0.1", 0), 5)),
        (ConnectionRefusedError, (("127.0.0.1", None), 5)),
        (OverflowError, (("127.0.0.1", 65_536), 5)),
        (OverflowError, (("127.0.0.1", -1), 5)),
        (OSError, (("127.0.0.1", 1.5), 5)),
        (OSError, (("127.0.0.1", True), 5)),
        (TypeError, ((12, 80), 5)),
        (UnicodeError, (("\u00fc" * 300, 80), 5)),
        (ValueError, ("127.0.0.1", 5)),
        (ValueError, (("127.0.0.1", 80, 0, 0), 5)),
        (BlockingIOError, (("127.0.0.1", 80), 0)),
        (ValueError, (("127.0.0.1", 80), -1)),
        (ValueError, (("127.0.0.1", 80), float("nan"))),
        (OverflowError, (("127.0.0.1", 80), 1e300)),
        (TypeError, (("127.0.0.1", 80), "5")),
    ],
)
def test_what_makes_no_sense_is_refused_as_there(kind, arguments):
    with pytest.raises(kind):
        connect(*arguments)


@pytest.mark.parametrize("timeout", [0.001, 0.3])
def test_the_time_out_is_for_all_of_it(timeout):
    with silent_port() as port:
        began = time.monotonic()
        with pytest.raises(socket.timeout) as caught:
            connect(("127.0.0.1", port), timeout)
        took = time.monotonic() - began
    assert isinstance(caught.value, TimeoutError) or sys.version_info < (3, 10)
    assert caught.value.errno == errno.ETIMEDOUT
    assert f"connect -> 127.0.0.1:{port}: no answer" in str(caught.value)
    assert timeout <= took < timeout + SECOND


# --- beside others -------------------------------------------------------------------------------


def test_other_threads_run_while_it_waits():
    with silent_port() as port:
        waiting = threading.Thread(
            target=lambda: pytest.raises(OSError, connect, ("127.0.0.1", port), 0.4)
        )
        ticks = 0
        waiting.start()
        while waiting.is_alive():
            time.sleep(0.01)
            ticks += 1
        waiting.join()
    assert ticks > 1


def test_threads_do_not_wait_for_each_other(address):
    """One of eight dials what does not answer."""
    took = {}

    def dial(number, port):
        began = time.monotonic()
        with contextlib.suppress(socket.timeout):
            connect(("127.0.0.1", port), 3).close()
        took[number] = time.monotonic() - began

    with silent_port() as dead:
        ports = [dead] + 7 * [address[1]]
        threads = [threading.Thread(target=dial, args=both) for both in enumerate(ports)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    dead_took = took.pop(0)
    assert dead_took >= 3
    assert len(took) == 7 and max(took.values()) < dead_took, took


def test_many_at_once():
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        socks = []
        threads = [
            threading.Thread(target=lambda: socks.append(connect(listener.getsockname(), SECOND)))
            for _ in range(64)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({sock.getsockname() for sock in socks}) == 64
        for sock in socks:
            sock.close()


class Interrupted(Exception):
    pass


@contextlib.contextmanager
def after(seconds, handler):
    """Runs a handler of a signal later."""
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_signal_interrupts_it():
    def handler(*_):
        raise Interrupted

    with silent_port() as port:
        before = open_descriptors()
        began = time.monotonic()
        with after(0.1, handler), pytest.raises(Interrupted):
            connect(("127.0.0.1", port), 30)
        took = time.monotonic() - began
        assert open_descriptors() == before
    assert 0.1 <= took < SECOND


def test_the_handler_of_a_signal_may_dial(address):
    inner = []

    def handler(*_):
        connect(address, SECOND).close()
        inner.append(time.monotonic())

    with silent_port() as port, after(0.1, handler), pytest.raises(socket.timeout):
        connect(("127.0.0.1", port), 0.6)
    assert len(inner) == 1


def _dial_and_tell(address, told):
    for resolver in ("dns", "system"):
        for host in ("127.0.0.1", "localhost"):
            connect((host, address[1]), SECOND, resolver=resolver).close()
    told.put("connected")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_process_dials_by_itself(address):
    """While a thread of its parent dials."""
    context = multiprocessing.get_context("fork")
    with silent_port() as port:
        dead = threading.Thread(
            target=lambda: pytest.raises(socket.timeout, connect, ("127.0.0.1", port), 1)
        )
        dead.start()
        time.sleep(0.05)  # Should it not have begun, this is a lesser test, and still right.
        told = context.SimpleQueue()
        child = context.Process(target=_dial_and_tell, args=(address, told))
        child.start()
        connect(address, SECOND).close()
        child.join(SECOND)
        assert child.exitcode == 0 and told.get() == "connected"
        dead.join()
        told.close()
        child.close()
    connect(address, SECOND).close()


def test_it_leaves_no_descriptor(address):
    before = open_descriptors()
    for _ in range(20):
        connect(("localhost", address[1]), SECOND).close()
        with contextlib.suppress(ConnectionRefusedError):
            connect(("127.0.0.1", refusing_port()), SECOND)
    assert open_descriptors() == before


# --- in the place of socket.create_connection ----------------------------------------------------


@pytest.fixture
def http_server():
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            body = self.path.encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_http_client(in_place, http_server):
    source = ("127.0.0.3", 0)
    connection = http.client.HTTPConnection(
        "localhost", http_server, timeout=SECOND, source_address=source
    )
    with contextlib.closing(connection):
        for path in ("/one", "/two"):
            connection.request("GET", path)
            assert connection.getresponse().read() == path.encode()
        assert connection.sock.getsockname()[0] == "127.0.0.3"
        assert connection.sock.gettimeout() == SECOND


def test_http_client_without_a_time_out(in_place, http_server):
    """It hands the default of the socket module on."""
    connection = http.client.HTTPConnection("localhost", http_server)
    with contextlib.closing(connection):
        connection.request("GET", "/")
        assert connection.getresponse().read() == b"/"


def test_urllib(in_place, http_server):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    url = f"http://localhost:{http_server}/path"
    with opener.open(url, timeout=SECOND) as response:
        assert response.read() == b"/path"
    with pytest.raises(urllib.error.URLError) as caught:
        opener.open(f"http://localhost:{refusing_port()}/", timeout=SECOND)
    assert isinstance(caught.value.reason, ConnectionRefusedError)


def test_smtplib(in_place, listener, address):
    got = []

    def serve():
        sock, _ = listener.accept()
        with sock, sock.makefile("rwb") as stream:

            def say(line):
                stream.write(line + b"\r\n")
                stream.flush()

            say(b"220 here")
            for line in stream:
                word = line[:4].upper()
                got.append(word)
                say({b"DATA": b"354 go on", b"QUIT": b"221 bye"}.get(word, b"250 well"))
                if word == b"DATA":
                    while stream.readline() != b".\r\n":
                        pass
                    say(b"250 taken")
                if word == b"QUIT":
                    return

    server = threading.Thread(target=serve)
    server.start()
    with smtplib.SMTP("localhost", address[1], "client", timeout=SECOND) as client:
        client.sendmail("a@example.org", ["b@example.org"], "Subject: hello\n\nhello\n")
    server.join()
    assert got == [b"EHLO", b"MAIL", b"RCPT", b"DATA", b"QUIT"]


@pytest.mark.skipif(of_cpython is None, reason="this Python came without its own tests")
@pytest.mark.parametrize(
    "name", ["NetworkConnectionAttributesTest", "NetworkConnectionBehaviourTest"]
)
def test_as_cpython_tests_it(in_place, monkeypatch, name):
    """Its tests of what `socket.create_connection` returns."""
    monkeypatch.setattr(of_cpython.support, "LOOPBACK_TIMEOUT", SECOND, raising=False)
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(getattr(of_cpython, name))
    result = unittest.TestResult()
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        suite.run(result)
    assert result.testsRun >= 2
    assert not result.failures and not result.errors, result.failures + result.errors
