//! Against the real kernel, each test in a network of its own.

mod machine;
mod routes;

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use lastbyte_congestion::default_algorithm;
use lastbyte_link::{LinkError, Namespace};

use super::*;
use crate::ledger::State;
use crate::ledger::tests::Scratch;

/// Two links, each with its neighbour; the default routes go by the first, and say more than the way.
/// No addresses that come by themselves, some time later.
const HOST: &str = "
    link set lo up
    link add one type veth peer name far-one
    link add two type veth peer name far-two
    link set far-one addrgenmode none
    link set far-two addrgenmode none
    link set one addrgenmode none
    link set two addrgenmode none
    link set far-one up
    link set far-two up
    link set one up
    link set two up
    address add 192.0.2.1/24 dev one
    address add 198.51.100.1/24 dev two
    -6 address add 2001:db8:1::1/64 dev one nodad
    -6 address add 2001:db8:2::1/64 dev two nodad
    route add default via 192.0.2.2 dev one proto dhcp metric 100 mtu lock 1400 initcwnd 20 rto_min 50ms src 192.0.2.1
    -6 route add default via 2001:db8:1::2 dev one mtu 1400 hoplimit 60
    route add 203.0.113.128/25 nexthop via 192.0.2.2 dev one weight 2 nexthop via 198.51.100.2 dev two
    -6 route add 2001:db8:7::/48 nexthop via 2001:db8:1::2 dev one weight 2 nexthop via 2001:db8:2::2 dev two
    route add 203.0.113.64/26 via inet6 2001:db8:1::2 dev one
    route add 203.0.113.32/27 via 10.9.9.9 dev one onlink";

/// A host of its own, set up by commands of `ip(8)`, and a ledger for it; says so where that is not
/// possible.
struct Host {
    namespace: Namespace,
    scratch: Scratch,
    ledger: Ledger,
}

impl Host {
    fn new(setup: &str) -> Option<Self> {
        let namespace = match Namespace::create() {
            Ok(namespace) => namespace,
            Err(error @ LinkError::Rights { .. }) => {
                lastbyte_testing::not_tested!("{error}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let scratch = Scratch::new();
        for directory in ["sysctl.d", "modules-load.d"] {
            fs::create_dir(scratch.path(directory)).unwrap();
        }
        let ledger = Ledger::at(scratch.path("state/changes.jsonl"), "boot-1".to_owned());
        let host = Self { namespace, scratch, ledger };
        for command in setup.lines().map(str::trim).filter(|command| !command.is_empty()) {
            if let Err(refused) = host.try_ip(command) {
                lastbyte_testing::not_tested!("ip {command}: {refused}");
                return None;
            }
        }
        Some(host)
    }

    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.namespace.run(work).unwrap()
    }

    /// What `ip(8)` prints, or why it refuses.
    fn try_ip(&self, words: &str) -> Result<String, String> {
        let said = self.run(|| Command::new("ip").args(words.split(' ')).output());
        let said = said.map_err(|error| error.to_string())?;
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().trim().to_owned();
        if said.status.success() { Ok(text(said.stdout)) } else { Err(text(said.stderr)) }
    }

    #[track_caller]
    fn ip(&self, words: &str) -> String {
        self.try_ip(words).unwrap_or_else(|refused| panic!("ip {words}: {refused}"))
    }

    /// All that the main tables hold.
    fn routes(&self) -> String {
        format!("{}\n{}", self.ip("-d route show"), self.ip("-d -6 route show"))
    }

    fn places(&self) -> Places {
        Places {
            sysctl_d: self.scratch.path("sysctl.d"),
            read_too: vec![self.scratch.path("read-too")],
            modules: self.scratch.path("modules"),
            modules_load_d: self.scratch.path("modules-load.d"),
            ..Places::of_this_machine()
        }
    }

    fn apply(&self, what: &Application) -> Result<Applied> {
        self.run(|| apply_at(&self.places(), &self.ledger, what, &mut |_| {}))
    }

    #[track_caller]
    fn refused(&self, what: &Application) -> String {
        let routes = self.routes();
        let error = self.apply(what).unwrap_err().to_string();
        assert_eq!(self.routes(), routes, "{error}");
        assert_eq!(self.ledger.open_changes().unwrap(), [], "{error}");
        assert!(!error.contains('\n'), "{error}");
        error
    }

    fn undo(&self, id: u64) -> Result<Entry> {
        self.run(|| self.ledger.undo(id, &mut |_| {}))
    }

    /// What is said of what is left alone.
    #[track_caller]
    fn told_at_take_back(&self, change: &Change) -> Vec<String> {
        let mut told = Vec::new();
        self.run(|| change.take_back(&mut |line| told.push(line.to_owned()))).unwrap();
        told
    }

    fn states(&self) -> Vec<State> {
        self.ledger.changes().unwrap().iter().map(|entry| entry.state).collect()
    }

    fn congestion_now(&self) -> String {
        self.run(|| default_algorithm().unwrap())
    }

    fn set(&self, key: &str, value: &str) {
        let path = format!("/proc/sys/{}", key.replace('.', "/"));
        self.run(|| fs::write(path, value)).unwrap();
    }
}

fn route_to(to: &str, congestion: &str) -> Application {
    Application::Route { to: to.parse().unwrap(), congestion: congestion.to_owned() }
}

/// One that is not the default of this machine, and that every kernel has.
const OTHER: &str = "reno";

fn machine_wide(congestion: &str, buffers: Option<&str>) -> Application {
    Application::MachineWide {
        congestion: (!congestion.is_empty()).then(|| congestion.to_owned()),
        buffers: buffers.map(|size| size.parse().unwrap()),
    }
}

/// Neither nobody nor root in a user namespace of its own, who has every capability there, has a say
/// in this network.
#[test]
fn without_rights_it_is_one_sentence() {
    const INSIDE: &str = "LASTBYTE_TEST_WITHOUT_RIGHTS";
    const TEST: &str = "apply::tests::without_rights_it_is_one_sentence";
    if std::env::var_os(INSIDE).is_some() {
        let ledger = Ledger::at("/nowhere/changes.jsonl".into(), "boot-1".to_owned());
        let error = check(&ledger, &route_to("203.0.113.7", OTHER)).unwrap_err().to_string();
        assert!(error.contains("203.0.113.7/32 needs CAP_NET_ADMIN: run it as root"), "{error}");
        let error = check(&ledger, &machine_wide(OTHER, None)).unwrap_err().to_string();
        assert_eq!(error, "settings of the whole machine need root: run it with sudo");
        return;
    }
    if lastbyte_sys::process::effective_user() != 0 {
        lastbyte_testing::not_tested!("only root can become nobody");
        return;
    }
    let scratch = Scratch::new();
    // Where everybody may start it. By another process: a child of a test beside this one could hold
    // the file open for writing, and then it cannot be started.
    let me = scratch.path("tests");
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&me).status();
    assert!(copied.unwrap().success());
    let me = me.to_str().unwrap();
    for before in [&[][..], &["unshare", "--user", "--map-root-user"]] {
        let words: Vec<&str> =
            before.iter().copied().chain([me, "--exact", TEST, "--nocapture"]).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env(INSIDE, "").current_dir("/").uid(65534).gid(65534);
        let said = command.output().unwrap();
        let text = [said.stdout, said.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        if !before.is_empty() && !text.contains("running 1 test") {
            lastbyte_testing::not_tested!("users may not make namespaces here: {text}");
            continue;
        }
        assert!(said.status.success() && text.contains("1 passed"), "{text}");
    }
}
