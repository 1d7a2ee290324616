//! A WebSocket and gRPC, each with a client and a server in Python that check what they get.

use std::process::Command;

use super::place::Gate;
use crate::support::servers::{Server, succeed};
use crate::support::{Scratch, answer};

#[test]
#[ignore = "needs python3-websockets"]
fn a_websocket_carries_messages_both_ways() {
    talk("websocket.py", "websockets");
}

#[test]
#[ignore = "needs python3-grpcio"]
fn grpc_calls_and_streams() {
    talk("rpc.py", "grpc");
}

/// Runs a script that is server and client, the client through a gate, in one connection.
#[track_caller]
fn talk(script: &str, module: &str) {
    let scratch = Scratch::new();
    let script = format!("{}/../../tests/programs/{script}", env!("CARGO_MANIFEST_DIR"));
    let python = python_with(module);
    let mut serve = Command::new(python);
    let (_server, port) =
        Server::that_says("listening on ", &scratch, serve.args([&script, "serve"]));
    let gate = Gate::before(port, &scratch);
    let told = succeed(Command::new(python).args([&script, "ask", &gate.address()]));
    assert_eq!(told.stdout.trim(), "all as it should be", "{told:#?}");
    gate.assert_flows(1..=1);
}

/// A Python that has this module: Debian's packages are for the system's own.
#[track_caller]
fn python_with(module: &str) -> &'static str {
    let import = format!("import {module}");
    let has = |python: &&str| {
        let mut python = Command::new(python);
        python.output().is_ok() && answer(python.args(["-c", &import])).code() == 0
    };
    let found = ["python3", "/usr/bin/python3"].into_iter().find(has);
    found.unwrap_or_else(|| panic!("no python3 has {module}: `make test-real` installs it"))
}
