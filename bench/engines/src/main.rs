//! Measures ways to move bytes from one TCP socket to another.
//!
//!   engines bench [PART]...     bulk, small, break-even, tune, veth (all without)
//!
//! The other commands are processes that the bench starts: relay, send, receive, ask, answer, hold.
//! ROUNDS, GIGABYTES and ENGINES (separated by spaces) change what their names say.

mod bench;
mod ends;
mod epoll;
mod spec;
mod sys;
mod uring;

use std::error::Error;
use std::net::SocketAddr;

use spec::{Kind, Spec};
use sys::Counters;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["bench", ref parts @ ..] => bench::run(parts),
        ["relay", engine, to, counters] => relay(engine, to.parse()?, counters.parse()?),
        ["hold"] => Ok(ends::hold()?),
        ["send", to, flows, bytes] => Ok(ends::send(to.parse()?, flows.parse()?, bytes.parse()?)?),
        ["receive", flows] => {
            let (listener, port) = sys::listen(None)?;
            println!("{port}");
            let (bytes, took) = ends::receive(&listener, flows.parse()?)?;
            println!("{bytes} {}", took.as_nanos());
            Ok(())
        }
        ["answer", flows, size, answer] => {
            let (listener, port) = sys::listen(None)?;
            println!("{port}");
            Ok(ends::answer(&listener, flows.parse()?, size.parse()?, answer.parse()?)?)
        }
        ["ask", to, flows, size, answer, rounds] => {
            let question = ends::Question {
                flows: flows.parse()?,
                size: size.parse()?,
                answer: answer.parse()?,
                rounds: rounds.parse()?,
            };
            let times = ends::ask(to.parse()?, question)?;
            println!("{} {}", times[times.len() / 2], times[times.len() * 99 / 100]);
            Ok(())
        }
        _ => Err("usage: engines bench [bulk | small | break-even | tune | veth]...".into()),
    }
}

fn relay(engine: &str, to: SocketAddr, counters: i32) -> Result<(), Box<dyn Error>> {
    let spec = Spec::parse(engine, to)?;
    let counters = Counters::mapped(counters)?;
    let (listener, port) = sys::listen(spec.receive_buffer)?;
    println!("{port}");
    match spec.kind {
        Kind::Copy | Kind::Splice | Kind::Hybrid => epoll::run(&spec, &listener, counters)?,
        _ => uring::run(&spec, &listener, counters)?,
    }
    Ok(())
}
