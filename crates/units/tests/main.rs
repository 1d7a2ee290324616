//! The tests of values with units, one program of them all.

mod round_trip;
mod values;
