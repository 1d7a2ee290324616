//! Live connections of other programs: found, changed, measured.
//!
//! This crate forbids holding on to another program's connection: a `close` of the program's would not
//! end it while its descriptor is held here, so the descriptor is taken anew for each look and each
//! change ([`take`]), and its cookie says that it is still the same socket.
//!
//! [`find()`] looks in all network namespaces, by `/proc` and `sock_diag`. [`Asked`] says what is to be
//! different, [`SocketChanges`] what that is for one connection: it can be made and taken back, and
//! `lastbyte-changes` enters it into the ledger. [`watch`] and [`Gain`] say what came of it.

#![forbid(unsafe_code)]

mod asked;
mod door;
mod error;
mod find;
mod measure;
mod network;
mod options;
mod settings;

pub use asked::{Asked, offered};
pub use door::take;
pub use error::HealError;
pub use find::{Found, Target, Wanted, Whereabouts, find, whereabouts};
pub use measure::{Course, Gain, WINDOW, Way, watch};
pub use network::Network;
pub use options::{FixedBuffers, SocketChanges, Was, lowat_in_words, pacing_in_words};
pub use settings::{Settings, state};
