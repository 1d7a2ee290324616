"""The bed's addresses and names: which address does what, and how its DNS server answers.

An address is live, refuses (nobody listens there: a reset comes back), or is dead (the server's kernel
throws away what is sent to it, and says nothing). Those of `slow` are live, behind the other link. All
are global ones to every client, so that RFC 6724 puts IPv6 first, and all of a family have an equally
long prefix in common with the client's own (rule 9), so that nothing but DNS has an order for them.
They exist in namespaces alone.
"""

from dataclasses import dataclass, field

PORT = 7000
RTT = 20  # ms; network.toml has it, and that of the slow link
SLOW_RTT = 420
LATE = 1000  # ms, an answer that is late

DNS = "46.32.0.53"
CLIENT4, CLIENT6, CLIENT6_SLOW = "45.32.0.1", "2a0a:c::1", "2a0a:c::2"
NET4, NET6, NET6_SLOW = "46.32.0.0/24", "2a0b:f::/64", "2a0b:5::/64"
LIVE4 = [f"46.32.0.{n}" for n in range(1, 7)]
LIVE6 = [f"2a0b:f::{n}" for n in range(1, 7)]
REFUSING6 = "2a0b:f::101"
SLOW6 = "2a0b:5::1"
DEAD4 = [f"46.32.0.{n}" for n in range(201, 207)]
DEAD6 = [f"2a0b:f::d{n}" for n in range(1, 7)]


@dataclass
class Answer:
    """How a question is answered: after `late` ms, or never; by way of TCP alone."""

    addresses: list = field(default_factory=list)
    late: int = 0
    never: bool = False
    truncated: bool = False


@dataclass
class Row:
    """A row of the table. What is possible follows from it and from what was tried."""

    title: str
    name: str
    aaaa: Answer
    a: Answer
    dead: int = 0  # attempts that a client without luck makes in vain before the one that connects
    first: int = 0  # ms until the first attempt may begin
    refused: bool = False  # a failed attempt lets the next begin at once


def answers(addresses, **how):
    return Answer(list(addresses), **how)


ROWS = [
    Row("all fine", "fine", answers(LIVE6[:1]), answers(LIVE4[:1]), first=RTT),
    Row("IPv6 blackholed", "v6-dead", answers(DEAD6[:1]), answers(LIVE4[:1]), first=RTT, dead=1),
    Row(
        "IPv6 refused",
        "v6-refused",
        answers([REFUSING6]),
        answers(LIVE4[:1]),
        first=RTT,
        dead=1,
        refused=True,
    ),
    Row("IPv6 +400 ms", "v6-slow", answers([SLOW6]), answers(LIVE4[:1]), first=RTT, dead=1),
    Row(
        "first 3 of 6 IPv6 addresses dead",
        "v6-3-of-6-dead",
        answers(DEAD6[:3] + LIVE6[3:6]),
        answers([]),
        first=RTT,
        dead=3,
    ),
    # In turn, IPv6 first, the first three are dead.
    Row(
        "first 3 of 3 + 3 addresses dead",
        "3-of-3-and-3-dead",
        answers(DEAD6[:2] + LIVE6[2:3]),
        answers(DEAD4[:1] + LIVE4[1:3]),
        first=RTT,
        dead=3,
    ),
    # The resolution delay of RFC 8305: 50 ms.
    Row(
        "AAAA answered 1 s late",
        "aaaa-late",
        answers(LIVE6[:1], late=LATE),
        answers(LIVE4[:1]),
        first=RTT + 50,
    ),
    Row(
        "AAAA never answered",
        "aaaa-never",
        answers([], never=True),
        answers(LIVE4[:1]),
        first=RTT + 50,
    ),
    Row("A never answered", "a-never", answers(LIVE6[:1]), answers([], never=True), first=RTT),
    Row(
        "both answered 1 s late",
        "both-late",
        answers(LIVE6[:1], late=LATE),
        answers(LIVE4[:1], late=LATE),
        first=RTT + LATE,
    ),
    # The question over UDP, the handshake of TCP, the question once more.
    Row(
        "DNS truncated over UDP",
        "truncated",
        answers(LIVE6[:1], truncated=True),
        answers(LIVE4[:1], truncated=True),
        first=3 * RTT,
    ),
]

AAAA_DELAYS = [10, 25, 40, 60, 100, 200, 500]
SLOW_RTTS = [100, 150, 180, 220, 240, 260, 280, 320, 400]

DOMAIN = "bed.test"


def full(name):
    return f"{name}.{DOMAIN}"


def scripts():
    """What each name is answered: {name: (AAAA, A)}."""
    made = {full(row.name): (row.aaaa, row.a) for row in ROWS}
    made[full("a-late")] = answers(LIVE6[:1]), answers(LIVE4[:1], late=LATE)
    made[full("all-dead")] = answers(DEAD6[:4]), answers(DEAD4[:4])
    for delay in AAAA_DELAYS:
        made[full(f"aaaa-{delay}")] = answers(LIVE6[:1], late=delay), answers(LIVE4[:1])
    made[full("four")] = answers([]), answers(LIVE4[:4])
    made[full("four-one-dead")] = answers([]), answers(LIVE4[:3] + DEAD4[:1])
    return made
