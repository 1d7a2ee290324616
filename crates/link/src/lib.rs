//! An emulated network path: two hosts in network namespaces of their own, and between them a link
//! with delay, loss, a rate and a queue. No kernel module, no fixed names, nothing left behind.
//!
//! This crate forbids believing an emulator that did not keep its promise: a link that is taken down
//! gives a [`Report`] of how late its packets were, and whether any was dropped unasked.
//!
//! - [`model`]: what happens to a packet. Pure and seeded: the same seed and the same arrivals give
//!   the same decisions.
//! - [`Spec`] and [`scenario`]: the properties of a path, from a command line, TOML or by name.
//! - [`Link`]: the path itself, carried by a thread between two devices.
//! - [`Topology`] and [`Network`]: several hosts and the links between them, from TOML.
//! - [`Namespace`]: a host; programs and threads can be put into it.
//!
//! Namespaces and devices made here are held by descriptors alone. When the process ends, also by a
//! kill, the kernel takes them away.

#![forbid(unsafe_code)]

mod clock;
mod device;
mod error;
mod figures;
mod gso;
mod host;
mod in_flight;
mod link;
pub mod model;
mod network;
mod packet;
mod port;
mod report;
mod rights;
pub mod scenario;
mod spec;
pub mod topology;
mod trace;
mod wire;

pub use device::Device;
pub use error::LinkError;
pub use figures::{LinkFigures, WayFigures};
pub use host::{FAR, FAR_V6, Host, NEAR, NEAR_V6, Namespace};
pub use link::{End, Link};
pub use network::Network;
pub use report::{DirectionReport, PROMISED_LATENESS, Report, Times};
pub use rights::{have_rights, take_rights};
pub use scenario::{Scenario, Setting};
pub use spec::{
    BurstLoss, Change, Cut, DEFAULT_MTU, Direction, Jitter, Management, Marks, Outages, Policer,
    Queue, QueueLimit, Shape, Spec, SpecError, Way,
};
pub use topology::{Attachment, HostPlan, LinkPlan, Route, Topology, TopologyError};
pub use trace::{Trace, TraceError};
