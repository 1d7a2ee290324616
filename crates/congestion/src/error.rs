//! Errors of loading and unloading.

use std::io;
use std::path::PathBuf;

use crate::holder::Holder;

/// Where bpffs is mounted by convention.
pub const BPFFS: &str = "/sys/fs/bpf";

/// Why an algorithm could not be loaded, kept or unloaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CongestionError {
    /// This program contains no BPF objects.
    #[error("this lastbyte was built without its congestion controls: {0}")]
    BuiltWithout(String),
    /// The object of this algorithm is missing.
    #[error("this lastbyte was built without {0}")]
    NoObject(&'static str),
    /// An algorithm of that name is loaded already.
    #[error("{name} is loaded already, {holder}")]
    Loaded {
        /// Its name in the kernel.
        name: String,
        /// Its holder.
        holder: Holder,
    },
    /// Nothing of that name is loaded.
    #[error("{0} is not loaded")]
    NotLoaded(String),
    /// Another holder keeps it loaded.
    #[error("this command cannot unload {name}: it is {holder}")]
    HeldElsewhere {
        /// Its name in the kernel.
        name: String,
        /// Its holder.
        holder: Holder,
    },
    /// There is no bpffs to keep it in.
    #[error(
        "{0} is no bpffs, where alone an algorithm can be kept: mount one by \
         `mount -t bpf bpf /sys/fs/bpf`"
    )]
    NoBpffs(PathBuf),
    /// The bpffs that was mounted for algorithms is in use.
    #[error("{BPFFS} keeps {0}: it stays mounted")]
    BpffsInUse(String),
    /// The kernel does not support congestion controls in BPF.
    #[error(
        "this kernel does not support congestion controls in BPF: it needs Linux 5.6, built with \
         CONFIG_BPF_JIT and CONFIG_BPF_SYSCALL"
    )]
    OldKernel,
    /// The algorithm sets the pacing rate.
    #[error("{0} sets the pacing rate, which BPF may do from Linux 6.0 on: this kernel is older")]
    WantsPacing(&'static str),
    /// The algorithm takes no rate.
    #[error("{0} finds its rate by itself: it takes none")]
    TakesNoRate(&'static str),
    /// The kernel is too old, a privilege is missing, or the kernel refused.
    #[cfg(feature = "bpf")]
    #[error(transparent)]
    Bpf(#[from] lastbyte_bpf::BpfError),
    /// A system call on a file failed.
    #[error("{path}: {error}", path = .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
}
