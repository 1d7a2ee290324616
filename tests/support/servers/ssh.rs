//! sshd, with keys that are its own.

use std::fs;
use std::process::Command;

use super::{Server, free_port, succeed};
use crate::support::Scratch;

/// An sshd with keys of its own, and the user who may come in.
#[derive(Debug)]
pub(crate) struct Ssh {
    _server: Server,
    pub(crate) port: u16,
    pub(crate) user: String,
    config: String,
}

impl Ssh {
    #[track_caller]
    pub(crate) fn start(scratch: &Scratch) -> Self {
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
    pub(crate) fn command(&self, port: u16) -> String {
        format!("ssh -F {} -p {port}", self.config)
    }
}
