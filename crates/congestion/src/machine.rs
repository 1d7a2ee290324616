//! What is loaded on this machine, and who holds it.

use std::fmt;
use std::path::PathBuf;

use lastbyte_host::Proc;

use crate::catalogue::is_of_catalogue;
use crate::error::CongestionError;
use crate::kept::{kept, unload_kept};
use crate::load;

/// Who holds an algorithm in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Holder {
    /// It is the kernel's own, or one of its modules.
    Kernel,
    /// A file of bpffs: it was kept.
    File(PathBuf),
    /// A process, which ends it by ending.
    Process {
        /// Its number.
        pid: u32,
        /// Its command line in one line, no more than 100 characters of it.
        command: String,
    },
    /// Nobody: a process that was killed left it, on a kernel before 6.4.
    Nobody,
    /// Somebody who cannot be seen from here.
    Unknown,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel => write!(f, "the kernel's own"),
            Self::File(path) => write!(f, "kept by {}", path.display()),
            Self::Process { pid, command } => write!(f, "held by process {pid} ({command})"),
            Self::Nobody => write!(f, "left by a process that has ended"),
            Self::Unknown => write!(f, "held by somebody who cannot be seen from here"),
        }
    }
}

/// The algorithms that sockets can ask for (`net.ipv4.tcp_available_congestion_control`).
///
/// # Errors
/// The file cannot be read: there is no `/proc`, or no TCP.
pub fn available() -> Result<Vec<String>, CongestionError> {
    words("tcp_available_congestion_control")
}

/// Whether sockets can ask for an algorithm.
///
/// # Errors
/// As [`available`].
pub fn is_available(name: &str) -> Result<bool, CongestionError> {
    Ok(available()?.iter().any(|one| one == name))
}

/// Those that programs without rights may use (`net.ipv4.tcp_allowed_congestion_control`).
///
/// # Errors
/// As [`available`].
pub fn allowed() -> Result<Vec<String>, CongestionError> {
    words("tcp_allowed_congestion_control")
}

/// What new sockets of this network namespace have (`net.ipv4.tcp_congestion_control`).
///
/// # Errors
/// As [`available`].
pub fn default_algorithm() -> Result<String, CongestionError> {
    Ok(words("tcp_congestion_control")?.join(" "))
}

/// Those that are loaded of the catalogue, with their holders.
#[must_use]
pub fn holders() -> Vec<(String, Holder)> {
    let available = available().unwrap_or_default();
    let ours = available.into_iter().filter(|name| is_of_catalogue(name));
    ours.map(|name| (name.clone(), holder_of(&name))).collect()
}

/// Unloads an algorithm that a file keeps, or that nobody holds.
///
/// # Errors
/// [`CongestionError::NotLoaded`], [`CongestionError::HeldElsewhere`], and what the kernel says.
pub fn unregister(name: &str) -> Result<(), CongestionError> {
    if !is_available(name)? {
        return Err(CongestionError::NotLoaded(name.to_owned()));
    }
    match holder_of(name) {
        Holder::File(file) => unload_kept(&file),
        Holder::Nobody => load::unload_left(name),
        holder => Err(CongestionError::HeldElsewhere { name: name.to_owned(), holder }),
    }
}

/// Who holds one that is loaded, of the catalogue or not. What is not of the catalogue seems to be the
/// kernel's to who may not ask (`CAP_SYS_ADMIN`).
#[must_use]
pub fn holder_of(name: &str) -> Holder {
    if let Some((_, file)) = kept().into_iter().find(|(of, _)| of == name) {
        return Holder::File(file);
    }
    match load::trace_of(name) {
        Some(line) => process_with(&line).unwrap_or_else(|| {
            // A link that nobody can be seen to have is somebody's; a map holds itself.
            if line.starts_with("map_id") { Holder::Nobody } else { Holder::Unknown }
        }),
        None if is_of_catalogue(name) => Holder::Unknown,
        None => Holder::Kernel,
    }
}

/// The process that has a descriptor whose `/proc/PID/fdinfo` has such a line.
fn process_with(line: &str) -> Option<Holder> {
    let proc = Proc::default();
    let pid = proc.pids().ok()?.into_iter().find(|pid| proc.has_descriptor_with(*pid, line))?;
    Some(Holder::Process { pid, command: one_line(&proc.command(pid, LONGEST)) })
}

/// So many bytes of a command line are read: more than are shown.
const LONGEST: usize = 4096;

/// A command line, which may be long, and several lines.
fn one_line(command: &str) -> String {
    const MOST: usize = 100;
    let mut line: String =
        command.chars().map(|one| if one.is_control() { ' ' } else { one }).take(MOST).collect();
    if command.chars().nth(MOST).is_some() {
        line.push_str("...");
    }
    line
}

fn words(file: &str) -> Result<Vec<String>, CongestionError> {
    let path = || PathBuf::from("/proc/sys/net/ipv4").join(file);
    let failed = |error| CongestionError::File { path: path(), error };
    let text = Proc::default().sysctl(&format!("net.ipv4.{file}")).map_err(failed)?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_one_line() {
        assert_eq!(one_line("lastbyte cc load"), "lastbyte cc load");
        assert_eq!(one_line("sh -c a\nb\x1bc"), "sh -c a b c");
        assert_eq!(one_line(""), "");
        assert_eq!(one_line(&"x".repeat(5000)).len(), 103);
    }
}
