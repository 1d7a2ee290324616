"""Takes connections and holds them until their peers close: the server of the cost in bench/dial.sh.

    python3 sink.py PORT,PORT,...

On 127.0.0.1 and ::1. Says "ready".
"""

import select
import socket
import sys

listeners, connections = {}, {}
epoll = select.epoll()
for port in map(int, sys.argv[1].split(",")):
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((address, port))
        listener.listen(65535)
        listener.setblocking(False)
        listeners[listener.fileno()] = listener
        epoll.register(listener, select.EPOLLIN)
print("ready", flush=True)


def take_all(listener):
    while True:
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            return
        connections[connection.fileno()] = connection
        epoll.register(connection, select.EPOLLIN)


while True:
    for fd, _ in epoll.poll(maxevents=1024):
        if fd in listeners:
            take_all(listeners[fd])
        else:
            # Nobody writes: there is an end, or a reset.
            connections.pop(fd).close()
