"""Receipts, errors, what is known of a connection, and how streams end."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import socket
import time

import lastbyte
import pytest
from conftest import MILLION, SECOND, Reader, reset
from lastbyte import Delivery, End, PeerEnd, Receipt, State, Unproven

RECEIPT = Receipt(Delivery.ACKED, None, None, None, 0, 7, PeerEnd.FIN, 0.0015)


def test_levels_are_ordered():
    assert list(Delivery) == sorted(Delivery)
    assert Delivery.WRITTEN < Delivery.SENT < Delivery.ACKED < Delivery.CLOSED < Delivery.CONFIRMED


def test_a_receipt_is_a_value():
    assert copy.deepcopy(RECEIPT) == copy.copy(RECEIPT) == pickle.loads(pickle.dumps(RECEIPT))
    assert hash(RECEIPT) == hash(copy.copy(RECEIPT))
    assert dataclasses.replace(RECEIPT, drained=8) != RECEIPT
    with pytest.raises(dataclasses.FrozenInstanceError):
        RECEIPT.drained = 8
    assert repr(RECEIPT).startswith("Receipt(level=<Delivery.ACKED: 2>, written=None, ")


def test_a_receipt_reads_as_the_library_writes_it():
    assert str(RECEIPT) == "acked: 0 bytes left unacked, peer ended with FIN, 1.5 ms"
    texts = [str(dataclasses.replace(RECEIPT, peer=peer)) for peer in PeerEnd]
    assert len(set(texts)) == len(texts)
    whole = dataclasses.replace(RECEIPT, written=9, acked=8, level=Delivery.SENT)
    assert str(whole).startswith("sent: 8 of 9 bytes acked, ")
    with pytest.raises(ValueError):
        str(dataclasses.replace(RECEIPT, took=-1.0))


@pytest.mark.parametrize(
    "kind",
    [lastbyte.FinishError, lastbyte.FinishTimeout, lastbyte.FinishReset, lastbyte.NotAStream],
)
def test_an_error_goes_to_another_process_whole(kind):
    error = kind(110, "finish: the deadline passed", Unproven.DEADLINE, RECEIPT)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind and str(again) == str(error)
    assert (again.errno, again.why, again.receipt) == (110, Unproven.DEADLINE, RECEIPT)
    assert kind.__module__ == "lastbyte"


def test_what_the_kernel_knows(pair):
    near, far = pair
    reader = Reader(far)
    near.sendall(bytes(MILLION))
    lastbyte.finish(near)
    assert reader.result() == (MILLION, End.FIN)
    info = lastbyte.info(near)
    assert info.state is State.FIN_WAIT_2
    assert info.acked_bytes == MILLION + 2, "SYN and FIN count one each"
    assert info.sent_bytes >= MILLION and info.rtt_us > 0 and info.mss_bytes > 500
    assert lastbyte.info(far.fileno()).received_bytes == MILLION + 1
    assert lastbyte.info(far).state is State.CLOSE_WAIT
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert lastbyte.info(listener).state is State.LISTEN


def test_only_tcp_knows(pair):
    near, far = socket.socketpair()
    with near, far, pytest.raises(OSError) as caught:
        lastbyte.info(near)
    assert caught.value.errno > 0 and "sample" in str(caught.value)


def test_a_reset_whose_report_a_failed_send_took(pair):
    near, far = pair
    lastbyte.prepare(near)
    far.sendall(b"half of the ans")
    near.sendall(b"question that the far end does not read")
    reset(far)
    with pytest.raises(OSError):
        ends = time.monotonic() + SECOND
        while time.monotonic() < ends:
            near.sendall(b"more")
    read_bytes = read_to_the_end(near)
    assert lastbyte.observed_end(near, read_bytes) is End.RESET


def test_a_fin_and_a_wrong_count(pair):
    near, far = pair
    lastbyte.prepare(near)
    far.sendall(b"all of the answer")
    far.close()
    assert read_to_the_end(near) == 17
    assert lastbyte.observed_end(near, 17) is End.FIN
    near.shutdown(socket.SHUT_RDWR)
    assert lastbyte.observed_end(near, 17) is End.FIN
    assert lastbyte.observed_end(near, 5) is End.UNKNOWN


@pytest.mark.parametrize("prepared", [True, False])
def test_an_urgent_byte_does_not_look_like_a_fin(pair, prepared):
    near, far = pair
    if prepared:
        lastbyte.prepare(near)
    far.sendall(b"!", socket.MSG_OOB)
    reset(far)
    if prepared:
        assert near.recv(10) == b"!"
    with pytest.raises(ConnectionResetError):
        near.recv(10)
    assert lastbyte.observed_end(near, int(prepared)) is (End.RESET if prepared else End.UNKNOWN)


def test_a_unix_socket_cannot_tell():
    near, far = socket.socketpair()
    with near:
        far.close()
        assert near.recv(1) == b""
        assert lastbyte.observed_end(near, 0) is End.UNKNOWN


@pytest.mark.parametrize("wrong", [-1, 1 << 64, None, 1.5])
def test_a_count_that_makes_no_sense(pair, wrong):
    with pytest.raises((TypeError, OverflowError)):
        lastbyte.observed_end(pair[0], wrong)


def test_what_is_no_socket_tells_nothing():
    with open("/dev/null", "rb") as file:
        for function in (lastbyte.info, lastbyte.prepare, lambda fd: lastbyte.observed_end(fd, 0)):
            with pytest.raises(OSError) as caught:
                function(file)
            assert caught.value.errno == 88


def read_to_the_end(sock):
    read_bytes = 0
    while data := sock.recv(65_536):
        read_bytes += len(data)
    return read_bytes
