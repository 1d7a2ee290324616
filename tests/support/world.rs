//! A world of one's own: a test that runs again inside new namespaces (mounts, process ids,
//! network), so that all it finds there is its own, whatever else this machine is doing, and
//! nothing of it stays, whatever the test did.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lastbyte_host::Proc;
use lastbyte_testing::this_test;

use super::{LASTBYTE, LATER, answer, answer_within, can_make_links, holds_within, processes};

/// Set inside a world, to the name of the test that it is for.
const INSIDE: &str = "LASTBYTE_TEST_WORLD";
/// The kernel ends namespaces some time after their last process.
const KERNEL_TIDIES_UP: Duration = Duration::from_secs(5);

/// Runs the test whose thread this is in a world of its own. Says `NOT TESTED` and
/// passes where this machine does not let us make one.
#[track_caller]
pub(crate) fn alone(body: impl FnOnce(&World)) {
    let test = this_test();
    if std::env::var(INSIDE).is_ok_and(|inside| inside == test) {
        body(&World::enter());
        return;
    }
    if !can_make_links() || !can_unshare() {
        return;
    }
    let me = std::env::current_exe().expect("a test has a file");
    let mut again = unshare();
    again.arg(me).args(["--exact", &test, "--nocapture", "--include-ignored"]).env(INSIDE, &test);
    let told = answer_within(&mut again, LATER);
    assert!(
        told.code() == 0 && told.stdout.contains("1 passed"),
        "in a world of its own:\n{}\n{}",
        told.stdout,
        told.stderr
    );
    lastbyte_testing::pass_on(&told.stderr);
}

fn unshare() -> Command {
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "--net"]);
    // `--kill-child`: nothing inside outlives a test that is given up.
    unshare.args(["--pid", "--fork", "--kill-child", "--mount-proc", "--"]);
    unshare
}

fn can_unshare() -> bool {
    let works = Command::new("unshare").arg("--version").output().is_ok()
        && answer(unshare().arg("true")).code() == 0;
    if !works {
        lastbyte_testing::not_tested!("`unshare` of util-linux cannot make namespaces here");
    }
    works
}

/// The inside. Its `/run` is empty at first; the ledger and temporary files are below it. Nothing is mounted
/// for BPF.
#[derive(Debug)]
pub(crate) struct World {
    before: Findings,
}

/// What can be left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Findings {
    /// Network namespaces that a process, a descriptor or a mount keeps.
    pub(crate) networks: BTreeSet<String>,
    /// Files in `/run/netns`.
    pub(crate) kept: BTreeSet<String>,
    /// Network interfaces of this world's own network.
    pub(crate) interfaces: BTreeSet<String>,
    /// Lines of `mountinfo`.
    pub(crate) mounts: BTreeSet<String>,
    /// Processes other than the test: number and arguments.
    pub(crate) processes: BTreeSet<String>,
    /// Files in the temporary directory.
    pub(crate) temporary: BTreeSet<String>,
}

impl World {
    fn enter() -> Self {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/run"]).status();
        assert!(mounted.expect("there is a mount program").success());
        for directory in ["/run/netns", "/run/temporary", "/run/state"] {
            fs::create_dir(directory).expect("/run is ours");
        }
        // What is kept there by the machine would be seen here, and the other way round.
        let bpffs = Path::new("/sys/fs/bpf");
        for _ in 0..16 {
            if lastbyte_sys::file::is_bpffs(bpffs).unwrap_or(false) {
                lastbyte_sys::mount::unmount_detach(bpffs).expect("mounts are ours");
            }
        }
        Self { before: Findings::now() }
    }

    /// Where the ledger of this world is.
    pub(crate) fn state(&self) -> PathBuf {
        Path::new("/run/state").to_owned()
    }

    /// A command that runs the binary under test in this world.
    pub(crate) fn lastbyte(&self, words: &[&str]) -> Command {
        let mut command = Command::new(LASTBYTE);
        command.args(words);
        command.env("LASTBYTE_STATE_DIR", self.state()).env("TMPDIR", "/run/temporary");
        command
    }

    /// What was there at first.
    pub(crate) fn before(&self) -> &Findings {
        &self.before
    }

    /// Nothing is left that was not there at first, or will be in a moment.
    #[track_caller]
    pub(crate) fn assert_nothing_left(&self) {
        let nothing_left = || Findings::now() == self.before;
        let tidy = holds_within(KERNEL_TIDIES_UP, nothing_left);
        assert!(tidy, "at first {:#?}\nbut now {:#?}", self.before, Findings::now());
    }

    /// Whether nothing is left at this moment.
    pub(crate) fn is_tidy(&self) -> bool {
        Findings::now() == self.before
    }
}

impl Findings {
    pub(crate) fn now() -> Self {
        let mounts = lines_of("/proc/self/mountinfo");
        let mut networks: BTreeSet<String> =
            processes().into_iter().flat_map(networks_of).collect();
        let kept_by_mount = mounts.iter().filter_map(|line| line.split(' ').nth(3));
        networks.extend(kept_by_mount.filter(|root| root.starts_with("net:")).map(str::to_owned));
        let own = std::process::id();
        let others = processes().into_iter().filter(|pid| *pid != own && !is_zombie(*pid));
        Self {
            networks,
            kept: names_in("/run/netns"),
            interfaces: lines_of("/proc/self/net/dev")
                .iter()
                .filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()))
                .collect(),
            mounts,
            processes: others.map(|pid| format!("{pid} {}", arguments_of(pid))).collect(),
            temporary: names_in("/run/temporary"),
        }
    }
}

/// The networks that a process's threads are in, and that its descriptors keep.
fn networks_of(pid: u32) -> Vec<String> {
    let links = |directory: String, below: &'static str| {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.filter_map(move |entry| fs::read_link(entry.path().join(below)).ok())
    };
    let threads = links(format!("/proc/{pid}/task"), "ns/net");
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let descriptors = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
    let names = threads.chain(descriptors).filter_map(|link| link.to_str().map(str::to_owned));
    names.filter(|name| name.starts_with("net:[")).collect()
}

/// Whether it has ended and only waits to be collected: in a new world by process 1, the test
/// itself, which collects nobody's children but its own.
fn is_zombie(pid: u32) -> bool {
    Proc::default().stat(pid).is_none_or(|stat| stat.has_ended())
}

fn arguments_of(pid: u32) -> String {
    Proc::default().command(pid, 1 << 20).trim().to_owned()
}

fn lines_of(file: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{file}: {error}"));
    text.lines().map(str::to_owned).collect()
}

fn names_in(directory: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
