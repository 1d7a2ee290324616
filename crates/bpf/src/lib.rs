//! BPF objects: built from C by the build scripts of the crates that have some, and loaded into the
//! kernel.
//!
//! This crate forbids a refusal without its reason: if a compiler or a capability is missing, or
//! the kernel is too old, the error says which, with the kernel's messages.
//!
//! [`compile`] is for build scripts and needs only clang. The rest is behind the feature `load`.

#![forbid(unsafe_code)]

pub mod compile;
#[cfg(feature = "load")]
mod error;
#[cfg(feature = "load")]
mod kernel;
#[cfg(feature = "load")]
mod messages;
#[cfg(feature = "load")]
mod object;
#[cfg(feature = "load")]
mod ring;
#[cfg(feature = "load")]
mod struct_ops;

#[cfg(feature = "load")]
pub use error::BpfError;
#[cfg(feature = "load")]
pub use kernel::Kernel;
#[cfg(feature = "load")]
pub use object::{Attached, Iterated, Linked, Loaded, Object, kept_in};
#[cfg(feature = "load")]
pub use ring::Ring;
#[cfg(feature = "load")]
pub use struct_ops::{StructOps, programs, unload_kept, unregister};
