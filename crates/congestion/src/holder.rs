//! Who can hold an algorithm in the kernel.

use std::fmt;
use std::path::PathBuf;

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
