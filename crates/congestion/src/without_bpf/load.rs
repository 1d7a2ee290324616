//! Stands for `load.rs` where the feature `bpf` is off: the same names, and the reason in an error.

use std::convert::Infallible;
use std::path::PathBuf;

use crate::catalogue::{Algorithm, Given};
use crate::error::CongestionError;

/// Whether this program can load algorithms into this kernel: it cannot.
///
/// # Errors
/// [`CongestionError::BuiltWithout`], always.
pub fn ability() -> Result<(), CongestionError> {
    let why = "its feature `bpf` was off, which needs clang, libelf, zlib and pkg-config";
    Err(CongestionError::BuiltWithout(why.to_owned()))
}

/// Loads nothing.
///
/// # Errors
/// [`CongestionError::BuiltWithout`], always.
pub fn load(_: &Algorithm, _: Given) -> Result<Registered, CongestionError> {
    ability()?;
    Err(CongestionError::BuiltWithout(String::new()))
}

/// An algorithm that this process holds in the kernel: never.
pub struct Registered(Infallible);

impl Registered {
    /// Its name in the kernel.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self.0 {}
    }

    /// Whether the kernel takes it away when this process ends.
    #[must_use]
    pub fn ends_with_process(&self) -> bool {
        match self.0 {}
    }

    /// The file by which [`Self::keep`] will keep it.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        match self.0 {}
    }

    /// Keeps it until the next boot.
    ///
    /// # Errors
    /// None: there is nothing to keep.
    pub fn keep(self) -> Result<PathBuf, CongestionError> {
        match self.0 {}
    }
}
