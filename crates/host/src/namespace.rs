//! Network namespaces (`network_namespaces(7)`): a list, their names, and work in one of them.
//!
//! A namespace is identified by the inode number of its file. After its end the kernel may reuse
//! the number.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

use lastbyte_sys::namespace;

use crate::process::Proc;

/// Where `ip netns` keeps namespaces under names (`ip-netns(8)`).
pub const NAMES: &str = "/run/netns";

/// The inode number of the namespace that the calling thread is in.
///
/// # Errors
/// There is no `/proc`.
pub fn current() -> io::Result<u64> {
    Ok(namespace::current_network_path().metadata()?.ino())
}

/// The inode number of the namespace, of whatever kind, that is mounted at `path`, or that the path leads to;
/// `None` for any other file.
///
/// # Errors
/// `NotFound` if nothing is there; `Other` if there is no `/proc`.
pub fn at(path: &Path) -> io::Result<Option<u64>> {
    Ok(inode_on(device()?, &path.metadata()?))
}

/// The namespaces with a name, by their inode numbers. `root` is the root directory of the machine.
#[must_use]
pub fn named(root: &Path) -> BTreeMap<u64, PathBuf> {
    let names = root.join(NAMES.trim_start_matches('/'));
    let entries = fs::read_dir(names).into_iter().flatten().flatten();
    let device = device().ok();
    let is_one = |path: PathBuf| Some((inode_on(device?, &path.metadata().ok()?)?, path));
    entries.filter_map(|entry| is_one(entry.path())).collect()
}

/// All namespaces lie on one file system: its device.
fn device() -> io::Result<u64> {
    let own = namespace::current_network_path();
    let failed = |error| io::Error::other(format!("cannot look at {}: {error}", own.display()));
    Ok(own.metadata().map_err(failed)?.dev())
}

fn inode_on(device: u64, file: &fs::Metadata) -> Option<u64> {
    (file.dev() == device).then(|| file.ino())
}

/// The namespaces that this process can see.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Seen {
    /// By inode number, each with all the files by which it can be entered: its name, and those of the
    /// threads that are in it, which vanish with them.
    pub paths: BTreeMap<u64, Vec<PathBuf>>,
    /// Whether there are threads whose namespaces this user may not see.
    pub some_hidden: bool,
}

/// The namespaces of all threads that can be seen, and those with a name: a program may have opened a
/// socket in one that none of its threads is in.
#[must_use]
pub fn seen(proc: &Proc) -> Seen {
    let mut seen = Seen::default();
    for (inode, path) in named(proc.root()) {
        seen.paths.entry(inode).or_default().push(path);
    }
    for pid in proc.pids().unwrap_or_default() {
        for tid in proc.threads(pid) {
            match proc.network(pid, tid) {
                Ok(inode) => {
                    let paths = seen.paths.entry(inode).or_default();
                    paths.push(proc.network_path(pid, tid));
                }
                Err(error) => seen.some_hidden |= error.kind() == io::ErrorKind::PermissionDenied,
            }
        }
    }
    seen
}

/// A network namespace, held open: it exists at least as long as this.
#[derive(Debug)]
pub struct NetworkNamespace {
    file: File,
    /// Device and inode number.
    id: (u64, u64),
}

impl NetworkNamespace {
    /// The one that the calling thread is in.
    ///
    /// # Errors
    /// There is no `/proc`, or the limit of descriptors is reached.
    pub fn current() -> io::Result<Self> {
        Self::open(&namespace::current_network_path())
    }

    /// Opens one by its file. Entering it shows whether the file is a network namespace.
    ///
    /// # Errors
    /// `NotFound`, also if the thread has ended whose namespace it was; `PermissionDenied`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        Ok(Self { file, id: (metadata.dev(), metadata.ino()) })
    }

    /// The same namespace, held open once more.
    ///
    /// # Errors
    /// The limit of descriptors is reached.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { file: self.file.try_clone()?, id: self.id })
    }

    /// Its inode number.
    #[must_use]
    pub fn inode(&self) -> u64 {
        self.id.1
    }

    /// Moves the calling thread into it permanently. A thread that is already there needs no
    /// privilege for that.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_SYS_ADMIN`, `InvalidInput` for a file that is no network namespace.
    pub fn enter(&self) -> io::Result<()> {
        let current = namespace::current_network_path().metadata();
        if current.is_ok_and(|current| (current.dev(), current.ino()) == self.id) {
            return Ok(());
        }
        namespace::enter_network(&self.file)
    }

    /// Does `work` in it, on a thread of its own, and waits for the result: the calling thread stays where
    /// it is. Sockets that are opened there stay there.
    ///
    /// # Errors
    /// As [`NetworkNamespace::enter`]; no thread can be started.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        on_own_thread(|| self.enter().map(|()| work()))?
    }
}

impl AsFd for NetworkNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Does `work` on a thread of its own and waits for the result. Namespaces belong to threads: a namespace
/// that the work enters or makes is left when its thread ends.
///
/// # Errors
/// No thread can be started.
pub fn on_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, work)?;
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_namespace_is_seen_and_needs_no_right() {
        let own = NetworkNamespace::current().unwrap();
        assert_eq!(own.inode(), current().unwrap());
        assert_eq!(own.run(current).unwrap().unwrap(), own.inode());
        assert_eq!(own.try_clone().unwrap().inode(), own.inode());
        let paths = &seen(&Proc::default()).paths[&own.inode()];
        assert!(paths.iter().all(|path| at(path).is_ok_and(|inode| inode == Some(own.inode()))));
    }

    #[test]
    fn other_files_are_no_namespaces() {
        assert_eq!(at(Path::new("/proc/self/stat")).unwrap(), None);
        let nowhere = Path::new("/proc/self/no-such-file");
        assert_eq!(at(nowhere).unwrap_err().kind(), io::ErrorKind::NotFound);
        let other = NetworkNamespace::open(Path::new("/proc/self/stat")).unwrap();
        assert!(other.run(|| ()).is_err());
        assert!(named(Path::new("/nowhere")).is_empty());
    }
}
