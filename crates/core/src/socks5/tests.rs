use super::*;
use crate::request::RequestReader;

const GREETING: &[u8] = &[5, 1, 0];
const GREETING_WITH_NAME: &[u8] = &[5, 2, 0, 2];

/// Sends all at once, and does what the machine says; `admitted` is what it is told of a user.
fn steps_of(machine: &mut Socks5, sent: &[u8], admitted: bool) -> Vec<Step> {
    let mut rest = sent;
    let mut steps = Vec::new();
    loop {
        let step = machine.next();
        match &step {
            Step::More if rest.is_empty() => return steps,
            Step::More => {
                let taken = machine.put(rest);
                assert!(taken > 0);
                rest = &rest[taken..];
                continue;
            }
            Step::Check(_) => machine.on_checked(admitted),
            _ => {}
        }
        steps.push(step);
        if matches!(steps.last(), Some(Step::Request(_) | Step::Refuse(_))) {
            return steps;
        }
    }
}

/// The last step of a client that needs no password and asks for this.
fn asked(request: &[u8]) -> Step {
    let sent = [GREETING, request].concat();
    let mut steps = steps_of(&mut Socks5::new(false), &sent, false);
    assert_eq!(steps[0], Step::Reply(vec![5, 0]));
    assert_eq!(steps.len(), 2, "{steps:?}");
    steps.remove(1)
}

fn destination(host: &str, port: u16) -> Step {
    Step::Request(Destination { host: host.to_owned(), port })
}

fn named(name: &[u8], port: u16) -> Vec<u8> {
    let length = u8::try_from(name.len()).unwrap();
    [&[5, 1, 0, 3, length][..], name, &port.to_be_bytes()].concat()
}

/// The reply's code and the word for it.
fn refused(step: Step) -> (Vec<u8>, How) {
    match step {
        Step::Refuse(Refusal { reply, how, .. }) => (reply, how),
        other => panic!("{other:?}"),
    }
}

fn code(request: &[u8]) -> u8 {
    let (reply, how) = refused(asked(request));
    assert_eq!((reply.len(), reply[0], how), (10, 5, How::BadRequest), "{request:?}");
    reply[1]
}

#[test]
fn every_type_of_address_is_understood() {
    assert_eq!(asked(&[5, 1, 0, 1, 192, 0, 2, 1, 0x1F, 0x90]), destination("192.0.2.1", 8080));
    let mut v6 = vec![5, 1, 0, 4];
    v6.extend("2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
    v6.extend(443_u16.to_be_bytes());
    assert_eq!(asked(&v6), destination("2001:db8::1", 443));
    assert_eq!(asked(&named(b"db.example", 3306)), destination("db.example", 3306));
    assert_eq!(asked(&named(b"127.0.0.1", 1)), destination("127.0.0.1", 1), "a literal by name");
    assert_eq!(asked(&named("bücher.example".as_bytes(), 1)), destination("bücher.example", 1));
    assert_eq!(asked(&named(&[b'a'; 255], 65535)), destination(&"a".repeat(255), 65535));
    // The reserved byte means nothing.
    assert_eq!(asked(&[5, 1, 9, 1, 1, 2, 3, 4, 0, 1]), destination("1.2.3.4", 1));
}

#[test]
fn what_cannot_be_done_has_its_own_reply() {
    for command in [2, 3] {
        assert_eq!(code(&[5, command, 0, 1, 1, 2, 3, 4, 0, 1]), 7);
    }
    assert_eq!(code(&[5, 0, 0, 1, 1, 2, 3, 4, 0, 1]), 7);
    assert_eq!(code(&[5, 1, 0, 2, 1, 2, 3, 4, 0, 1]), 8);
    assert_eq!(code(&[5, 1, 0, 1, 1, 2, 3, 4, 0, 0]), 1, "port 0");
    assert_eq!(code(&[4, 1, 0, 1, 1, 2, 3, 4, 0, 1]), 1, "another version");
    for name in [&b""[..], b"a\0b", b"a b", b"a\n", b"\x7f", b"\xff\xfe", "a\u{a0}b".as_bytes()] {
        assert_eq!(code(&named(name, 80)), 1, "{name:?}");
    }
}

#[test]
fn other_versions_are_not_answered() {
    for first in [&[4, 1][..], b"GET / HTTP/1.1\r\n", &[0x16, 3, 1], &[0]] {
        let mut steps = steps_of(&mut Socks5::new(false), first, false);
        assert_eq!(refused(steps.remove(0)), (Vec::new(), How::BadRequest));
    }
}

#[test]
fn the_method_is_the_one_that_is_wanted() {
    let first = |authenticate: bool, sent: &[u8]| {
        steps_of(&mut Socks5::new(authenticate), sent, false).into_iter().next()
    };
    let methods: Vec<u8> = [5, 255].into_iter().chain((0..255).rev()).collect();
    assert_eq!(first(false, &methods), Some(Step::Reply(vec![5, 0])));
    assert_eq!(first(true, &methods), Some(Step::Reply(vec![5, 2])));
    assert_eq!(first(true, &methods[..200]), None, "they are not all there");
    for (authenticate, sent, how) in [
        (true, GREETING, How::Unauthenticated),
        (true, &[5, 0][..], How::Unauthenticated),
        (false, &[5, 1, 2], How::BadRequest),
        (false, &[5, 0], How::BadRequest),
    ] {
        let first = first(authenticate, sent).unwrap();
        assert_eq!(refused(first), (vec![5, 0xFF], how), "{sent:?}");
    }
}

#[test]
fn only_who_is_admitted_may_ask() {
    let request = [5, 1, 0, 1, 1, 2, 3, 4, 0, 1];
    let sent = [GREETING_WITH_NAME, &[1, 1, b'u', 2, b'p', b'w'], &request].concat();
    let check = Step::Check(Credentials { name: b"u".to_vec(), password: b"pw".to_vec() });
    let admitted = steps_of(&mut Socks5::new(true), &sent, true);
    let [method, yes] = [vec![5, 2], vec![1, 0]].map(Step::Reply);
    assert_eq!(admitted, [method.clone(), check.clone(), yes, destination("1.2.3.4", 1)]);
    let mut not = steps_of(&mut Socks5::new(true), &sent, false);
    assert_eq!(refused(not.pop().unwrap()), (vec![1, 1], How::Unauthenticated));
    assert_eq!(not, [method, check]);
    // Nobody is asked who cannot be understood.
    let sent = [GREETING_WITH_NAME, &[5, 1, b'u', 0]].concat();
    let mut bad = steps_of(&mut Socks5::new(true), &sent, true);
    assert_eq!(refused(bad.remove(1)), (vec![1, 1], How::BadRequest));
}

#[test]
fn the_longest_name_and_password_fit() {
    let half = [&[255][..], &[b'x'; 255]].concat();
    let sent = [GREETING_WITH_NAME, &[1], &half, &half, &named(&[b'h'; 255], 7)].concat();
    let steps = steps_of(&mut Socks5::new(true), &sent, true);
    let long = vec![b'x'; 255];
    assert_eq!(steps[1], Step::Check(Credentials { name: long.clone(), password: long }));
    assert_eq!(steps[3], destination(&"h".repeat(255), 7));
    assert!(!format!("{:?}", steps[1]).contains("password"), "it is never shown");
}

#[test]
fn an_empty_password_is_one_to_check() {
    let sent = [GREETING_WITH_NAME, &[1, 0, 0]].concat();
    let steps = steps_of(&mut Socks5::new(true), &sent, false);
    assert_eq!(steps[1], Step::Check(Credentials { name: Vec::new(), password: Vec::new() }));
}

#[test]
fn what_comes_behind_the_request_is_kept() {
    let sent = [GREETING, &named(b"a", 80), b"GET / HTTP/1.1\r\n\r\n"].concat();
    let mut machine = Socks5::new(false);
    assert_eq!(steps_of(&mut machine, &sent, false)[1], destination("a", 80));
    assert_eq!(machine.next(), Step::More, "there is nothing more to be done");
    assert_eq!(machine.into_rest(), b"GET / HTTP/1.1\r\n\r\n");
}

#[test]
fn who_is_too_late_is_told_where_there_are_words() {
    let mut machine = Socks5::new(false);
    assert!(machine.timeout_reply().is_empty());
    steps_of(&mut machine, GREETING, false);
    assert_eq!(machine.timeout_reply(), reply(Rep::GeneralFailure, None));
}

#[test]
fn replies_have_the_codes_of_the_standard_and_the_address() {
    for (how, code) in [
        (How::Refused, 5),
        (How::Unreachable, 3),
        (How::Unresolved, 4),
        (How::ConnectTimeout, 6),
        (How::NotAllowed, 2),
        (How::Loop, 2),
        (How::TooManyDials, 1),
        (How::Failed, 1),
    ] {
        assert_eq!(Rep::of(how) as u8, code, "{how}");
    }
    let reply = |bound: &str| reply(Rep::Succeeded, Some(bound.parse().unwrap()));
    assert_eq!(reply("192.0.2.1:258"), [5, 0, 0, 1, 192, 0, 2, 1, 1, 2]);
    assert_eq!(reply("[::ffff:192.0.2.1]:258"), [5, 0, 0, 1, 192, 0, 2, 1, 1, 2]);
    let v6 = reply("[2001:db8::1]:258");
    assert_eq!((v6.len(), &v6[..6], &v6[19..]), (22, &[5, 0, 0, 4, 0x20, 1][..], &[1, 1, 2][..]));
    assert_eq!(super::reply(Rep::GeneralFailure, None), [5, 1, 0, 1, 0, 0, 0, 0, 0, 0]);
}
