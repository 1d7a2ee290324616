//! git: what is cloned and pushed through the gate has all its objects, and they are whole.

use super::place::Gate;
use crate::support::Scratch;
use crate::support::servers::git::{commit_all, git, git_command};
use crate::support::servers::{Server, free_port, shell, write_random};

#[test]
#[ignore = "needs git"]
fn a_clone_and_a_push_have_all_their_objects() {
    let scratch = Scratch::new();
    let path = |name: &str| scratch.path().join(name);
    let origin = path("origin");
    git(scratch.path(), &["init", "-q", "-b", "main", "origin"]);
    for commit in 1..=20 {
        write_random(&origin.join(format!("file {commit}")), 1 << 20, commit);
        commit_all(&origin);
    }
    git(scratch.path(), &["clone", "-q", "--bare", "origin", "served"]);

    let port = free_port();
    let mut daemon = git_command(scratch.path());
    daemon.args(["daemon", "--export-all", "--enable=receive-pack", "--listen=127.0.0.1"]);
    let base = format!("--base-path={}", scratch.path().display());
    let _daemon = Server::at(port, &scratch, daemon.args([base, format!("--port={port}")]));
    let gate = Gate::before(port, &scratch);
    let url = format!("git://{}/served", gate.address());

    let clone = |name: &str| {
        git(scratch.path(), &["clone", "-q", &url, name]);
        git(&path(name), &["fsck", "--full", "--strict"]);
        git(&path(name), &["rev-parse", "HEAD"]).stdout
    };
    assert_eq!(clone("first"), git(&origin, &["rev-parse", "HEAD"]).stdout);
    write_random(&path("first").join("more"), 20 << 20, 99);
    commit_all(&path("first"));
    git(&path("first"), &["push", "-q", "origin", "main"]);
    git(&path("served"), &["fsck", "--full", "--strict"]);
    assert_eq!(clone("second"), git(&path("first"), &["rev-parse", "HEAD"]).stdout);
    shell(&format!("diff -r -x .git {} {}", path("first").display(), path("second").display()));
    gate.assert_complete(3..=3);
}
