"""A WebSocket: `serve` sends back what it gets; `ask HOST:PORT` sends and compares.

Small messages one by one, many at once, a large one, a ping, and the closing handshake.
"""

import asyncio
import os
import sys

import websockets

LARGE = 32 << 20


async def serve():
    async with websockets.serve(echo, "127.0.0.1", 0, max_size=None) as server:
        print("listening on 127.0.0.1:%d" % server.sockets[0].getsockname()[1], flush=True)
        await asyncio.Future()


async def echo(socket):
    async for message in socket:
        await socket.send(message)


async def ask(address):
    async with websockets.connect("ws://" + address, max_size=None) as socket:
        for number in range(1000):
            await same(socket, "message %d" % number)
        many = asyncio.create_task(send_many(socket, 1000))
        for number in range(1000):
            assert await socket.recv() == many_message(number), number
        await many
        await same(socket, os.urandom(LARGE))
        await (await socket.ping())
    assert socket.close_code == 1000, socket.close_code
    print("all as it should be")


async def same(socket, message):
    await socket.send(message)
    assert await socket.recv() == message


async def send_many(socket, count):
    for number in range(count):
        await socket.send(many_message(number))


def many_message(number):
    return b"%d " % number * 500


asyncio.run(serve() if sys.argv[1] == "serve" else ask(sys.argv[2]))
