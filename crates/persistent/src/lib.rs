//! Persistent links: networks that outlive their command.
//!
//! This crate forbids anything of a persistent link that the ledger does not know: the process that
//! carries it and each namespace are entered before they are made, so that a kill at any moment leaves
//! nothing that cannot be taken away.
//!
//! [`up`] starts the program again in the background, which enters itself and all namespaces
//! ([`Carrier::bring_up`]), and then carries packets and answers commands until it is ended
//! ([`Carrier::serve`]). [`PersistentLink`] is such a network as a command sees it: it asks the carrier, and
//! takes everything away.

#![forbid(unsafe_code)]

mod carrier;
mod control;
mod error;
mod persistent_link;

pub use carrier::{Carrier, READY, describe};
pub use control::SetRequest;
pub use error::PersistentError;
pub use persistent_link::{PersistentLink, check_name, list, up};
