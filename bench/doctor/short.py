#!/usr/bin/env python3
"""Loses bytes within milliseconds, in one program that has both ends, and says how many as a JSON line.

    short.py close|later|linger|sendfile|exit|whole

Writes as much of 1 MB as the kernel takes, ends the connection in this way, then reads at the other end what
there is. `whole` half-closes and lets the other end read all of it first.
"""

import json
import os
import socket
import struct
import sys
import tempfile
import time

ALL = 1_000_000


def main(kind):
    listener = socket.create_server(("127.0.0.1", 0))
    near = socket.create_connection(listener.getsockname())
    far, _ = listener.accept()
    far.sendall(b"220 welcome")
    near.recv(11, socket.MSG_PEEK | socket.MSG_WAITALL)
    if kind == "exit":
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            listener.close()
            far.close()
            os.write(writer, str(fill(near)).encode())
            os._exit(0)  # with the greeting unread
        near.close()
        os.waitpid(child, 0)
        written = int(os.read(reader, 20))
    elif kind == "whole":
        written = fill(near)
        near.recv(11)
        near.shutdown(socket.SHUT_WR)
    else:
        written = send_file(near) if kind == "sendfile" else fill(near)
        if kind == "later":
            time.sleep(0.1)
        if kind == "linger":
            near.recv(11)
            near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        near.close()
    print(json.dumps({"written": written, "received": drain(far)}), flush=True)


def fill(stream):
    stream.setblocking(False)
    written = 0
    try:
        while written < ALL:
            written += stream.send(bytes(ALL - written))
    except BlockingIOError:
        pass
    return written


def send_file(stream):
    stream.setblocking(False)
    written = 0
    with tempfile.TemporaryFile() as file:
        file.write(bytes(ALL))
        file.flush()
        try:
            while written < ALL:
                written += os.sendfile(stream.fileno(), file.fileno(), written, ALL - written)
        except BlockingIOError:
            pass
    return written


def drain(stream):
    received = 0
    try:
        while part := stream.recv(1 << 20):
            received += len(part)
    except ConnectionResetError:
        pass
    return received


if __name__ == "__main__":
    main(sys.argv[1])
