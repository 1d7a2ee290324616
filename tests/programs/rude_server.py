"""A web server of HTTP/1.0 that tells no length, so that a file ends where its connection does.

/whole  4,000,000 bytes and the end of the stream
/cut    as many, and then a reset
/early  an answer of 16 KiB to an upload that it does not read, and then close: when the upload has
        come to a halt, because what fails to send asks for no answer in many clients
"""

import array
import fcntl
import socket
import struct
import termios
import threading
import time

BODY = bytes(range(250)) * 16_000
REFUSED = b"x" * 16_384


def main():
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    print("listening on 127.0.0.1:%d" % listener.getsockname()[1], flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def answer(connection):
    with connection:
        path = head_of(connection).split()[1]
        if path == b"/early":
            wait_until_still(connection)
            connection.sendall(b"HTTP/1.0 413 Too Large\r\n\r\n" + REFUSED)
            return
        try:
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + BODY)
        except OSError:
            return
        if path == b"/cut":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


# Byte by byte: what follows the head of an upload stays unread.
def head_of(connection):
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = connection.recv(1)
        if not byte:
            break
        head += byte
    return head or b"GET / HTTP/1.0"


def wait_until_still(connection):
    unread, before = 0, -1
    while unread == 0 or unread != before:
        time.sleep(0.1)
        unread, before = bytes_unread(connection), unread


def bytes_unread(connection):
    count = array.array("i", [0])
    fcntl.ioctl(connection, termios.FIONREAD, count)
    return count[0]


main()
