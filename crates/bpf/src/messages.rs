//! The messages that libbpf prints, as part of an error.

use std::sync::Mutex;

use lastbyte_sys::process::{self, CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON, CAP_SYS_ADMIN};
use libbpf_rs::{ErrorKind, PrintLevel};

use crate::error::BpfError;

/// Limit on the stored lines: the last of the verifier's log name the instruction and the reason.
const MAX_MESSAGES: usize = 12;

/// What libbpf has printed since collection began. libbpf has one callback for the whole process.
static PRINTED: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// Held while messages are collected, so that one caller at a time does it.
static COLLECTING: Mutex<()> = Mutex::new(());

fn collect(_: PrintLevel, text: String) {
    if let Ok(mut printed) = PRINTED.lock() {
        printed.extend(text.lines().map(str::to_owned));
    }
}

/// Runs an operation of libbpf. Its error includes the messages that libbpf printed meanwhile.
pub(crate) fn with_messages<T>(
    operation: &'static str,
    name: &str,
    act: impl FnOnce() -> libbpf_rs::Result<T>,
) -> Result<T, BpfError> {
    let collecting = COLLECTING.lock();
    libbpf_rs::set_print(Some((PrintLevel::Warn, collect)));
    let take =
        || PRINTED.lock().map(|mut printed| std::mem::take(&mut *printed)).unwrap_or_default();
    take();
    let outcome = act();
    let messages = take();
    drop(collecting);
    outcome.map_err(|error| {
        let name = name.to_owned();
        match error.kind() {
            // With a log it was the verifier, which also returns EACCES.
            ErrorKind::PermissionDenied if !messages.iter().any(|line| line.contains(LOG)) => {
                let rights = process::effective_capabilities().unwrap_or_default();
                BpfError::NotAllowed {
                    operation,
                    name,
                    lacking: lacking(rights),
                    messages: last(messages),
                }
            }
            ErrorKind::AlreadyExists => BpfError::Exists { operation, name },
            _ => BpfError::Refused {
                operation,
                name,
                error: error.to_string(),
                messages: last(messages),
            },
        }
    })
}

/// The capabilities of [`BpfError::NotAllowed`] that are not among these.
fn lacking(rights: u64) -> Vec<&'static str> {
    // CAP_SYS_ADMIN stands for the first two (capabilities(7)).
    let needed = [
        (CAP_BPF | CAP_SYS_ADMIN, "CAP_BPF"),
        (CAP_PERFMON | CAP_SYS_ADMIN, "CAP_PERFMON"),
        (CAP_NET_ADMIN, "CAP_NET_ADMIN"),
    ];
    let lacking = needed.iter().filter(|(any_of, _)| rights & any_of == 0);
    lacking.map(|(_, name)| *name).collect()
}

/// The lines before and after the verifier's log contain this.
const LOG: &str = "PROG LOAD LOG --";

/// The last messages, without the frame of the verifier's log.
fn last(messages: Vec<String>) -> Vec<String> {
    let is_frame = |line: &String| line.trim().is_empty() || line.contains(LOG);
    let mut lines: Vec<String> = messages.into_iter().filter(|line| !is_frame(line)).collect();
    lines.split_off(lines.len().saturating_sub(MAX_MESSAGES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_that_are_lacking_are_named() {
        assert!(lacking(CAP_BPF | CAP_PERFMON | CAP_NET_ADMIN).is_empty());
        assert_eq!(lacking(CAP_SYS_ADMIN), ["CAP_NET_ADMIN"]);
        assert_eq!(lacking(0), ["CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"]);
    }
}
