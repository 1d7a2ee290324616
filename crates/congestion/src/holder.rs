//! What can hold an algorithm in the kernel.

use std::fmt;
use std::path::PathBuf;

/// What holds an algorithm in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Holder {
    /// The kernel itself, or one of its modules.
    Kernel,
    /// A file of bpffs, which keeps it.
    File(PathBuf),
    /// A process: the algorithm is unloaded when it ends.
    Process {
        /// Its number.
        pid: u32,
        /// Its command line in one line, no more than 100 characters of it.
        command: String,
    },
    /// Nothing: a process that was killed left it, on a kernel before 6.4.
    Nobody,
    /// A holder that this process cannot see.
    Unknown,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel => write!(f, "the kernel's own"),
            Self::File(path) => write!(f, "kept by {}", path.display()),
            Self::Process { pid, command } => write!(f, "held by process {pid} ({command})"),
            Self::Nobody => write!(f, "left by a process that has ended"),
            Self::Unknown => write!(f, "held by a process that cannot be seen from here"),
        }
    }
}
