//! Random connections that end badly, seen from both sides: what a receipt claims is never more
//! than the peer's kernel had.
//!
//! The seed is printed; `LASTBYTE_SEED` repeats a run.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use lastbyte_link::{FAR, Link, LinkError, Scenario};
use lastbyte_socket::{
    ConnectOptions, Delivery, Drain, FinishOptions, PeerEnd, Receipt, Sampler, Stream, blocking,
};
use socket2::{SockFilter, SockRef};

use crate::support::{MS, SECOND, pair, run};

/// Small and known: SplitMix64 (Steele, Lea, Flood 2014).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }
}

fn seed() -> u64 {
    let given = std::env::var("LASTBYTE_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| u64::from(std::process::id()) ^ 0x1A57_B17E);
    eprintln!("LASTBYTE_SEED={seed}");
    seed
}

/// What the peer does when it has read some bytes.
#[derive(Clone, Copy, Debug)]
enum Does {
    /// Resets the connection.
    Reset,
    /// Closes with the rest unread, which resets it too.
    CloseUnread,
    /// Stays, and reads no more.
    StopReading,
    /// Ends its own direction first, then reads on.
    HalfClose,
    /// Reads all and closes: the one that ends well.
    ReadAll,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    written: usize,
    read_first: usize,
    greeting: usize,
    does: Does,
    want: Delivery,
    drain: Drain,
    over_tokio: bool,
    aborts: bool,
}

impl Case {
    fn by(chance: &mut Chance) -> Self {
        use Does::{CloseUnread, HalfClose, ReadAll, Reset, StopReading};
        let aborts = chance.below(8) == 0;
        // Looking on from beside holds the connection open, so those that abort are not looked at.
        let does: &[Does] = if aborts {
            &[StopReading, ReadAll]
        } else {
            &[Reset, Reset, CloseUnread, CloseUnread, StopReading, HalfClose, ReadAll]
        };
        let written = chance.pick(&[0, 1, 1000, 65_536, 1_000_000, 5_000_000]);
        Self {
            written,
            read_first: usize::try_from(chance.below(written as u64 + 1)).unwrap(),
            greeting: chance.pick(&[0, 11]),
            does: chance.pick(does),
            want: chance.pick(&[
                Delivery::Sent,
                Delivery::Acked,
                Delivery::Acked,
                Delivery::Closed,
            ]),
            drain: chance.pick(&[Drain::Discard(1 << 20), Drain::Discard(5), Drain::Keep]),
            over_tokio: chance.below(2) == 0,
            aborts,
        }
    }
}

/// What the peer's kernel had of ours when its side ended, or still has.
struct Had {
    bytes: u64,
    /// Kept where the peer stays, so that it does until the receipt is there.
    _stays: Option<blocking::Stream>,
}

/// Whatever comes to this socket from now on is thrown away before TCP sees it.
fn takes_no_more(far: &blocking::Stream) {
    // BPF_RET | BPF_K: keep 0 bytes of each packet (socket(7), SO_ATTACH_FILTER).
    let nothing = SockFilter::new(0x06, 0, 0, 0);
    SockRef::from(far).attach_filter(&[nothing]).unwrap();
}

/// The bytes that came to `far`, once no more are on the way: on one machine what was sent is there. More may be
/// sent before it closes, as it has just read and said so: that is thrown away.
fn settled(far: &blocking::Stream, near: &Sampler) -> u64 {
    for _ in 0..1000 {
        let before = far.info().unwrap();
        let sender = near.info().unwrap();
        let sent = sender.bytes_sent.unwrap() - sender.bytes_retrans.unwrap();
        let after = far.info().unwrap();
        if before.bytes_received == after.bytes_received && after.bytes_received.unwrap() >= sent {
            takes_no_more(far);
            return far.info().unwrap().bytes_received.unwrap();
        }
        thread::yield_now();
    }
    // A busy sender: all that it will ever have sent.
    u64::MAX
}

fn peer(case: Case, mut far: blocking::Stream, near: Option<Sampler>, done: &Receiver<()>) -> Had {
    let _ = far.write_all(&vec![2; case.greeting]);
    let mut left = case.read_first;
    let mut room = vec![0; 65_536];
    while left > 0 {
        let most = left.min(room.len());
        match far.read(&mut room[..most]) {
            Ok(1..) => left = case.read_first - usize::try_from(far.bytes_read()).unwrap(),
            _ => break,
        }
    }
    match case.does {
        Does::Reset => {
            let bytes = settled(&far, &near.unwrap());
            let _ = far.abort(Duration::ZERO);
            Had { bytes, _stays: None }
        }
        Does::CloseUnread => {
            let bytes = settled(&far, &near.unwrap());
            drop(far);
            Had { bytes, _stays: None }
        }
        Does::StopReading => {
            done.recv().unwrap();
            // Also what came since the receipt, which can only be more.
            Had { bytes: far.info().unwrap().bytes_received.unwrap(), _stays: Some(far) }
        }
        Does::HalfClose | Does::ReadAll => {
            if matches!(case.does, Does::HalfClose) {
                let _ = far.half_close();
            }
            while let Ok(1..) = far.read(&mut room) {}
            Had { bytes: far.info().unwrap().bytes_received.unwrap(), _stays: None }
        }
    }
}

/// Writes what the case asks for, as far as the kernel takes it, and ends.
fn near(case: Case, mut near: blocking::Stream) -> Receipt {
    // Long enough for all that ends at all; those that stop reading wait for it to the end.
    let deadline = 200 * MS;
    near.set_write_timeout(Some(100 * MS)).unwrap();
    let _ = near.write_all(&vec![1; case.written]);
    let options = FinishOptions::default().within(deadline).want(case.want).drain(case.drain);
    let ended = match (case.over_tokio, case.aborts) {
        (false, false) => near.finish_with(options),
        (false, true) => near.abort(deadline),
        (true, false) => {
            run(async { Stream::from_blocking(near).unwrap().finish_with(options).await })
        }
        (true, true) => run(async { Stream::from_blocking(near).unwrap().abort(deadline).await }),
    };
    ended.unwrap_or_else(|error| error.receipt)
}

fn judge(about: &str, receipt: &Receipt, had: u64) {
    let about = format!("{receipt:?}, the peer's kernel had {had}; {about}");
    let written = receipt.written.unwrap();
    if let Some(acked) = receipt.acked {
        // A FIN counts as one byte received.
        assert!(acked <= had, "claims too much: {about}");
        assert_eq!(acked + receipt.unacked.unwrap(), written, "{about}");
    }
    if receipt.level >= Delivery::Acked {
        assert_eq!(receipt.unacked, Some(0), "{about}");
    }
    if receipt.level == Delivery::Closed {
        assert_eq!(receipt.peer, PeerEnd::Fin, "{about}");
    }
}

/// How the cases came out, so that a run that tests nothing is seen.
#[derive(Debug, Default)]
struct Tally {
    all_acked: usize,
    some_acked: usize,
    reset: usize,
    closed: usize,
}

fn random_cases(cases: usize) {
    let mut chance = Chance(seed());
    let mut tally = Tally::default();
    for number in 0..cases {
        let case = Case::by(&mut chance);
        let (ours, far) = pair();
        let sampler = (!case.aborts).then(|| ours.sampler().unwrap());
        let (done, receipt_is_there): (Sender<()>, _) = channel();
        let peer = thread::spawn(move || peer(case, far, sampler, &receipt_is_there));
        let receipt = near(case, ours);
        let _ = done.send(());
        let had = peer.join().unwrap();
        judge(&format!("case {number}: {case:?}"), &receipt, had.bytes);
        tally.all_acked += usize::from(receipt.unacked == Some(0));
        tally.some_acked += usize::from(receipt.unacked.is_some_and(|left| left > 0));
        tally.reset += usize::from(receipt.peer == PeerEnd::Reset);
        tally.closed += usize::from(receipt.level == Delivery::Closed);
    }
    eprintln!("{cases} connections: {tally:?}");
    assert!(tally.all_acked > 0 && tally.some_acked > 0 && tally.reset > 0, "{tally:?}");
}

#[test]
fn a_receipt_never_claims_more_than_the_peers_kernel_had_in_a_hundred_cases() {
    random_cases(100);
}

#[test]
#[ignore = "a minute"]
fn a_receipt_never_claims_more_than_the_peers_kernel_had_in_a_thousand_cases() {
    random_cases(1000);
}

/// A path that loses packets, and is cut in the middle: the peer's kernel stays, and can be asked.
#[test]
#[ignore = "half a minute, in namespaces"]
fn a_receipt_never_claims_more_than_came_over_a_path_that_vanishes() {
    let mut chance = Chance(seed());
    for number in 0..100 {
        let path = "rtt = '10ms'\nrate = '50mbit'\nloss = '2%'";
        let scenario = Scenario::parse("vanishing", path).unwrap();
        let link = match Link::up(&scenario.spec, chance.next()) {
            Ok(link) => link,
            Err(error @ LinkError::Rights { .. }) => {
                return lastbyte_testing::not_tested!("{error}");
            }
            Err(error) => panic!("{error}"),
        };
        let address = SocketAddr::from((FAR, 0));
        let listener = link.far().run(|| blocking::TcpListener::bind(address)).unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        let connect = || {
            blocking::Stream::connect_with(address, &ConnectOptions::default().within(5 * SECOND))
                .unwrap()
        };
        let mut near = link.near().run(connect).unwrap();
        let mut far = listener.accept_within(5 * SECOND).unwrap();
        near.set_write_timeout(Some(100 * MS)).unwrap();
        let first = usize::try_from(chance.below(300_000)).unwrap() + 1;
        let sender = thread::spawn(move || {
            let _ = near.write_all(&vec![1; 1_000_000]);
            near.finish_with(FinishOptions::default().within(100 * MS)).unwrap_err().receipt
        });
        let _ = far.read_exact(&mut vec![0; first]);
        link.down().unwrap();
        let receipt = sender.join().unwrap();
        let had = far.info().unwrap().bytes_received.unwrap();
        judge(&format!("path {number}, cut after {first}"), &receipt, had);
        assert!(receipt.level < Delivery::Acked, "{receipt:?}");
    }
}
