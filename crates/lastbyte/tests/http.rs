//! The example servers on hyper, axum and tower: what they say of a response is what its client saw.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use lastbyte::blocking;

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);
const BYTES: usize = 5_000_000;
const SERVERS: [&str; 3] = ["hyper", "axum", "tower"];

#[test]
#[ignore = "runs the examples, which a plain `cargo test` does not build for it"]
fn a_response_that_was_read_has_arrived() {
    for example in SERVERS {
        let mut server = Server::start(example);
        let mut client = server.ask();
        let mut all = Vec::new();
        client.read_to_end(&mut all).unwrap();
        let head = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        assert_eq!(all.len() - head, BYTES, "{example}");
        drop(client);
        let said = server.says();
        let (written, acked) = (all.len(), all.len());
        assert!(said.contains("arrived; acked: "), "{example}: {said}");
        assert!(said.contains(&format!("{acked} of {written} bytes acked")), "{example}: {said}");
        assert!(!said.contains("not known"), "{example}: {said}");
    }
}

#[test]
#[ignore = "runs the examples, which a plain `cargo test` does not build for it"]
fn a_response_whose_client_aborts_has_not_arrived() {
    for example in SERVERS {
        let mut server = Server::start(example);
        let mut client = blocking::TcpStream::adopt_new(server.ask()).unwrap();
        client.read_exact(&mut [0; 100_000]).unwrap();
        // A reset, with most of the response unread.
        let _ = client.abort(Duration::ZERO);
        let said = server.says();
        assert!(!said.contains("arrived; acked"), "{example}: {said}");
        let cut = said.contains("cut") || said.contains("not known to have arrived");
        assert!(cut, "{example}: {said}");
    }
}

/// Nothing waits for a client that went away before it has asked.
#[test]
#[ignore = "runs the examples, which a plain `cargo test` does not build for it"]
fn a_client_that_asks_for_nothing_gets_nothing() {
    for example in SERVERS {
        let mut server = Server::start(example);
        drop(TcpStream::connect(server.address).unwrap());
        let said = server.says();
        assert!(!said.contains("of 5"), "{example}: {said}");
        // And the next one is served.
        let mut all = Vec::new();
        server.ask().read_to_end(&mut all).unwrap();
        assert!(all.len() > BYTES, "{example}");
        assert!(server.says().contains("arrived; acked"), "{example}");
    }
}

struct Server {
    child: Child,
    address: SocketAddr,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Server {
    fn start(example: &str) -> Self {
        let mut child = Command::new(lastbyte_testing::built(&format!("examples/{example}")))
            .arg("127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        let address = first.strip_prefix("listening on ").and_then(|address| address.parse().ok());
        Self { child, address: address.expect(&first), lines }
    }

    /// Asks for more than fits into the sockets between.
    fn ask(&self) -> TcpStream {
        let mut client = TcpStream::connect(self.address).unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        write!(client, "GET /{BYTES} HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
        client
    }

    /// The next line of what it says.
    fn says(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
