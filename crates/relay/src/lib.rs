//! Two connected sockets joined: each direction by itself, half-closes and resets kept.
//!
//! This crate forbids an end that looks like another: a truncated transfer ends with a reset, after all
//! bytes that came before it, and never with a FIN.
//!
//! [`Relay`] moves the bytes, and [`Relay::finish`] ends both connections; [`Pool`] has the buffers that
//! the relays of one thread borrow. The decisions are in [`lastbyte_core::pump`].

#![forbid(unsafe_code)]

mod buffered;
mod finish;
mod pool;
mod relay;

pub use finish::{Finishing, Relayed};
pub use lastbyte_core::pump::Side;
pub use pool::Pool;
pub use relay::{Relay, RelayEnd, RelayTimes};
