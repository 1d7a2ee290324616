//! What a gate does when things go wrong around it: upstreams that die or were never there, clients that
//! send nonsense, next to nothing, or never read, no descriptors, broken files, circles, and a gate
//! that is killed. Each from outside, with the binary, and with the figures that it costs.
//!
//! Figures are printed: `cargo test -p lastbyte-cli --test all -- faults:: --nocapture`.

mod circles;
mod clients;
mod descriptors;
mod killed;
mod reach;
mod reload;
mod requests;
mod streams;
mod upstreams;
