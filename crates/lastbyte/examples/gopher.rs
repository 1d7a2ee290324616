//! A small Gopher server (RFC 1436) that knows of every answer whether it arrived.
//!
//! ```text
//! cargo run --example gopher -- FOLDER [ADDRESS [NAME]]
//! curl gopher://127.0.0.1:7070/
//! ```
//!
//! A Gopher answer has no length: it ends where the connection ends. So a close that throws away
//! what is on its way, because a client sent a byte too many, hands out half a file that looks
//! whole. Here every connection is finished, and what cannot be sent whole is reset.

#![allow(clippy::print_stdout, reason = "an example talks")]

use std::io;
use std::sync::Arc;

use lastbyte::Stream;

mod served;
use served::{Args, Folder, Found, escaped, finish_options, line_of, media_type, send, send_file};

/// "The Selector string should be no longer than 255 characters." (RFC 1436, appendix)
const SELECTOR_BYTES: usize = 255;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Args { folder, listener, name } = Args::from_env(7070).await?;
    let site = Arc::new(Site { folder, name });
    served::serve(listener, |stream| talk(Arc::clone(&site), stream)).await
}

struct Site {
    folder: Folder,
    name: Option<String>,
}

/// One connection, from its request to its receipt. Returns its line of the log.
async fn talk(site: Arc<Site>, mut stream: Stream) -> String {
    let ends = stream.endpoints();
    let asked = line_of(&mut stream, SELECTOR_BYTES).await;
    let (said, sent) = match &asked {
        Ok(line) => (escaped(line), answer(&site, &mut stream, line).await),
        Err(error) => ("-".to_owned(), complain(&mut stream, &error.to_string()).await),
    };
    let ended = match &sent {
        Ok(_) => stream.finish_with(finish_options()).await,
        // Half an answer must not look like a whole one.
        Err(_) => stream.abort(served::FINISH_TIME).await,
    };
    let what = sent.map_or_else(|error| format!("cut, {error}"), str::to_owned);
    match ended {
        Ok(receipt) => format!("{ends} `{said}` {what}; {receipt}"),
        Err(error) => format!("{ends} `{said}` {what}; {error}"),
    }
    .trim_start()
    .to_owned()
}

/// Sends what the selector stands for, and says what that was.
async fn answer(site: &Site, stream: &mut Stream, line: &[u8]) -> io::Result<&'static str> {
    // What comes behind a tab is for a search.
    let selector = line.split(|byte| *byte == b'\t').next().unwrap_or_default();
    let Ok(selector) = str::from_utf8(selector) else {
        return complain(stream, "a selector is UTF-8 here").await;
    };
    match site.folder.find(selector).await {
        Ok(Found::Folder(names)) => {
            let local = stream.local_addr()?;
            let host = site.name.clone().unwrap_or_else(|| local.ip().to_string());
            let menu = menu(selector, &names, &host, local.port());
            send(stream, menu.as_bytes()).await.map(|()| "menu")
        }
        Ok(Found::File { file, bytes }) if kind_of(selector) == '0' => {
            let mut text = Text { line_begins: true, after_return: false };
            send_file(stream, file, bytes, |chunk, out| text.change(chunk, out)).await?;
            send(stream, text.end()).await.map(|()| "text")
        }
        Ok(Found::File { file, bytes }) => {
            send_file(stream, file, bytes, |chunk, out| out.extend(chunk)).await?;
            Ok("binary")
        }
        Err(error) => complain(stream, &format!("cannot be had: {}", error.kind())).await,
    }
}

/// An item of type 3, an error (RFC 1436 section 3.8).
async fn complain(stream: &mut Stream, text: &str) -> io::Result<&'static str> {
    let item = format!("3{}\t\terror.invalid\t70\r\n.\r\n", text.replace(['\t', '\r', '\n'], " "));
    send(stream, item.as_bytes()).await.map(|()| "error")
}

/// 0 for text, which is sent in lines; 9 for everything else, which is sent as it is.
fn kind_of(name: &str) -> char {
    if media_type(name).starts_with("text/") { '0' } else { '9' }
}

/// A line for each name: type, name, selector, host, port; then a full stop (RFC 1436 section 2).
fn menu(selector: &str, names: &[(String, bool)], host: &str, port: u16) -> String {
    let above = selector.trim_matches('/');
    let above = if above.is_empty() { String::new() } else { format!("/{above}") };
    let mut menu = String::new();
    for (name, is_folder) in names {
        let kind = if *is_folder { '1' } else { kind_of(name) };
        // One that cannot be asked for is not offered.
        if above.len() + 1 + name.len() <= SELECTOR_BYTES {
            menu += &format!("{kind}{name}\t{above}/{name}\t{host}\t{port}\r\n");
        }
    }
    menu + ".\r\n"
}

/// "Lines beginning with periods must be prepended with an extra period to ensure that the
/// transmission is not terminated early." (RFC 1436, appendix)
struct Text {
    line_begins: bool,
    after_return: bool,
}

impl Text {
    fn change(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        for &byte in chunk {
            if byte == b'.' && self.line_begins {
                out.push(b'.');
            }
            if byte == b'\n' && !self.after_return {
                out.push(b'\r');
            }
            out.push(byte);
            self.line_begins = byte == b'\n';
            self.after_return = byte == b'\r';
        }
    }

    fn end(&self) -> &'static [u8] {
        if self.line_begins { b".\r\n" } else { b"\r\n.\r\n" }
    }
}
