//! `lastbyte doctor` and containers of real runtimes: a program in one loses bytes, and the doctor, which
//! looks on from outside, says which container it is in, by each tier; and what it says inside of one.
//!
//! Images are not needed: a container sees the machine's own `/usr`. Each has a network of its own that
//! nobody else is in. A runtime that is missing, or may not start a container here, is said to be.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{
    LASTBYTE, LATER, SOON, Scratch, answer_within, holds_within, lastbyte, signal_to, unique,
};

/// Writes until nothing more is taken, waits for so many seconds as the second argument says, and closes
/// with 5 bytes unread: what has not arrived is lost. The peer is a process of its own. Then again, until
/// stdin ends, as it does with the test, and at most so many times as the first argument says.
const LOSES: &str = r#"
import os, select, socket, sys
def round():
    listener = socket.create_server(("127.0.0.1", 0))
    told, tell = os.pipe()
    peer = os.fork()
    if peer == 0:
        near, _ = listener.accept()
        near.send(b"hello")
        os.close(tell)
        os.read(told, 1)
        try:
            while near.recv(65536):
                pass
        except ConnectionResetError:
            pass
        os._exit(0)
    os.close(told)
    far = socket.create_connection(listener.getsockname())
    far.recv(5, socket.MSG_PEEK | socket.MSG_WAITALL)
    far.setblocking(False)
    try:
        while True:
            far.send(b"x" * 65536)
    except BlockingIOError:
        pass
    goes_on = not select.select([0], [], [], float(sys.argv[2]))[0]
    far.close()
    os.close(tell)
    os.waitpid(peer, 0)
    return goes_on
print("begun", flush=True)
for _ in range(int(sys.argv[1])):
    if not round():
        break
"#;
/// Rounds for as long as any test takes, and long enough each to be seen in tables.
const ROUNDS: &str = "200";
const WAIT: &str = "1.5";

// --- containers ----------------------------------------------------------------------------------

#[test]
#[ignore = "starts a container: needs root and runc, and takes half a minute"]
fn runc_by_its_own_name() {
    let scratch = Scratch::new();
    let name = unique("lastbyte-test");
    let Some(container) = runc(&scratch, &name, &["python3", "-c", LOSES, ROUNDS, WAIT]) else {
        return;
    };
    let patient = Patient::of(container, &scratch);
    patient.is_told_of(|finding| {
        assert_eq!(
            (&finding["container"], &finding["container_name"]),
            (&json!(name), &Value::Null)
        );
    });
}

#[test]
#[ignore = "starts a container: needs root and podman, and takes half a minute"]
fn podman_by_id_and_name() {
    let scratch = Scratch::new();
    let name = unique("lastbyte-test");
    let Some(container) = podman(&scratch, &name, &["python3", "-c", LOSES, ROUNDS, WAIT]) else {
        return;
    };
    let patient = Patient::of(container, &scratch);
    let id = fs::read_to_string(scratch.path().join("id")).unwrap();
    patient.is_told_of(|finding| {
        assert_eq!(
            (&finding["container"], &finding["container_name"]),
            (&json!(id[..12]), &json!(name))
        );
    });
    drop(patient);
    // Where its containers' control groups were; another podman's may be there.
    for folder in fs::read_dir("/sys/fs/cgroup").unwrap().flatten() {
        for group in ["libpod_parent/conmon", "libpod_parent"] {
            let _ = fs::remove_dir(folder.path().join(group));
        }
    }
}

/// The doctor is the container's first program.
#[test]
#[ignore = "starts a container: needs root and runc"]
fn inside_of_a_container_its_own_numbers_are_said() {
    let scratch = Scratch::new();
    let lastbyte = "/lastbyte/lastbyte";
    let words = [lastbyte, "doctor", "--json", "--", "python3", "-c", LOSES, "1", WAIT];
    let Some(mut doctor) = runc(&scratch, &unique("lastbyte-test-in"), &words) else { return };
    let mut found = None;
    let mut tier = None;
    while let Some(line) = doctor.line() {
        // The patient's own words are among them.
        let Ok(line) = serde_json::from_str::<Value>(&line) else { continue };
        tier = tier.or_else(|| line["tier"].as_str().map(str::to_owned));
        if line["type"] == "finding" && line["class"] == "loss" {
            found = Some(line);
        }
    }
    let found = found.unwrap_or_else(|| panic!("no loss was found: {}", doctor.talk()));
    // Without rights it is the lowest tier, and a network of its own is its own.
    assert_eq!((tier.as_deref(), &found["code"]), (Some("procfs"), &json!("LB101")), "{found:#}");
    assert_eq!((&found["name"], &found["network"]), (&json!("python3"), &Value::Null), "{found:#}");
    assert!(found["pid"].as_u64().unwrap() < 10, "{found:#}");
}

#[test]
#[ignore = "makes a network namespace: needs root and ip, and takes half a minute"]
fn a_network_namespace_by_its_name() {
    let scratch = Scratch::new();
    let name = unique("lastbyte-test");
    if !runs(Command::new("ip").args(["netns", "add", &name])) {
        return;
    }
    // The shell outlives this test if that is killed, and takes the name away.
    let script = format!(
        "ip -n {name} link set lo up; ip netns exec {name} sh -c 'echo $$ > {0}/pid; exec python3 -c \
         \"$1\" {ROUNDS} {WAIT}' sh \"$1\"; ip netns del {name}",
        scratch.path().display()
    );
    let command = &mut Command::new("sh");
    let patient =
        Patient::of(Talking::start(command.args(["-c", &script, "sh", LOSES]), &scratch), &scratch);
    patient.is_told_of(|finding| {
        assert_eq!((&finding["network_name"], &finding["container"]), (&json!(name), &Value::Null));
    });
    drop(patient);
    assert!(!Path::new("/run/netns").join(name).exists());
}

/// Of a process that lives for some hundredths of a second `/proc` may have nothing more to say.
#[test]
#[ignore = "makes a control group: needs root and cgroup2"]
fn who_is_gone_was_in_a_container_too() {
    const TIMES: usize = 10;
    let scratch = Scratch::new();
    if !runs(Command::new("python3").args(["-c", ""])) {
        return;
    }
    let Some(groups) = groups_of_version_2() else {
        lastbyte_testing::not_tested!("there is no cgroup2");
        return;
    };
    let mut doctor = Talking::start(
        &mut lastbyte(["doctor", "--json", "--for", "120s", "--tier", "bpf"]),
        &scratch,
    );
    if doctor.line().is_none() {
        return was_refused(&mut doctor);
    }
    // A name as docker gives, of a container that is not there.
    let id = format!("{:064x}", std::process::id());
    let id = format!("f{}", &id[1..]).replacen('0', "a", 11);
    let group = groups.join(format!("docker-{id}.scope"));
    // Nothing stays if this test is killed.
    let script = format!(
        "mkdir {0}; for _ in $(seq {TIMES}); do (echo 0 > {0}/cgroup.procs; exec python3 -c \"$1\" 1 0); \
         done; rmdir {0}",
        group.display()
    );
    let told = answer_within(Command::new("sh").args(["-c", &script, "sh", LOSES]), LATER);
    assert_eq!(told.code(), 0, "{told:#?}");
    let mut found = 0;
    while found < TIMES {
        let Some(line) = doctor.line() else { panic!("{found} were found: {}", doctor.talk()) };
        let line: Value = serde_json::from_str(&line).unwrap();
        found += usize::from(line["code"] == "LB101" && line["container"] == id[..12]);
    }
    signal_to("INT", &doctor.child.id().to_string());
}

/// Where control groups of version 2 are mounted.
fn groups_of_version_2() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mut mounts = mounts.lines().map(|line| line.split(' '));
    let mut mount = mounts.find(|mount| mount.clone().nth(2) == Some("cgroup2"))?;
    Some(PathBuf::from(mount.nth(1)?))
}

/// What loses bytes, by its number on this machine.
struct Patient {
    _program: Talking,
    pid: u32,
    network: u64,
}

impl Patient {
    /// The runtime writes its number down.
    fn of(mut program: Talking, scratch: &Scratch) -> Self {
        let begun = program.line();
        assert_eq!(begun.as_deref(), Some("begun"), "{}", program.talk());
        let pid = fs::read_to_string(scratch.path().join("pid")).unwrap().trim().parse().unwrap();
        let network = fs::metadata(format!("/proc/{pid}/ns/net")).unwrap().ino();
        assert_ne!(network, fs::metadata("/proc/self/ns/net").unwrap().ino());
        Self { _program: program, pid, network }
    }

    /// By every tier that can be had here, of the whole machine and of the process alone.
    fn is_told_of(&self, check: impl Fn(&Value)) {
        let pid = self.pid.to_string();
        for tier in ["bpf", "tracefs", "procfs"] {
            for scope in [&[][..], &["--pid", &pid]] {
                let Some(finding) = self.finding(tier, scope) else { continue };
                let seen = (finding["pid"].as_u64(), finding["name"].as_str());
                assert_eq!(seen, (Some(self.pid.into()), Some("python3")), "{finding:#}");
                check(&finding);
            }
        }
    }

    /// The first loss in its network that the doctor tells of.
    fn finding(&self, tier: &str, scope: &[&str]) -> Option<Value> {
        let scratch = Scratch::new();
        let mut command = lastbyte(["doctor", "--json", "--for", "120s", "--tier", tier]);
        let mut doctor = Talking::start(command.args(scope), &scratch);
        while let Some(line) = doctor.line() {
            let line: Value = serde_json::from_str(&line).unwrap();
            if line["code"] == "LB101" && line["class"] == "loss" && line["network"] == self.network
            {
                signal_to("INT", &doctor.child.id().to_string());
                return Some(line);
            }
        }
        was_refused(&mut doctor);
        None
    }
}

// --- runtimes --------------------------------------------------------------------------------------

/// Runs a program in a container of runc's.
fn runc(scratch: &Scratch, name: &str, words: &[&str]) -> Option<Talking> {
    let mounts = fill(&scratch.path().join("rootfs"));
    let bind = |(from, to): &(String, String)| json!({"type": "bind", "source": from, "destination": to, "options": ["rbind", "ro"]});
    let mut mounts: Vec<Value> = mounts.iter().map(bind).collect();
    mounts.push(json!({"type": "proc", "source": "proc", "destination": "/proc"}));
    let namespaces = ["pid", "ipc", "uts", "mount", "network"].map(|one| json!({"type": one}));
    let configure = |words: &[&str]| {
        let config = json!({
            "ociVersion": "1.0.2",
            "process": {
                "args": words, "cwd": "/", "user": {"uid": 0, "gid": 0},
                "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
            },
            "root": {"path": "rootfs"},
            "mounts": mounts,
            "linux": {"namespaces": namespaces},
        });
        scratch.file("config.json", config.to_string());
    };
    let run = || {
        let mut command = Command::new("runc");
        command.arg("run").arg("--bundle").arg(scratch.path());
        command.arg("--pid-file").arg(scratch.path().join("pid")).arg(name);
        command
    };
    configure(&["true"]);
    if !runs(&mut run()) {
        return None;
    }
    configure(words);
    Some(Talking::start(&mut run(), scratch))
}

/// Runs a program in a container of podman's, whose files are all in the place of this test.
fn podman(scratch: &Scratch, name: &str, words: &[&str]) -> Option<Talking> {
    let rootfs = scratch.path().join("rootfs");
    let mounts = fill(&rootfs);
    let run = |words: &[&str]| {
        let mut command = Command::new("podman");
        for (option, folder) in [("--root", "root"), ("--runroot", "run"), ("--tmpdir", "tmp")] {
            command.arg(option).arg(scratch.path().join(folder));
        }
        command.args([
            "--storage-driver",
            "vfs",
            "--cgroup-manager",
            "cgroupfs",
            "--runtime",
            "runc",
        ]);
        command.args(["run", "--rm", "--interactive", "--network", "none", "--name", name]);
        // What it sets else may be more than is allowed here.
        command.args(["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]);
        command.args(["--pids-limit", "0"]);
        for (from, to) in &mounts {
            command.arg("--volume").arg(format!("{from}:{to}:ro"));
        }
        for (option, file) in [("--pidfile", "pid"), ("--cidfile", "id")] {
            command.arg(option).arg(scratch.path().join(file));
        }
        command.arg("--rootfs").arg(&rootfs).args(words);
        command
    };
    if !runs(&mut run(&["true"])) {
        return None;
    }
    // It writes no id over another.
    fs::remove_file(scratch.path().join("id")).unwrap();
    Some(Talking::start(&mut run(words), scratch))
}

/// Makes the root of a container, and says what is to be mounted there: the machine's programs, and ours.
fn fill(root: &Path) -> Vec<(String, String)> {
    let mut mounts = vec![("/usr".to_owned(), "/usr".to_owned())];
    for name in ["bin", "lib", "lib64", "sbin"] {
        let from = Path::new("/").join(name);
        match fs::read_link(&from) {
            Ok(target) => {
                fs::create_dir_all(root).unwrap();
                symlink(target, root.join(name)).unwrap();
            }
            Err(_) if from.is_dir() => mounts.push((format!("/{name}"), format!("/{name}"))),
            Err(_) => {}
        }
    }
    let ours = Path::new(LASTBYTE).parent().unwrap();
    mounts.push((ours.to_str().unwrap().to_owned(), "/lastbyte".to_owned()));
    let folders = mounts.iter().map(|(_, to)| to.as_str());
    for folder in folders.chain(["/proc", "/dev", "/sys", "/tmp", "/run", "/etc"]) {
        fs::create_dir_all(root.join(&folder[1..])).unwrap();
    }
    mounts
}

/// Whether a command does what it is told. Not, aloud, where it is not installed or this machine refuses what
/// a container needs; that it fails for another reason is a failure.
#[track_caller]
fn runs(command: &mut Command) -> bool {
    if lastbyte_sys::process::effective_user() != 0 {
        lastbyte_testing::not_tested!("needs root");
        return false;
    }
    let program = command.get_program().to_string_lossy().into_owned();
    match Command::new(&program).arg("--version").output() {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {
            lastbyte_testing::not_tested!("there is no {program}");
            return false;
        }
        Err(error) => panic!("{program}: {error}"),
    }
    let told = answer_within(command, LATER);
    if told.code() == 0 {
        return true;
    }
    let said = told.stderr.to_lowercase();
    assert!(REFUSALS.iter().any(|refusal| said.contains(refusal)), "{command:?}: {told:#?}");
    lastbyte_testing::not_tested!("{program} is refused here: {}", told.stderr.trim());
    false
}

/// What the kernel says, by its runtimes, where a machine does not allow what a container needs: `EPERM`,
/// `EACCES`, `EROFS` of `/sys/fs/cgroup`.
const REFUSALS: [&str; 3] =
    ["operation not permitted", "permission denied", "read-only file system"];

/// The doctor has ended without a finding: it has to have been refused this tier, by one sentence, which is
/// passed on.
#[track_caller]
fn was_refused(doctor: &mut Talking) {
    let talk = doctor.talk();
    assert_eq!(doctor.child.wait().unwrap().code(), Some(2), "{talk}");
    let is_one_sentence = talk.lines().count() == 1 && talk.starts_with("lastbyte: ");
    assert!(is_one_sentence, "{talk}");
    lastbyte_testing::not_tested!("{}", talk.trim());
}

// --- programs --------------------------------------------------------------------------------------

/// A program whose lines are read while it runs. When dropped it is ended, by the end of its stdin or by
/// force.
struct Talking {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: PathBuf,
    until: Instant,
}

impl Talking {
    fn start(command: &mut Command, scratch: &Scratch) -> Self {
        let errors = scratch.path().join("errors");
        command.stderr(fs::File::create(&errors).unwrap());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (line, lines) = mpsc::channel();
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).all(|text| line.send(text).is_ok());
        });
        let stdin = child.stdin.take();
        Self { child, stdin, lines, errors, until: Instant::now() + LATER + SOON }
    }

    /// The next line; none at its end.
    fn line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(self.until.saturating_duration_since(Instant::now())) {
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("it does not end: {}", self.talk()),
            line => line.ok(),
        }
    }

    /// What it said on stderr.
    fn talk(&self) -> String {
        fs::read_to_string(&self.errors).unwrap_or_default()
    }
}

impl Drop for Talking {
    fn drop(&mut self) {
        self.stdin = None;
        let has_ended = || !matches!(self.child.try_wait(), Ok(None));
        // The doctor does not look at its stdin.
        if !holds_within(Duration::from_secs(5), has_ended) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
