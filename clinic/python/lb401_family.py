"""LB401: tries the IPv6 address first and waits for its time-out, though it has an IPv4 address that answers within
milliseconds. Every connection begins with that wait. Mended: begins the next attempt a quarter of a second
later and takes the first that connects (RFC 8305).

The addresses are given in place of the host, with commas between them."""

import select
import socket

import patient

TIMEOUT_S = 2.0
STAGGER_S = 0.25


def start(address):
    stream = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    stream.setblocking(False)
    stream.connect_ex((address, int(port)))
    return stream


def first_of(attempts, seconds):
    """The first attempt that has connected within so many seconds."""
    _, ready, _ = select.select([], attempts, [], seconds)
    return next((one for one in ready if one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0), None)


def race(addresses):
    attempts = []
    for address in addresses:
        attempts.append(start(address))
        if won := first_of(attempts, STAGGER_S):
            return won
    return first_of(attempts, TIMEOUT_S)


def one_after_the_other(addresses):
    for address in addresses:
        attempt = start(address)
        if first_of([attempt], TIMEOUT_S):
            return attempt
        attempt.close()
    return None


sick = patient.is_sick()
addresses, port = patient.sys.argv[2].split(","), patient.sys.argv[3]
begin = patient.now()
stream = one_after_the_other(addresses) if sick else race(addresses)
connect_ms = (patient.now() - begin) * 1e3
stream.setblocking(True)
stream.sendall(bytes(1000))
patient.say(written=1000, read=patient.finish(stream), connect_ms=connect_ms)
