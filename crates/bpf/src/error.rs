//! Errors, with the messages of the kernel and of libbpf.

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
        /// The operation.
        operation: &'static str,
        /// The object, program or map.
        name: String,
        /// Capabilities that such programs need and this process lacks; empty if it has them all.
        lacking: Vec<&'static str>,
        /// The messages of libbpf.
        messages: Vec<String>,
    },
    /// The name is in use.
    #[error("{operation} {name}: the name is in use")]
    Exists {
        /// The operation.
        operation: &'static str,
        /// The object, program or map.
        name: String,
    },
    /// The kernel, or libbpf on its behalf, refused.
    #[error("{operation} {name}: {error}{}", indented(.messages))]
    Refused {
        /// The operation.
        operation: &'static str,
        /// The object, program or map.
        name: String,
        /// The short reason.
        error: String,
        /// The messages of libbpf; at the end the verifier's log, if that refused.
        messages: Vec<String>,
    },
    /// The object has no such part.
    #[error("object {name} has no {part}")]
    NoSuchPart {
        /// The object.
        name: String,
        /// The missing part.
        part: String,
    },
    /// A file of bpffs.
    #[error("{path}: {error}", path = .path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The kernel's error.
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

fn indented(messages: &[String]) -> String {
    messages.iter().map(|line| format!("\n  {line}")).collect()
}
