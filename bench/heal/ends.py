#!/usr/bin/env python3
"""The two ends of an upload, each on its host of a `lastbyte link run`.

    ends.py receive PORT FILE                           counts what arrives: lines of [time, bytes so far]
    ends.py upload PORT SNDBUF CONGESTION WRITER STOP FILE
                                                        writes until the file STOP is there: a line about the
                                                        connection, then lines of what the kernel says of it

WRITER is `polled`: 64 KiB at most each time that poll(2) says there is room, as programs with a loop of events
do; or `blocking`: 256 KiB at once. The kernel asks for room only where it begins a new packet, and fills up one
that has been sent in part without asking: a blocking writer gets far beyond its buffer by that (1.8 MB in
131,072 bytes were seen at 91 ms), one that polls does not.

Both use CLOCK_MONOTONIC, which is one for the whole machine: what happens at one end can be placed at the other.
"""

import json
import os
import socket
import struct
import sys
import threading
import time

EVERY_S = 0.05
PATIENCE_S = 120  # nobody waits longer for a run: it ends by itself
WRITES = {"polled": 1 << 16, "blocking": 1 << 18}
SO_COOKIE = 57  # asm-generic/socket.h
# Places in struct tcp_info, linux/tcp.h.
U32_AT = {
    "mss": 16, "unacked": 24, "sacked": 28, "lost": 32, "retrans": 36, "rtt_us": 68, "cwnd": 80, "resent": 100,
    "unsent": 144, "sent": 156,
}
RWND_US_AT = 176


def receive(port, to):
    listener = socket.create_server(("", int(port)))
    stream, _ = listener.accept()
    stream.settimeout(EVERY_S)
    room, total, told = bytearray(1 << 20), 0, 0.0
    with open(to, "w", buffering=1, encoding="utf-8") as lines:
        while True:
            try:
                count = stream.recv_into(room)
                if count == 0:
                    return
                total += count
            except TimeoutError:
                pass
            now = time.monotonic()
            if now - told >= EVERY_S:
                told = now
                lines.write(f"[{now:.6f}, {total}]\n")


def upload(port, sndbuf, congestion, writer, stop, to):
    """A program with a fixed send buffer, as many are: it asks for one before it connects, and never again."""
    stream = socket.socket()
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, int(sndbuf))
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
    stream.connect((os.environ["LASTBYTE_FAR"], int(port)))
    threading.Thread(target=watch, args=(stream, stop, to), daemon=True).start()
    if writer == "polled":
        stream.settimeout(PATIENCE_S)  # with a timeout, Python polls before each send
    chunk = bytes(WRITES[writer])
    while True:
        stream.send(chunk)


def watch(stream, stop, to):
    began = time.monotonic()
    cookie = struct.unpack("Q", stream.getsockopt(socket.SOL_SOCKET, SO_COOKIE, 8))[0]
    congestion = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).split(b"\0")[0].decode()
    with open(to, "w", buffering=1, encoding="utf-8") as lines:
        lines.write(json.dumps({"t": began, "cookie": cookie, "congestion": congestion}) + "\n")
        while not os.path.exists(stop) and time.monotonic() - began < PATIENCE_S:
            lines.write(json.dumps(look(stream)) + "\n")
            time.sleep(EVERY_S)
    # What is still in the buffer is of no interest, and the writer waits in a system call.
    os._exit(0)


def look(stream):
    now = time.monotonic()
    told = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    line = {"t": now, "sndbuf": stream.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)}
    line |= {name: struct.unpack_from("I", told, at)[0] for name, at in U32_AT.items()}
    return line | {"rwnd_us": struct.unpack_from("Q", told, RWND_US_AT)[0]}


if __name__ == "__main__":
    {"receive": receive, "upload": upload}[sys.argv[1]](*sys.argv[2:])
