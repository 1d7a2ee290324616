//! Rates, sizes, times and shares as values that carry their unit.
//!
//! This crate forbids a number without its unit: text such as `217` is refused where a time is
//! wanted, and no function takes or returns a bare number whose unit is not in its name. It also
//! forbids the clock, as it only says what a value means. [`ByteSize`] alone takes a bare number,
//! which every tool of the field reads as bytes.
//!
//! [`Unit`] only names the unit of a number, and [`UtcTime`] is only printed. Every other type is
//! parsed with [`FromStr`](std::str::FromStr), shown with [`Display`](std::fmt::Display), and passes
//! through serde as that text. White space between number and unit is allowed, letters may be of
//! either case, and a number is written as digits with at most one decimal point.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

mod date;
mod decimal;
mod error;
mod rate;
mod share;
mod size;
mod span;
mod text;
mod unit;

pub use date::UtcTime;
pub use error::{Quantity, UnitError};
pub use rate::BitRate;
pub use share::Share;
pub use size::ByteSize;
pub use span::Span;
pub use text::grouped;
pub use unit::Unit;
