//! The tests of values with units, one program of them all.

mod dates;
mod round_trip;
mod values;
