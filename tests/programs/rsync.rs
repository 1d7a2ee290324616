//! rsync over ssh: a tree there and back, and again after a change.

use std::fs;
use std::process::Command;

use super::place::{Gate, Server, free_port, shell, succeed, write_random};
use crate::support::Scratch;

#[test]
#[ignore = "needs rsync and sshd"]
fn rsync_over_ssh_makes_the_trees_the_same() {
    let scratch = Scratch::new();
    let ssh = Ssh::start(&scratch);
    let gate = Gate::before(ssh.port, &scratch);
    let path = |name: &str| scratch.path().join(name);
    let tree = path("tree");
    for directory in 0..20 {
        let directory = tree.join(format!("directory {directory}"));
        fs::create_dir_all(&directory).unwrap();
        for file in 0..20 {
            write_random(&directory.join(format!("file {file}")), 2401 * file, 7);
        }
    }
    write_random(&tree.join("large"), 64 << 20, 7);

    let (tree, copy, back) = (tree.display(), path("copy"), path("back"));
    let (copy, back) = (copy.display(), back.display());
    let remote = format!("{}@127.0.0.1", ssh.user);
    let rsync = format!("rsync -a --delete -e '{}'", ssh.command(gate.port));
    let there_and_back = || {
        shell(&format!("{rsync} {tree}/ {remote}:{copy}"));
        shell(&format!("{rsync} {remote}:{copy}/ {back}"));
        shell(&format!("diff -r {tree} {copy}; diff -r {tree} {back}"));
    };
    there_and_back();
    fs::remove_dir_all(scratch.path().join("tree/directory 3")).unwrap();
    fs::write(scratch.path().join("tree/new"), "new").unwrap();
    shell(&format!("echo end >> {tree}/large"));
    there_and_back();
    gate.assert_flows(4..=4);
}

/// An sshd with keys of its own, and the user who may come in.
struct Ssh {
    _server: Server,
    port: u16,
    user: String,
    config: String,
}

impl Ssh {
    #[track_caller]
    fn start(scratch: &Scratch) -> Self {
        let at = |name: &str| scratch.path().join(name).display().to_string();
        for key in ["host", "user"] {
            let words = ["-q", "-t", "ed25519", "-N", "", "-f", &at(key)];
            succeed(Command::new("ssh-keygen").args(words));
        }
        let user = succeed(Command::new("id").arg("-un")).stdout.trim().to_owned();
        // sshd wants it, and distributions make it when they start theirs.
        let _ = fs::create_dir("/run/sshd");
        let port = free_port();
        let sshd_config = scratch.file(
            "sshd_config",
            format!(
                "ListenAddress 127.0.0.1:{port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\n\
                 StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n",
                at("host"),
                at("user.pub")
            ),
        );
        let config = scratch.file(
            "ssh_config",
            format!(
                "IdentityFile {}\nIdentitiesOnly yes\nUserKnownHostsFile {}\n\
                 StrictHostKeyChecking accept-new\nLogLevel ERROR\n",
                at("user"),
                at("known")
            ),
        );
        let mut sshd = Command::new("/usr/sbin/sshd");
        let server = Server::at(port, scratch, sshd.args(["-D", "-e", "-f", &sshd_config]));
        Self { _server: server, port, user, config }
    }

    /// The ssh that comes in by this port.
    fn command(&self, port: u16) -> String {
        format!("ssh -F {} -p {port}", self.config)
    }
}
