//! Unloads an algorithm from the kernel.

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

/// Unloads an algorithm that a file keeps, or that has no holder.
///
/// # Errors
/// [`CongestionError::NotLoaded`], [`CongestionError::HeldElsewhere`], and the kernel's refusals.
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

/// Unloads the algorithm that a file keeps, and returns when its name is free; a missing file is no error.
/// The folder is removed with the last file.
///
/// # Errors
/// The kernel's refusal.
pub fn unload_kept(file: &Path) -> Result<(), CongestionError> {
    let name = name_of(file);
    let (was_there, before) = (fs::symlink_metadata(file).is_ok(), struct_ops::fdinfo_line(&name));
    struct_ops::unload_file(file)?;
    // It fails while others are kept.
    let _ = fs::remove_dir(FOLDER);
    if was_there {
        wait_until_gone(&name, before.as_deref());
    }
    Ok(())
}

/// Waits until the name is free. The kernel releases a link some time after its file: first its number, then
/// the name. The wait is bounded, as another process may hold the link too.
fn wait_until_gone(name: &str, before: Option<&str>) {
    let is_there = || is_available(name).unwrap_or(false);
    // One with another number is a new algorithm of that name.
    let is_it = || struct_ops::fdinfo_line(name).is_none_or(|now| Some(now.as_str()) == before);
    let begin = Instant::now();
    while is_there() && is_it() && begin.elapsed() < RELEASED_WITHIN {
        thread::sleep(LOOK_EVERY);
    }
}

/// It takes the kernel milliseconds, and longer on a busy machine.
const RELEASED_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(1);
