//! Clients of a proxy that ask for what is not for them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};

use super::requests::{http, socks5_by_name};
use super::streams::{connect, echo};
use crate::support::Scratch;
use crate::support::gate::Gate;

/// What others reach is no way to what listens on the gate's own loopback, by whatever name; a list can
/// make it one, and can close one on loopback.
#[test]
fn what_is_near_is_not_reached_through_a_proxy_for_others() {
    let near = ["--reach", "127.0.0.0/8", "--reach", "::1"];
    for (at, reach, is_reached) in [
        ("0.0.0.0:0", &[][..], false),
        ("0.0.0.0:0", &near, true),
        ("0.0.0.0:0", &["--reach", "192.0.2.0/24"], false),
        ("127.0.0.1:0", &[], true),
        ("127.0.0.1:0", &["--reach", "192.0.2.0/24"], false),
    ] {
        let echo = echo();
        let by_name = socks5_by_name("localhost", echo.port());
        let by_address = socks5_by_name("127.0.0.1", echo.port());
        let mapped: SocketAddr = format!("[::ffff:127.0.0.1]:{}", echo.port()).parse().unwrap();
        let refused = (&b"\x05\x00\x05\x02"[..], &b"HTTP/1.1 403 "[..]);
        let joined = (&b"\x05\x00\x05\x00"[..], &b"HTTP/1.1 200 "[..]);
        let (socks5_says, http_says) = if is_reached { joined } else { refused };
        for (proxy, request, says) in [
            ("socks5", by_name, socks5_says),
            ("socks5", by_address, socks5_says),
            ("http-connect", http(echo), http_says),
            ("http-connect", http(mapped), http_says),
        ] {
            let scratch = Scratch::new();
            let route = format!("{proxy}://{at}");
            let words = [&[&route[..], "--allow", "127.0.0.0/8", "--log", "json"], reach].concat();
            let gate = Gate::start(&scratch, &words);
            let mut client = connect((Ipv4Addr::LOCALHOST, gate.listening().port()).into());
            client.write_all(&request).unwrap();
            let mut answer = vec![0; says.len()];
            client.read_exact(&mut answer).unwrap();
            let asked = String::from_utf8_lossy(&request);
            assert_eq!(answer, says, "{route} {reach:?}: {asked:?}");
            drop(client);
            let account = &gate.accounts(1)[0];
            assert_eq!(account["ended_how"] == "not_allowed", !is_reached, "{account}");
        }
    }
}
