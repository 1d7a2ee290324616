//! Who is in the clinic: each patient with its disease, where it is seen, what its peer does, what has to be
//! true when it is sick and when it is well, and how many bytes it loses.

use super::visit::{Seen, State};

/// One patient in one situation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    /// Told apart by this.
    pub(super) name: &'static str,
    /// What the doctor has to find when it is sick; none where both twins are healthy.
    pub(super) disease: Option<&'static str>,
    /// What it has to say all the same, as no loss, where there is no disease.
    pub(super) note: Option<&'static str>,
    /// The source, below `clinic/`.
    pub(super) source: &'static str,
    pub(super) role: Role,
    pub(super) place: Place,
    /// What a client is told in place of the peer's address, if that is another.
    pub(super) host: &'static str,
    /// The steps of the peer: `clinic/peer.py` has the words.
    pub(super) peer: &'static str,
    pub(super) connections: u32,
    /// Settings of the patient's network.
    pub(super) sysctls: &'static [(&'static str, &'static str)],
    /// Congestion controls that it asks for.
    pub(super) congestion: &'static [&'static str],
    /// What the path becomes when the patient has written, if it is sick.
    pub(super) then: Option<&'static str>,
    /// The exit code when it is sick; 0 when it is well.
    pub(super) code: i32,
    /// What the disease promises.
    pub(super) sick: fn(&Seen) -> bool,
    /// What its healing promises.
    pub(super) well: fn(&Seen) -> bool,
    pub(super) loses: Loses,
    /// Takes seconds.
    pub(super) is_slow: bool,
}

impl Case {
    /// Whether the doctor is to find a loss.
    pub(super) fn loses_bytes(&self) -> bool {
        !matches!(self.loses, Loses::Nothing)
    }

    /// The exit code that the patient has to end with.
    pub(super) fn code_of(&self, state: State) -> i32 {
        if state == State::Sick { self.code } else { 0 }
    }
}

/// Who connects.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    Client,
    Server,
}

/// Where patient and peer are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// Both in one network.
    Loopback,
    /// The same, and the doctor in another one.
    Other,
    /// At two ends of a path.
    Path { sick: &'static str, well: &'static str },
}

/// What the doctor has to say about bytes when the patient is sick.
#[derive(Clone, Copy)]
pub(super) enum Loses {
    /// No finding of class loss.
    Nothing,
    /// So many.
    Exactly(fn(&Seen) -> u64),
    /// At least so many: some had arrived, and their acknowledgement was lost.
    AtLeast(fn(&Seen) -> u64),
    /// Some: neither the patient nor its kernel can know how many.
    Some,
}

impl std::fmt::Debug for Loses {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(match self {
            Self::Nothing => "Nothing",
            Self::Exactly(_) => "Exactly",
            Self::AtLeast(_) => "AtLeast",
            Self::Some => "Some",
        })
    }
}

/// Everybody.
pub(super) fn catalogue() -> Vec<Case> {
    let losses = [losses(), other_losses(), variants()];
    let others = [buffers(), writing(), paths(), spinning(), connecting()];
    losses.into_iter().chain(others).flatten().collect()
}

fn losses() -> Vec<Case> {
    let unread = Case { peer: UNREAD, ..TAIL };
    let late = Case { peer: LATE_BYTE, ..TAIL };
    let linger = Case { disease: Some("LB103"), ..late };
    // The late byte is lost too.
    let late = Case { loses: Loses::Exactly(lost_both_ways), ..late };
    let exit = Case { disease: Some("LB102"), ..late };
    let late = Case { disease: Some("LB104"), ..late };
    let server = Case { role: Role::Server, ..unread };
    let early = Case { peer: "read:1000 hold wait:350 send:100 wait:200 read", ..unread };
    let upload = Case { peer: "send:100 hold wait:350 send:100000 wait:200 read", ..server };
    vec![
        named("unread input, server in C", "c/lb101_unread.c", server),
        named("unread body, web server in Python", "python/lb101_body.py", upload),
        named("unread input, client in Go", "go/lb101_close.go", unread),
        named("unread input, server of files in C", "c/lb101_sendfile.c", server),
        named("unread answer that came early, client in Python", "python/lb101_early.py", early),
        named("exit, dropped", "c/lb102_exit.c", exit),
        named("killed, dropped", "python/lb102_kill.py", Case { code: 137, ..exit }),
        named("linger 0 in C", "c/lb103_linger.c", linger),
        named("linger 0 in Python", "python/lb103_linger.py", linger),
        named("linger 0 in Go", "go/lb103_linger.go", linger),
        named("data after close in C", "c/lb104_late_data.c", late),
        named("data after close in Go", "go/lb104_late_data.go", late),
        Case {
            name: "receiver closes early, in Python",
            source: "python/lb104_receiver.py",
            peer: "send:100000 hold wait:350 send:50000 wait:100 send:50000 finish read",
            sick: |seen| seen.end() == "reset" && seen.count("read") < seen.peer_count("sent"),
            well: |seen| seen.end() == "fin" && seen.count("read") == 200_000,
            loses: Loses::Some,
            ..late
        },
    ]
}

/// Those in which the peer has a part, or that are on no wire.
fn other_losses() -> Vec<Case> {
    let unconfirmed = Case {
        disease: Some("LB105"),
        peer: "read:1000 send:1 wait:350 reset",
        sick: |seen| {
            let reset = seen.end() == "reset by us";
            reset && untaken(seen) > 0 && untaken(seen) == seen.count("unacked")
        },
        well: |seen| seen.missing() == 0 && seen.count("read") == 1,
        loses: Loses::Exactly(untaken),
        ..TAIL
    };
    let unix = Case {
        disease: Some("LB107"),
        host: "unix",
        peer: UNREAD,
        sick: |seen| seen.end() == "reset" && seen.missing() == 0 && seen.count("read") == 0,
        loses: Loses::Exactly(|seen| seen.peer_count("sent") - seen.count("read")),
        ..TAIL
    };
    vec![
        named("peer resets, in C", "c/lb105_unconfirmed.c", unconfirmed),
        named("peer resets, in Python", "python/lb105_unconfirmed.py", unconfirmed),
        Case {
            name: "half-close unanswered",
            source: "c/lb106_half_close.c",
            disease: Some("LB106"),
            peer: "read:1000 send:1 read stay",
            sick: |seen| seen.missing() == 0 && seen.patient("waited_ms") >= 5900.0,
            well: |seen| seen.missing() == 0 && seen.patient("waited_ms") < 2000.0,
            loses: Loses::Nothing,
            is_slow: true,
            ..TAIL
        },
        named("Unix socket in C", "c/lb107_unix.c", unix),
        named("Unix socket in Python", "python/lb107_unix.py", unix),
    ]
}

/// The same diseases where they are harder to see, and what looks like one and is none.
fn variants() -> Vec<Case> {
    let unread = Case { source: "c/lb101_unread.c", peer: UNREAD, ..TAIL };
    let healthy = Case { disease: None, sick: all_arrived, loses: Loses::Nothing, ..TAIL };
    let late = Case { note: Some("LB102"), peer: "hold wait:200 read", ..healthy };
    vec![
        Case { name: "unread input, IPv4", ..unread },
        Case { name: "unread input, IPv6", host: "::1", ..unread },
        Case { name: "unread input, IPv4-mapped", host: "::ffff:127.0.0.1", ..unread },
        Case { name: "unread input, other network", place: Place::Other, ..unread },
        Case {
            name: "unread input, over a path",
            place: over("rtt = '20ms'\nrate = '100mbit'"),
            ..unread
        },
        named("unread input, one thread of several", "c/lb101_thread.c", unread),
        named("unread input, the child is the last", "c/lb101_fork.c", unread),
        Case {
            name: "linger 0, gone in milliseconds",
            source: "c/lb103_instant.c",
            disease: Some("LB103"),
            peer: "hold wait:200 read",
            ..TAIL
        },
        Case {
            name: "linger 0, hostile name",
            source: "c/lb103_name.c",
            disease: Some("LB103"),
            peer: LATE_BYTE,
            ..unread
        },
        Case {
            name: "exit, path fails",
            source: "c/lb102_exit.c",
            disease: Some("LB102"),
            place: over("rtt = '100ms'\nrate = '20mbit'"),
            // The kernel gives an orphan up after one attempt instead of eight.
            sysctls: &[("ipv4/tcp_orphan_retries", "1")],
            then: Some("rtt = '100ms'\nrate = '20mbit'\nloss = '100%'"),
            peer: "hold read",
            sick: |seen| seen.end() == "silence" && seen.missing() > 0,
            loses: Loses::AtLeast(Seen::missing),
            is_slow: true,
            ..TAIL
        },
        named("exit, delivered", "c/lb102_exit.c", late),
        named("killed, delivered", "python/lb102_kill.py", Case { code: 137, ..late }),
        Case { name: "a child closes its copy", source: "c/fork_keeps.c", peer: UNREAD, ..healthy },
    ]
}

fn buffers() -> Vec<Case> {
    let slow = Case { place: LONG, loses: Loses::Nothing, is_slow: true, ..TAIL };
    let sndbuf = Case {
        disease: Some("LB201"),
        sick: |seen| all_arrived(seen) && mbit_per_s(seen) < 25.0,
        well: |seen| all_arrived(seen) && mbit_per_s(seen) > 30.0,
        ..slow
    };
    let rcvbuf = Case {
        disease: Some("LB202"),
        peer: "send:6000000 finish read",
        sick: |seen| received_all(seen) && seen.patient("seconds") > 3.2,
        well: |seen| received_all(seen) && seen.patient("seconds") < 1.5,
        ..slow
    };
    let no_read = Case { disease: Some("LB208"), peer: "send:2000000 finish read", ..rcvbuf };
    let window = Case { peer: "send:8000000 finish read", ..no_read };
    vec![
        named("send buffer fixed, in C", "c/lb201_sndbuf.c", sndbuf),
        named("send buffer fixed, in Python", "python/lb201_sndbuf.py", sndbuf),
        named("send buffer fixed, in Go", "go/lb201_sndbuf.go", sndbuf),
        named("receive buffer fixed, in C", "c/lb202_rcvbuf.c", rcvbuf),
        named("receive buffer fixed, in Go", "go/lb202_rcvbuf.go", rcvbuf),
        named("receiver does not read, in Python", "python/lb208_no_read.py", no_read),
        named("receiver does not read, in Go", "go/lb208_no_read.go", window),
    ]
}

fn writing() -> Vec<Case> {
    let writes = Case { loses: Loses::Nothing, ..TAIL };
    let nagle = Case {
        disease: Some("LB205"),
        peer: "answer:200:100:40 read",
        sick: |seen| all_arrived(seen) && seen.patient("seconds") > 0.8,
        well: |seen| all_arrived(seen) && seen.patient("seconds") < 0.4,
        ..writes
    };
    let tiny = Case {
        disease: Some("LB206"),
        sick: |seen| all_arrived(seen) && seen.patient("written") / seen.patient("writes") <= 64.0,
        well: |seen| all_arrived(seen) && seen.patient("writes") < 1000.0,
        is_slow: true,
        ..writes
    };
    vec![
        Case {
            name: "application sleeps",
            source: "python/lb204_sleeps.py",
            disease: Some("LB204"),
            place: LONG,
            sick: |seen| all_arrived(seen) && seen.peer("seconds") > 4.8,
            well: |seen| all_arrived(seen) && seen.peer("seconds") < 2.0,
            is_slow: true,
            ..writes
        },
        named("Nagle against delayed ACK, in C", "c/lb205_nagle.c", nagle),
        named("Nagle against delayed ACK, in Python", "python/lb205_nagle.py", nagle),
        named("Nagle against delayed ACK, in Go", "go/lb205_nagle.go", nagle),
        named("tiny writes, in C", "c/lb206_tiny.c", tiny),
        named("tiny writes, in Python", "python/lb206_tiny.py", tiny),
        named("tiny writes, in Go", "go/lb206_tiny.go", tiny),
    ]
}

fn paths() -> Vec<Case> {
    let slow = Case { loses: Loses::Nothing, is_slow: true, ..TAIL };
    vec![
        Case {
            name: "cubic over random loss",
            source: "c/lb203_cubic.c",
            disease: Some("LB203"),
            place: over("rtt = '80ms'\nrate = '100mbit'\nloss = '1%'"),
            congestion: &["cubic", "bbr"],
            sick: |seen| all_arrived(seen) && mbit_per_s(seen) < 10.0,
            well: |seen| all_arrived(seen) && mbit_per_s(seen) > 12.0,
            ..slow
        },
        Case {
            name: "retransmission time-outs",
            source: "python/lb207_timeouts.py",
            disease: Some("LB207"),
            place: Place::Path { sick: CUT_AGAIN_AND_AGAIN, well: "rtt = '20ms'\nrate = '50mbit'" },
            peer: "answer:10000:1:120 read",
            sick: |seen| {
                let retransmitted = seen.count("retransmitted") > 0;
                all_arrived(seen) && retransmitted && seen.patient("seconds") > 4.0
            },
            well: |seen| all_arrived(seen) && seen.count("retransmitted") == 0,
            ..slow
        },
        Case {
            name: "idle restart",
            source: "c/lb209_idle.c",
            disease: Some("LB209"),
            place: over("rtt = '100ms'\nrate = '200mbit'"),
            congestion: &["cubic"],
            peer: "answer:1000000:1:4 read",
            sick: |seen| all_arrived(seen) && seen.patient("last_burst_ms") > 350.0,
            well: |seen| all_arrived(seen) && seen.patient("last_burst_ms") < 300.0,
            ..slow
        },
    ]
}

fn spinning() -> Vec<Case> {
    let spins = Case {
        sick: |seen| all_arrived(seen) && seen.patient("calls") > 5000.0,
        well: |seen| all_arrived(seen) && seen.patient("calls") < 100.0,
        loses: Loses::Nothing,
        ..TAIL
    };
    let lasting = Case { is_slow: true, ..spins };
    let writable = Case { disease: Some("LB301"), peer: "hold wait:2000 send:1 read", ..lasting };
    let outq = Case { disease: Some("LB302"), peer: "hold wait:2000 read", ..lasting };
    let hangup = Case { disease: Some("LB303"), peer: "finish read", ..spins };
    let accept = Case {
        disease: Some("LB305"),
        role: Role::Server,
        peer: "stay",
        connections: 40,
        sick: |seen| seen.patient("refused") > 1000.0 && seen.patient("accepted") < 16.0,
        well: |seen| seen.patient("refused") == 0.0 && seen.count("accepted") == 40,
        ..spins
    };
    vec![
        named("writable poll, in C", "c/lb301_writable.c", writable),
        named("writable poll, in Python", "python/lb301_writable.py", writable),
        named("writable poll, in Go", "go/lb301_writable.go", writable),
        named("SIOCOUTQ, in C", "c/lb302_outq.c", outq),
        named("SIOCOUTQ, in Python", "python/lb302_outq.py", outq),
        named("hang-up, in C", "c/lb303_hangup.c", hangup),
        named("hang-up, in Python", "python/lb303_hangup.py", hangup),
        Case {
            name: "select with a high descriptor",
            source: "c/lb304_select.c",
            disease: Some("LB304"),
            peer: "answer:100:100:50 read",
            sick: |seen| all_arrived(seen) && seen.count("descriptor") >= 1024,
            well: all_arrived,
            ..spins
        },
        named("accept without descriptors, in C", "c/lb305_accept.c", accept),
        named("accept without descriptors, in Go", "go/lb305_accept.go", accept),
    ]
}

fn connecting() -> Vec<Case> {
    let path = over("rtt = '10ms'");
    let connects = Case { place: path, peer: "read", loses: Loses::Nothing, ..TAIL };
    let family = Case {
        disease: Some("LB401"),
        host: "2001:2::99,198.18.0.2",
        sick: |seen| all_arrived(seen) && seen.patient("connect_ms") > 1900.0,
        well: |seen| all_arrived(seen) && seen.patient("connect_ms") < 1000.0,
        ..connects
    };
    let backlog = Case {
        disease: Some("LB404"),
        place: Place::Loopback,
        role: Role::Server,
        peer: "send:10 finish read",
        connections: 8,
        sick: |seen| seen.peer("connect_ms") > 900.0,
        well: |seen| seen.count("read") == 80 && seen.peer("connect_ms") < 900.0,
        ..connects
    };
    let ports = Case {
        disease: Some("LB405"),
        place: Place::Loopback,
        sysctls: &[("ipv4/ip_local_port_range", "40000 40019")],
        connections: 40,
        sick: |seen| all_arrived(seen) && seen.count("refused") > 10,
        well: |seen| all_arrived(seen) && seen.count("refused") == 0,
        ..connects
    };
    vec![
        named("slow first family, in Python", "python/lb401_family.py", family),
        named("slow first family, in Go", "go/lb401_family.go", family),
        Case {
            name: "SYN lost",
            source: "python/lb402_syn.py",
            disease: Some("LB402"),
            place: Place::Path { sick: "rtt = '10ms'\nloss = '100%'", well: "rtt = '10ms'" },
            then: Some("rtt = '10ms'"),
            sick: |seen| all_arrived(seen) && seen.patient("connect_ms") > 900.0,
            well: |seen| all_arrived(seen) && seen.patient("connect_ms") < 900.0,
            ..connects
        },
        Case {
            name: "dead addresses first",
            source: "python/lb403_dead.py",
            disease: Some("LB403"),
            host: "198.18.0.98,2001:2::2,198.18.0.2",
            sick: |seen| all_arrived(seen) && seen.count("failed") == 2,
            well: |seen| all_arrived(seen) && seen.count("failed") == 0,
            ..connects
        },
        named("listen queue, in C", "c/lb404_backlog.c", backlog),
        named("listen queue, in Python", "python/lb404_backlog.py", backlog),
        named("local ports, in C", "c/lb405_ports.c", ports),
        named("local ports, in Go", "go/lb405_ports.go", ports),
    ]
}

const fn named(name: &'static str, source: &'static str, like: Case) -> Case {
    Case { name, source, ..like }
}

/// A client on loopback that loses its tail by closing with input unread.
const TAIL: Case = Case {
    name: "",
    disease: Some("LB101"),
    note: None,
    source: "",
    role: Role::Client,
    place: Place::Loopback,
    host: "",
    peer: "read",
    connections: 1,
    sysctls: &[],
    congestion: &[],
    then: None,
    code: 0,
    sick: tail_lost,
    well: all_arrived,
    loses: Loses::Exactly(Seen::missing),
    is_slow: false,
};

/// Says something when the patient has written, and reads later. A closed window is probed 200 ms after it
/// was, and then 400 ms later (`tcp_send_probe0`): between these, what the one kernel has and what the other
/// knows of it are the same.
const UNREAD: &str = "hold wait:350 send:6 wait:200 read";
/// The same, once the patient has closed or ended.
const LATE_BYTE: &str = "hold wait:350 send:1 wait:200 read";

/// As long as an ocean is wide.
const LONG: Place = over("rtt = '50ms'\nrate = '200mbit'");
/// Longer than the first retransmission time-out, and over before the second.
const CUT_AGAIN_AND_AGAIN: &str = "rtt = '20ms'
    rate = '50mbit'
    cuts = [{ at = '300ms', lasting = '500ms' }]
    cuts_again_every = '1500ms'";

const fn over(path: &'static str) -> Place {
    Place::Path { sick: path, well: path }
}

fn tail_lost(seen: &Seen) -> bool {
    // Where the patient asked its kernel before it closed, the kernel knew.
    let known = seen.patient["unacked"].as_u64();
    seen.end() == "reset" && seen.missing() > 0 && known.is_none_or(|known| known == seen.missing())
}

fn all_arrived(seen: &Seen) -> bool {
    seen.end() == "fin" && seen.missing() == 0
}

fn received_all(seen: &Seen) -> bool {
    seen.count("read") == seen.peer_count("sent")
}

/// Bytes that the patient wrote and the peer's kernel never took.
fn untaken(seen: &Seen) -> u64 {
    seen.count("written").saturating_sub(seen.peer_count("taken"))
}

/// Bytes that one of the two programs wrote and the other never got.
fn lost_both_ways(seen: &Seen) -> u64 {
    seen.missing() + seen.peer_count("sent").saturating_sub(seen.count("read"))
}

fn mbit_per_s(seen: &Seen) -> f64 {
    seen.peer("received") * 8.0 / 1e6 / seen.peer("seconds")
}
