"""Leaves an 11-byte greeting unread, writes up to 1,000,000 bytes that nobody reads yet, and closes."""
import socket

listener = socket.create_server(("127.0.0.1", 0))
near = socket.create_connection(listener.getsockname())
far, _ = listener.accept()
far.sendall(b"220 welcome")
near.recv(11, socket.MSG_PEEK | socket.MSG_WAITALL)
near.setblocking(False)
left = 1_000_000
try:
    while left:
        left -= near.send(bytes(left))
except BlockingIOError:
    pass
near.close()
