"""LB205: writes head and body of a request one after the other and reads the answer. The body waits for the
acknowledgement of the head (Nagle), which is delayed: 40 ms a request. Mended: TCP_NODELAY."""

import socket

import patient

sick = patient.is_sick()
stream = patient.reach()
if not sick:
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
start = patient.now()
got = 0
for _ in range(40):
    stream.sendall(bytes(100))
    stream.sendall(bytes(100))
    got += patient.take(stream, 100)
patient.say(written=40 * 200, read=got, seconds=patient.now() - start)
patient.finish(stream)
