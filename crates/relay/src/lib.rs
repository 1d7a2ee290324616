//! Two connected sockets joined: each direction by itself, half-closes and resets kept.
//!
//! This crate forbids an end that looks like another: a cut transfer ends with a reset, after all
//! that came before it, and never with a FIN.
//!
//! [`Relay`] moves the bytes, and [`Relay::finish`] ends both connections; [`Pool`] is what relays of
//! one thread borrow while bytes wait. What is decided lies in [`lastbyte_core::pump`].

#![forbid(unsafe_code)]

mod finish;
mod held;
mod pool;
mod relay;

pub use finish::{Finishing, Relayed};
pub use lastbyte_core::pump::Side;
pub use pool::Pool;
pub use relay::{Over, Relay, RelayTimes};
