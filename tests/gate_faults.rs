//! What a gate does when things go wrong around it: upstreams that die or were never there, clients that
//! send nonsense, next to nothing, or never read, no descriptors, broken files, circles, and a gate
//! that is killed. Each from outside, with the binary, and with the figures that it costs.
//!
//! Figures are printed: `cargo test --test gate_faults -- --nocapture`.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "these are tests")]

mod support;

mod faults {
    mod circles;
    mod clients;
    mod descriptors;
    mod killed;
    mod reach;
    mod reload;
    mod requests;
    mod streams;
    mod upstreams;
}
