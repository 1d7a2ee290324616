//! Congestion controls that were kept in the kernel, and what was mounted for them.

use std::fmt;
use std::path::{Path, PathBuf};

use lastbyte_congestion::{BPFFS, FOLDER, unload_kept, unmount_bpffs};
use lastbyte_sys::file;
use lastbyte_units::BitRate;
use serde::{Deserialize, Serialize};

use super::present;
use crate::error::{Result, must};

/// An algorithm that a file of bpffs keeps until the next boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedAlgorithm {
    /// Its name in the kernel, such as `lb_vegas`.
    pub name: String,
    /// The file.
    pub file: PathBuf,
    /// The rate that it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bits_per_s: Option<u64>,
}

impl PinnedAlgorithm {
    pub(super) fn check(&self) -> Result<()> {
        let is_ours = self.file.parent() == Some(Path::new(FOLDER));
        must(is_ours, || format!("{} is not in {FOLDER}", self.file.display()))
    }

    pub(super) fn take_back(&self) -> Result<()> {
        self.check()?;
        let folder = Path::new(FOLDER);
        match present(file::is_bpffs(folder), folder)? {
            Some(true) => Ok(unload_kept(&self.file)?),
            // With its file system everything went that was kept there.
            Some(false) | None => Ok(()),
        }
    }
}

impl fmt::Display for PinnedAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "congestion control {}", self.name)?;
        if let Some(Ok(rate)) = self.rate_bits_per_s.map(BitRate::from_bits_per_s) {
            write!(f, " at {rate}")?;
        }
        write!(f, ", kept by {}", self.file.display())
    }
}

/// The file system that keeps algorithms, where the machine had not mounted it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountedBpffs {
    /// Where it is mounted.
    pub path: PathBuf,
}

impl MountedBpffs {
    pub(super) fn check(&self) -> Result<()> {
        must(self.path == Path::new(BPFFS), || format!("{} is not {BPFFS}", self.path.display()))
    }

    pub(super) fn take_back(&self) -> Result<()> {
        self.check()?;
        Ok(unmount_bpffs()?)
    }
}

impl fmt::Display for MountedBpffs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bpffs, mounted at {}", self.path.display())
    }
}
