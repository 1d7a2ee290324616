//! What went wrong, with what the kernel said.

use std::io;
use std::path::PathBuf;

/// Why a BPF object could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BpfError {
    /// The kernel has no description of its own types.
    #[error(
        "this kernel does not describe its types (no /sys/kernel/btf/vmlinux): it was built without \
         CONFIG_DEBUG_INFO_BTF"
    )]
    NoBtf,
    /// A right is missing.
    #[error(
        "{operation} {name}: the kernel wants CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN; root has them"
    )]
    NotAllowed {
        /// What was tried.
        operation: &'static str,
        /// With what.
        name: String,
    },
    /// Something of that name is there already.
    #[error("{operation} {name}: there is one of that name already")]
    Exists {
        /// What was tried.
        operation: &'static str,
        /// With what.
        name: String,
    },
    /// The kernel, or libbpf on its behalf, refused.
    #[error("{operation} {name}: {error}{}", indented(.said))]
    Refused {
        /// What was tried.
        operation: &'static str,
        /// With what.
        name: String,
        /// The reason in short.
        error: String,
        /// What was said meanwhile: the end of the verifier's log, if it was that.
        said: Vec<String>,
    },
    /// The object has no such part.
    #[error("object {name} has no {part}")]
    NoSuchPart {
        /// The object.
        name: String,
        /// What was looked for.
        part: String,
    },
    /// A file of bpffs.
    #[error("{path}: {error}", path = .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The kernel's word.
        error: io::Error,
    },
}

fn indented(said: &[String]) -> String {
    said.iter().map(|line| format!("\n  {line}")).collect()
}
