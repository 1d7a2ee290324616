//! How a TLS stream ends, and what somebody on the path can make of it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use lastbyte_socket::blocking::Stream;
use lastbyte_socket::{Drain, End, FinishOptions};
use lastbyte_tls::blocking::TlsStream;
use lastbyte_tls::rustls::{self, AlertDescription, ProtocolVersion};
use lastbyte_tls::{Cause, Cut, Operation};

use crate::support::{
    CutAt, LONG, NAME, SECOND, VERSIONS, client, client_of, connected, cutter, listener, pair,
    pair_of, read_all, record_of, server,
};

/// Records of the server's data, and bytes in each.
const MESSAGES: usize = 5;
const MESSAGE_BYTES: usize = 3000;

/// A server that says its messages, a record each, and ends well.
fn speaker() -> (SocketAddr, thread::JoinHandle<()>) {
    let listener = listener();
    let address = listener.local_addr().unwrap();
    let speaker = thread::spawn(move || {
        let stream = listener.accept_within(LONG).unwrap();
        let Ok(mut stream) = TlsStream::accept(stream, server(), LONG) else { return };
        for message in 0..MESSAGES {
            let bytes = [u8::try_from(message).unwrap(); MESSAGE_BYTES];
            let _ = stream.write_all(&bytes).and_then(|()| stream.flush());
        }
        // The one on the path may have cut it: that is what the test is about.
        let _ = stream.finish_with(FinishOptions::default().within(LONG));
    });
    (address, speaker)
}

/// What a client makes of a stream that is cut there; `None` where it ended before.
fn met(
    version: &'static rustls::SupportedProtocolVersion,
    at: CutAt,
) -> Option<(u64, Option<End>, Result<(), ErrorKind>)> {
    let (server, speaker) = speaker();
    let (address, relay) = cutter(server, at);
    let result = TlsStream::connect(connected(address), client_of(version), NAME, LONG);
    let met = match result {
        Ok(mut stream) => {
            let (bytes, result) = read_all(&mut stream);
            assert_eq!(stream.bytes_read(), bytes);
            // It stays so, also if it is asked again.
            let again = stream.read(&mut [0; 1]).map(|bytes| assert_eq!(bytes, 0));
            let kind = result.map_err(|error| error.kind());
            assert_eq!(again.map_err(|error| error.kind()), kind);
            (bytes, stream.observed_end(), kind)
        }
        Err(error) => {
            let end = match &*error.cause {
                Cause::Cut(cut) => cut.end(),
                // Our last words of the handshake met the reset.
                Cause::Transport(_) if at.resets => End::Reset,
                _ => panic!("{at:?}: {error}"),
            };
            (0, Some(end), Err(std::io::Error::from(error).kind()))
        }
    };
    let reached = relay.join().unwrap();
    speaker.join().unwrap();
    reached.then_some(met)
}

#[test]
fn a_cut_anywhere_is_an_error_and_only_close_notify_is_an_end() {
    let cuts: usize = thread::scope(|scope| {
        let ways = VERSIONS.into_iter().flat_map(|version| [(version, false), (version, true)]);
        let running: Vec<_> = ways
            .map(|(version, resets)| scope.spawn(move || cut_everywhere(version, resets)))
            .collect();
        running.into_iter().map(|cutting| cutting.join().unwrap()).sum()
    });
    eprintln!("{cuts} cuts");
    assert!(cuts > 100, "{cuts}: too few records were seen");
}

/// Returns how many cuts were made: at each end of a record, in each header and in each body.
fn cut_everywhere(version: &'static rustls::SupportedProtocolVersion, resets: bool) -> usize {
    let all = (MESSAGES * MESSAGE_BYTES) as u64;
    let (mut cuts, mut ends) = (0, 0);
    // A handshake and five messages take no more records.
    let places = (0..40).flat_map(|records| [0, 3, 20].map(|bytes| (records, bytes)));
    for (records, bytes) in places {
        let at = CutAt { records, bytes, resets };
        let Some((read, ended, result)) = met(version, at) else {
            // Behind the close_notify and nowhere else, a FIN and a reset alike.
            assert_eq!(ends, 1, "{version:?} {at:?}");
            return cuts;
        };
        cuts += 1;
        if result.is_ok() {
            assert_eq!((read, ended), (all, Some(End::Fin)), "{version:?} {at:?}");
            ends += 1;
            continue;
        }
        let (kind, end) = if resets {
            (ErrorKind::ConnectionReset, End::Reset)
        } else {
            (ErrorKind::UnexpectedEof, End::Truncated)
        };
        assert_eq!((result, ended), (Err(kind), Some(end)), "{version:?} {at:?}");
        assert_eq!(read % MESSAGE_BYTES as u64, 0, "{version:?} {at:?}");
        assert!(read <= all, "{version:?} {at:?}");
    }
    panic!("the server's stream has more records than that");
}

#[test]
fn a_half_closed_side_goes_on_reading_in_tls_1_3() {
    let (mut near, mut far) = pair();
    assert_eq!(near.tls().protocol_version(), Some(ProtocolVersion::TLSv1_3));
    near.write_all(b"that is all").unwrap();
    near.half_close().unwrap();
    assert_eq!(near.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    let mut asked = String::new();
    far.read_to_string(&mut asked).unwrap();
    assert_eq!((asked.as_str(), far.observed_end()), ("that is all", Some(End::Fin)));
    let answering = thread::spawn(move || {
        far.write_all(&[7; 300_000]).unwrap();
        far.finish_with(FinishOptions::default().within(LONG)).unwrap()
    });
    assert_eq!(read_all(&mut near).0, 300_000);
    assert_eq!(near.observed_end(), Some(End::Fin));
    assert!(answering.join().unwrap().all_acked());
}

#[test]
fn a_half_close_is_an_end_in_tls_1_2_too() {
    let (mut near, mut far) = pair_of(client_of(VERSIONS[0]));
    assert_eq!(near.tls().protocol_version(), Some(ProtocolVersion::TLSv1_2));
    near.write_all(b"1.2").unwrap();
    near.half_close().unwrap();
    assert_eq!(read_all(&mut far).0, 3);
    assert_eq!(far.observed_end(), Some(End::Fin));
    far.write_all(b"more").unwrap();
    far.half_close().unwrap();
    assert_eq!(read_all(&mut near).0, 4);
    assert_eq!(near.observed_end(), Some(End::Fin));
}

#[test]
fn dropping_a_stream_is_a_cut_for_the_peer() {
    let (mut near, mut far) = pair();
    // Its session tickets are read, so that the close is no reset.
    far.write_all(b"1").unwrap();
    near.read_exact(&mut [0]).unwrap();
    near.write_all(b"half of it").unwrap();
    drop(near);
    let (bytes, result) = read_all(&mut far);
    let error = result.unwrap_err();
    assert_eq!((bytes, error.kind()), (10, ErrorKind::UnexpectedEof));
    assert_eq!(far.observed_end(), Some(End::Truncated));
    let cut = error.get_ref().and_then(|inner| inner.downcast_ref::<Cut>()).unwrap();
    assert_eq!(*cut, Cut::Truncated { inside: false, read: 10 });
}

#[test]
fn a_record_that_was_changed_on_its_way_is_an_error_at_both_ends() {
    let (listener, target) = (listener(), listener());
    let (over, ready) = (Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(2)));
    let (told, both) = (Arc::clone(&over), Arc::clone(&ready));
    let (address, there) = (listener.local_addr().unwrap(), target.local_addr().unwrap());
    let server = thread::spawn(move || {
        let far = target.accept_within(LONG).unwrap();
        let mut far = TlsStream::accept(far, server(), LONG).unwrap();
        told.store(true, Ordering::SeqCst);
        both.wait();
        let met = read_all(&mut far);
        let refused = far.write(b"x").unwrap_err();
        assert!(far.finish_with(FinishOptions::default().within(LONG)).is_err());
        (met, refused.kind())
    });
    let relay = thread::spawn(move || {
        let near = listener.accept_within(LONG).unwrap();
        let far = TcpStream::connect(there).unwrap();
        let (mut reader, mut writer) = near.into_split();
        let mut back = far.try_clone().unwrap();
        let down = thread::spawn(move || {
            let _ = std::io::copy(&mut back, &mut writer);
            let _ = writer.half_close();
        });
        // What comes after the handshake is changed.
        let mut far = &far;
        while let Some(mut record) = record_of(&mut reader) {
            record[5] ^= u8::from(over.load(Ordering::SeqCst));
            let _ = far.write_all(&record);
        }
        let _ = far.shutdown(std::net::Shutdown::Write);
        down.join().unwrap();
    });
    let mut near = TlsStream::connect(connected(address), client(), NAME, LONG).unwrap();
    ready.wait();
    near.write_all(b"to be changed").unwrap();
    let (_, result) = read_all(&mut near);
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    assert!(error.to_string().contains("BadRecordMac"), "{error}");
    assert_eq!(near.observed_end(), Some(End::Truncated));
    let ((bytes, result), refused) = server.join().unwrap();
    assert_eq!((bytes, result.unwrap_err().kind()), (0, ErrorKind::InvalidData));
    assert_eq!(refused, ErrorKind::InvalidData, "nothing is written after a failure");
    drop(near);
    relay.join().unwrap();
}

#[test]
fn a_failed_handshake_names_both_ends_and_its_alert_arrives() {
    let listener = listener();
    let address = listener.local_addr().unwrap();
    let accepting = thread::spawn(move || {
        let stream = listener.accept_within(LONG).unwrap();
        TlsStream::accept(stream, server(), LONG).unwrap_err()
    });
    // No TLS, and more of it than the server looks at: a plain close would reset the connection.
    let mut plain = connected(address);
    plain.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    plain.write_all(&[b'x'; 50_000]).unwrap();
    let alert = record_of(&mut plain).expect("the alert arrives");
    assert_eq!(alert[0], 21, "it is an alert");
    assert_eq!(read_all(&mut plain).0, 0);
    assert_eq!(plain.observed_end(), Some(End::Fin));
    let error = accepting.join().unwrap();
    assert_eq!(error.operation, Operation::AcceptHandshake);
    let text = error.to_string();
    assert!(text.contains(&plain.local_addr().unwrap().to_string()), "{text}");
    assert!(text.contains(&address.to_string()), "{text}");
    assert!(matches!(*error.cause, Cause::Cut(Cut::Tls { .. })), "{text}");
}

#[test]
fn a_certificate_that_is_not_believed_is_an_error_at_both_ends() {
    let listener = listener();
    let near = connected(listener.local_addr().unwrap());
    let far = listener.accept_within(LONG).unwrap();
    let accepting = thread::spawn(move || TlsStream::accept(far, server(), LONG));
    let error = TlsStream::connect(near, client(), "example.org", LONG).unwrap_err();
    assert!(error.to_string().contains("example.org"), "{error}");
    // In TLS 1.3 the server's handshake waits for the client's Finished, and gets the alert.
    let error = accepting.join().unwrap().unwrap_err();
    let Cause::Cut(Cut::Tls { error, .. }) = *error.cause else { panic!("{error}") };
    assert!(matches!(error, rustls::Error::AlertReceived(_)), "{error}");
    assert_ne!(error, rustls::Error::AlertReceived(AlertDescription::CloseNotify));
}

#[test]
fn a_silent_peer_a_peer_that_leaves_and_a_bad_name_are_told_apart() {
    let listener = listener();
    let address = listener.local_addr().unwrap();
    let connect = |near: Stream, name, time| TlsStream::connect(near, client(), name, time);
    let near = connected(address);
    let silent = listener.accept_within(LONG).unwrap();
    let error = connect(near, NAME, SECOND / 10).unwrap_err();
    assert!(matches!(*error.cause, Cause::Deadline), "{error}");
    drop(silent);
    let near = connected(address);
    let leaves = listener.accept_within(LONG).unwrap();
    let leaving =
        thread::spawn(move || leaves.finish_with(FinishOptions::default().within(LONG)).unwrap());
    let error = connect(near, NAME, LONG).unwrap_err();
    assert!(matches!(*error.cause, Cause::Cut(Cut::Truncated { .. })), "{error}");
    leaving.join().unwrap();
    let near = connected(address);
    let resets = listener.accept_within(LONG).unwrap();
    resets.abort(LONG).unwrap();
    let error = connect(near, NAME, LONG).unwrap_err();
    assert_eq!(std::io::Error::from(error).kind(), ErrorKind::ConnectionReset);
    let error = connect(connected(address), "no name\u{1b}", LONG).unwrap_err();
    assert!(matches!(*error.cause, Cause::Name(_)), "{error}");
    assert!(!error.to_string().contains('\u{1b}'));
}

#[test]
fn the_transport_comes_back_when_tls_is_over_on_both_sides() {
    let (mut near, mut far) = pair();
    near.write_all(b"in TLS").unwrap();
    let near = near.into_inner().expect_err("TLS is not over");
    let mut near = *near;
    near.close_tls().unwrap();
    assert_eq!(read_all(&mut far).0, 6);
    let mut far = *far.into_inner().expect_err("our side said nothing yet");
    far.close_tls().unwrap();
    assert_eq!(read_all(&mut near).0, 0);
    let (mut near, mut far) = (near.into_inner().unwrap(), far.into_inner().unwrap());
    near.write_all(b"plain").unwrap();
    near.finish_with(FinishOptions::default().drain(Drain::Keep)).unwrap();
    let mut plain = String::new();
    far.read_to_string(&mut plain).unwrap();
    assert_eq!((plain.as_str(), far.observed_end()), ("plain", Some(End::Fin)));
}

#[test]
fn bytes_behind_a_close_notify_are_not_taken_for_the_stream() {
    let (listener, target) = (listener(), listener());
    let (address, there) = (listener.local_addr().unwrap(), target.local_addr().unwrap());
    let relay = thread::spawn(move || {
        let near = listener.accept_within(LONG).unwrap();
        let far = TcpStream::connect(there).unwrap();
        let (mut reader, mut writer) = near.into_split();
        let mut back = far.try_clone().unwrap();
        let down = thread::spawn(move || std::io::copy(&mut back, &mut writer));
        let mut far = &far;
        while let Some(mut record) = record_of(&mut reader) {
            // An alert is a header, two bytes, their type and a tag of 16. With it in one write, so
            // that it may come in one read:
            if record.len() == 5 + 2 + 1 + 16 {
                record.extend(b"\x17\x03\x03\x00\x05hello");
            }
            far.write_all(&record).unwrap();
        }
        let _ = far.shutdown(std::net::Shutdown::Write);
        drop(down.join());
    });
    let server = thread::spawn(move || {
        let far = target.accept_within(LONG).unwrap();
        let mut far = TlsStream::accept(far, server(), LONG).unwrap();
        let met = (read_all(&mut far).0, far.observed_end());
        far.close_tls().unwrap();
        (met, far.into_inner().is_ok())
    });
    let mut near = TlsStream::connect(connected(address), client(), NAME, LONG).unwrap();
    near.write_all(b"in TLS").unwrap();
    near.half_close().unwrap();
    let ((bytes, ended), given_back) = server.join().unwrap();
    assert_eq!((bytes, ended), (6, Some(End::Fin)));
    assert!(!given_back, "five bytes would be missing");
    relay.join().unwrap();
}
