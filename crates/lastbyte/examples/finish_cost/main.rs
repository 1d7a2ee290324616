//! What it costs a server to end a connection, by five endings: `bench/finish.py` runs it.
//!
//! ```text
//! finish_cost serve tcp=127.0.0.1:7000 unix=/tmp/cost
//! finish_cost ask tcp=127.0.0.1:7000 unix=/tmp/cost rounds=5 connections=2000 at-once=64
//! ```
//!
//! A server of one thread answers a line of request and ends the connection as the request says.
//! The client is another process: it checks every byte and how the stream ended, and asks the server
//! what it has used. The endings take turns in each round, so that all of them meet the same machine.
//!
//! | Ending | The server, once all is written |
//! |---|---|
//! | `close` | closes |
//! | `spin` | asks for the queue whenever the socket is writable, which it always is; then closes |
//! | `poll` | asks for the queue every millisecond until it is empty; then closes |
//! | `acked` | finishes: waits for the peer's kernel |
//! | `closed` | finishes: waits for the peer's end as well |

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

mod args;
mod blocking;
mod client;
mod request;
mod serve;
mod table;

use std::error::Error;

use args::Args;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().unwrap_or_default();
    let args = Args::of(arguments)?;
    match command.as_str() {
        "serve" => serve::serve(&args),
        "serve-blocking" => blocking::serve(&args),
        "ask" => client::run(&args),
        _ => Err("say serve, serve-blocking or ask, and where: tcp=ADDRESS unix=PATH".into()),
    }
}
