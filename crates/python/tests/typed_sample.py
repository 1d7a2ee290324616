"""What `mypy --strict` has to understand without a complaint."""

from __future__ import annotations

import asyncio
import socket

import lastbyte
import lastbyte.asyncio


def upload(address: tuple[str, int], data: bytes) -> int | None:
    sock: socket.socket
    with lastbyte.create_connection(address, 10.0, ("", 0), family=socket.AF_INET) as sock:
        sock.sendall(data)
        lastbyte.prepare(sock)
        try:
            receipt: lastbyte.Receipt = lastbyte.finish(sock, 3, want=lastbyte.Delivery.CLOSED)
        except lastbyte.FinishError as error:
            why: lastbyte.Unproven = error.why
            print(why, error.errno)
            return error.receipt.unacked
        level: int = receipt.level
        rate: int | None = lastbyte.info(sock.fileno()).delivery_bytes_per_s
        end: lastbyte.End = lastbyte.observed_end(sock, level)
        print(rate, end)
        return receipt.unacked


async def upload_over_a_stream(writer: asyncio.StreamWriter) -> lastbyte.Receipt:
    return await lastbyte.asyncio.finish(writer, drain=None)


async def upload_to(host: str, data: bytes) -> lastbyte.Receipt:
    reader, writer = await lastbyte.asyncio.open_connection(host, 4000, timeout=10, mptcp=True)
    writer.write(data)
    await reader.read(100)
    return await upload_over_a_stream(writer)
