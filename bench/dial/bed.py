"""The far host of bench/dial.sh: its DNS server, what listens there, and who knocks.

    python3 bed.py LOG

The DNS server answers as names.py has it. What listens takes a connection, answers a request of HTTP,
and closes. LOG gets a line of JSON for each question, answer and first segment (SYN) that comes, with
the time of the kernel's receipt where there is one. Says "ready" when all is there.
"""

import asyncio
import ipaddress
import json
import socket
import struct
import sys
import time

import names

A, AAAA = 1, 28
TYPES = {A: "A", AAAA: "AAAA"}
TTL = 300


class Log:
    def __init__(self, path):
        self.file = open(path, "a", buffering=1)

    def enter(self, what, at=None, **more):
        self.file.write(json.dumps({"at": time.time() if at is None else at, "what": what, **more}) + "\n")


# --- DNS -----------------------------------------------------------------------------------------


class Dns:
    def __init__(self, log):
        self.log = log
        self.scripts = names.scripts()

    def script(self, query):
        """The name in lower case, its type, and how to answer; None is a name that is not there."""
        name, kind, _ = read_question(query)
        if name not in self.scripts:
            return name, kind, None
        aaaa, a = self.scripts[name]
        return name, kind, {A: a, AAAA: aaaa}.get(kind, names.Answer())

    async def answer(self, query, over):
        name, kind, script = self.script(query)
        self.log.enter("question", name=name, type=TYPES.get(kind, kind), over=over)
        if script is None:
            return reply(query, [], rcode=3)
        if script.never:
            return None
        if script.late:
            await asyncio.sleep(script.late / 1000)
        self.log.enter("answer", name=name, type=TYPES.get(kind, kind), over=over)
        if script.truncated and over == "udp":
            return reply(query, [], truncated=True)
        return reply(query, script.addresses)


def read_question(query):
    """Name in lower case, type, and where the question ends."""
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode("ascii").lower())
        at += 1 + query[at]
    return ".".join(labels), struct.unpack_from(">H", query, at + 1)[0], at + 5


def reply(query, addresses, rcode=0, truncated=False):
    """The question as it came, in its own letters, and the addresses in their order."""
    name, kind, end = read_question(query)
    flags = 0x8180 | (0x0200 if truncated else 0) | rcode
    header = struct.pack(">2sHHHHH", query[:2], flags, 1, len(addresses), 0 if addresses else 1, 0)
    body = b""
    for address in addresses:
        packed = ipaddress.ip_address(address).packed
        body += struct.pack(">HHHIH", 0xC00C, kind, 1, TTL, len(packed)) + packed
    if not addresses:
        # RFC 2308: who has no answer says for how long.
        soa = b"\0\0" + struct.pack(">IIIII", 1, 3600, 600, 86400, TTL)
        body += b"\0" + struct.pack(">HHIH", 6, 1, TTL, len(soa)) + soa
    return header + query[12:end] + body


class Udp(asyncio.DatagramProtocol):
    def __init__(self, dns):
        self.dns = dns
        self.running = set()

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, query, client):
        task = asyncio.ensure_future(self.answer(query, client))
        self.running.add(task)
        task.add_done_callback(self.running.discard)

    async def answer(self, query, client):
        answer = await self.dns.answer(query, "udp")
        if answer is not None:
            self.transport.sendto(answer, client)


async def serve_tcp(dns, reader, writer):
    async def answer(query):
        answer = await dns.answer(query, "tcp")
        if answer is not None:
            writer.write(struct.pack(">H", len(answer)) + answer)

    running = []
    try:
        while True:
            (length,) = struct.unpack(">H", await reader.readexactly(2))
            running.append(asyncio.ensure_future(answer(await reader.readexactly(length))))
    except (asyncio.IncompleteReadError, ConnectionError):
        for each in running:
            each.cancel()
        writer.close()


# --- what listens --------------------------------------------------------------------------------


async def serve_http(reader, writer):
    try:
        if await reader.read(4096):
            writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


# --- who knocks ----------------------------------------------------------------------------------

ETH_P_ALL = 3
SYN, ACK = 0x02, 0x10


class Knocks:
    """Enters each SYN that comes, with the kernel's time of it."""

    def __init__(self, log):
        self.log = log
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)

    def read(self):
        while True:
            try:
                packet, control, _, source = self.socket.recvmsg(128, 256)
            except BlockingIOError:
                return
            knock = None if source[2] == socket.PACKET_OUTGOING else read_syn(packet)
            if knock is not None:
                self.log.enter("syn", at=stamp(control), **knock)


SO_TIMESTAMPNS = 35


def stamp(control):
    for level, kind, data in control:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, nanoseconds = struct.unpack("qq", data[:16])
            return seconds + nanoseconds / 1e9
    return None


def read_syn(packet):
    if len(packet) >= 40 and packet[0] >> 4 == 4 and packet[9] == 6:
        length = (packet[0] & 15) * 4
        to, tcp = packet[16:20], packet[length:]
    elif len(packet) >= 60 and packet[0] >> 4 == 6 and packet[6] == 6:
        to, tcp = packet[24:40], packet[40:]
    else:
        return None
    port, to_port = struct.unpack_from(">HH", tcp)
    if tcp[13] & (SYN | ACK) != SYN or to_port != names.PORT:
        return None
    return {"to": str(ipaddress.ip_address(to)), "port": port}


# --- all of it -----------------------------------------------------------------------------------


SO_RCVBUFFORCE = 33


def roomy_socket():
    """Loses none of many questions that come at once."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
    made.bind((names.DNS, 53))
    return made


async def main(path):
    loop = asyncio.get_running_loop()
    log = Log(path)
    dns = Dns(log)
    knocks = Knocks(log)
    loop.add_reader(knocks.socket, knocks.read)
    await loop.create_datagram_endpoint(lambda: Udp(dns), sock=roomy_socket())
    await asyncio.start_server(lambda r, w: serve_tcp(dns, r, w), names.DNS, 53)
    live = names.LIVE4 + names.LIVE6 + [names.SLOW6]
    await asyncio.start_server(serve_http, live, names.PORT, backlog=4096)
    print("ready", flush=True)
    await asyncio.Event().wait()


asyncio.run(main(sys.argv[1]))
