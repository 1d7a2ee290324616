//! Opening a connection to one address.

use std::net::IpAddr;

use crate::tune::Tune;

/// How a connection is opened: all that must be settled before `connect`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Options of the socket.
    pub tune: Tune,
    /// The addresses to connect from, at most one of each family; empty for the kernel's choice. If
    /// there are some, and none of the destination's family, it is not connected to.
    pub sources: Vec<IpAddr>,
    /// Ask for multipath TCP (RFC 8684). Where this kernel or the peer has none, the connection is
    /// plain TCP.
    pub mptcp: bool,
    /// The first bytes to send, already with the SYN where the peer has allowed that before (TCP fast
    /// open, RFC 7413); otherwise as soon as the handshake is done. They may arrive twice, and in a
    /// dial with several attempts at several servers: only for what may be done twice.
    pub early: Vec<u8>,
}
