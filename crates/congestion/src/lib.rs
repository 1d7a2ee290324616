//! Congestion controls in BPF: a catalogue, loaded into the running kernel when wanted.
//!
//! This crate forbids an algorithm that stays in the kernel unasked: it is unloaded when the value that
//! [`load()`] returned is dropped or its process ends, unless [`Registered::keep`] was called.
//!
//! The names of algorithms are machine-wide. Those of this catalogue begin with `lb_`, so that they do not
//! collide with the kernel's own: [`find`] takes `vegas` and `lb_vegas` for the same.
//!
//! The programs themselves are in `bpf/`, one file for each algorithm, with its paper or RFC at the top;
//! `tcp.h` has what they share.

#![forbid(unsafe_code)]

pub mod borrow;
mod bpffs;
mod catalogue;
mod error;
mod holder;
#[cfg(feature = "bpf")]
mod load;
#[cfg(not(feature = "bpf"))]
#[path = "without_bpf/load.rs"]
mod load;
mod machine;
#[cfg(feature = "bpf")]
mod struct_ops;
#[cfg(not(feature = "bpf"))]
#[path = "without_bpf/struct_ops.rs"]
mod struct_ops;
mod sysctl;
mod unload;

pub use bpffs::{FOLDER, keeps, kept, mount_bpffs, unmount_bpffs};
pub use catalogue::{Algorithm, Given, all, find, is_of_catalogue};
pub use error::{BPFFS, CongestionError};
pub use holder::Holder;
pub use load::{Registered, ability, load};
pub use machine::{holder_of, holders};
pub use sysctl::{allowed, available, default_algorithm, is_available};
pub use unload::{unload_kept, unregister};
