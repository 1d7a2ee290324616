"""LB201: SO_SNDBUF fixed at 32 KiB, as a guide of twenty years ago advised. Over a path of 50 ms only so many bytes
are under way at a time. Mended: the option is left alone, and the kernel lets the buffer grow."""

import socket

import patient

sick = patient.is_sick()
stream = patient.reach()
if sick:
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32768)
written = 0
for _ in range(96):
    stream.sendall(bytes(65536))
    written += 65536
patient.say(written=written, read=patient.finish(stream))
