"""LB206: writes a line of 40 bytes at a time for four seconds, with TCP_NODELAY: a system call and a packet for each.
Mended: lines through a buffer of 64 KiB."""

import socket

import patient

LINES = 26000

sick = patient.is_sick()
stream = patient.reach()
stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
lines = 0
end = patient.now() + 4
with stream.makefile("wb", buffering=0 if sick else 65536) as file:
    while lines < LINES or (sick and patient.now() < end):
        file.write(bytes(40))
        lines += 1
patient.say(written=40 * lines, writes=lines if sick else 40 * lines // 65536 + 1, read=patient.finish(stream))
