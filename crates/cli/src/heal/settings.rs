//! The options of a connection that can be changed while it lasts, and what is asked of them.

use std::io;
use std::os::fd::OwnedFd;

use anyhow::{Context, Result, bail, ensure};
use lastbyte_congestion::{available, find};
use lastbyte_core::sample::{State, TcpInfo};
use lastbyte_sys::socket::{self, RECEIVE_BUFFER_LOCKED, SEND_BUFFER_LOCKED};
use lastbyte_sys::tcp;

use super::words::HealArgs;
use crate::ledger::change::{FixedBuffers, SocketChanges, Was};

/// What a connection has now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Which buffers are fixed; `None` before Linux 5.14.
    pub(crate) lock: Option<i32>,
    pub(crate) send_buffer_bytes: u32,
    pub(crate) receive_buffer_bytes: u32,
    pub(crate) congestion: String,
    /// 0 is the system's.
    pub(crate) notsent_lowat_bytes: u32,
    /// `u64::MAX` is none.
    pub(crate) pacing_bytes_per_s: u64,
    /// By how many bits the window that it offers is shifted: agreed on in the handshake (RFC 7323,
    /// section 2).
    pub(crate) receive_scale: u8,
}

impl Settings {
    /// Asks a socket.
    ///
    /// # Errors
    /// The kernel's, such as `EOPNOTSUPP` for one that is not TCP.
    pub(crate) fn of(fd: &OwnedFd) -> io::Result<Self> {
        let mut room = [0; tcp::INFO_ROOM];
        tcp::info(fd, &mut room)?;
        let receive_scale = room.get(SCALES).map_or(0, |scales| second_nibble(*scales));
        Ok(Self {
            lock: socket::buffer_lock(fd).ok(),
            send_buffer_bytes: socket::send_buffer(fd)?.unsigned_abs(),
            receive_buffer_bytes: socket::receive_buffer(fd)?.unsigned_abs(),
            congestion: tcp::congestion(fd)?,
            notsent_lowat_bytes: tcp::notsent_lowat(fd)?,
            pacing_bytes_per_s: socket::max_pacing_rate(fd)?,
            receive_scale,
        })
    }

    /// The buffers that are fixed; `None` where the kernel sizes both, or cannot tell.
    pub(crate) fn fixed(&self) -> Option<FixedBuffers> {
        let lock = self.lock?;
        let fixed = |bit: i32, bytes: u32| (lock & bit != 0).then_some(bytes);
        let send_bytes = fixed(SEND_BUFFER_LOCKED, self.send_buffer_bytes);
        let receive_bytes = fixed(RECEIVE_BUFFER_LOCKED, self.receive_buffer_bytes);
        let any = send_bytes.is_some() || receive_bytes.is_some();
        any.then_some(FixedBuffers { send_bytes, receive_bytes })
    }
}

/// Where the two window scales lie in `struct tcp_info`: `tcpi_snd_wscale` and `tcpi_rcv_wscale`.
const SCALES: usize = 6;

/// The second of two bit fields of four bits, counted from the end where compilers begin.
fn second_nibble(byte: u8) -> u8 {
    if cfg!(target_endian = "big") { byte & 0xF } else { byte >> 4 }
}

/// The state of a TCP socket (`tcpi_state`).
pub(crate) fn state(fd: &OwnedFd) -> io::Result<State> {
    Ok(info(fd)?.map_or(State::Close, |info| info.state))
}

/// `TCP_INFO` of a socket.
pub(crate) fn info(fd: &OwnedFd) -> io::Result<Option<TcpInfo>> {
    let mut room = [0; tcp::INFO_ROOM];
    let length = tcp::info(fd, &mut room)?;
    Ok(TcpInfo::parse(room.get(..length).unwrap_or_default()))
}

/// What is asked for, the same for all connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) unlock: bool,
    congestion: Option<String>,
    notsent_lowat_bytes: Option<u32>,
    pacing_bytes_per_s: Option<u64>,
}

impl Asked {
    /// From words.
    ///
    /// # Errors
    /// Nothing is asked for; a congestion control that the kernel does not have.
    pub(super) fn of(args: &HealArgs) -> Result<Self> {
        let asked = Self {
            unlock: args.unlock_buffers,
            congestion: args.congestion.as_deref().map(offered).transpose()?,
            notsent_lowat_bytes: args.notsent_lowat.map(|size| lowat(size.bytes())).transpose()?,
            pacing_bytes_per_s: args.pacing.map(super::words::PacingWord::bytes_per_s),
        };
        let Self { unlock, congestion, notsent_lowat_bytes, pacing_bytes_per_s } = &asked;
        ensure!(
            *unlock
                || congestion.is_some()
                || notsent_lowat_bytes.is_some()
                || pacing_bytes_per_s.is_some(),
            "what is to be changed? Say --unlock-buffers, --congestion NAME, --notsent-lowat BYTES or \
             --pacing RATE"
        );
        Ok(asked)
    }

    /// What of that would be different for a connection.
    ///
    /// # Errors
    /// A kernel that cannot unlock buffers.
    pub(super) fn of_connection(&self, now: &Settings) -> Result<SocketChanges> {
        ensure!(
            !self.unlock || now.lock.is_some(),
            "this kernel cannot unlock buffers: SO_BUF_LOCK needs Linux 5.14"
        );
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
fn offered(name: &str) -> Result<String> {
    let available = available()?;
    let ours = find(name).map(|one| one.name);
    let names = [Some(name), ours].into_iter().flatten();
    if let Some(name) = names.into_iter().find(|name| available.iter().any(|one| one == name)) {
        return Ok(name.to_owned());
    }
    let load = if ours.is_some() {
        format!("; `lastbyte cc load --keep {name}` loads it")
    } else {
        String::new()
    };
    bail!(
        "congestion control `{name}` is not known: this kernel offers {}{load}",
        available.join(", ")
    )
}

fn lowat(bytes: u64) -> Result<u32> {
    u32::try_from(bytes).context("--notsent-lowat: the kernel takes at most 4,294,967,295 bytes")
}
