use super::*;

/// Sends all at once; `admitted` is what the machine is told of a user.
fn last_of(machine: &mut HttpConnect, sent: &[u8], admitted: bool) -> Step {
    let mut rest = sent;
    loop {
        match machine.next() {
            Step::More if rest.is_empty() => return Step::More,
            Step::More => {
                let taken = machine.put(rest);
                assert!(taken > 0);
                rest = &rest[taken..];
            }
            Step::Check(_) => machine.on_checked(admitted),
            last => return last,
        }
    }
}

fn asked(sent: impl AsRef<[u8]>) -> Step {
    last_of(&mut HttpConnect::new(false), sent.as_ref(), false)
}

fn to(target: &str) -> Step {
    asked(format!("CONNECT {target} HTTP/1.1\r\nHost: x\r\n\r\n"))
}

fn destination(host: &str, port: u16) -> Step {
    Step::Request(Destination { host: host.to_owned(), port })
}

/// The status of a refusal, and all of it.
fn refused(step: Step) -> (u16, String, How) {
    let Step::Refuse(Refusal { reply, how, .. }) = step else { panic!("{step:?}") };
    let text = String::from_utf8(reply).unwrap();
    (checked(&text), text, how)
}

/// Reads a response as a client would, and returns its status.
fn checked(text: &str) -> u16 {
    let mut fields = [EMPTY_HEADER; 16];
    let mut response = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(head) = response.parse(text.as_bytes()).unwrap() else {
        panic!("{text:?} has no end");
    };
    let fields = &*response.headers;
    let length = named(fields, "Content-Length").next().unwrap();
    let length: usize = std::str::from_utf8(length).unwrap().parse().unwrap();
    assert_eq!(text.len() - head, length);
    assert_eq!(named(fields, "Connection").collect::<Vec<_>>(), [b"close"]);
    assert_eq!(named(fields, "Proxy-Status").count(), 1);
    response.code.unwrap()
}

fn status(step: Step) -> u16 {
    let (status, _, how) = refused(step);
    let wanted = if status == 407 { How::Unauthenticated } else { How::BadRequest };
    assert_eq!(how, wanted);
    status
}

#[test]
fn the_authority_is_a_host_and_a_port() {
    assert_eq!(to("db.example:3306"), destination("db.example", 3306));
    assert_eq!(to("192.0.2.1:1"), destination("192.0.2.1", 1));
    assert_eq!(to("[::1]:443"), destination("::1", 443));
    assert_eq!(to("[2001:DB8::1]:65535"), destination("2001:db8::1", 65535));
    assert_eq!(to("a_b.test.:080"), destination("a_b.test.", 80));
    for target in [
        "host",
        "host:",
        "host:0",
        "host:00",
        "host:99999",
        "host:65536",
        "host:99999999999999999999999",
        "host:+80",
        "host:-1",
        "host:8o",
        "host:80:80",
        ":80",
        "::1:443",
        "[::1]",
        "[::1:443",
        "::1]:443",
        "[]:443",
        "[127.0.0.1]:443",
        "[fe80::1%25lo]:443",
        "[db.example]:443",
        "user@host:80",
        "user:password@host:80",
        "http://host:80",
        "http://host:80/",
        "/",
        "*",
        "host:80/",
        "host/:80",
        "ho%73t:80",
        "host?:80",
        "hos#t:80",
        "b\u{fc}cher.example:80",
    ] {
        assert_eq!(status(to(target)), 400, "{target}");
    }
    for line in ["CONNECT  a:80 HTTP/1.1", "CONNECT a :80 HTTP/1.1", "CONNECT a:80  HTTP/1.1"] {
        assert_eq!(status(asked(format!("{line}\r\nHost: a\r\n\r\n"))), 400, "{line}");
    }
    assert_eq!(status(asked("CONNECT a\0b:80 HTTP/1.1\r\nHost: a\r\n\r\n")), 400);
}

#[test]
fn a_head_is_read_as_the_standard_has_it() {
    assert_eq!(asked("CONNECT a:1 HTTP/1.0\r\n\r\n"), destination("a", 1), "no Host before 1.1");
    assert_eq!(asked("\r\n\r\nCONNECT a:1 HTTP/1.0\n\n"), destination("a", 1));
    assert_eq!(asked("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n"), Step::More);
    for (head, wanted) in [
        ("CONNECT a:1 HTTP/1.1", 400),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a\r\nhost: a", 400),
        ("CONNECT a:1 HTTP/1.1\r\nHost : a", 400),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n folded", 400),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a\rb", 400),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a\0", 400),
        ("CONNECT a:1 HTTP/2.0\r\nHost: a", 400),
        ("CONNECT a:1", 400),
        ("CONNECT", 400),
        ("PRI * HTTP/2.0", 400),
        ("connect a:1 HTTP/1.1\r\nHost: a", 405),
        ("GET http://a/ HTTP/1.1\r\nHost: a", 405),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5", 405),
    ] {
        assert_eq!(status(asked(format!("{head}\r\n\r\n"))), wanted, "{head:?}");
    }
    for first in [&[0x16_u8, 3, 1][..], &[5, 1, 0], &[0], b" CONNECT"] {
        assert_eq!(status(asked(first)), 400, "{first:?}: at once, without an end");
    }
}

/// RFC 9112 section 11.2: what one reads as content, another reads as the next request.
#[test]
fn content_is_refused() {
    let with = |field: &str| {
        let head = format!("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n");
        asked(head)
    };
    for field in [
        "Content-Length: 5",
        "content-length: 00",
        "Content-Length: 0, 5",
        "Content-Length: 0\r\nContent-Length: 5",
        "Content-Length: +0",
        "Content-Length:",
        "Transfer-Encoding: chunked",
        "TRANSFER-ENCODING: identity",
    ] {
        assert_eq!(status(with(field)), 400, "{field}");
    }
    assert_eq!(with("Content-Length: 0"), destination("a", 1), "some clients say so");
}

#[test]
fn other_methods_hear_which_there_is() {
    let (_, get, _) = refused(asked("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert!(get.contains("\r\nAllow: CONNECT\r\n"), "{get}");
    assert!(get.ends_with("\r\n\r\nthis proxy makes tunnels, by the method CONNECT alone\n"));
    let (status, head, _) = refused(asked("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_eq!(status, 405);
    assert!(head.ends_with("\r\n\r\n"), "an answer to HEAD has no content: {head}");
}

#[test]
fn a_head_has_its_bounds() {
    let long = |bytes: usize| {
        let head = "CONNECT a:1 HTTP/1.1\r\nHost: a\r\nX: ";
        format!("{head}{}\r\n\r\n", "x".repeat(bytes - head.len() - 4))
    };
    assert_eq!(asked(long(8192)), destination("a", 1));
    assert_eq!(status(asked(long(8193))), 431);
    assert_eq!(status(asked("\n".repeat(9000))), 400);
    let many = |fields: usize| {
        let fields: String = (1..fields).map(|number| format!("X{number}: x\r\n")).collect();
        asked(format!("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n{fields}\r\n"))
    };
    assert_eq!(many(64), destination("a", 1));
    assert_eq!(status(many(65)), 431);
}

#[test]
fn what_comes_behind_the_head_is_kept() {
    let data: &[u8] = b"\x16\x03\x01CONNECT b:2 HTTP/1.1\r\n\r\n";
    let sent = [b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", data].concat();
    let mut machine = HttpConnect::new(false);
    assert_eq!(last_of(&mut machine, &sent, false), destination("a", 1));
    assert_eq!(machine.next(), Step::More, "there is no second request");
    assert_eq!(machine.into_rest(), data);
}

#[test]
fn only_who_is_admitted_may_ask() {
    let ask = |field: &str, admitted: bool| {
        let head = format!("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n{field}\r\n");
        last_of(&mut HttpConnect::new(true), head.as_bytes(), admitted)
    };
    let good = "Proxy-Authorization: Basic dTpw\r\n";
    assert_eq!(ask(good, true), destination("a", 1));
    assert_eq!(ask("proxy-authorization: bASIC   dTpw  \r\n", true), destination("a", 1));
    for (field, admitted) in [
        ("", true),
        (good, false),
        (&[good, good].concat(), true),
        ("Authorization: Basic dTpw\r\n", true),
        ("Proxy-Authorization: Basic\r\n", true),
        ("Proxy-Authorization: Basic dTp\r\n", true),
        ("Proxy-Authorization: Basic dXA=\r\n", true),
        ("Proxy-Authorization: Basic !!!!\r\n", true),
        ("Proxy-Authorization: Bearer dTpw\r\n", true),
        ("Proxy-Authorization: BasicdTpw\r\n", true),
        ("Proxy-Authorization:\r\n", true),
    ] {
        let (status, text, how) = refused(ask(field, admitted));
        assert_eq!((status, how), (407, How::Unauthenticated), "{field}");
        assert!(text.contains("\r\nProxy-Authenticate: Basic realm="), "{text}");
    }
    // Without users nobody looks at it.
    let head = format!("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n{good}\r\n");
    assert_eq!(asked(head), destination("a", 1));
}

#[test]
fn a_name_ends_at_the_first_colon() {
    let who = |text: &str| {
        let value = format!("Basic {}", BASE64.encode(text.as_bytes()));
        basic(value.as_bytes()).map(|Credentials { name, password }| {
            [name, password].map(|part| String::from_utf8(part).unwrap())
        })
    };
    assert_eq!(who("u:p:q").unwrap(), ["u", "p:q"]);
    assert_eq!(who(":").unwrap(), ["", ""]);
    assert_eq!(who("u"), None);
}

#[test]
fn failures_are_said_as_rfc_9209_has_them() {
    for (how, status, error) in [
        (How::Refused, 502, "connection_refused"),
        (How::Unreachable, 502, "destination_ip_unroutable"),
        (How::Unresolved, 502, "dns_error"),
        (How::ConnectTimeout, 504, "connection_timeout"),
        (How::NotAllowed, 403, "http_request_denied"),
        (How::Loop, 502, "proxy_loop_detected"),
        (How::TooManyDials, 503, "connection_limit_reached"),
        (How::Failed, 502, "proxy_internal_error"),
    ] {
        let text = String::from_utf8(failure(how)).unwrap();
        assert_eq!(checked(&text), status, "{how}");
        assert!(text.contains(&format!("\r\nProxy-Status: lastbyte; error={error}\r\n")), "{text}");
    }
}

#[test]
fn who_is_too_late_is_told_if_it_spoke() {
    let mut machine = HttpConnect::new(false);
    assert!(machine.timeout_reply().is_empty());
    assert_eq!(last_of(&mut machine, b"CONNECT", false), Step::More);
    assert_eq!(checked(std::str::from_utf8(&machine.timeout_reply()).unwrap()), 408);
}
