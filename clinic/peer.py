#!/usr/bin/env python3
"""The other side of a patient: does what its words say, and prints the truth as one JSON line.

    peer.py serve ADDRESS [--connections N] STEP...          prints {"port": N} first
    peer.py connect ADDRESS PORT [--connections N] STEP...

ADDRESS is an address, or unix:PATH. Each connection takes the steps in turn:

    read           reads to the end
    read:N         reads so many bytes
    send:N         sends so many bytes
    answer:A:B:N   N times: reads A bytes, then sends B
    slow:N:MS      reads N bytes every MS milliseconds, to the end
    wait:MS        waits
    hold           waits for a line on stdin: by it the harness says that the patient has written
    stay           waits for the end of stdin: by it the harness says that the patient has ended
    finish         sends a FIN, and goes on reading if told to
    reset          resets the connection

With `hold` and `stay` nothing depends on how fast a machine is. The last line has the sums over all
connections; `taken` is what the peer's kernel had received in order, read by its program or not.
"""

import json
import select
import socket
import struct
import sys
import threading
import time

SILENCE_S = 2.0  # after the patient's end, for a connection that nothing comes from any more
CONNECT_S = 20.0

go = threading.Event()
over = threading.Event()


def main(words):
    mode, address, *words = words
    port = words.pop(0) if mode == "connect" else None
    connections = 1
    if words[:1] == ["--connections"]:
        connections, words = int(words[1]), words[2:]
    threading.Thread(target=listen_to_harness, daemon=True).start()
    if mode == "serve":
        talks = serve(address, connections, words)
    else:
        talks = connect(address, port, connections, words)
    for talk in talks:
        talk.thread.join()
    print(json.dumps(sums(talks)), flush=True)


def listen_to_harness():
    if sys.stdin.readline():
        go.set()
        sys.stdin.read()
    go.set()
    over.set()


def serve(address, connections, steps):
    if address.startswith("unix:"):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address[5:])
        port = 0
    else:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.socket(family)
        listener.bind((address, 0))
        port = listener.getsockname()[1]
    listener.listen(1024)
    print(json.dumps({"port": port}), flush=True)
    talks = []
    while len(talks) < connections and not (over.is_set() and talks):
        ready, _, _ = select.select([listener], [], [], 0.02)
        if ready:
            talks.append(Talk(steps, lambda stream=listener.accept()[0]: stream))
        elif over.is_set():
            break
    return talks


def connect(address, port, connections, steps):
    def reach():
        if address.startswith("unix:"):
            stream = socket.socket(socket.AF_UNIX)
            stream.connect(address[5:])
            return stream
        return socket.create_connection((address, int(port)), timeout=CONNECT_S)

    return [Talk(steps, reach) for _ in range(connections)]


class Talk:
    """One connection, on a thread of its own."""

    def __init__(self, steps, reach):
        self.steps = steps
        self.reach = reach
        self.received = self.sent = 0
        self.taken = None
        self.end = "open"
        self.connect_ms = 0.0
        self.seconds = 0.0
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        begin = time.monotonic()
        try:
            self.stream = self.reach()
        except OSError as error:
            self.end = "unconnected: " + type(error).__name__
            return
        self.begin = time.monotonic()
        self.connect_ms = (self.begin - begin) * 1e3
        self.stream.settimeout(None)
        self.is_tcp = self.stream.family != socket.AF_UNIX
        if self.is_tcp:
            self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for step in self.steps:
            name, *numbers = step.split(":")
            getattr(self, "do_" + name)(*map(int, numbers))
        self.note_taken()
        self.stream.close()

    def do_read(self, most=None):
        want = None if most is None else self.received + most
        while want is None or self.received < want:
            size = 1 << 16 if want is None else min(1 << 16, want - self.received)
            if not self.read_once(size):
                return

    def do_slow(self, size, pause_ms):
        while self.read_once(size):
            time.sleep(pause_ms / 1e3)

    def do_send(self, size):
        self.send(b"." * size)

    def do_answer(self, request, response, rounds):
        for _ in range(rounds):
            before = self.received
            self.do_read(request)
            if self.received < before + request or not self.send(b"." * response):
                return

    def do_wait(self, milliseconds):
        time.sleep(milliseconds / 1e3)

    def do_hold(self):
        go.wait()

    def do_stay(self):
        over.wait()

    def do_finish(self):
        try:
            self.stream.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def do_reset(self):
        self.note_taken()
        self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.stream.close()
        self.end = "reset by us"

    def read_once(self, size):
        if not self.wait_readable():
            return False
        try:
            data = self.stream.recv(size)
        except ConnectionError:
            self.end = "reset"
            return False
        except OSError as error:
            self.end = type(error).__name__
            return False
        if not data:
            # A reset that a failed send has taken leaves an end that looks clean.
            if self.end != "reset":
                self.end = "fin"
            return False
        self.received += len(data)
        self.seconds = time.monotonic() - self.begin
        return True

    def wait_readable(self):
        quiet_since = time.monotonic()
        while True:
            poll = select.poll()
            poll.register(self.stream, select.POLLIN)
            if poll.poll(50):
                return True
            if not over.is_set():
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since > SILENCE_S:
                self.end = "silence"
                return False

    def send(self, data):
        view = memoryview(data)
        while view:
            try:
                count = self.stream.send(view[: 1 << 16])
            except OSError:
                self.end = "reset"
                return False
            self.sent += count
            view = view[count:]
        return True

    # tcpi_bytes_received of struct tcp_info (linux/tcp.h). It counts a FIN as one byte.
    def note_taken(self):
        if self.is_tcp and self.stream.fileno() >= 0:
            info = self.stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 136)
            self.taken = struct.unpack_from("Q", info, 128)[0] - (self.end == "fin")


def sums(talks):
    ends = [talk.end for talk in talks]
    return {
        "connections": len(talks),
        "received": sum(talk.received for talk in talks),
        "sent": sum(talk.sent for talk in talks),
        "taken": sum(talk.taken or 0 for talk in talks),
        "end": ends[0] if ends and len(set(ends)) == 1 else "mixed" if ends else "none",
        "seconds": max((talk.seconds for talk in talks), default=0.0),
        "connect_ms": max((talk.connect_ms for talk in talks), default=0.0),
    }


if __name__ == "__main__":
    main(sys.argv[1:])
