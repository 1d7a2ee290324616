//! A small Gemini server (<https://geminiprotocol.net/docs/protocol-specification.gmi>) that knows
//! whether each response arrived.
//!
//! ```text
//! cargo run --example gemini -- FOLDER [ADDRESS [NAME]]
//! ```
//!
//! A Gemini response has no length: only `close_notify` distinguishes a complete file from a
//! truncated one. This server finishes every connection, and resets one whose response is
//! incomplete. It makes a new certificate at each start: clients that remember the last one will
//! ask.

#![allow(clippy::print_stdout, reason = "an example talks")]

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use lastbyte::Stream;
use lastbyte::tls::rustls::ServerConfig;
use lastbyte::tls::rustls::pki_types::PrivatePkcs8KeyDer;
use lastbyte::tls::{TlsStream, server_config};

mod served;
use served::{Args, Folder, Found, escaped, finish_options, line_of, media_type, send, send_file};

/// The longest URL of a request, by the specification.
const URL_BYTES: usize = 1024;

const PORT: u16 = 1965;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Args { folder, listener, name } = Args::from_env(PORT).await?;
    let name = name.unwrap_or_else(|| "localhost".to_owned());
    let local = listener.local_addr()?;
    let made = rcgen::generate_simple_self_signed([name.clone(), local.ip().to_string()])?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let tls = server_config(vec![made.cert.der().clone()], key.into())?;
    let site = Arc::new(Site { folder, name, tls });
    served::serve(listener, |stream| talk(Arc::clone(&site), stream)).await
}

struct Site {
    folder: Folder,
    name: String,
    tls: Arc<ServerConfig>,
}

/// One connection, from its handshake to its receipt. Returns its line of the log.
async fn talk(site: Arc<Site>, stream: Stream) -> String {
    let ends = stream.endpoints();
    let Ok(local) = stream.local_addr() else { return format!("{ends} is gone") };
    let tls = Arc::clone(&site.tls);
    let mut stream = match TlsStream::accept(stream, tls, served::REQUEST_TIME).await {
        Ok(stream) => stream,
        Err(error) => return error.to_string(),
    };
    let asked = line_of(&mut stream, URL_BYTES).await;
    let (said, sent) = match &asked {
        Ok(line) => (escaped(line), answer(&site, local, &mut stream, line).await),
        Err(error) => ("-".to_owned(), say(&mut stream, &format!("59 {}", error.kind())).await),
    };
    let ended = match &sent {
        Ok(_) => stream.finish_with(finish_options()).await,
        // Half an answer must not look like a whole one.
        Err(_) => stream.abort(served::FINISH_TIME).await,
    };
    let what = sent.unwrap_or_else(|error| format!("cut, {error}"));
    match ended {
        Ok(receipt) => format!("{ends} `{said}` {what}; {receipt}"),
        Err(error) => format!("{ends} `{said}` {what}; {error}"),
    }
    .trim_start()
    .to_owned()
}

/// Answers one request, and says what that was.
async fn answer(
    site: &Site,
    local: SocketAddr,
    stream: &mut TlsStream,
    line: &[u8],
) -> io::Result<String> {
    let path = match path_of(line, &site.name, local) {
        Ok(path) => path,
        Err(status) => return say(stream, status).await,
    };
    match site.folder.find(&path).await {
        Ok(Found::File { file, bytes }) => send_whole(stream, &path, file, bytes).await,
        // A relative link in a folder leads into it only behind a slash.
        Ok(Found::Folder(_)) if !path.ends_with('/') => {
            say(stream, &format!("31 {}/", encoded(&path))).await
        }
        Ok(Found::Folder(names)) => match site.folder.find(&format!("{path}index.gmi")).await {
            Ok(Found::File { file, bytes }) => send_whole(stream, "index.gmi", file, bytes).await,
            _ => {
                let list = format!("20 text/gemini\r\n{}", list(&path, &names));
                send(stream, list.as_bytes()).await.map(|()| "list".to_owned())
            }
        },
        Err(_) => say(stream, "51 there is no such thing").await,
    }
}

async fn send_whole(
    stream: &mut TlsStream,
    name: &str,
    file: std::fs::File,
    bytes: u64,
) -> io::Result<String> {
    send(stream, format!("20 {}\r\n", media_type(name)).as_bytes()).await?;
    send_file(stream, file, bytes, |chunk, out| out.extend(chunk)).await?;
    Ok(format!("{bytes} bytes"))
}

/// A status and its text, without content.
async fn say(stream: &mut TlsStream, status: &str) -> io::Result<String> {
    send(stream, format!("{status}\r\n").as_bytes()).await?;
    Ok(status.to_owned())
}

/// The path that an absolute URL of this host asks for, decoded, or the status that refuses it.
fn path_of(line: &[u8], name: &str, local: SocketAddr) -> Result<String, &'static str> {
    let bad = "59 this is no absolute URL of a path";
    let url = str::from_utf8(line).map_err(|_| bad)?;
    let (scheme, rest) = url.split_once("://").ok_or(bad)?;
    if !scheme.eq_ignore_ascii_case("gemini") {
        return Err("53 this is no proxy");
    }
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    // A request must not contain user names or fragments.
    if authority.contains('@') || path.contains('#') || url.contains(char::is_control) {
        return Err(bad);
    }
    let colon = authority.rfind(':').filter(|at| !authority[*at..].contains(']'));
    let (host, port) = authority.split_at(colon.unwrap_or(authority.len()));
    let port = match port.trim_start_matches(':') {
        "" => PORT,
        digits => digits.parse().map_err(|_| bad)?,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_ours = host.eq_ignore_ascii_case(name) || host.parse() == Ok(local.ip());
    if !is_ours || port != local.port() {
        return Err("53 this host is not served here");
    }
    let path = path.split('?').next().filter(|path| !path.is_empty()).unwrap_or("/");
    decoded(path).ok_or(bad)
}

/// Undoes percent-encoding (RFC 3986 section 2.1).
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        rest = tail;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let [high, low, tail @ ..] = tail else { return None };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push(u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?);
        rest = tail;
    }
    String::from_utf8(bytes).ok()
}

/// Percent-encodes all but what may stand in a path by itself (RFC 3986 section 2.3).
fn encoded(path: &str) -> String {
    let encode = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    path.bytes().map(encode).collect()
}

fn list(path: &str, names: &[(String, bool)]) -> String {
    let shown: String = path.chars().filter(|c| !c.is_control()).collect();
    let mut list = format!("# {shown}\n\n");
    for (name, is_folder) in names {
        let slash = if *is_folder { "/" } else { "" };
        list += &format!("=> ./{}{slash} {name}{slash}\n", encoded(name));
    }
    list
}
