//! Network namespaces: the sockets and files opened within each, and what is read through them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use lastbyte_host::NetworkNamespace;
use lastbyte_host::counters::{OF_THIS_THREAD, open, text};
use lastbyte_host::namespace::named;
use lastbyte_sys::sock_diag::{Destroyed, Dump};

use super::counters;
use super::idle::IdleCheck;
use crate::event::{self, Counters};

/// Limit on observed namespaces.
const MAX_OPEN: usize = 256;
/// The receive buffer for reports of ended sockets, bytes.
const RECEIVE_BUFFER: i32 = 1 << 20;

/// The observed namespaces, by their inode numbers.
#[derive(Debug, Default)]
pub(super) struct Networks {
    pub(super) open: BTreeMap<u64, Network>,
    /// Namespaces that cannot be observed, and why.
    pub(super) refused: BTreeMap<u64, String>,
    /// Counters of those namespaces, which any user may read through a process in them.
    from_outside: BTreeMap<u64, CounterFiles>,
    /// Last growth of counters of namespaces that are no longer observed, not reported yet.
    departed: Vec<Counters>,
    /// Newly opened or counted namespaces, not reported yet.
    opened: Vec<event::Network>,
    /// Namespaces that existed when the observer began. The counters of a later one started at zero
    /// since then.
    before: BTreeSet<u64>,
    /// The directory that contains `run/netns`.
    root: PathBuf,
}

/// An observed namespace.
#[derive(Debug)]
pub(super) struct Network {
    namespace: NetworkNamespace,
    pub(super) dump: Dump,
    /// Receives reports of ended sockets, if that is allowed.
    pub(super) destroyed: Option<Destroyed>,
    may_receive_ends: bool,
    counter_files: Option<CounterFiles>,
    pub(super) idle_check: IdleCheck,
    /// Whether it is the observer's own, which stays open.
    is_own: bool,
}

/// The counters of a namespace, and their values when read last.
#[derive(Debug)]
struct CounterFiles {
    inode: u64,
    /// `netstat` and `snmp`.
    files: [File; 2],
    last: Counters,
}

impl Networks {
    /// No namespace is open. `before`: those that exist now; `root`: the directory that contains
    /// `run`.
    pub(super) fn new(root: &Path, before: BTreeSet<u64>) -> Self {
        Self { root: root.to_owned(), before, ..Self::default() }
    }

    /// Opens the calling thread's own namespace.
    ///
    /// # Errors
    /// As [`Dump::open`].
    pub(super) fn open_own(&mut self, receives_ends: bool) -> io::Result<()> {
        let network = Network::open(NetworkNamespace::current()?, receives_ends)?;
        let inode = network.namespace.inode();
        self.note_opened(inode, &named(&self.root), true);
        self.open.insert(inode, Network { is_own: true, ..network });
        Ok(())
    }

    /// Whether the kernel does not report ended sockets to us.
    pub(super) fn miss_ends(&self) -> bool {
        self.open.values().any(|network| !network.may_receive_ends)
    }

    /// The namespaces opened since the last call.
    pub(super) fn take_opened(&mut self) -> Vec<event::Network> {
        std::mem::take(&mut self.opened)
    }

    fn note_opened(&mut self, inode: u64, named: &BTreeMap<u64, PathBuf>, is_own: bool) {
        let name = named.get(&inode).and_then(|path| path.file_name());
        let name = name.map(|name| name.to_string_lossy().into_owned());
        self.opened.push(event::Network { inode, name, is_own });
    }

    /// Opens the `wanted` namespaces by the file of each, and closes the others.
    pub(super) fn open_wanted(&mut self, wanted: &BTreeMap<u64, PathBuf>, receives_ends: bool) {
        self.leave(wanted);
        let is_known =
            |inode: &u64| self.open.contains_key(inode) || self.refused.contains_key(inode);
        if wanted.keys().all(is_known) {
            return;
        }
        let named = named(&self.root);
        for (inode, path) in wanted {
            if self.open.contains_key(inode) || self.refused.contains_key(inode) {
                continue;
            }
            if self.open.len() + self.from_outside.len() >= MAX_OPEN {
                let why = format!("more than {MAX_OPEN} network namespaces are not observed");
                self.refused.insert(*inode, why);
                continue;
            }
            let opened = NetworkNamespace::open(path);
            match opened.and_then(|namespace| Network::open(namespace, receives_ends)) {
                Ok(mut network) => {
                    let inode = network.namespace.inode();
                    self.note_opened(inode, &named, false);
                    network.counter_files =
                        network.counter_files.map(|counter_files| self.since_start(counter_files));
                    self.open.insert(inode, network);
                }
                // It was deleted meanwhile, with its process.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => self.refuse(*inode, (path, &named), &error),
            }
        }
    }

    /// A namespace that may not be entered: its counters are read through a process in it.
    fn refuse(
        &mut self,
        inode: u64,
        (path, named): (&Path, &BTreeMap<u64, PathBuf>),
        error: &io::Error,
    ) {
        let left = match counter_files_of(inode, path) {
            Some(Ok(counter_files)) => {
                self.note_opened(inode, named, false);
                self.from_outside.insert(inode, self.since_start(counter_files));
                "only its counters are read"
            }
            // That process has ended meanwhile: the next scan may find another one.
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => return,
            _ => "nothing in it is seen",
        };
        let why = format!("entering network namespace {inode} failed: {error}; {left}");
        self.refused.insert(inode, why);
    }

    /// With everything counted since the observer began.
    fn since_start(&self, counter_files: CounterFiles) -> CounterFiles {
        let inode = counter_files.inode;
        match self.before.contains(&inode) {
            true => counter_files,
            false => CounterFiles {
                last: Counters { network: inode, ..Counters::default() },
                ..counter_files
            },
        }
    }

    /// Closes the namespaces that are not wanted, after a last read of their counters.
    fn leave(&mut self, wanted: &BTreeMap<u64, PathBuf>) {
        let is_left = |inode: &&u64| !wanted.contains_key(*inode);
        let is_own = |inode: &&u64| self.open.get(*inode).is_some_and(|network| network.is_own);
        let known = self.open.keys().chain(self.refused.keys()).chain(self.from_outside.keys());
        let left: Vec<u64> =
            known.filter(is_left).filter(|inode| !is_own(inode)).copied().collect();
        for inode in left {
            let network = self.open.remove(&inode).and_then(|network| network.counter_files);
            let counter_files = network.or_else(|| self.from_outside.remove(&inode));
            self.departed.extend(counter_files.and_then(|mut counter_files| counter_files.grown()));
            self.refused.remove(&inode);
        }
    }

    /// The growth of the counters of each namespace since they were read last.
    pub(super) fn counters(&mut self) -> Vec<Counters> {
        let open = self.open.values_mut().filter_map(|network| network.counter_files.as_mut());
        open.chain(self.from_outside.values_mut()).filter_map(CounterFiles::grown).collect()
    }

    /// The last growth in namespaces closed since the last call.
    pub(super) fn take_departed(&mut self) -> Vec<Counters> {
        std::mem::take(&mut self.departed)
    }
}

/// The counters of the namespace of a process or thread, by its `ns/net`; `None` for another file,
/// such as a named namespace's.
fn counter_files_of(inode: u64, path: &Path) -> Option<io::Result<CounterFiles>> {
    let of_whom = path.parent().filter(|_| path.ends_with("ns/net"))?;
    Some(CounterFiles::open(inode, &of_whom.with_file_name("net")))
}

impl Network {
    /// Opens the sockets and files within a namespace.
    fn open(namespace: NetworkNamespace, receives_ends: bool) -> io::Result<Self> {
        let inode = namespace.inode();
        let open = || -> io::Result<_> {
            let destroyed = if receives_ends { Destroyed::open(RECEIVE_BUFFER).ok() } else { None };
            let counter_files = CounterFiles::open(inode, Path::new(OF_THIS_THREAD)).ok();
            Ok((Dump::open()?, destroyed, counter_files, IdleCheck::open()))
        };
        let (dump, destroyed, counter_files, idle_check) = namespace.run(open)??;
        let may_receive_ends = destroyed.is_some() || !receives_ends;
        let is_own = false;
        Ok(Self { namespace, dump, destroyed, may_receive_ends, counter_files, idle_check, is_own })
    }

    /// Runs a function in it.
    #[cfg(feature = "bpf")]
    pub(super) fn within(&self, act: &(dyn Fn() -> io::Result<()> + Sync)) -> io::Result<()> {
        self.namespace.run(act)?
    }

    /// Receives reports of ended sockets again, after that was suspended.
    pub(super) fn receive_ends(&mut self) {
        if self.destroyed.is_none() && self.may_receive_ends {
            let destroyed =
                self.namespace.run(|| Destroyed::open(RECEIVE_BUFFER)).and_then(|opened| opened);
            self.may_receive_ends = destroyed.is_ok();
            self.destroyed = destroyed.ok();
        }
    }
}

impl CounterFiles {
    /// Begins to count. `net`: the `/proc` directory of a process or thread in the namespace
    /// (`proc_pid_net(5)`).
    fn open(inode: u64, net: &Path) -> io::Result<Self> {
        let files = [open(net, "netstat")?, open(net, "snmp")?];
        let last = read(&files, inode)?;
        Ok(Self { inode, files, last })
    }

    /// The growth since the last call.
    fn grown(&mut self) -> Option<Counters> {
        let now = read(&self.files, self.inode).ok()?;
        let before = std::mem::replace(&mut self.last, now);
        counters::grown(&before, &now)
    }
}

fn read(files: &[File; 2], inode: u64) -> io::Result<Counters> {
    let [netstat, snmp] = files;
    Ok(counters::parse(&(text(netstat)? + &text(snmp)?), inode))
}
