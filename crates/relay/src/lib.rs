//! Two connected sockets joined: each direction by itself, half-closes and resets kept.
//!
//! This crate forbids an end that looks like another: a cut transfer ends with a reset, after all
//! that came before it, and never with a FIN.

#![forbid(unsafe_code)]
