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
    /// The kernel does not permit it: a capability is lacking, or a policy forbids it.
    #[error("{operation} {name}: {}", not_allowed(.lacking))]
    NotAllowed {
        /// What was tried.
        operation: &'static str,
        /// With what.
        name: String,
        /// Capabilities that such programs need and this process lacks; empty where it has them all.
        lacking: Vec<&'static str>,
        /// What was said meanwhile.
        said: Vec<String>,
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

fn not_allowed(lacking: &[&str]) -> String {
    match lacking {
        [] => "the kernel does not permit it, although this process has CAP_BPF, CAP_PERFMON and \
               CAP_NET_ADMIN: most likely a policy of this kernel, a security module or seccomp"
            .to_owned(),
        [one] => format!("{one} is lacking; root has it"),
        several => format!("{} are lacking; root has them", several.join(", ")),
    }
}

fn indented(said: &[String]) -> String {
    said.iter().map(|line| format!("\n  {line}")).collect()
}
