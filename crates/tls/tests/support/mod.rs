//! Certificates, pairs of streams, and somebody on the path between them.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lastbyte_socket::blocking::{Stream, TcpListener};
use lastbyte_socket::{ConnectOptions, FinishOptions};
use lastbyte_tls::blocking::TlsStream;
use lastbyte_tls::rustls::crypto::ring::default_provider;
use lastbyte_tls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use lastbyte_tls::rustls::version::{TLS12, TLS13};
use lastbyte_tls::rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use lastbyte_tls::{client_config, server_config};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// Longer than anything here takes; reached, it is a failure.
pub(crate) const LONG: Duration = Duration::from_secs(30);
pub(crate) const NAME: &str = "localhost";
pub(crate) const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

struct Made {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    roots: RootCertStore,
}

static MADE: LazyLock<Made> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    Made { chain: vec![made.cert.der().clone()], key: key.into(), roots }
});

pub(crate) fn server() -> Arc<ServerConfig> {
    server_config(MADE.chain.clone(), MADE.key.clone_key()).unwrap()
}

pub(crate) fn client() -> Arc<ClientConfig> {
    client_config(MADE.roots.clone()).unwrap()
}

/// A client that speaks one version alone.
pub(crate) fn client_of(version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[version])
        .unwrap();
    Arc::new(config.with_root_certificates(MADE.roots.clone()).with_no_client_auth())
}

pub(crate) fn listener() -> TcpListener {
    TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap()
}

pub(crate) fn connected(address: SocketAddr) -> Stream {
    Stream::connect_with(address, &ConnectOptions::default().within(SECOND)).unwrap()
}

/// A client and a server, after the handshake.
pub(crate) fn pair() -> (TlsStream, TlsStream) {
    pair_of(client())
}

pub(crate) fn pair_of(config: Arc<ClientConfig>) -> (TlsStream, TlsStream) {
    let listener = listener();
    let near = connected(listener.local_addr().unwrap());
    let far = listener.accept_within(SECOND).unwrap();
    let far = thread::spawn(move || TlsStream::accept(far, server(), LONG).unwrap());
    let near = TlsStream::connect(near, config, NAME, LONG).unwrap();
    (near, far.join().unwrap())
}

/// Reads to the end, whatever it is; returns how many bytes came.
pub(crate) fn read_all(stream: &mut impl Read) -> (u64, io::Result<()>) {
    let (mut total, mut room) = (0, vec![0; 65_536]);
    loop {
        match stream.read(&mut room) {
            Ok(0) => return (total, Ok(())),
            Ok(bytes) => total += bytes as u64,
            Err(error) => return (total, Err(error)),
        }
    }
}

/// Where somebody on the path cuts what the server sends: after so many whole records and, of the
/// next one, so many bytes; and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CutAt {
    pub(crate) records: usize,
    pub(crate) bytes: usize,
    pub(crate) resets: bool,
}

/// Relays one connection to `server`, and cuts it. Returns the address to connect to, and whether
/// the place of the cut was reached before the server's stream ended.
pub(crate) fn cutter(server: SocketAddr, at: CutAt) -> (SocketAddr, JoinHandle<bool>) {
    let listener = listener();
    let address = listener.local_addr().unwrap();
    let relay = thread::spawn(move || {
        let near = listener.accept_within(LONG).unwrap();
        near.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let far = TcpStream::connect(server).unwrap();
        let (mut reader, mut writer) = near.into_split();
        let (mut up, over) = (far.try_clone().unwrap(), Arc::new(AtomicBool::new(false)));
        let told = Arc::clone(&over);
        let upward = thread::spawn(move || {
            let mut room = [0; 65_536];
            while !told.load(Ordering::SeqCst) {
                match reader.read(&mut room) {
                    Ok(0) => break,
                    Ok(bytes) => up.write_all(&room[..bytes]).unwrap_or(()),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => break,
                }
            }
            reader
        });
        let cut = relay_records(&far, &mut writer, at).unwrap();
        over.store(true, Ordering::SeqCst);
        let near = upward.join().unwrap().reunite(writer).unwrap();
        let _ = if at.resets {
            near.abort(LONG)
        } else {
            near.finish_with(FinishOptions::default().within(LONG))
        };
        cut
    });
    (address, relay)
}

fn relay_records(mut from: &TcpStream, to: &mut impl Write, at: CutAt) -> io::Result<bool> {
    for _ in 0..at.records {
        let Some(record) = record_of(&mut from) else { return Ok(false) };
        to.write_all(&record)?;
    }
    if at.bytes > 0 {
        let Some(record) = record_of(&mut from) else { return Ok(false) };
        to.write_all(&record[..at.bytes.min(record.len() - 1)])?;
    }
    Ok(true)
}

/// The next record, with its header (RFC 8446 section 5.1); `None` at the end.
pub(crate) fn record_of(from: &mut impl Read) -> Option<Vec<u8>> {
    let mut record = vec![0; 5];
    from.read_exact(&mut record).ok()?;
    record.resize(5 + usize::from(u16::from_be_bytes([record[3], record[4]])), 0);
    from.read_exact(&mut record[5..]).ok()?;
    Some(record)
}
