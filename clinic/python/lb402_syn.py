"""LB402: the SYN is lost on the way, and the kernel waits a second before it sends it again. The program can do
nothing about it; mended is the path."""

import select
import socket

import patient

patient.is_sick()
begin = patient.now()
stream = socket.socket()
stream.setblocking(False)
stream.connect_ex((patient.sys.argv[2], int(patient.sys.argv[3])))
patient.say(written=0)  # the SYN has left: from now on the path carries
select.select([], [stream], [], 20)
connect_ms = (patient.now() - begin) * 1e3
stream.setblocking(True)
stream.sendall(bytes(1000))
patient.say(written=1000, read=patient.finish(stream), connect_ms=connect_ms)
