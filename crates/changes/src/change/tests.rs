use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::*;
use crate::ledger::tests::Scratch;

/// A child that is ended with the test, whatever happens.
struct Running(Child);

impl Running {
    /// Starts a shell script that first says that it is ready and then waits for its input to end.
    fn script(setup: &str) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", &format!("{setup} echo ready; while read line; do :; done")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }

    fn pid(&self) -> i32 {
        self.0.id().try_into().unwrap()
    }

    fn signal(&mut self) -> Option<i32> {
        use std::os::unix::process::ExitStatusExt;
        self.0.wait().unwrap().signal()
    }

    fn runs(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_is_ended_politely_and_once() {
    let mut child = Running::script("");
    let change = Change::process("wan", child.pid(), "test").unwrap();
    change.take_back(&mut |_| {}).unwrap();
    assert_eq!(child.signal(), Some(process::SIGTERM));
    change.take_back(&mut |_| {}).unwrap();
}

#[test]
fn a_process_that_ignores_sigterm_is_killed() {
    let mut child = Running::script("trap '' TERM;");
    let ticks = start_ticks(child.pid()).unwrap().unwrap();
    end_process(child.pid(), ticks, Duration::from_millis(50)).unwrap();
    assert_eq!(child.signal(), Some(process::SIGKILL));
}

/// It has ended, but nobody asked for its exit code: it keeps its number and its start.
#[test]
fn a_zombie_counts_as_ended() {
    let mut child = Running::script("");
    let change = Change::process("wan", child.pid(), "test").unwrap();
    change.take_back(&mut |_| {}).unwrap();
    change.take_back(&mut |_| {}).unwrap();
    assert_eq!(child.signal(), Some(process::SIGTERM));
}

#[test]
fn another_process_with_the_same_number_is_left_alone() {
    let mut child = Running::script("");
    let ticks = start_ticks(child.pid()).unwrap().unwrap();
    end_process(child.pid(), ticks - 1, GRACE).unwrap();
    assert!(child.runs());
}

#[test]
fn there_is_no_change_without_a_process() {
    // Above the greatest number the kernel gives (PID_MAX_LIMIT, 2^22).
    let error = Change::process("wan", i32::MAX, "test").unwrap_err();
    assert_eq!(error.to_string(), "no process 2147483647 runs");
    end_process(i32::MAX, 1, GRACE).unwrap();
}

#[test]
fn the_file_of_a_namespace_is_removed_and_nothing_else() {
    let scratch = Scratch::new();
    let change = |path: &Path| Change::Namespace { link: "wan".to_owned(), path: path.to_owned() };

    let empty = scratch.path("empty");
    fs::write(&empty, "").unwrap();
    for _ in 0..2 {
        change(&empty).take_back(&mut |_| {}).unwrap();
        assert!(!empty.exists());
    }
    change(&scratch.path("no/such/directory")).take_back(&mut |_| {}).unwrap();

    let full = scratch.path("full");
    fs::write(&full, "somebody's").unwrap();
    let link = scratch.path("link");
    std::os::unix::fs::symlink("/proc/self/ns/net", &link).unwrap();
    for path in [full, link, scratch.path(".")] {
        let error = change(&path).take_back(&mut |_| {}).unwrap_err().to_string();
        assert!(error.contains("it is left alone"), "{error}");
        assert!(fs::symlink_metadata(&path).is_ok());
    }
}
