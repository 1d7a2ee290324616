//! How many bytes arrive? A sender and a receiver, after a classic article.
//!
//! ```text
//! cargo run --example quiz -- receive 127.0.0.1:5000
//! cargo run --example quiz -- send-and-close 127.0.0.1:5000
//! cargo run --example quiz -- send-and-finish 127.0.0.1:5000
//! ```
//!
//! The sender connects, writes 1,000,000 bytes and ends the connection. The receiver sends a
//! greeting that the sender never reads, and counts what arrives. One line differs between the two
//! senders.

#![allow(clippy::print_stdout, reason = "an example talks")]

use std::error::Error;
use std::io::{Read, Write};

use lastbyte::blocking::{self, TcpListener, TcpStream};

const BYTES: usize = 1_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["receive", address] => receive(address),
        ["send-and-close", address] => {
            let stream = send(address)?;
            let written = stream.written();
            drop(stream); // close(): the greeting is unread, so the kernel discards what is queued
            println!("{written} bytes written, closed, and no call has failed");
            Ok(())
        }
        ["send-and-finish", address] => {
            let stream = send(address)?;
            let receipt = stream.finish().wait()?;
            println!("{receipt}");
            Ok(())
        }
        _ => Err("say: receive ADDRESS, send-and-close ADDRESS or send-and-finish ADDRESS".into()),
    }
}

fn send(address: &str) -> Result<TcpStream, Box<dyn Error>> {
    let mut stream = blocking::connect(address)?;
    stream.write_all(&vec![b'x'; BYTES])?;
    Ok(stream)
}

fn receive(address: &str) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(address)?;
    println!("listening on {}; Ctrl-C ends this", listener.local_addr()?);
    loop {
        let mut stream = listener.accept()?;
        let _ = stream.write_all(b"220 welcome, please say hello first\r\n");
        let mut chunk = vec![0; 65_536];
        while let Ok(1..) = stream.read(&mut chunk) {}
        let end =
            stream.observed_end().map_or_else(|| "a failure".to_owned(), |end| end.to_string());
        println!("{} bytes arrived, then {end}", stream.bytes_read());
    }
}
