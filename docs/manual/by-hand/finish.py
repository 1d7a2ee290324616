"""Ends a connection by hand and says how far the bytes came.

    python3 finish.py HOST PORT BYTES SECONDS [closed | read]

Writes BYTES bytes to a server whose greeting it never reads, and finishes within SECONDS. With
`read` it reads to the end instead, and says what that end was. Linux, Python 3.10 or later.
Exit code 0: acked, closed where that was asked for, or read to a FIN. 1: less. 2: misuse.
"""

import sys

# --- on the page ---
import fcntl
import select
import socket
import struct
import termios
import time

ESTABLISHED, SYN_SENT, SYN_RECV, CLOSED = 1, 2, 3, 7  # of tcpi_state


def tcp_info(sock):
    """The state, and the bytes received, of which a FIN counts as one."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return info[0], struct.unpack_from("Q", info, 128)[0]


def is_plain_tcp(sock):
    """And not MPTCP, which counts otherwise."""
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL) == socket.IPPROTO_TCP


def ended(sock, bytes_read):
    """How the peer ended, once recv has returned b"". Ask before close.

    `bytes_read` counts all that was ever read from this socket, which has had SO_OOBINLINE since
    before the first read.
    """
    more = tcp_info(sock)[1] - bytes_read
    return {1: "FIN", 0: "RST"}.get(more, "unknown") if is_plain_tcp(sock) else "unknown"


def drain(sock, bytes_read, limit):
    """Reads and throws away what is there: how the peer ended, bytes read, what is left to read."""
    while limit > 0:
        try:
            piece = len(sock.recv(min(limit, 65536)))
        except BlockingIOError:
            break
        except OSError:
            return "RST", bytes_read, limit
        if piece == 0:
            return ended(sock, bytes_read), bytes_read, limit
        bytes_read, limit = bytes_read + piece, limit - piece
    return "open", bytes_read, limit  # at limit 0 what is unread turns close into a reset


def finish(sock, bytes_read, seconds, wait_for_fin=False):
    """Ends our direction and waits until the peer's kernel has it all.

    With `wait_for_fin` until the peer has ended its own too. Returns the bytes not acked (None: it
    cannot be known), whether all was acked before the peer's FIN came, and how the peer ended.
    The caller closes `sock` afterwards, never before.
    """
    until = time.monotonic() + seconds
    sock.setblocking(False)
    state, _ = tcp_info(sock)
    if state in (SYN_SENT, SYN_RECV):
        return None, False, "open"  # shutdown would throw all away
    early_fin = state != ESTABLISHED
    try:
        sock.shutdown(socket.SHUT_WR)
        fin = 1
    except OSError:  # ENOTCONN: reset before, so no FIN is queued
        fin = 0
    if not is_plain_tcp(sock):
        return None, False, "open"

    peer, limit = "open", 1 << 20
    with select.epoll() as epoll:
        # The ACK of our FIN is an edge of EPOLLOUT.
        events = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
        epoll.register(sock, events)
        while True:
            state, _ = tcp_info(sock)
            was_open = peer == "open"
            if was_open:
                peer, bytes_read, limit = drain(sock, bytes_read, limit)
            queue = fcntl.ioctl(sock, termios.TIOCOUTQ, b"\0" * 4)  # our FIN included
            queue = struct.unpack("i", queue)[0]
            early_fin |= was_open and peer == "FIN" and queue > 0

            left = until - time.monotonic()
            if state == CLOSED or left <= 0:
                break
            if queue == 0 and (peer != "open" or not wait_for_fin):
                break
            epoll.poll(min(left, 1))  # an edge may be missed

    if peer == "open" and state == CLOSED:
        peer = "unknown"  # the limit kept us from its end
    closed = queue == 0 and peer == "FIN" and not early_fin
    return max(queue - fin, 0), closed, peer
# --- off the page ---


def write_all(sock, size):
    """Writes until all is written, the connection fails, or nothing can be written in time."""
    block = bytes(range(251)) * 256  # byte number n of the stream is n modulo 251
    written = 0
    while written < size:
        at = written % 251
        try:
            written += sock.send(block[at : at + size - written])
        except OSError as error:
            print(f"finish: writing ended after {written} bytes: {error}", file=sys.stderr)
            break
    return written


def read_to_the_end(sock):
    bytes_read = 0
    try:
        while piece := sock.recv(65536):
            bytes_read += len(piece)
        peer = ended(sock, bytes_read)
    except TimeoutError:
        peer = "open"
    except OSError:
        peer = "RST"
    print(f"read: {bytes_read} bytes, peer {peer}")
    return 0 if peer == "FIN" else 1


def main(arguments):
    level = arguments[4:] or ["acked"]
    if len(arguments) < 4 or level not in (["acked"], ["closed"], ["read"]):
        print("finish: HOST PORT BYTES SECONDS [closed | read]", file=sys.stderr)
        return 2
    size, seconds = int(arguments[2]), float(arguments[3])
    try:
        sock = socket.create_connection(arguments[:2], timeout=seconds + 1)
    except OSError as error:
        print(f"finish: {error}", file=sys.stderr)
        return 2
    with sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
        written = write_all(sock, size)
        print(f"finish: written {written}", file=sys.stderr)
        if level == ["read"]:
            return read_to_the_end(sock)
        unacked, closed, peer = finish(sock, 0, seconds, level == ["closed"])

    complete = unacked == 0 and written == size
    reached = "written" if not complete else "closed" if closed else "acked"
    acked = "?" if unacked is None else written - unacked
    print(f"{reached}: {acked} of {written} bytes acked, peer {peer}")
    return 0 if complete and (closed or level == ["acked"]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
