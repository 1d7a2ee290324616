//! The program `lastbyte`: words to plan, plan to the crates, result to text or JSON.
//!
//! This crate forbids decisions about bytes: those are made in the libraries. It reads arguments,
//! keeps the ledger of changes, and prints. stdout is the answer, stderr is the talk, the exit code
//! is the verdict: 0 done and proven, 1 ran and the answer is no, 2 misuse or failure, 130 on
//! Ctrl-C.

#![forbid(unsafe_code)]

mod args;
mod cc;
mod changes;
mod demo;
mod dial;
mod doctor;
mod ends;
mod explain;
mod gate;
mod heal;
mod lab;
mod link;
#[cfg(test)]
mod manual;
mod output;
mod path;
mod quiz;
mod verdict;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use args::{Cli, Command};
use verdict::Verdict;

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.command.needs_a_path() {
        // Before there is a second thread. Where it is refused, making the path says why.
        let _ = lastbyte_link::take_rights();
    }
    match run(cli.command) {
        Ok(verdict) => verdict.into(),
        Err(error) => {
            output::talk(&format!("lastbyte: {error:#}"));
            Verdict::Failed.into()
        }
    }
}

fn run(command: Command) -> Result<Verdict> {
    match command {
        Command::Quiz(args) => quiz::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Link(args) => link::run(args.command),
        Command::Cc(args) => cc::run(&args.command),
        Command::Dial(args) => dial::run(&args),
        Command::Gate(args) => gate::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Heal(args) => heal::run(&args),
        Command::Changes(args) => changes::list(&args),
        Command::Undo(args) => changes::undo(&args),
        Command::Demo(args) => demo::run(&args),
        Command::LinkInit(args) => link::init(&args),
        Command::LinkCarry(args) => link::carry(&args),
        Command::DoctorPatient(args) => Ok(doctor::become_program(&args)),
    }
}
