//! rsync over ssh: a tree there and back, and again after a change.

use std::fs;

use super::place::Gate;
use crate::support::Scratch;
use crate::support::servers::ssh::Ssh;
use crate::support::servers::{shell, write_random};

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
