"""The two ends of a connection whose receiver announces a window that is known.

    window.py far WINDOW SECONDS    prints `far` and Mbit/s, without the first 2 s
    window.py near SECONDS          prints `near`, the window it was told (tcpi_snd_wnd) and the round trip in ms

A clamp on its listening socket (TCP_WINDOW_CLAMP) decides the scale of the connection, and a window is at most
65535 << scale. The clamp itself does not hold: the kernel lifts it when it learns how its segments are packed, so
the clamps are half of the windows that they lead to. A send buffer would not do: the kernel doubles SO_SNDBUF and
then counts its own bookkeeping against it, by an amount that depends on how segments are packed.
"""

import socket
import struct
import sys
import time

TCP_WINDOW_CLAMP, RCVBUFFORCE, SNDBUFFORCE = 10, 33, 32
LEAVE_OUT_S = 2.0
PORT = 7000


def far(window, seconds):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, RCVBUFFORCE, 8 << 20)
    server.setsockopt(socket.IPPROTO_TCP, TCP_WINDOW_CLAMP, int(window))
    server.bind(("", PORT))
    server.listen()
    peer, _ = server.accept()
    start, count, begun = time.monotonic(), 0, None
    while data := peer.recv(1 << 18):
        now = time.monotonic()
        if begun is not None:
            count += len(data)
            last = now
        elif now - start > LEAVE_OUT_S:
            begun = now
        if now - start > float(seconds):
            break
    print("far", count * 8 / (last - begun) / 1e6, flush=True)
    peer.close()


def near(seconds):
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, SNDBUFFORCE, 16 << 20)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    sock.connect(("198.18.0.2", PORT))
    start, data, told = time.monotonic(), bytes(1 << 16), None
    try:
        while True:
            sock.send(data)
            if told is None and time.monotonic() - start > float(seconds) - 1:
                info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 240)
                window, rtt_us = (struct.unpack_from("I", info, at)[0] for at in (228, 68))
                told = window, rtt_us / 1e3
    except OSError:  # the far end has seen enough
        print("near", *told, flush=True)
    time.sleep(0.3)


if __name__ == "__main__":
    {"far": far, "near": near}[sys.argv[1]](*sys.argv[2:])
