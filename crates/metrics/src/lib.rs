//! Named statistics: declared in one place, name and description together, counted cheaply by many
//! threads, listed and read by name, and written as OpenMetrics.
//!
//! This crate forbids a statistic without a description, which does not compile, and a lock or a
//! lookup by name on the way of counting. It also forbids the clock: a time is an argument.
//!
//! ```
//! use std::time::Duration;
//! use lastbyte_metrics::{CONTENT_TYPE, Counter, Family, Gauge, Histogram, statistics};
//!
//! statistics! {
//!     /// What a route counts.
//!     pub struct RouteStatistics {
//!         /// Connections accepted.
//!         pub flows_accepted: Counter,
//!         /// Connections that are open.
//!         pub flows_open: Gauge,
//!         /// Bytes written to the target.
//!         pub sent_bytes: Counter,
//!         /// Time from the first attempt to a connected target.
//!         pub connect_seconds: Histogram<Duration> = &[
//!             Duration::from_millis(1),
//!             Duration::from_millis(100),
//!         ],
//!     }
//! }
//!
//! let routes = Family::<RouteStatistics>::new("route");
//! let db = routes.register("db");                 // once per route
//!
//! db.flows_accepted.add(1);                       // from any thread
//! let open = db.flows_open.hold();                // until it is dropped
//! db.connect_seconds.observe(Duration::from_millis(17));
//! drop(open);
//!
//! let seen = routes.snapshot();
//! assert_eq!(seen.find("flows_accepted").unwrap().total().to_string(), "1");
//! let text = seen.open_metrics("gate");           // sent with the header `CONTENT_TYPE`
//! assert!(text.contains("gate_flows_accepted_total{route=\"db\"} 1\n"));
//! # assert!(CONTENT_TYPE.starts_with("application/openmetrics-text"));
//! ```
//!
//! # Counted and read
//!
//! Code counts events as they happen. A value that is already known somewhere, such as the length of a
//! queue or the number of open descriptors, is read instead: a [`ReadGauge`] or a [`ReadCounter`] has a
//! function, which only a snapshot calls.
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use std::sync::Arc;
//! use lastbyte_metrics::{Family, ReadGauge, statistics};
//!
//! statistics! {
//!     /// What is known of a queue.
//!     struct QueueStatistics {
//!         /// Orders that wait.
//!         waiting: ReadGauge,
//!     }
//! }
//!
//! let queues = Family::<QueueStatistics>::new("queue");
//! let length = Arc::new(AtomicU64::new(3));
//! let read = Arc::clone(&length);
//! let source = queues.register("db").waiting.read_with(move || read.load(Ordering::Relaxed));
//! assert_eq!(queues.snapshot().find("waiting").unwrap().to_string(), "waiting{queue=\"db\"} 3\n");
//!
//! drop(source);                                   // with the queue
//! assert_eq!(queues.snapshot().find("waiting").unwrap().to_string(), "");
//! ```
//!
//! # Names
//!
//! A statistic has one name: that of its field. Code counts with it, readers ask for it, and
//! OpenMetrics shows it behind the program's prefix. A name that ends in `_bytes` or `_seconds` has
//! that unit; the standard requires the unit there, and only base units.
//!
//! # What counting costs
//!
//! Each thread that counts has cells of its own, on cache lines of their own, and adds with a plain
//! load and store. A reader sums the cells of all threads. The first 64 threads that count at one
//! time have cells of their own; all others share one more set, with an atomic addition each.
//!
//! Measured by `examples/cost.rs`; the figures are in `docs/design/defaults.md`.
//!
//! # What a reader sees
//!
//! - A counter never goes down while its [`Family`] lives.
//! - A gauge that is only taken down by what was added before is never seen below zero.
//! - A [`ReadGauge`] has a value while its [`Source`] lives; the count of a [`ReadCounter`] stays. A
//!   function that returns `None` or panics makes its own value [`Value::Unknown`], and no other.
//! - Two statistics are not read at one moment: while others count, a sum may be ahead of another.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

mod cells;
mod count;
mod declare;
mod family;
mod function;
mod open_metrics;
mod read;
mod slot;
mod snapshot;
mod statistics;

pub use count::{Counter, Gauge, Held, Histogram, Observed};
pub use declare::{Bounds, Declared, Kind, Origin, Unit};
pub use family::Family;
pub use open_metrics::CONTENT_TYPE;
pub use read::{ReadCounter, ReadGauge, Source};
pub use snapshot::{Distribution, Point, Reading, Snapshot, Value};
pub use statistics::Statistics;

/// What [`statistics!`] writes code with; no other code needs it.
#[doc(hidden)]
pub mod declared_by_macro {
    pub use crate::cells::Places;
}
