"""Sends a million bytes to a server whose greeting nobody reads, and ends in two ways.

The server reads slowly and counts. With ``close`` the kernel resets the connection over the greeting
that was not read, and throws away what it had not sent yet. With ``finish`` all of it arrives.
"""

import socket
import threading

import lastbyte

SENT_BYTES = 1_000_000


def main() -> None:
    for name, end in (("close", close), ("finish", finish)):
        read_bytes, how = upload(end)
        print(f"{name:7} {read_bytes:9,} of {SENT_BYTES:,} bytes read, then {how}")


def close(sock: socket.socket) -> None:
    sock.close()


def finish(sock: socket.socket) -> None:
    with sock:
        print(f"        {lastbyte.finish(sock)}")


def upload(end):
    """Sends all bytes and ends; returns how many the server read, and how its stream ended."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # A small window leaves bytes behind in the sender's kernel.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        sock = socket.create_connection(listener.getsockname())
        peer, _ = listener.accept()
    peer.sendall(b"220 welcome\r\n")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * SENT_BYTES)
    sock.sendall(bytes(SENT_BYTES))
    result = []
    reader = threading.Thread(target=lambda: result.append(read_to_the_end(peer)))
    if end is close:
        end(sock)  # The kernel has taken everything, so that nobody waits for the reader.
        reader.start()
    else:
        reader.start()
        end(sock)
    reader.join()
    return result[0]


def read_to_the_end(sock):
    read_bytes = 0
    lastbyte.prepare(sock)
    with sock:
        try:
            while data := sock.recv(65_536):
                read_bytes += len(data)
        except ConnectionResetError:
            return read_bytes, "a reset"
        return read_bytes, lastbyte.observed_end(sock, read_bytes).value


if __name__ == "__main__":
    main()
