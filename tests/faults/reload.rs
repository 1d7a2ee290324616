//! Files that are broken in one way or another when they are read anew: the gate stays what it was, says
//! why, and nobody who is in notices.

use std::fs;
use std::net::{SocketAddr, TcpListener};

use super::streams::{PingPong, connect, echo, ping};
use crate::support::gate::{Gate, asked, stat};
use crate::support::{Scratch, answer};

#[test]
fn whatever_is_wrong_with_a_file_changes_nothing() {
    let scratch = Scratch::new();
    let good = text("0", echo(), "");
    let file = scratch.file("gate.toml", &good);
    let gate = Gate::with_file(&scratch, &file);
    let at = gate.address("a");
    let inside = PingPong::start(at);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let other = SocketAddr::from(([192, 0, 2, 1], 9));
    let in_use =
        format!("{}[[route]]\nlisten = '{taken}'\nforward = 'a:1'\n", text("0", other, ""));
    let cases: [(&[u8], &[&str]); 9] = [
        (b"", &["gate.toml", "route"]),
        (&good.as_bytes()[..good.len() - 5], &["gate.toml:4:"]),
        (b"[[route]\n", &["gate.toml:1:"]),
        (b"[[route]]\nname = '\xff'\n", &["gate.toml"]),
        (b"[[route]]\nlisten = '0'\nforward = 'a:99999'\n", &["gate.toml:3:", "forward", "99999"]),
        (b"[[route]]\nlisten = '0.0.0.0:0'\nsocks5 = true\n", &["gate.toml:2:", "an open proxy"]),
        (
            b"[[route]]\nlisten = '0'\nsocks5 = true\nusers_file = 'gone'\n",
            &["gate.toml:4:", "users_file", "gone"],
        ),
        (
            b"[[route]]\nlisten = '0'\nforward = 'a:1'\n[route.client]\ncongestion = 'nosuch'\n",
            &["gate.toml:5:", "client.congestion", "nosuch"],
        ),
        (in_use.as_bytes(), &[&taken, "in use"]),
    ];
    let mut failed = 0;
    for (bytes, said) in cases {
        fs::write(&file, bytes).unwrap();
        assert_refused(&scratch, said);
        failed += 1;
        ping(&connect(at));
    }
    fs::remove_file(&file).unwrap();
    assert_refused(&scratch, &["gate.toml", "No such file"]);
    fs::create_dir(&file).unwrap();
    assert_refused(&scratch, &["gate.toml", "directory"]);
    fs::remove_dir(&file).unwrap();
    assert_eq!(stat(&scratch, "reloads_failed"), (failed + 2).to_string());
    assert_eq!(stat(&scratch, "reloads"), "0");

    // The same file as before is good again.
    fs::write(&file, &good).unwrap();
    let told = answer(&mut asked(&scratch, &["reload"])).with_code(0);
    assert!(told.stdout.contains("nothing has changed"), "{told:#?}");
    ping(&connect(at));
    eprintln!("{} broken files: meanwhile {}", failed + 2, inside.end());
    gate.signal("TERM");
    gate.ends_with(0);
}

#[track_caller]
fn assert_refused(scratch: &Scratch, said: &[&str]) {
    let told = answer(&mut asked(scratch, &["reload"])).with_code(2);
    for words in [&["nothing is changed"], said].concat() {
        assert!(told.stderr.contains(words), "not said: {words}: {told:#?}");
    }
}

fn text(listen: &str, to: SocketAddr, more: &str) -> String {
    format!("[[route]]\nname = 'a'\nlisten = '{listen}'\nforward = '{to}'\n{more}")
}
