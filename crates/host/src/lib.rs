//! This machine as its kernel shows it: processes, network namespaces, sockets, containers and
//! counters.
//!
//! This crate forbids changing what it describes: it reads files and asks the kernel, and signals,
//! mounts and sets nothing. It decides nothing either: its callers decide what a state or a count
//! means.
//!
//! What it describes changes while it is read. Each function says what it returns for a process that has
//! ended meanwhile, and for one that this user may not see.

#![forbid(unsafe_code)]

pub mod container;
pub mod counters;
pub mod namespace;
pub mod process;
pub mod sockets;

pub use container::Container;
pub use namespace::NetworkNamespace;
pub use process::{Holder, Proc, Stat};
pub use sockets::{AllSockets, SocketTable};
