"""LB206: writes a line of 40 bytes at a time, with TCP_NODELAY: a system call and a packet for each. Mended: the same
lines through a buffer of 64 KiB."""

import socket

import patient

LINES = 26000

sick = patient.is_sick()
stream = patient.reach()
stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
with stream.makefile("wb", buffering=0 if sick else 65536) as file:
    for _ in range(LINES):
        file.write(bytes(40))
patient.say(written=40 * LINES, writes=LINES if sick else 40 * LINES // 65536 + 1, read=patient.finish(stream))
