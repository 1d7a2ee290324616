//! The options of a connection that can be changed while it lasts: made, and taken back.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use lastbyte_sys::socket::{self, RECEIVE_BUFFER_LOCKED, SEND_BUFFER_LOCKED};
use lastbyte_sys::tcp;
use lastbyte_units::{BitRate, grouped};
use serde::{Deserialize, Serialize};

use crate::error::{HealError, system};
use crate::settings::Settings;

/// What is different afterwards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketChanges {
    /// The buffers that were fixed. The kernel sizes them afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffers: Option<FixedBuffers>,
    /// The congestion control.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<Was<String>>,
    /// `TCP_NOTSENT_LOWAT`; 0 is the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notsent_lowat_bytes: Option<Was<u32>>,
    /// `SO_MAX_PACING_RATE`; `u64::MAX` is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pacing_bytes_per_s: Option<Was<u64>>,
}

/// Sizes that a program had fixed, as the kernel told them: twice what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FixedBuffers {
    /// The send buffer, where it was fixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_bytes: Option<u32>,
    /// The receive buffer, where it was fixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_bytes: Option<u32>,
}

/// An option before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Was<T> {
    /// What it was.
    pub before: T,
    /// What it was set to.
    pub after: T,
}

impl<T: Clone + PartialEq> Was<T> {
    /// `None` where nothing is asked for, or it is so already.
    #[must_use]
    pub fn differently(before: &T, asked: Option<&T>) -> Option<Self> {
        let after = asked.filter(|asked| *asked != before)?;
        Some(Self { before: before.clone(), after: after.clone() })
    }
}

impl SocketChanges {
    /// Whether nothing is different.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Makes them.
    ///
    /// # Errors
    /// What the kernel refuses; what came before that is made.
    pub fn make(&self, fd: &OwnedFd) -> Result<(), HealError> {
        let Self { buffers, congestion, notsent_lowat_bytes, pacing_bytes_per_s } = self;
        if let Some(congestion) = congestion {
            choose(fd, &congestion.after)?;
        }
        if buffers.is_some() {
            socket::set_buffer_lock(fd, 0).map_err(system("cannot unlock the buffers"))?;
        }
        if let Some(lowat) = notsent_lowat_bytes {
            tcp::set_notsent_lowat(fd, lowat.after)
                .map_err(system("cannot set TCP_NOTSENT_LOWAT"))?;
        }
        if let Some(pacing) = pacing_bytes_per_s {
            socket::set_max_pacing_rate(fd, pacing.after)
                .map_err(system("cannot set SO_MAX_PACING_RATE"))?;
        }
        Ok(())
    }

    /// Gives a socket what it had. What somebody has changed since is left alone, and reported to
    /// `tell`.
    ///
    /// # Errors
    /// What the kernel refuses; what came before that is taken back.
    pub fn take_back(&self, fd: &OwnedFd, tell: &mut dyn FnMut(&str)) -> Result<(), HealError> {
        let Self { buffers, congestion, notsent_lowat_bytes, pacing_bytes_per_s } = self;
        let now = Settings::of(fd).map_err(system("cannot ask the socket"))?;
        if let Some(way) = back(congestion.as_ref(), &now.congestion, CONGESTION, tell) {
            choose(fd, way)?;
        }
        if let Some(way) = back(notsent_lowat_bytes.as_ref(), &now.notsent_lowat_bytes, LOWAT, tell)
        {
            tcp::set_notsent_lowat(fd, *way).map_err(system("cannot set TCP_NOTSENT_LOWAT"))?;
        }
        if let Some(way) = back(pacing_bytes_per_s.as_ref(), &now.pacing_bytes_per_s, PACING, tell)
        {
            socket::set_max_pacing_rate(fd, *way)
                .map_err(system("cannot set SO_MAX_PACING_RATE"))?;
        }
        match (buffers, now.lock) {
            (Some(buffers), Some(0)) => buffers.fix(fd, tell),
            (Some(buffers), _) if now.fixed() != Some(*buffers) => {
                tell("somebody has fixed its buffers since: they are left alone");
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// What an option is to be again; `None` where it is so, or is somebody else's by now.
fn back<'a, T: PartialEq>(
    was: Option<&'a Was<T>>,
    now: &T,
    what: &str,
    tell: &mut dyn FnMut(&str),
) -> Option<&'a T> {
    let was = was?;
    if *now != was.before && *now != was.after {
        tell(&format!("somebody has changed its {what} since: it is left alone"));
    }
    (*now == was.after).then_some(&was.before)
}

const CONGESTION: &str = "congestion control";
const LOWAT: &str = "TCP_NOTSENT_LOWAT";
const PACING: &str = "SO_MAX_PACING_RATE";

/// Has a socket use a congestion control.
fn choose(fd: &OwnedFd, name: &str) -> Result<(), HealError> {
    tcp::set_congestion(fd, name).map_err(|cause| match cause.kind() {
        io::ErrorKind::PermissionDenied => HealError::CongestionNotAllowed(name.to_owned()),
        _ => system(format!("the kernel does not let it use {name}"))(cause),
    })
}

impl FixedBuffers {
    /// Fixes the buffers at these sizes, and locks these alone.
    fn fix(self, fd: &OwnedFd, tell: &mut dyn FnMut(&str)) -> Result<(), HealError> {
        let Self { send_bytes, receive_bytes } = self;
        let mut lock = 0;
        if let Some(bytes) = send_bytes {
            lock |= SEND_BUFFER_LOCKED;
            let (set, force) = (socket::set_send_buffer, socket::force_send_buffer);
            let granted = fix_one(bytes, &|half| set(fd, half), &|half| force(fd, half), &|| {
                socket::send_buffer(fd)
            });
            say_if_different("send", bytes, granted.map_err(system("cannot set SO_SNDBUF"))?, tell);
        }
        if let Some(bytes) = receive_bytes {
            lock |= RECEIVE_BUFFER_LOCKED;
            let (set, force) = (socket::set_receive_buffer, socket::force_receive_buffer);
            let granted = fix_one(bytes, &|half| set(fd, half), &|half| force(fd, half), &|| {
                socket::receive_buffer(fd)
            });
            say_if_different(
                "receive",
                bytes,
                granted.map_err(system("cannot set SO_RCVBUF"))?,
                tell,
            );
        }
        socket::set_buffer_lock(fd, lock).map_err(system("cannot lock the buffers"))
    }
}

/// Sets a buffer of which the kernel doubles what it is told, past the limit for users where that is
/// in the way and we may. Returns what it became.
fn fix_one(
    bytes: u32,
    set: &dyn Fn(i32) -> io::Result<()>,
    force: &dyn Fn(i32) -> io::Result<()>,
    granted: &dyn Fn() -> io::Result<i32>,
) -> io::Result<u32> {
    let half = i32::try_from(bytes / 2).unwrap_or(i32::MAX);
    set(half)?;
    if granted()?.unsigned_abs() != bytes {
        // Without the right it stays at the limit, which is told.
        let _ = force(half);
    }
    Ok(granted()?.unsigned_abs())
}

fn say_if_different(which: &str, bytes: u32, granted: u32, tell: &mut dyn FnMut(&str)) {
    if granted != bytes {
        tell(&format!(
            "its {which} buffer is fixed at {} bytes and not at {} again: net.core.wmem_max and \
             rmem_max bound what a user may fix",
            grouped(granted.into()),
            grouped(bytes.into())
        ));
    }
}

impl fmt::Display for SocketChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { buffers, congestion, notsent_lowat_bytes, pacing_bytes_per_s } = self;
        let mut words = Vec::new();
        if let Some(FixedBuffers { send_bytes, receive_bytes }) = buffers {
            let of = |which: &str, bytes: &Option<u32>| {
                bytes.map(|bytes| format!("{which} buffer of {} bytes", grouped(bytes.into())))
            };
            let all = [of("send", send_bytes), of("receive", receive_bytes)];
            let all: Vec<String> = all.into_iter().flatten().collect();
            words.push(format!("{} unlocked", all.join(" and ")));
        }
        if let Some(Was { before, after }) = congestion {
            words.push(format!("congestion control {after} instead of {before}"));
        }
        if let Some(Was { before, after }) = notsent_lowat_bytes {
            let [before, after] = [before, after].map(|bytes| lowat_in_words(*bytes));
            words.push(format!("limit of unsent bytes {after} instead of {before}"));
        }
        if let Some(Was { before, after }) = pacing_bytes_per_s {
            let [before, after] = [before, after].map(|rate| pacing_in_words(*rate));
            words.push(format!("pacing {after} instead of {before}"));
        }
        f.write_str(&words.join(", "))
    }
}

/// `TCP_NOTSENT_LOWAT` in words.
#[must_use]
pub fn lowat_in_words(bytes: u32) -> String {
    match bytes {
        0 => "the system's".to_owned(),
        u32::MAX => "none".to_owned(),
        bytes => format!("{} bytes", grouped(bytes.into())),
    }
}

/// `SO_MAX_PACING_RATE` in words. The rate is shown in the unit in which it was given.
#[must_use]
pub fn pacing_in_words(bytes_per_s: u64) -> String {
    let rate = bytes_per_s.checked_mul(8).map(BitRate::from_bits_per_s);
    match rate {
        Some(Ok(rate)) => format!("at most {rate}"),
        _ => "unlimited".to_owned(),
    }
}
