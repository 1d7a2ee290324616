//! The words of `lastbyte heal`.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use clap::Args;
use lastbyte_units::{BitRate, ByteSize, Span};

/// Change a live connection of another program: unlock its buffers, switch its congestion control.
///
/// Takes the program's own socket for an instant (pidfd_getfd, Linux 5.6), says what it is about to
/// change, asks, and shows what came of it. Each change is in the ledger before it is made, and
/// `lastbyte undo` takes it back while the connection lasts. Finds connections in all network
/// namespaces. Other users' programs need root.
///
/// Exit code 0: changed. 1: there was nothing to change, or no such connection. 2: misuse, refused, or
/// not agreed to. 130: ended by Ctrl-C; what is changed by then stays.
#[derive(Clone, Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(false))]
pub(crate) struct HealArgs {
    /// All connections of a process
    #[arg(long, group = "what", value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=0x7FFF_FFFF))]
    pub(crate) pid: Option<u32>,
    /// All connections that have this port at either end
    #[arg(long, group = "what", value_name = "PORT",
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,
    /// One connection: its cookie, such as 0x1a2b, or LOCAL,PEER, such as 192.0.2.1:80,192.0.2.9:4711
    #[arg(long, group = "what", value_name = "SOCKET")]
    pub(crate) socket: Option<SocketWord>,
    /// Only what the process has open by this number
    #[arg(long, value_name = "N", requires = "pid", conflicts_with_all = ["port", "socket"], value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) fd: Option<i32>,
    /// Let the kernel size the buffers that the program has fixed (SO_BUF_LOCK, Linux 5.14)
    #[arg(long)]
    pub(crate) unlock_buffers: bool,
    /// Switch to this congestion control; what is not allowed to all needs CAP_NET_ADMIN
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<String>,
    /// Let the program write no more than about so many bytes ahead of what is sent
    /// (TCP_NOTSENT_LOWAT); 0 is the system's limit
    #[arg(long, allow_hyphen_values = true, value_name = "BYTES")]
    pub(crate) notsent_lowat: Option<ByteSize>,
    /// Send at this rate at most (SO_MAX_PACING_RATE); none lifts a limit
    #[arg(long, allow_hyphen_values = true, value_name = "RATE")]
    pub(crate) pacing: Option<PacingWord>,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
    /// How long to measure afterwards; 0s measures nothing
    #[arg(long = "for", allow_hyphen_values = true, value_name = "TIME", default_value = "10s")]
    pub(crate) measure: Span,
    /// Print JSON Lines
    #[arg(long)]
    pub(crate) json: bool,
}

/// One socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketWord {
    Cookie(u64),
    /// By its own address and the peer's.
    Between(SocketAddr, SocketAddr),
}

impl FromStr for SocketWord {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let word = text.trim();
        let word = word.strip_prefix("socket").map_or(word, str::trim_start);
        let wrong = || {
            format!(
                "`{text}` is no socket: write its cookie, such as 0x1a2b, or LOCAL,PEER, such as \
                 192.0.2.1:80,[2001:db8::1]:443"
            )
        };
        if let Some((local, peer)) = word.split_once(',') {
            let address = |text: &str| text.trim().parse().map(canonical).map_err(|_| wrong());
            return Ok(Self::Between(address(local)?, address(peer)?));
        }
        let number = match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
            Some(hex) if !hex.starts_with('+') => u64::from_str_radix(hex, 16),
            _ => word.parse(),
        };
        // The kernel begins with 1.
        number.ok().filter(|cookie| *cookie != 0).map(Self::Cookie).ok_or_else(wrong)
    }
}

/// An address of IPv4 that a socket of IPv6 uses, as what it is; without what only one machine knows.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

impl fmt::Display for SocketWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cookie(cookie) => write!(f, "socket {cookie:#x}"),
            Self::Between(local, peer) => write!(f, "a socket {local} to {peer}"),
        }
    }
}

/// The rate that a socket is limited to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacingWord {
    None,
    AtMost(BitRate),
}

impl PacingWord {
    /// As the kernel takes it; `u64::MAX` is none.
    pub(crate) fn bytes_per_s(self) -> u64 {
        match self {
            Self::None => u64::MAX,
            // 0 would be no limit.
            Self::AtMost(rate) => (rate.bits_per_s() / 8).max(1),
        }
    }
}

impl FromStr for PacingWord {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim() == "none" {
            return Ok(Self::None);
        }
        text.parse().map(Self::AtMost).map_err(|error: lastbyte_units::UnitError| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_a_cookie_or_two_addresses() {
        let cookie = |text: &str| text.parse::<SocketWord>();
        for text in ["0x1a2b", "0X1A2B", "6699", "socket 0x1a2b", " 6699 "] {
            assert_eq!(cookie(text), Ok(SocketWord::Cookie(0x1a2b)), "{text}");
        }
        let pair: SocketWord = "[::ffff:192.0.2.1]:80, [2001:db8::1]:443".parse().unwrap();
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let expected = SocketWord::Between(address("192.0.2.1:80"), address("[2001:db8::1]:443"));
        assert_eq!(pair, expected);
        for wrong in
            ["", "0", "0x0", "0x", "x", "-1", "0x+1", "1,2", "192.0.2.1:80", "1:2,3:4", ","]
        {
            let told = cookie(wrong).unwrap_err();
            assert!(told.contains(wrong) && told.contains("LOCAL,PEER"), "{told}");
        }
    }

    #[test]
    fn a_pace_is_a_rate_or_none() {
        let bytes = |text: &str| text.parse::<PacingWord>().map(PacingWord::bytes_per_s);
        assert_eq!(bytes("80mbit"), Ok(10_000_000));
        assert_eq!(bytes("1bit"), Ok(1));
        assert_eq!(bytes("none"), Ok(u64::MAX));
        assert!(bytes("0").is_err() && bytes("fast").is_err());
    }
}
