//! The sockets of all network namespaces.

use lastbyte_host::{AllSockets, Proc};
use lastbyte_sys::sock_diag::CONNECTED;

use crate::error::{HealError, system};

/// A network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The inode number of its file in `/proc`; `None` for one that cannot be told.
    pub inode: Option<u64>,
    /// Up to how many bytes the kernel sizes a send buffer in there (`net.ipv4.tcp_wmem`).
    pub most_send: Option<u64>,
    /// The same for a receive buffer (`net.ipv4.tcp_rmem`).
    pub most_receive: Option<u64>,
}

/// All sockets but listening ones, each with its namespace.
pub(crate) type Listed = AllSockets<Network>;

/// Lists the sockets of all namespaces that `/proc` shows, and of this one.
pub(crate) fn list_all() -> Result<Listed, HealError> {
    AllSockets::list(CONNECTED, &Network::here).map_err(system("cannot list the kernel's sockets"))
}

impl Network {
    /// The one that the calling thread is in.
    fn here(inode: u64) -> Self {
        let most = |key: &str| {
            let sizes = Proc::default().sysctl(key).ok()?;
            sizes.split_whitespace().nth(2)?.parse().ok()
        };
        let (most_send, most_receive) = (most("net.ipv4.tcp_wmem"), most("net.ipv4.tcp_rmem"));
        Self { inode: Some(inode), most_send, most_receive }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_socket_has_the_limits_of_its_namespace() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let cookie = lastbyte_sys::socket::cookie(&near).unwrap();
        let listed = list_all().unwrap();
        let (network, _) =
            listed.sockets.iter().find(|(_, socket)| socket.cookie == cookie).unwrap();
        assert!(network.most_send.is_some() && network.most_receive.is_some());
    }
}
