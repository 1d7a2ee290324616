//! Congestion controls that stay in the kernel, through the ledger.

use std::fmt;
use std::path::PathBuf;

use lastbyte_congestion::{BPFFS, Registered, is_available, keeps, mount_bpffs, unregister};
use lastbyte_units::BitRate;

use crate::change::{Change, MountedBpffs, PinnedAlgorithm};
use crate::error::{ChangesError, Result, refused};
use crate::ledger::{Entry, Ledger, UndoReport};

/// Why algorithms were not pinned, and why what was done of it could not be taken back, if so.
#[derive(Debug)]
pub struct NotPinned {
    /// Why.
    pub error: ChangesError,
    /// What is left, and still in the ledger.
    pub left: Vec<ChangesError>,
}

/// Keeps loaded algorithms beyond this process, each with the rate that it was given, by files of bpffs:
/// each is entered into the ledger before; all of them, or none. Where bpffs is not mounted it is, and
/// `mounted` gets the number of that change.
///
/// # Errors
/// bpffs cannot be mounted, an algorithm cannot be kept, or the ledger cannot be written.
pub fn pin(
    ledger: &Ledger,
    algorithms: Vec<(Registered, Option<BitRate>)>,
    mounted: &mut dyn FnMut(u64),
) -> Result<(), NotPinned> {
    let mut entered = Vec::new();
    pin_all(ledger, algorithms, mounted, &mut entered).map_err(|error| {
        // Newest first: a file system goes after what it keeps. Neither leaves anything alone.
        let undone = entered.iter().rev().map(|id| ledger.undo(*id, &mut |_| {}));
        NotPinned { error, left: undone.filter_map(Result::err).collect() }
    })
}

/// What was entered is known even if not all could be kept.
fn pin_all(
    ledger: &Ledger,
    algorithms: Vec<(Registered, Option<BitRate>)>,
    mounted: &mut dyn FnMut(u64),
    entered: &mut Vec<u64>,
) -> Result<()> {
    if !keeps() {
        let id = ledger.plan(&Change::Bpffs(MountedBpffs { path: PathBuf::from(BPFFS) }))?;
        entered.push(id);
        mount_bpffs().map_err(|error| cannot_mount(&error))?;
        ledger.made(id)?;
        mounted(id);
    }
    for (registered, rate) in algorithms {
        let id = ledger.plan(&Change::Congestion(PinnedAlgorithm {
            name: registered.name().to_owned(),
            file: registered.file(),
            rate_bits_per_s: rate.map(BitRate::bits_per_s),
        }))?;
        entered.push(id);
        registered.keep()?;
        ledger.made(id)?;
    }
    Ok(())
}

/// Unloads an algorithm that this process does not hold, and has the ledger say so where it was entered.
/// What is left alone is reported to `tell`.
///
/// # Errors
/// The kernel refuses, or the ledger cannot be read or written.
pub fn unpin(ledger: &Ledger, name: &str, tell: &mut dyn FnMut(&str)) -> Result<()> {
    let pins_it =
        |entry: &Entry| matches!(&entry.change, Change::Congestion(pinned) if pinned.name == name);
    let report = ledger.undo_where(&pins_it, tell)?;
    if let Some((_, error)) = report.failed.into_iter().next() {
        return Err(error);
    }
    // Kept by an account with another ledger, or left.
    if is_available(name)? {
        unregister(name)?;
    }
    Ok(())
}

/// Unmounts the bpffs that was mounted to keep algorithms, once it keeps none.
///
/// # Errors
/// The ledger cannot be read or written. That others keep something there is in the report: then it
/// stays, and in the ledger too.
pub fn take_back_mount(ledger: &Ledger, tell: &mut dyn FnMut(&str)) -> Result<UndoReport> {
    let open = ledger.open_changes()?;
    let is_pinned = |entry: &Entry| matches!(entry.change, Change::Congestion(_));
    let is_mount = |entry: &Entry| matches!(entry.change, Change::Bpffs(_));
    if open.iter().any(is_pinned) || !open.iter().any(is_mount) {
        return Ok(UndoReport::default());
    }
    ledger.undo_where(&is_mount, tell)
}

fn cannot_mount(error: &impl fmt::Display) -> ChangesError {
    refused(format!("cannot mount bpffs, which keeps it (needs CAP_SYS_ADMIN): {error}"))
}
