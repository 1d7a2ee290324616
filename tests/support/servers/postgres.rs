//! PostgreSQL, with a cluster that is its own.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use super::{AT_ONCE, Server, free_port, succeed};
use crate::support::{Answer, Scratch, answer_within};

/// A cluster of its own, whose server is not root: it refuses to be.
#[derive(Debug)]
pub(crate) struct Database {
    programs: PathBuf,
    pub(crate) port: u16,
    /// Where its Unix socket is.
    pub(crate) folder: PathBuf,
    server: Server,
}

impl Database {
    #[track_caller]
    pub(crate) fn start(scratch: &Scratch) -> Self {
        let (programs, port) = (programs(), free_port());
        let home = scratch.path().join("postgres");
        fs::create_dir(&home).unwrap();
        let user = user_of_server();
        if let Some((uid, gid)) = user {
            chown(&home, Some(uid), Some(gid)).unwrap();
        }
        let command = |program: &str| {
            let mut command = Command::new(programs.join(program));
            if let Some((uid, gid)) = user {
                command.uid(uid).gid(gid);
            }
            command.current_dir(&home);
            command
        };
        let data = home.join("data");
        let words = ["-A", "trust", "-U", "postgres", "--no-sync", "-D"];
        succeed(command("initdb").args(words).arg(&data));
        let mut server = command("postgres");
        server.arg("-D").arg(&data).arg("-k").arg(&home).args(["-h", "127.0.0.1"]);
        server.args(["-F", "-p", &port.to_string()]);
        let mut server = Server::at(port, scratch, &mut server);
        // It takes connections before it can serve them.
        server.wait_for("readiness", || {
            let port = port.to_string();
            let ask = ["-q", "-h", "127.0.0.1", "-p", &port];
            answer_within(Command::new(programs.join("pg_isready")).args(ask), AT_ONCE).code() == 0
        });
        Self { programs, port, folder: home, server }
    }

    /// Runs a client of it, which has to succeed.
    #[track_caller]
    pub(crate) fn client(&self, program: &str, port: u16, words: &[&str]) -> Answer {
        let mut client = Command::new(self.programs.join(program));
        client.args(["-h", "127.0.0.1", "-U", "postgres", "-p", &port.to_string()]).args(words);
        succeed(&mut client)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Its processes have groups of their own; they end with it when it may end them.
        self.server.end_if_running("QUIT");
    }
}

/// Where the programs of the newest PostgreSQL are: Debian keeps them out of the PATH.
#[track_caller]
fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let places = versions.map(|version| version.unwrap().path().join("bin"));
    let newest = places.filter(|place| place.join("initdb").exists()).max();
    newest.expect("there is no PostgreSQL: `make test-real` installs it")
}

/// The user and the group that a server is to be started as by root.
fn user_of_server() -> Option<(u32, u32)> {
    let id = |words: &[&str]| {
        let told = answer_within(Command::new("id").args(words), AT_ONCE).with_code(0);
        told.stdout.trim().parse::<u32>().unwrap()
    };
    (id(&["-u"]) == 0).then(|| (id(&["-u", "postgres"]), id(&["-g", "postgres"])))
}
