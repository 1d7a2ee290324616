//! Why an algorithm is not there.

use std::io;
use std::path::PathBuf;

use crate::holder::Holder;

/// Where bpffs is mounted by convention.
pub const BPFFS: &str = "/sys/fs/bpf";

/// Why an algorithm could not be loaded, kept or unloaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CongestionError {
    /// This program has no objects.
    #[error("this lastbyte was built without its congestion controls: {0}")]
    BuiltWithout(String),
    /// The object of one algorithm is missing.
    #[error("this lastbyte was built without {0}")]
    NoObject(&'static str),
    /// It is there already.
    #[error("{name} is loaded already, {holder}")]
    Loaded {
        /// Which.
        name: String,
        /// By whom.
        holder: Holder,
    },
    /// Nothing of that name is loaded.
    #[error("{0} is not loaded")]
    NotLoaded(String),
    /// Not ours to unload.
    #[error("{name} is not this command's to unload: it is {holder}")]
    HeldElsewhere {
        /// Which.
        name: String,
        /// By whom.
        holder: Holder,
    },
    /// There is nowhere to keep it.
    #[error(
        "{0} is no bpffs, and an algorithm can be kept nowhere else: `mount -t bpf bpf /sys/fs/bpf` \
         mounts one"
    )]
    NoBpffs(PathBuf),
    /// What was mounted to keep algorithms cannot be unmounted.
    #[error("{BPFFS} keeps {0}: it stays mounted")]
    BpffsInUse(String),
    /// The kernel takes none.
    #[error(
        "this kernel takes no congestion control in BPF: Linux 5.6 and later do, built with \
         CONFIG_BPF_JIT and CONFIG_BPF_SYSCALL"
    )]
    OldKernel,
    /// It decides how fast packets leave.
    #[error(
        "{0} paces by itself, and a kernel lets BPF do so from Linux 6.0 on: this one is older"
    )]
    WantsPacing(&'static str),
    /// It does not go by a rate.
    #[error("{0} finds its rate by itself: none can be given")]
    TakesNoRate(&'static str),
    /// The kernel is too old, or a right is missing, or it refused.
    #[cfg(feature = "bpf")]
    #[error(transparent)]
    Bpf(#[from] lastbyte_bpf::BpfError),
    /// A file.
    #[error("{path}: {error}", path = .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The kernel's word.
        error: io::Error,
    },
}
