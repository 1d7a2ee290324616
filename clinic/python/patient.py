"""What all patients in Python share: how they are called, how they reach their peer, how they say what
they know. They are called as those in C are (c/patient.h)."""

import fcntl
import json
import select
import socket
import struct
import sys
import time

SIOCOUTQ = 0x5411


def is_sick():
    if len(sys.argv) < 4 or sys.argv[1] not in ("sick", "well"):
        sys.exit(f"usage: {sys.argv[0]} sick|well HOST PORT | unix PATH | serve PORT")
    return sys.argv[1] == "sick"


def say(**known):
    print(json.dumps(known), flush=True)


def listen_at(port, backlog=16):
    listener = socket.socket()
    listener.bind(("0.0.0.0", int(port)))
    listener.listen(backlog)
    say(port=listener.getsockname()[1])
    return listener


def reach():
    """The one connection to the peer, whichever way the arguments say."""
    host, port = sys.argv[2:4]
    if host == "serve":
        with listen_at(port) as listener:
            return listener.accept()[0]
    if host == "unix":
        stream = socket.socket(socket.AF_UNIX)
        stream.connect(port)
        return stream
    stream = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    stream.connect((host, int(port)))
    return stream


def fill(stream, most):
    """Writes as much as the kernel takes, at most so many bytes: until there has been no room for a moment."""
    written = 0
    stream.settimeout(0.1)
    try:
        while written < most:
            written += stream.send(bytes(min(65536, most - written)))
    except OSError:
        pass
    stream.settimeout(None)
    return written


def take(stream, most=1 << 60):
    """Reads to the end, at most so many bytes."""
    got = 0
    try:
        while got < most:
            data = stream.recv(min(65536, most - got))
            if not data:
                break
            got += len(data)
    except ConnectionError:
        pass
    return got


def wait_readable(stream):
    """Waits until there is something to read, without reading it."""
    poll = select.poll()
    poll.register(stream, select.POLLIN)
    poll.poll()


def finish(stream):
    """Ends a connection so that nothing is lost: half-close, read to the peer's end, close."""
    try:
        stream.shutdown(socket.SHUT_WR)
    except OSError:
        pass
    got = take(stream)
    stream.close()
    return got


def unacked(stream):
    """Bytes that the peer's kernel has not acknowledged."""
    return struct.unpack("i", fcntl.ioctl(stream, SIOCOUTQ, bytes(4)))[0]


def now():
    return time.monotonic()
