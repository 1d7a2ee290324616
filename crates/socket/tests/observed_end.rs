//! How a stream that was read to its end really ended: ours against the readers of the standard
//! library and of tokio, where a reset comes while we write.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::thread;

use lastbyte_socket::{
    Drain, End, FinishOptions, Kind, Stream, Unproven, blocking, observed_end, prepare,
};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{SECOND, count, listener, open_descriptors, pair, plain_pair, run};

const RUNS: usize = 200;
const ANSWER: usize = 50_000;

/// A server that answers, and resets the connection in the middle of the request.
fn answer_and_reset(mut far: TcpStream) {
    far.write_all(&[9; ANSWER]).unwrap();
    SockRef::from(&far).set_linger(Some(std::time::Duration::ZERO)).unwrap();
}

/// What a reader said of a stream that was cut: the truth, or that it was whole.
#[derive(Default)]
struct Said {
    cut: usize,
    whole: usize,
}

impl Said {
    fn add(&mut self, whole: bool) {
        if whole { self.whole += 1 } else { self.cut += 1 }
    }

    fn tell(&self, who: &str, when: &str) {
        eprintln!(
            "{who}, {when}: a cut answer called cut {}, called whole {}",
            self.cut, self.whole
        );
    }
}

/// As clients do: first all of the request, then the answer. The write takes the report.
#[test]
fn a_server_that_resets_while_the_request_is_written_first() {
    let (mut ours, mut std_said, mut tokio_said) =
        (Said::default(), Said::default(), Said::default());
    for _ in 0..RUNS {
        let (near, far) = plain_pair();
        answer_and_reset(far);
        let mut near = blocking::Stream::adopt_new(near).unwrap();
        while near.write(&[0; 4096]).is_ok() {}
        let whole = near.read_to_end(&mut Vec::new()).is_ok();
        assert_eq!((near.observed_end(), near.bytes_read()), (Some(End::Reset), ANSWER as u64));
        ours.add(whole);

        let (mut near, far) = plain_pair();
        answer_and_reset(far);
        while near.write(&[0; 4096]).is_ok() {}
        std_said.add(near.read_to_end(&mut Vec::new()).is_ok());

        let (near, far) = plain_pair();
        answer_and_reset(far);
        tokio_said.add(run(async {
            near.set_nonblocking(true).unwrap();
            let mut near = tokio::net::TcpStream::from_std(near).unwrap();
            while near.write_all(&[0; 4096]).await.is_ok() {}
            near.read_to_end(&mut Vec::new()).await.is_ok()
        }));
    }
    for (who, said) in [("std", &std_said), ("tokio", &tokio_said), ("lastbyte", &ours)] {
        said.tell(who, "request first");
    }
    assert_eq!((ours.cut, ours.whole), (RUNS, 0));
    // Why the streams here exist. The day that this fails is a good day.
    assert!(std_said.whole == RUNS && tokio_said.whole == RUNS);
}

/// Two directions at once, each in a thread or a task of its own.
#[test]
fn a_server_that_resets_while_both_directions_are_busy() {
    let (mut ours, mut async_ours) = (Said::default(), Said::default());
    let (mut std_said, mut tokio_said) = (Said::default(), Said::default());
    for _ in 0..RUNS {
        let (near, far) = plain_pair();
        let server = thread::spawn(move || answer_and_reset(far));
        let (mut reading, mut writing) = blocking::Stream::adopt_new(near).unwrap().into_split();
        let writer = thread::spawn(move || {
            while writing.write(&[0; 4096]).is_ok() {}
            writing
        });
        ours.add(reading.read_to_end(&mut Vec::new()).is_ok());
        assert_eq!(reading.observed_end(), Some(End::Reset));
        server.join().unwrap();
        let whole = reading.reunite(writer.join().unwrap()).unwrap();
        assert_eq!(whole.observed_end(), Some(End::Reset));

        let (mut near, far) = plain_pair();
        let server = thread::spawn(move || answer_and_reset(far));
        let mut writing = near.try_clone().unwrap();
        let writer = thread::spawn(move || while writing.write(&[0; 4096]).is_ok() {});
        std_said.add(near.read_to_end(&mut Vec::new()).is_ok());
        server.join().unwrap();
        writer.join().unwrap();

        let (near, far) = plain_pair();
        let server = thread::spawn(move || answer_and_reset(far));
        tokio_said.add(run(async {
            near.set_nonblocking(true).unwrap();
            let near = tokio::net::TcpStream::from_std(near).unwrap();
            let (mut reading, mut writing) = near.into_split();
            let writer = async { while writing.write_all(&[0; 4096]).await.is_ok() {} };
            let mut answer = Vec::new();
            tokio::join!(writer, reading.read_to_end(&mut answer)).1.is_ok()
        }));
        server.join().unwrap();

        let (near, far) = plain_pair();
        let server = thread::spawn(move || answer_and_reset(far));
        async_ours.add(run(async {
            let near = Stream::from_blocking(blocking::Stream::adopt_new(near).unwrap()).unwrap();
            let (mut reading, mut writing) = near.into_split();
            let writer = async { while writing.write_all(&[0; 4096]).await.is_ok() {} };
            let mut answer = Vec::new();
            let read = tokio::join!(writer, reading.read_to_end(&mut answer)).1;
            assert_eq!(reading.observed_end(), Some(End::Reset));
            read.is_ok()
        }));
        server.join().unwrap();
    }
    let all = [("std", &std_said), ("tokio", &tokio_said), ("lastbyte", &ours)];
    for (who, said) in all.into_iter().chain([("lastbyte over tokio", &async_ours)]) {
        said.tell(who, "both at once");
    }
    assert_eq!((ours.cut, ours.whole, async_ours.cut, async_ours.whole), (RUNS, 0, RUNS, 0));
}

/// Sends some bytes, an urgent one among them if asked, and ends.
fn send_and_end(far: &TcpStream, urgent: bool, reset: bool) {
    let socket = SockRef::from(far);
    socket.send(&[1; 999]).unwrap();
    if urgent {
        socket.send_out_of_band(b"!").unwrap();
    }
    socket.send(&[2; 1000]).unwrap();
    if reset {
        socket.set_linger(Some(std::time::Duration::ZERO)).unwrap();
    }
}

#[test]
fn urgent_bytes_and_an_early_half_close_never_make_a_reset_a_fin() {
    for (urgent, early, reset) in (0..8).map(|bits| (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0)) {
        let (near, far) = plain_pair();
        let mut near = blocking::Stream::adopt_new(near).unwrap();
        if early {
            near.half_close().unwrap();
        }
        send_and_end(&far, urgent, reset);
        drop(far);
        let expected = if reset { End::Reset } else { End::Fin };
        let bytes = 1999 + u64::from(urgent);
        assert_eq!(count(near), (bytes, Some(expected)), "{urgent} {early} {reset}");
    }
}

#[test]
fn an_urgent_byte_does_not_stop_a_reader_over_tokio() {
    let (near, far) = plain_pair();
    let near = blocking::Stream::adopt_new(near).unwrap();
    send_and_end(&far, true, false);
    run(async {
        let mut near = Stream::from_blocking(near).unwrap();
        let mut all = Vec::new();
        // The peer stays: nothing new wakes a reader that forgot what lies behind the mark.
        let mut first = (&mut near).take(2000);
        let reading = tokio::time::timeout(SECOND, first.read_to_end(&mut all)).await;
        reading.expect("the reader waits").unwrap();
        assert_eq!(all.len(), 2000);
    });
    drop(far);
}

/// The same for a descriptor of others, whose reader counts for itself.
#[test]
fn ended_tells_a_foreign_reader_as_much_as_can_be_known() {
    for (prepared, urgent, half_closed, reset) in
        (0..16).map(|bits| (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0, bits & 8 != 0))
    {
        let (mut near, far) = plain_pair();
        if prepared {
            prepare(&near).unwrap();
        }
        if half_closed {
            near.shutdown(Shutdown::Write).unwrap();
        }
        send_and_end(&far, urgent, reset);
        drop(far);
        let mut all = Vec::new();
        let _ = near.read_to_end(&mut all);
        let end = observed_end(&near, all.len() as u64).unwrap();
        let truth = if reset { End::Reset } else { End::Fin };
        let about = format!("{end:?} for {prepared} {urgent} {half_closed} {reset}");
        // Never the opposite; unknown only where an urgent byte could have been passed over.
        assert!(end == truth || end == End::Unknown, "{about}");
        assert!(end == truth || (!prepared && (urgent || half_closed)), "{about}");
    }
}

#[test]
fn a_reading_side_shut_down_here_is_no_end_of_the_peer() {
    let (mut near, _far) = pair();
    SockRef::from(&near).shutdown(Shutdown::Read).unwrap();
    assert_eq!(near.read(&mut [0; 8]).unwrap(), 0);
    assert_eq!(near.observed_end(), Some(End::Unknown));
}

fn mptcp() -> io::Result<Socket> {
    Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP))
}

/// Connected by Multipath TCP, at both ends if `native`, else fallen back to plain TCP.
fn mptcp_pair(native: bool) -> io::Result<(TcpStream, TcpStream)> {
    let listener = if native { mptcp()? } else { Socket::new(Domain::IPV4, Type::STREAM, None)? };
    listener.bind(&std::net::SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    listener.listen(1)?;
    let near = mptcp()?;
    near.connect(&listener.local_addr()?)?;
    Ok((near.into(), listener.accept()?.0.into()))
}

#[test]
fn multipath_tcp_is_unknown_and_loses_nothing() {
    for (native, reset) in [(true, true), (true, false), (false, true), (false, false)] {
        let (near, far) = match mptcp_pair(native) {
            Ok(pair) => pair,
            Err(error) => return lastbyte_testing::not_tested!("no Multipath TCP here: {error}"),
        };
        let mut near = blocking::Stream::adopt_new(near).unwrap();
        assert_eq!(near.kind(), Kind::Mptcp);
        send_and_end(&far, false, reset);
        drop(far);
        let _ = near.read_to_end(&mut Vec::new());
        assert!(matches!(near.observed_end(), Some(End::Unknown | End::Reset)), "{native} {reset}");
        assert!(reset || near.observed_end() == Some(End::Unknown), "{native}");
    }
    // With an unread greeting, which would make a close lose what is queued.
    let (near, mut far) = mptcp_pair(true).unwrap();
    far.write_all(b"220 hello\r\n").unwrap();
    let reader = thread::spawn(move || far.read_to_end(&mut Vec::new()).unwrap());
    let mut near = blocking::Stream::adopt_new(near).unwrap();
    near.write_all(&vec![7; 1_000_000]).unwrap();
    let error = near.finish_with(FinishOptions::default().within(10 * SECOND)).unwrap_err();
    assert_eq!((error.why, error.receipt.acked), (Unproven::Unknowable, None), "{error}");
    assert_eq!(reader.join().unwrap(), 1_000_000);
}

#[test]
fn a_unix_stream_that_was_cut_is_no_end_also_when_a_write_took_the_error() {
    for write_first in [false, true] {
        let (mut near, mut far) = blocking::UnixStream::pair().unwrap();
        far.write_all(&[9; 500]).unwrap();
        near.write_all(b"never read").unwrap();
        drop(far);
        if write_first {
            while near.write(&[0; 100]).is_ok() {}
        }
        let error = near.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(
            (near.observed_end(), near.bytes_read()),
            (Some(End::Reset), 500),
            "{write_first}"
        );
    }
    let (near, mut far) = blocking::UnixStream::pair().unwrap();
    far.write_all(b"whole").unwrap();
    drop(far);
    assert_eq!(count(near), (5, Some(End::Fin)));
}

/// The kernel tells of it once, and the writing half's proof is told.
#[test]
fn a_unix_reset_that_a_proof_was_told_of_is_no_end_for_the_reading_half() {
    let cut = || {
        let (mut near, far) = blocking::UnixStream::pair().unwrap();
        near.write_all(b"never read").unwrap();
        drop(far);
        near
    };
    let (mut reading, mut writing) = cut().into_split();
    assert_eq!(writing.prove_with(FinishOptions::default()).unwrap_err().why, Unproven::Reset);
    reading.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(reading.observed_end(), Some(End::Reset));
    run(async {
        let (mut reading, mut writing) = Stream::from_blocking(cut()).unwrap().into_split();
        let error = writing.prove_with(FinishOptions::default()).await.unwrap_err();
        assert_eq!(error.why, Unproven::Reset);
        reading.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(reading.observed_end(), Some(End::Reset));
    });
}

/// A write that took some bytes before it was told returns their number, and nobody is told.
#[test]
fn a_unix_reset_that_a_short_write_swallowed_is_never_an_end() {
    let (mut near, far) = blocking::UnixStream::pair().unwrap();
    let closer = thread::spawn(move || {
        let mut before = 0;
        loop {
            let waiting = lastbyte_sys::tcp::unread(&far).unwrap();
            if waiting > 0 && waiting == before {
                return drop(far);
            }
            before = waiting;
            thread::sleep(std::time::Duration::from_millis(20));
        }
    });
    near.write_all(&vec![1; 4 << 20]).unwrap_err();
    closer.join().unwrap();
    let _ = near.read_to_end(&mut Vec::new());
    assert!(
        matches!(near.observed_end(), Some(End::Reset | End::Unknown)),
        "{:?}",
        near.observed_end()
    );
}

/// Streams end in turn with all kinds of ends: none keeps a descriptor.
#[test]
fn ends_give_their_descriptors_back() {
    let before = open_descriptors();
    for turn in 0..200 {
        let (mut near, far) = pair();
        match turn % 4 {
            0 => drop(far),
            1 => drop(far.abort(SECOND)),
            2 => drop(far.finish_with(FinishOptions::default().drain(Drain::Keep))),
            _ => drop(far.into_split()),
        }
        let _ = near.read(&mut [0; 8]);
        assert!(near.observed_end().is_some());
    }
    // Other tests of this process open some too: a leak would be two hundred.
    let after = open_descriptors();
    assert!(after < before + 100, "{before} descriptors before, {after} after");
    drop(listener());
}
