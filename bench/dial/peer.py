"""What Python's own ways to dial take and cost: bench/dial.sh runs it.

    python3 peer.py create_connection HOST PORT [COUNT]
    python3 peer.py asyncio HOST PORT [COUNT]
    python3 peer.py cost HOST PORT,PORT,... TOTAL AT_ONCE

A line of JSON for each dial; each after the first waits for a line on stdin. 20 s for a dial; the call of
create_connection that has no limit for all of it is ended by whoever runs it.
"""

import asyncio
import json
import os
import socket
import sys
import time

TIMEOUT = 20


def say(**what):
    print(json.dumps(what), flush=True)


def times(dial, count):
    for number in range(count):
        if number:
            sys.stdin.readline()
        began = time.perf_counter()
        try:
            peer, at = dial()
        except (OSError, asyncio.TimeoutError) as error:
            say(ms=(time.perf_counter() - began) * 1e3, error=f"{type(error).__name__}: {error}")
        else:
            say(ms=(at - began) * 1e3, peer=peer)


def dial_create_connection(host, port):
    with socket.create_connection((host, port), timeout=TIMEOUT) as connection:
        at = time.perf_counter()
        return connection.getpeername()[0], at


async def dial_asyncio(host, port):
    loop = asyncio.get_running_loop()
    connect = loop.create_connection(asyncio.Protocol, host, port, happy_eyeballs_delay=0.25)
    transport, _ = await asyncio.wait_for(connect, TIMEOUT)
    at = time.perf_counter()
    peer = transport.get_extra_info("peername")[0]
    transport.abort()
    return peer, at


async def cost(host, ports, total, at_once):
    completed = failed = 0
    began = time.perf_counter()
    for first in range(0, total, at_once):
        wave = range(first, min(total, first + at_once))
        dials = (asyncio.open_connection(host, ports[number % len(ports)]) for number in wave)
        results = await asyncio.gather(*dials, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                failed += 1
            else:
                completed += 1
                result[1].transport.abort()
        del results
        await asyncio.sleep(0)
    ms = (time.perf_counter() - began) * 1e3
    say(ms=ms, completed=completed, failed=failed, peak_kb=peak_kb())


def peak_kb():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))


def main(command, host, port, *rest):
    if command == "cost":
        total, at_once = map(int, rest)
        asyncio.run(cost(host, [int(each) for each in port.split(",")], total, at_once))
        return
    count = int(rest[0]) if rest else 1
    if command == "create_connection":
        times(lambda: dial_create_connection(host, int(port)), count)
    else:
        loop = asyncio.new_event_loop()
        times(lambda: loop.run_until_complete(dial_asyncio(host, int(port))), count)
        # A thread of getaddrinfo may be busy for long yet.
        os._exit(0)


main(*sys.argv[1:])
