"""LB207: a path that loses everything for moments. Nothing comes back that could tell of a loss, so the sender waits
for its retransmission time-out, twice as long each time. The program can do nothing about it; mended is the
path."""

import socket
import struct

import patient

ROUNDS = 120

patient.is_sick()
stream = patient.reach()
start = patient.now()
got = 0
for _ in range(ROUNDS):
    stream.sendall(bytes(10000))
    got += patient.take(stream, 1)
seconds = patient.now() - start
# tcpi_total_retrans of struct tcp_info (linux/tcp.h).
info = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
patient.say(
    written=10000 * ROUNDS,
    read=got,
    seconds=seconds,
    retransmitted=struct.unpack_from("I", info, 100)[0],
)
patient.finish(stream)
