//! The example servers, asked by clients that others wrote, by clients that send too much, and by
//! thousands at once.
//!
//! These take their time: `make test-real` runs them.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

use lastbyte::End;
use lastbyte::blocking;
use lastbyte::tls::blocking::TlsStream;
use lastbyte::tls::client_config;
use lastbyte::tls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use lastbyte::tls::rustls::crypto::ring::default_provider;
use lastbyte::tls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use lastbyte::tls::rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);
const BINARY_BYTES: usize = 5_000_000;
const TEXT: &str = "a line\r\nanother\n.hidden\n..\n.\nno end of line";
/// The text as Gopher sends it.
const STUFFED: &str = "a line\r\nanother\r\n..hidden\r\n...\r\n..\r\nno end of line\r\n.\r\n";
/// Behind a request, and read by nobody: with that unread a plain close is a reset.
const TOO_MUCH: [u8; 10_000] = [b'x'; 10_000];

#[test]
#[ignore = "needs curl"]
fn curl_gets_every_byte_by_gopher() {
    if !is_there("curl") {
        return;
    }
    let folder = folder("curl");
    let server = Server::start("gopher", &folder);
    let get = |path: &str| {
        let url = format!("gopher://{}/{path}", server.address);
        let said = output(Command::new("curl").args(["-sS", "--max-time", "30", &url]));
        assert!(said.status.success(), "{url}: {}", String::from_utf8_lossy(&said.stderr));
        said.stdout
    };
    let (ip, port) = (server.address.ip(), server.address.port());
    let menu: String = ["9big.bin\t/big.bin", "1sub\t/sub", "0text.txt\t/text.txt"]
        .map(|item| format!("{item}\t{ip}\t{port}\r\n"))
        .concat();
    assert_eq!(String::from_utf8(get("")).unwrap(), menu + ".\r\n");
    assert_eq!(String::from_utf8(get("0/text.txt")).unwrap(), STUFFED);
    assert!(get("9/big.bin") == binary(), "the 5 MB differ");
    let inner = format!("0inner.gmi\t/sub/inner.gmi\t{ip}\t{port}\r\n.\r\n");
    assert_eq!(String::from_utf8(get("1/sub")).unwrap(), inner);
    let outside = ["0/outside", "0/sub/%2e%2e/%2e%2e/outside", "0/.hidden", "0/%1b%5b2J", "0/pipe"];
    for outside in outside {
        assert!(get(outside).starts_with(b"3"), "{outside} is an error");
    }
    let log = server.stop();
    assert!(!log.contains('\u{1b}'), "{log}");
    let receipts = log.lines().filter(|line| line.contains("acked: "));
    assert_eq!(receipts.count(), 9, "{log}");
}

#[test]
#[ignore = "needs the client that scripts/ensure.sh installs"]
fn a_gemini_client_gets_every_byte() {
    let Some(python) = python_with_ignition() else { return };
    let folder = folder("gemini");
    let server = Server::start("gemini", &folder);
    let fetch = |path: &str| {
        let (to, url) = (folder.join("fetched"), format!("gemini://{}{path}", server.address));
        let hosts = folder.join("hosts");
        let said = output(Command::new(&python).args(["-c", IGNITION, &url]).args([&hosts, &to]));
        let status = String::from_utf8_lossy(&said.stdout).trim().to_owned();
        assert!(said.status.success(), "{url}: {}", String::from_utf8_lossy(&said.stderr));
        (status, fs::read(to).unwrap())
    };
    let (status, list) = fetch("/");
    assert_eq!(status, "20 text/gemini");
    let links = "# /\n\n=> ./big.bin big.bin\n=> ./sub/ sub/\n=> ./text.txt text.txt\n";
    assert_eq!(String::from_utf8(list).unwrap(), links);
    assert_eq!(fetch("/text.txt"), ("20 text/plain".to_owned(), TEXT.into()));
    let (status, big) = fetch("/big.bin");
    assert_eq!(status, "20 application/octet-stream");
    assert!(big == binary(), "the 5 MB differ");
    assert_eq!(fetch("/sub").0, "31 /sub/");
    for outside in ["/outside", "/sub/%2e%2e/%2e%2e/outside", "/.hidden", "/pipe"] {
        assert_eq!(fetch(outside).0, "51 there is no such thing", "{outside}");
    }
    let log = server.stop();
    assert_eq!(log.lines().filter(|line| line.contains("acked: ")).count(), 8, "{log}");
}

/// Fetches one URL with ignition, which forgets to import what newer versions of its library want.
const IGNITION: &str = "
import sys, cryptography.hazmat.primitives.hashes, cryptography.hazmat.primitives.serialization
import ignition
url, hosts, to = sys.argv[1:]
ignition.set_default_hosts_file(hosts)
response = ignition.request(url, timeout=30)
print(response.status, response.meta)
open(to, 'wb').write(response.raw_body if response.status == '20' else b'')
";

#[test]
#[ignore = "asks a hundred times for 5 MB"]
fn a_client_that_sends_too_much_gets_every_byte_by_gopher() {
    let folder = folder("too-much-gopher");
    let server = Server::start("gopher", &folder);
    let complete = (0..100).filter(|_| {
        let mut client = TcpStream::connect(server.address).unwrap();
        client.write_all(b"/big.bin\r\nextra").unwrap();
        client.write_all(&TOO_MUCH).unwrap();
        let mut all = Vec::new();
        client.read_to_end(&mut all).is_ok() && all == binary()
    });
    assert_eq!(complete.count(), 100);
    server.stop();
}

#[test]
#[ignore = "asks a hundred times for 5 MB"]
fn a_client_that_sends_too_much_gets_every_byte_by_gemini() {
    let folder = folder("too-much-gemini");
    let server = Server::start("gemini", &folder);
    let complete = (0..100).filter(|_| {
        let client = blocking::TcpStream::connect(server.address).unwrap();
        let mut client = TlsStream::connect(client, believes_all(), "localhost", LONG).unwrap();
        write!(client, "gemini://{}/big.bin\r\nextra", server.address).unwrap();
        client.write_all(&TOO_MUCH).unwrap();
        let mut all = Vec::new();
        let read = client.read_to_end(&mut all);
        let body = all.strip_prefix(b"20 application/octet-stream\r\n");
        read.is_ok() && body == Some(binary()) && client.observed_end() == Some(End::Fin)
    });
    assert_eq!(complete.count(), 100);
    server.stop();
}

#[test]
#[ignore = "opens thousands of connections"]
fn thousands_at_once_are_answered() {
    let most = descriptors().saturating_sub(200).min(3000);
    if most < 1500 {
        lastbyte_testing::not_tested!("only {} descriptors are allowed here", descriptors());
        return;
    }
    let folder = folder("thousands");
    let server = Server::start("gopher", &folder);
    let mut clients: Vec<TcpStream> =
        (0..most).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    for client in &mut clients {
        client.write_all(b"/text.txt\r\n").unwrap();
    }
    for client in &mut clients {
        client.set_read_timeout(Some(LONG)).unwrap();
        let mut all = String::new();
        client.read_to_string(&mut all).unwrap();
        assert_eq!(all, STUFFED);
    }
    drop(clients);
    let log = server.stop();
    let receipts = log.lines().filter(|line| line.contains("acked: ")).count();
    assert_eq!(receipts, most);
}

#[test]
#[ignore = "builds the examples"]
fn a_long_request_is_refused_and_a_server_that_is_told_to_stop_ends_what_it_began() {
    let folder = folder("stop");
    let server = Server::start("gopher", &folder);
    let mut long = TcpStream::connect(server.address).unwrap();
    long.write_all(&[b'a'; 258]).unwrap();
    let mut answer = String::new();
    long.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("3a request has at most 255 bytes\t"), "{answer:?}");
    assert!(server.log.recv_timeout(LONG).unwrap().contains("acked: "));
    // One that has begun, with more than fits into the sockets between.
    let mut slow = TcpStream::connect(server.address).unwrap();
    slow.write_all(b"/big.bin\r\n").unwrap();
    let mut all = vec![0; 1000];
    slow.read_exact(&mut all).unwrap();
    server.interrupt();
    let stopped = server.log.recv_timeout(LONG).unwrap();
    assert_eq!(stopped, "stopped accepting; 1 connections go on");
    assert!(TcpStream::connect(server.address).is_err(), "nobody listens");
    slow.read_to_end(&mut all).unwrap();
    assert!(all == binary(), "the 5 MB differ");
    let log = server.wait();
    assert!(log.contains("`/big.bin` binary; ") && log.ends_with("all ended\n"), "{log}");
}

// --- the servers --------------------------------------------------------------------------------

struct Server {
    child: Child,
    address: SocketAddr,
    log: Receiver<String>,
}

impl Server {
    fn start(example: &str, folder: &Path) -> Self {
        let site = folder.join("site");
        let mut child = Command::new(lastbyte_testing::built(&format!("examples/{example}")))
            .arg(site)
            .arg("127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        let address = first.strip_prefix("listening on ").and_then(|rest| rest.split(',').next());
        let address = address.and_then(|address| address.parse().ok()).expect(&first);
        let (sender, log) = channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self { child, address, log }
    }

    fn interrupt(&self) {
        let told = output(Command::new("kill").arg("-INT").arg(self.child.id().to_string()));
        assert!(told.status.success());
    }

    /// Ends it as Ctrl-C does, and returns its log.
    fn stop(self) -> String {
        self.interrupt();
        self.wait()
    }

    /// Its log, once it has ended by itself.
    fn wait(mut self) -> String {
        let mut log = String::new();
        // The log ends when the server does.
        while let Ok(line) = self.log.recv_timeout(LONG) {
            log += &(line + "\n");
        }
        assert!(self.child.wait().unwrap().success(), "{log}");
        log
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder of this test alone: `site` is served, and `outside` lies beside it.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("servers-{name}"));
    let _ = fs::remove_dir_all(&folder);
    let site = folder.join("site");
    fs::create_dir_all(site.join("sub")).unwrap();
    fs::write(site.join("text.txt"), TEXT).unwrap();
    fs::write(site.join("big.bin"), binary()).unwrap();
    fs::write(site.join("sub/inner.gmi"), "# inner\n").unwrap();
    fs::write(site.join(".hidden"), "hidden").unwrap();
    fs::write(folder.join("outside"), "outside").unwrap();
    std::os::unix::fs::symlink("../outside", site.join("outside")).unwrap();
    // Opening it would wait for a writer.
    let made = output(Command::new("mkfifo").arg(site.join("pipe")));
    assert!(made.status.success());
    folder
}

/// The same bytes every time, and no pattern in them.
fn binary() -> &'static [u8] {
    static BINARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut state = 1_u64;
        let next = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_be_bytes()[0]
        };
        (0..BINARY_BYTES).map(next).collect()
    });
    &BINARY
}

// --- the clients --------------------------------------------------------------------------------

fn output(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}

fn is_there(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    if !there {
        lastbyte_testing::not_tested!("there is no {program}");
    }
    there
}

/// The Python that has ignition, a client for Gemini.
fn python_with_ignition() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = root.join("target/tools/gemini/bin/python");
    let tried = Command::new(&python).args(["-c", "import ignition"]).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        lastbyte_testing::not_tested!("ignition-gemini is missing: run `scripts/ensure.sh real`");
        return None;
    }
    Some(python)
}

/// How many descriptors this process may have.
fn descriptors() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    line.split_whitespace().nth(3).unwrap().parse().unwrap_or(usize::MAX)
}

/// A client's configuration for a server whose certificate nobody has signed.
fn believes_all() -> Arc<ClientConfig> {
    let config = client_config(RootCertStore::empty()).unwrap();
    let mut config = Arc::unwrap_or_clone(config);
    config.dangerous().set_certificate_verifier(Arc::new(Anybody));
    Arc::new(config)
}

#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}
