"""lastbyte.asyncio over real streams."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor

import lastbyte
import lastbyte.asyncio
import pytest
from conftest import (
    MILLION,
    SECOND,
    Reader,
    fill,
    open_descriptors,
    refusing_port,
    silent_port,
)
from lastbyte import Delivery, End


def run(main):
    return asyncio.run(asyncio.wait_for(main, 2 * SECOND))


async def stream_to(listener):
    """A stream, and the plain socket at its other end."""
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    far, _ = listener.accept()
    far.settimeout(SECOND)
    return reader, writer, far


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.mark.parametrize("round_", range(5))
def test_a_million_arrives_with_a_greeting_unread(listener, round_):
    async def main():
        _, writer, far = await stream_to(listener)
        with far:
            far.sendall(b"220 welcome\r\n")
            counted = Reader(far)
            writer.write(bytes(MILLION))  # Most of it stays in the writer.
            receipt = await lastbyte.asyncio.finish(writer)
            assert writer.transport.is_closing()
            return receipt, await asyncio.to_thread(counted.result)

    receipt, result = run(main())
    assert receipt.level >= Delivery.ACKED and receipt.unacked == 0
    assert result == (MILLION, End.FIN)


def test_what_is_kept_comes_out_of_the_reader(listener):
    async def main():
        reader, writer, far = await stream_to(listener)
        with far:
            far.sendall(b"answer")
            writer.write(b"question")
            receipt = await lastbyte.asyncio.finish(writer, drain=None)
            assert not writer.transport.is_closing()
            assert far.recv(100) == b"question"
            far.close()
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
            return receipt, answer

    receipt, answer = run(main())
    assert (receipt.drained, receipt.unacked) == (0, 0)
    assert answer == b"answer"


def test_what_could_not_be_written_is_not_ended(listener):
    async def main():
        _, writer, far = await stream_to(listener)
        with far:
            writer.write(bytes(20 * MILLION))
            with pytest.raises(TimeoutError, match=r"\d+ bytes could not be written within 0.2 s"):
                await lastbyte.asyncio.finish(writer, 0.2)
            assert lastbyte.info(writer.get_extra_info("socket")).state == "ESTABLISHED"
            writer.transport.abort()

    run(main())


def test_the_deadline_is_for_all_of_it_and_the_loop_goes_on(listener):
    async def main():
        _, writer, far = await stream_to(listener)
        with far:
            fill_at_most_what_the_kernel_takes(writer)
            ticks = 0

            async def tick():
                nonlocal ticks
                while True:
                    await asyncio.sleep(0.01)
                    ticks += 1

            ticking = asyncio.create_task(tick())
            began = time.monotonic()
            with pytest.raises(lastbyte.FinishTimeout):
                await lastbyte.asyncio.finish(writer, 0.4)
            took = time.monotonic() - began
            ticking.cancel()
            writer.transport.abort()
            return took, ticks

    took, ticks = run(main())
    assert 0.4 <= took < SECOND
    assert ticks > 1, "the loop stood still"


def test_it_can_be_cancelled(listener):
    async def main():
        _, writer, far = await stream_to(listener)
        with far:
            fill_at_most_what_the_kernel_takes(writer)
            task = asyncio.create_task(lastbyte.asyncio.finish(writer, 30))
            while lastbyte.info(writer.get_extra_info("socket")).state != "FIN-WAIT-1":
                await asyncio.sleep(0.001)
            began = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not writer.transport.is_closing() and writer.transport.is_reading()
            writer.transport.abort()
            return time.monotonic() - began

    assert run(main()) < SECOND


def test_one_that_is_cancelled_before_its_turn_does_nothing(listener):
    async def main():
        _, writer, far = await stream_to(listener)
        with far, ThreadPoolExecutor(1) as executor:
            turn = asyncio.Event()
            loop = asyncio.get_running_loop()
            occupied = executor.submit(
                lambda: asyncio.run_coroutine_threadsafe(turn.wait(), loop).result()
            )
            task = asyncio.create_task(lastbyte.asyncio.finish(writer, 30, executor=executor))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            turn.set()
            await asyncio.wrap_future(occupied)
            await loop.run_in_executor(executor, int)  # Its turn is over.
            writer.write(b"still open")
            assert await asyncio.to_thread(far.recv, 100) == b"still open"
            writer.transport.abort()

    run(main())


def test_a_reset_and_a_writer_that_is_closed(listener):
    async def main():
        _, writer, far = await stream_to(listener)
        fill_at_most_what_the_kernel_takes(writer)
        task = asyncio.create_task(lastbyte.asyncio.finish(writer, 30))
        while lastbyte.info(writer.get_extra_info("socket")).state != "FIN-WAIT-1":
            await asyncio.sleep(0.001)
        far.close()
        with pytest.raises(lastbyte.FinishReset):
            await task
        writer.close()
        with pytest.raises(ConnectionError, match="closed already"):
            await lastbyte.asyncio.finish(writer)
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    run(main())


def test_tls_is_refused():
    """With a cipher that needs no certificate."""

    def context(side):
        context = ssl.SSLContext(side)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("aNULL:@SECLEVEL=0")
        return context

    async def main():
        served = asyncio.Event()

        async def serve(_, writer):
            served.set()
            writer.close()

        tls = context(ssl.PROTOCOL_TLS_SERVER)
        async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls) as server:
            address = server.sockets[0].getsockname()
            client = context(ssl.PROTOCOL_TLS_CLIENT)
            _, writer = await asyncio.open_connection(*address, ssl=client)
            with pytest.raises(ValueError, match="over TLS"):
                await lastbyte.asyncio.finish(writer)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            await served.wait()

    run(main())

    near, far = socket.socketpair()
    client = context(ssl.PROTOCOL_TLS_CLIENT).wrap_socket(near, do_handshake_on_connect=False)
    server = context(ssl.PROTOCOL_TLS_SERVER).wrap_socket(
        far, server_side=True, do_handshake_on_connect=False
    )
    with client, server, ThreadPoolExecutor(1) as executor:
        shaken = executor.submit(server.do_handshake)
        client.do_handshake()
        shaken.result()
        with pytest.raises(ValueError, match=r"unwrap\(\)"):
            lastbyte.finish(client)
        unwrapped = executor.submit(server.unwrap)
        plain = client.unwrap()
        with plain, unwrapped.result():
            assert lastbyte.finish(plain).level is Delivery.ACKED


def fill_at_most_what_the_kernel_takes(writer):
    """Nothing of it stays in the writer, and nothing more fits."""
    with socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno())) as sock:
        fill(sock)
        sock.setblocking(False)


def test_options_that_make_no_sense_do_nothing(listener):
    async def main():
        _, writer, far = await stream_to(listener)
        with far:
            for error, options in [
                (TypeError, {"timeout": None}),
                (ValueError, {"timeout": -1}),
                (ValueError, {"want": 9}),
                (ValueError, {"drain": -1}),
            ]:
                with pytest.raises(error):
                    await lastbyte.asyncio.finish(writer, **options)
            writer.write(b"still open")
            assert await asyncio.to_thread(far.recv, 100) == b"still open"
            writer.transport.abort()

    run(main())


def test_streams_to_a_name(listener):
    async def main():
        port = listener.getsockname()[1]
        reader, writer = await lastbyte.asyncio.open_connection("localhost", port, timeout=SECOND)
        far, _ = listener.accept()
        with far:
            far.settimeout(SECOND)
            far.sendall(b"answer")
            assert await reader.readexactly(6) == b"answer"
            counted = Reader(far)
            writer.write(bytes(MILLION))
            receipt = await lastbyte.asyncio.finish(writer)
            assert receipt.level >= Delivery.ACKED
            return await asyncio.to_thread(counted.result)

    assert run(main()) == (MILLION, End.FIN)


def test_what_cannot_be_reached_and_what_is_late():
    async def main():
        with pytest.raises(ConnectionRefusedError, match="no address connected"):
            await lastbyte.asyncio.open_connection("127.0.0.1", refusing_port())
        with pytest.raises(socket.gaierror):
            await lastbyte.asyncio.open_connection("", 80)
        with silent_port() as port:
            began = time.monotonic()
            with pytest.raises(socket.timeout):
                await lastbyte.asyncio.open_connection("127.0.0.1", port, timeout=0.2)
            return time.monotonic() - began

    assert 0.2 <= run(main()) < SECOND


def test_a_dial_that_is_cancelled_leaves_no_socket():
    async def main():
        with silent_port() as port:
            before = open_descriptors()
            task = asyncio.create_task(lastbyte.asyncio.open_connection("127.0.0.1", port))
            while open_descriptors() == before:
                await asyncio.sleep(0.001)
            began = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert open_descriptors() == before
            return time.monotonic() - began

    assert run(main()) < SECOND


def test_dials_that_are_cancelled_whenever_leave_no_socket(listener):
    """Before their turn, while they connect, and when they have."""

    async def main():
        address = listener.getsockname()
        before = open_descriptors()
        # The first one starts a thread, and that takes longer.
        rounds = 40
        for round_ in range(rounds):
            task = asyncio.create_task(lastbyte.asyncio.open_connection(*address))
            for _ in range(round_ % 8):
                await asyncio.sleep(0)
            if round_ % 2:
                await asyncio.sleep(0.0001 * round_)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                _, writer = await task
                writer.close()
                await writer.wait_closed()
            listener.settimeout(0)
            with contextlib.suppress(BlockingIOError):
                while True:
                    listener.accept()[0].close()
        ends = time.monotonic() + SECOND
        while open_descriptors() > before and time.monotonic() < ends:
            await asyncio.sleep(0.01)
        assert open_descriptors() <= before

    run(main())


def test_dials_side_by_side(listener):
    """As many as the executor has threads, and the loop goes on."""

    async def main():
        address = listener.getsockname()
        with silent_port() as port, ThreadPoolExecutor(8) as executor:
            dead = asyncio.create_task(
                lastbyte.asyncio.open_connection("127.0.0.1", port, executor=executor)
            )
            dials = [
                lastbyte.asyncio.open_connection(*address, executor=executor) for _ in range(20)
            ]
            for _, writer in await asyncio.gather(*dials):
                writer.close()
                await writer.wait_closed()
            assert not dead.done()
            dead.cancel()
            with pytest.raises(asyncio.CancelledError):
                await dead

    run(main())


def test_tls_over_it_has_the_name_of_the_host(monkeypatch, listener):
    async def main():
        asked = {}

        async def opened(**how):
            asked.update(how)
            return None, None

        monkeypatch.setattr(asyncio, "open_connection", opened)
        context = ssl.create_default_context()
        port = listener.getsockname()[1]
        await lastbyte.asyncio.open_connection("localhost", port, ssl=context)
        asked.pop("sock").close()
        assert asked == {"limit": 1 << 16, "ssl": context, "server_hostname": "localhost"}
        for nonsense in (
            {"ssl": "yes"},
            {"server_hostname": "localhost"},
            {"timeout": -1},
            {"local_addr": ("", 1)},
            {"resolver": "?"},
        ):
            with pytest.raises((TypeError, ValueError)):
                await lastbyte.asyncio.open_connection("localhost", port, **nonsense)

    run(main())
