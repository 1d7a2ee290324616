//! `lastbyte cc`: congestion controls that the kernel was not built with, and who uses which.

mod list;
mod loading;
mod names;
mod status;
mod unloading;
mod words;

use anyhow::Result;

pub(crate) use words::CcArgs;
use words::CcCommand;

use crate::verdict::Verdict;

/// What was asked for.
pub(crate) fn run(command: &CcCommand) -> Result<Verdict> {
    match command {
        CcCommand::List(args) => list::list(args),
        CcCommand::Load(args) => loading::load(args),
        CcCommand::Unload(args) => unloading::unload(args),
        CcCommand::Status(args) => status::status(args),
    }
}
