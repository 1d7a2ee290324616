//! What is asked of connections, the same for all of them.

use lastbyte_congestion::{available, find};

use crate::error::HealError;
use crate::options::{SocketChanges, Was};
use crate::settings::Settings;

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Let the kernel size the buffers that the program has fixed.
    pub unlock: bool,
    /// A congestion control, by the name that [`offered`] returns.
    pub congestion: Option<String>,
    /// `TCP_NOTSENT_LOWAT`; 0 is the system's.
    pub notsent_lowat_bytes: Option<u32>,
    /// `SO_MAX_PACING_RATE`; `u64::MAX` is none.
    pub pacing_bytes_per_s: Option<u64>,
}

impl Asked {
    /// Whether nothing is asked for.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// What of that would be different for a connection.
    ///
    /// # Errors
    /// A kernel that cannot unlock buffers.
    pub fn of_connection(&self, now: &Settings) -> Result<SocketChanges, HealError> {
        if self.unlock && now.lock.is_none() {
            return Err(HealError::OldKernelBufferLock);
        }
        Ok(SocketChanges {
            buffers: if self.unlock { now.fixed() } else { None },
            congestion: Was::differently(&now.congestion, self.congestion.as_ref()),
            notsent_lowat_bytes: Was::differently(
                &now.notsent_lowat_bytes,
                self.notsent_lowat_bytes.as_ref(),
            ),
            pacing_bytes_per_s: Was::differently(
                &now.pacing_bytes_per_s,
                self.pacing_bytes_per_s.as_ref(),
            ),
        })
    }
}

/// The name by which this kernel offers a congestion control: its own, or that of our catalogue.
///
/// # Errors
/// A congestion control that the kernel does not have; `/proc/sys` cannot be read.
pub fn offered(name: &str) -> Result<String, HealError> {
    let available = available()?;
    let ours = find(name).map(|one| one.name);
    let names = [Some(name), ours].into_iter().flatten();
    if let Some(name) = names.into_iter().find(|name| available.iter().any(|one| one == name)) {
        return Ok(name.to_owned());
    }
    let can_be_loaded = ours.is_some();
    Err(HealError::UnknownCongestion { name: name.to_owned(), available, can_be_loaded })
}
