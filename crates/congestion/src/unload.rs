//! An algorithm out of the kernel again.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::bpffs::{FOLDER, name_of};
use crate::error::CongestionError;
use crate::holder::Holder;
use crate::machine::holder_of;
use crate::struct_ops;
use crate::sysctl::is_available;

/// Unloads an algorithm that a file keeps, or that nobody holds.
///
/// # Errors
/// [`CongestionError::NotLoaded`], [`CongestionError::HeldElsewhere`], and what the kernel says.
pub fn unregister(name: &str) -> Result<(), CongestionError> {
    if !is_available(name)? {
        return Err(CongestionError::NotLoaded(name.to_owned()));
    }
    match holder_of(name) {
        Holder::File(file) => unload_kept(&file),
        Holder::Nobody => struct_ops::unload_left(name),
        holder => Err(CongestionError::HeldElsewhere { name: name.to_owned(), holder }),
    }
}

/// Unloads what a file keeps, and returns when its name is free; one that is gone already is well. The
/// folder goes with the last.
///
/// # Errors
/// What the kernel says against it.
pub fn unload_kept(file: &Path) -> Result<(), CongestionError> {
    let name = name_of(file);
    let (was_there, before) = (fs::symlink_metadata(file).is_ok(), struct_ops::trace_of(&name));
    struct_ops::unload_file(file)?;
    // Not empty: others are kept.
    let _ = fs::remove_dir(FOLDER);
    if was_there {
        wait_until_gone(&name, before.as_deref());
    }
    Ok(())
}

/// The kernel lets go of a link some time after its file, first of its number and then of the name. Not
/// for ever: another process may hold it too.
fn wait_until_gone(name: &str, before: Option<&str>) {
    let is_there = || is_available(name).unwrap_or(false);
    // Of another number, it is the next of that name.
    let is_it = || struct_ops::trace_of(name).is_none_or(|now| Some(now.as_str()) == before);
    let begin = Instant::now();
    while is_there() && is_it() && begin.elapsed() < LETS_GO_WITHIN {
        thread::sleep(LOOK_EVERY);
    }
}

/// It takes the kernel milliseconds, and longer on a busy machine.
const LETS_GO_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(1);
