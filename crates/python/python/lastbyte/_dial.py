"""create_connection: from a host and a port to a connected socket."""

from __future__ import annotations

import builtins
import errno
import math
import operator
import socket
from dataclasses import dataclass, field
from typing import Any, Callable, Literal, Optional, Union

from lastbyte import _lastbyte

ResolverName = Literal["dns", "system"]
"""Whom to ask for addresses."""

Host = Union[str, bytes, None]
"""A name or an address; ``None`` is this host."""

Port = Union[int, str, bytes, None]
"""A number, or the name of a service."""

SourceAddress = Optional[tuple[str, int]]
"""Where to connect from; ``""`` and 0 leave it to the kernel."""

# What those pass on who were told no time-out themselves.
_DEFAULT: Any = getattr(socket, "_GLOBAL_DEFAULT_TIMEOUT", object())
# Taken before anybody can put ours in its place.
_plain_create_connection: Callable[..., socket.socket] = socket.create_connection


def create_connection(
    address: tuple[Host, Port],
    timeout: float | None = _DEFAULT,
    source_address: SourceAddress = None,
    *,
    all_errors: bool = False,
    resolver: ResolverName = "dns",
    family: int = socket.AF_UNSPEC,
    congestion: str | None = None,
    mptcp: bool = False,
) -> socket.socket:
    """Connect to a host by the address that works, first.

    It takes the place of :func:`socket.create_connection`, which tries one address after the other
    and waits for each dead one until time is over. Here both families are asked for at once, and
    addresses tried one beside the other (RFC 8305, Happy Eyeballs), in the order of RFC 6724, equal
    ones in turns. What worked is remembered for the next dial. Other threads run meanwhile, and
    Ctrl-C works. ::

        with lastbyte.create_connection(("example.org", 4000), timeout=10) as sock:
            sock.sendall(data)
            lastbyte.finish(sock)

    :param address: Host and port. A host of ``None`` is this one; a port may be the name of a
        service.
    :param timeout: Seconds for all of it, names included, and then of the socket, as by
        ``settimeout``; ``None`` for no limit. Unless given, that of
        :func:`socket.setdefaulttimeout`.
    :param source_address: Address and port to connect from; ``""`` and 0 leave it to the kernel.
        From one port nothing can be raced: with another one than 0
        :func:`socket.create_connection` is what connects.
    :param all_errors: Raise an ``ExceptionGroup`` of all attempts' errors (Python 3.11), and not one
        error with the number of the first and a text of all.
    :param resolver: ``"dns"`` asks the servers of ``/etc/resolv.conf``, after ``/etc/hosts``;
        ``"system"`` asks ``getaddrinfo``, for names that only ``nsswitch.conf`` leads to.
    :param family: ``AF_INET`` or ``AF_INET6``, to use that one alone.
    :param congestion: The congestion control, such as ``"bbr"``.
    :param mptcp: Ask for multipath TCP. Where this kernel or the peer has none it is plain TCP.
    :returns: A socket with that time-out, as if :func:`prepare` had been called.
    :raises socket.gaierror: There is no such name (``EAI_NONAME``), or nobody could say whether there
        is (``EAI_AGAIN``).
    :raises TimeoutError: Time was over; in Python 3.9 ``socket.timeout``.
    :raises OSError: Every attempt failed: by the number of the first of them a
        ``ConnectionRefusedError``, for instance.
    """
    host, port = address
    how = Wishes.checked(resolver, family, congestion, mptcp)
    if source_address and source_address[1] != 0:
        return _from_a_port(address, timeout, source_address, all_errors, how)
    if timeout is _DEFAULT:
        timeout = socket.getdefaulttimeout()
    how.timeout = seconds(timeout)
    if how.timeout == 0:
        raise BlockingIOError(errno.EINPROGRESS, "a dial waits, and a time-out of 0 is not to wait")
    if source_address:
        how.sources = sources_of(source_address[0])
    sock = dial_unless((host, port), how, None, all_errors=all_errors)
    assert sock is not None, "only who is stopped has none"
    sock.settimeout(timeout)
    return sock


@dataclass
class Wishes:
    """How to dial, as the compiled half takes it."""

    resolver: ResolverName
    family: int
    congestion: str | None
    mptcp: bool
    timeout: float | None = None
    sources: list[str] = field(default_factory=list)

    @classmethod
    def checked(
        cls, resolver: ResolverName, family: int, congestion: str | None, mptcp: bool
    ) -> Wishes:
        """Refuses what makes no sense, before anything is done."""
        if resolver not in ("dns", "system"):
            raise ValueError(f'resolver must be "dns" or "system": {resolver!r} is not')
        if family not in _FAMILIES:
            raise ValueError(f"family must be AF_UNSPEC, AF_INET or AF_INET6: {family!r} is not")
        if congestion is not None and not isinstance(congestion, str):
            raise TypeError(f"congestion must be the name of one: {congestion!r} is not")
        return cls(resolver, _FAMILIES[family], congestion, bool(mptcp))

    def are_plain(self) -> bool:
        """Whether the standard library could do the same."""
        return self.congestion is None and not self.mptcp and self.family == 0


_FAMILIES: dict[int, int] = {socket.AF_UNSPEC: 0, socket.AF_INET: 4, socket.AF_INET6: 6}


def dial_unless(
    address: tuple[Host, Port],
    how: Wishes,
    stop: Callable[[], bool] | None,
    *,
    all_errors: bool = False,
) -> socket.socket | None:
    """Dials, and asks ``stop`` while it waits whether to end early: ``None`` if it did."""
    group = _group() if all_errors else None
    host, port = _name(address[0]), _port_number(address[1])
    number, failed = _lastbyte.dial(host, port, how, stop)
    if number is not None:
        return socket.socket(fileno=number)
    if failed is None or failed["why"] == "stopped":
        return None
    if group is not None and failed["attempts"]:
        errors = [_os_error(number, text) for number, text in failed["attempts"]]
        raise group("create_connection failed", errors)
    raise _failure(failed["why"], failed["number"], failed["text"])


def sources_of(host: str) -> list[str]:
    """The addresses that a host to connect from has, one of each family; none for ``""``."""
    if not host:
        return []
    by_family: dict[int, str] = {}
    for family, _, _, _, sockaddr in socket.getaddrinfo(host, None, 0, socket.SOCK_STREAM):
        by_family.setdefault(family, str(sockaddr[0]).partition("%")[0])
    return list(by_family.values())


def _from_a_port(
    address: tuple[Host, Port],
    timeout: float | None,
    source_address: SourceAddress,
    all_errors: bool,
    how: Wishes,
) -> socket.socket:
    """Connects from a port of the caller's, one attempt after the other."""
    if not how.are_plain():
        raise ValueError("from a port other than 0 there are no family, congestion and mptcp")
    more = {"all_errors": True} if all_errors else {}
    return _plain_create_connection(address, timeout, source_address, **more)


def seconds(timeout: float | None) -> float | None:
    """Refuses what ``settimeout`` would refuse of the socket in the end."""
    if timeout is None:
        return None
    seconds = timeout if isinstance(timeout, float) else float(operator.index(timeout))
    if math.isnan(seconds):
        raise ValueError("Invalid value NaN (not a number)")
    if seconds < 0:
        raise ValueError("Timeout value out of range")
    if seconds > _MOST_SECONDS:
        raise OverflowError("timeout doesn't fit into C timeval")
    return seconds


# A signed number of 64 bits, in nanoseconds.
_MOST_SECONDS = 9.2e9


def _name(host: Host) -> str:
    """The host as DNS has it: a name of other letters than ASCII's in its form for hosts."""
    if host is None:
        return "localhost"
    if isinstance(host, bytes):
        return host.decode("ascii", "backslashreplace")
    if not isinstance(host, str):
        raise TypeError(f"a host is a str, bytes or None: {host!r} is not")
    return host if host.isascii() else host.encode("idna").decode("ascii")


def _port_number(port: Port) -> int:
    if port is None:
        return 0
    if isinstance(port, int) and not isinstance(port, bool):
        number = port
    elif isinstance(port, (str, bytes)):
        text = port.decode("ascii", "backslashreplace") if isinstance(port, bytes) else port
        number = int(text) if text.isascii() and text.isdigit() else _port_of(text)
    else:
        raise OSError("Int or String expected")
    if not 0 <= number <= 65_535:
        raise OverflowError(f"port must be 0-65535: {number} is not")
    return number


def _port_of(service: str) -> int:
    try:
        return socket.getservbyname(service, "tcp")
    except (OSError, ValueError):
        text = f"Servname not supported for ai_socktype: {service!r}"
        raise socket.gaierror(socket.EAI_SERVICE, text) from None


def _failure(why: str, number: int, text: str) -> OSError:
    if why in _UNRESOLVED:
        return socket.gaierror(_UNRESOLVED[why], text)
    return _os_error(number, text)


_UNRESOLVED: dict[str, int] = {
    "bad host": socket.EAI_NONAME,
    "no address": socket.EAI_NONAME,
    "no answer": socket.EAI_AGAIN,
    "no resolver": socket.EAI_FAIL,
}


def _os_error(number: int, text: str) -> OSError:
    """An ``OSError``, or the subclass of it that the number has; one that both Python 3.9 and later
    ones call a time-out."""
    if number == errno.ETIMEDOUT:
        return socket.timeout(number, text)
    return OSError(number, text)


def _group() -> Any:
    group = getattr(builtins, "ExceptionGroup", None)
    if group is None:
        raise TypeError("all_errors needs the ExceptionGroup of Python 3.11")
    return group
