//! MariaDB: what is dumped through the gate is what is there, and what is restored through it too.

use std::process::Command;

use super::place::Gate;
use crate::support::Scratch;
use crate::support::servers::{Server, first_word, free_port, shell, succeed};

#[test]
#[ignore = "needs MariaDB"]
fn a_dump_is_whole_and_so_is_what_is_restored_from_it() {
    let scratch = Scratch::new();
    let (mut server, port) = mariadb_server(&scratch);
    let gate = Gate::before(port, &scratch);
    let client = |program: &str, port: u16| {
        format!("{program} --no-defaults --protocol=TCP -h127.0.0.1 -uroot -P{port}")
    };
    let direct = client("mariadb", port);
    let fill = "CREATE DATABASE one; CREATE DATABASE two; USE one;
        CREATE TABLE one.t (id INT PRIMARY KEY, small CHAR(40), large LONGBLOB);
        INSERT INTO one.t SELECT seq, SHA1(seq), REPEAT(SHA1(-seq), seq DIV 5) FROM seq_1_to_4000;
        INSERT INTO one.t VALUES (0, '', REPEAT(SHA1('large'), 400000))";
    shell(&format!("{direct} -e \"{fill}\""));

    let dump = |port: u16, base: &str| {
        let dump = client("mariadb-dump", port);
        format!("{dump} --skip-comments --single-transaction --max-allowed-packet=64M {base}")
    };
    let digest = |line: &str| first_word(&shell(&format!("{line} | sha256sum")));
    let there = digest(&dump(port, "one"));
    assert_eq!(digest(&dump(gate.port, "one")), there);
    let restore = client("mariadb", gate.port);
    shell(&format!("{} | {restore} --max-allowed-packet=64M two", dump(gate.port, "one")));
    assert_eq!(digest(&dump(port, "two")), there);
    gate.assert_complete(3..=3);
    server.end_if_running("TERM");
}

/// A server with nothing in it, whose root has no password.
fn mariadb_server(scratch: &Scratch) -> (Server, u16) {
    let (data, port) = (scratch.path().join("mariadb"), free_port());
    let at = |name: &str| format!("--{name}={}", scratch.path().join(name).display());
    let data = format!("--datadir={}", data.display());
    let user = first_word(&succeed(Command::new("id").arg("-un")));
    let user = format!("--user={user}");
    let mut install = Command::new("mariadb-install-db");
    install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
    succeed(install.args([&user, &data]));
    let mut server = Command::new("/usr/sbin/mariadbd");
    server.args(["--no-defaults", &user, &data, &at("socket"), &at("pid-file")]);
    server.args(["--bind-address=127.0.0.1", "--max-allowed-packet=64M"]);
    server.args(["--innodb-flush-log-at-trx-commit=0", &format!("--port={port}")]);
    let server = Server::at(port, scratch, &mut server);
    (server, port)
}
