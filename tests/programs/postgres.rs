//! PostgreSQL and pgbench: no transaction fails, each that was committed is there, and a table comes
//! out as it is.

use super::place::Gate;
use crate::support::Scratch;
use crate::support::servers::postgres::Database;

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
