//! The clinic: programs with each disease that `lastbyte doctor` has to find, and their healthy twins
//! (`clinic/`, `docs/design/clinic.md`); and real programs at their normal work.
//!
//! First the clinic itself is tested, without the doctor: what a patient and its peer counted has to be
//! what the disease promises. Then the doctor is, against those counts.
//!
//! `LASTBYTE_CLINIC=word` runs the cases alone whose name has that word in it.

mod bed;
mod build;
mod catalogue;
mod diagnosis;
mod itself;
mod normal;
mod tiers;
mod visit;
