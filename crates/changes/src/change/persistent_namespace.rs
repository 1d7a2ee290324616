//! Network namespaces that a mount keeps.

use std::fs;
use std::io;
use std::path::Path;

use lastbyte_host::namespace::{at, on_own_thread};
use lastbyte_sys::{mount, namespace};

use super::{is_absent, present};
use crate::error::{Doing, Result, must};

/// How often one path may have been mounted over; lastbyte itself does it once.
const MAX_STACKED_MOUNTS: u32 = 16;

/// Unmounts the namespace kept at `path` and removes the file it was mounted on. Both only if they
/// are what they should be: a namespace, and an empty file.
pub(super) fn drop_at(path: &Path) -> Result<()> {
    for _ in 0..MAX_STACKED_MOUNTS {
        if !is_namespace(path)? {
            break;
        }
        match mount::unmount_detach(path) {
            Ok(()) => {}
            // Somebody else was faster; or it is a namespace's file that is not mounted here, and
            // what follows refuses it.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => break,
            Err(error) if is_absent(&error) => return Ok(()),
            Err(error) => {
                let what = format!("cannot unmount {} (needs CAP_SYS_ADMIN)", path.display());
                return Err(error).doing(what);
            }
        }
    }
    let Some(file) = present(fs::symlink_metadata(path), path)? else { return Ok(()) };
    must(file.is_file() && file.len() == 0 && !is_namespace(path)?, || {
        format!(
            "{} is not the empty file that a namespace leaves: it is left alone",
            path.display()
        )
    })?;
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => remove_hidden(path),
        removed => present(removed, path).map(drop),
    }
}

/// Removes the file where its folder was mounted over itself, so that the mount at the file has a copy
/// below the folder's, which no path leads to: `ip netns add` does that where nobody has before. In a copy of
/// the mount table the folder's mount can be taken off, and a file at which nothing is mounted in one's own
/// table can be removed: all other tables lose their mounts at it then (Linux 3.18).
fn remove_hidden(path: &Path) -> Result<()> {
    let remove = || -> io::Result<()> {
        namespace::unshare_mounts()?;
        mount::make_all_private()?;
        let folder = path.parent().unwrap_or(path);
        for _ in 0..MAX_STACKED_MOUNTS {
            mount::unmount_detach(folder)?;
            while mount::unmount_detach(path).is_ok() {}
            match fs::remove_file(path) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
                removed => return removed,
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    };
    // On a thread of its own, with which the copy goes.
    let removed = on_own_thread(remove).and_then(|removed| removed);
    let what = || format!("cannot remove {}, at which something is mounted", path.display());
    present(removed, path).doing_with(what).map(drop)
}

/// Whether a namespace is mounted at `path`.
fn is_namespace(path: &Path) -> Result<bool> {
    Ok(present(at(path), path)?.flatten().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::Scratch;

    /// Twice mounted, as two programs that raced would leave it.
    #[test]
    #[ignore = "needs root: mounts and unmounts a network namespace"]
    fn a_mounted_namespace_is_unmounted() {
        let scratch = Scratch::new();
        let path = scratch.path("net");
        fs::write(&path, "").unwrap();
        for _ in 0..2 {
            mount::bind(Path::new("/proc/self/ns/net"), &path).unwrap();
        }
        assert!(is_namespace(&path).unwrap());
        drop_at(&path).unwrap();
        assert!(!path.exists());
        drop_at(&path).unwrap();
    }
}
