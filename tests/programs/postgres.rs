//! PostgreSQL and pgbench: no transaction fails, each that was committed is there, and a table comes
//! out as it is.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use super::place::{AT_ONCE, Gate, Server, free_port, succeed};
use crate::support::{Answer, Scratch, answer_within};

#[test]
#[ignore = "needs postgresql"]
fn pgbench_fails_nowhere_and_what_it_committed_is_there() {
    let scratch = Scratch::new();
    let database = Database::start(&scratch);
    let gate = Gate::before(database.port, &scratch);

    database.client("pgbench", gate.port, &["-i", "-q", "-s", "2", "postgres"]);
    let words = ["-c", "8", "-j", "2", "-T", "5", "postgres"];
    let told = database.client("pgbench", gate.port, &words);
    assert!(!told.stderr.contains("aborted"), "{told:#?}");
    for line in told.stdout.lines().filter(|line| line.starts_with("number of failed")) {
        assert!(line.contains(": 0 "), "{told:#?}");
    }
    let processed = "number of transactions actually processed: ";
    let processed = told.stdout.lines().find_map(|line| line.strip_prefix(processed)).unwrap();
    // Each transaction adds the same to four tables, with a line in the history.
    let sums = "SELECT (SELECT count(*) FROM pgbench_history) || ' ' ||
        ((SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history))";
    let told = database.client("psql", gate.port, &["-At", "-c", sums, "postgres"]);
    assert_eq!(told.stdout.trim(), format!("{processed} true"));

    let copy = ["-c", "COPY pgbench_accounts TO STDOUT", "postgres"];
    let direct = database.client("psql", database.port, &copy).stdout;
    assert_eq!(direct.lines().count(), 200_000);
    assert!(database.client("psql", gate.port, &copy).stdout == direct, "the copies differ");
    gate.assert_complete(12..=12);
}

/// A cluster of its own, whose server is not root: it refuses to be.
struct Database {
    programs: PathBuf,
    port: u16,
    server: Server,
}

impl Database {
    #[track_caller]
    fn start(scratch: &Scratch) -> Self {
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
        let server = Server::at(port, scratch, &mut server);
        Self { programs, port, server }
    }

    /// Runs a client of it, which has to succeed.
    #[track_caller]
    fn client(&self, program: &str, port: u16, words: &[&str]) -> Answer {
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
