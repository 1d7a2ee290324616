//! Sockets of all programs in a network namespace, as the kernel lists them (`sock_diag(7)`).
//!
//! A [`Dump`] lists the existing sockets, [`Destroyed`] receives each one that is destroyed. Both
//! return a `struct inet_diag_msg` with its attributes (`include/uapi/linux/inet_diag.h`), as
//! bytes; `lastbyte_core::diag` parses them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr};

use crate::socket::{force_receive_buffer, set_receive_buffer};

/// States of a socket by `include/net/tcp_states.h`, a bit for each, for [`Dump::tcp`]: listening ones.
pub const LISTENING: u32 = 1 << 10;
/// All states, but for listening.
pub const CONNECTED: u32 = 0x1FFF & !LISTENING & !1;

/// `TCPDIAG_GETSOCK`, from `include/uapi/linux/inet_diag.h`.
const OF_ALL_FAMILIES: u16 = 18;
/// From `include/uapi/linux/sock_diag.h` and `netlink.h`.
const BY_FAMILY: u16 = 20;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const REQUEST: u16 = 0x1;
const DUMP: u16 = 0x300;
const INTERRUPTED: u16 = 0x10;
const HEADER: usize = 16;
/// More than the kernel puts into one answer (32 KiB).
const ROOM: usize = 64 * 1024;

/// Asks for the sockets that are there.
#[derive(Debug)]
pub struct Dump {
    socket: Socket,
    room: Vec<u8>,
}

impl Dump {
    /// Opens a netlink socket in the calling thread's network namespace: it reports that
    /// namespace's sockets, whichever namespace a later caller is in.
    ///
    /// # Errors
    /// `EPROTONOSUPPORT` on a kernel without `CONFIG_INET_DIAG`.
    pub fn open() -> io::Result<Self> {
        Ok(Self { socket: open()?, room: Vec::with_capacity(ROOM) })
    }

    /// Calls `each` with every TCP socket, of both families, that is in one of `states`, with its
    /// `INET_DIAG_INFO`, `INET_DIAG_SKMEMINFO` and `INET_DIAG_CONG`. Needs no privileges.
    ///
    /// The kernel goes through its whole table of connections, which is one for all namespaces: a
    /// millisecond for each quarter of a million of places in it, however few are taken.
    ///
    /// # Errors
    /// `EINTR` when sockets came or went meanwhile in a way that some may be missing; the kernel's
    /// others are passed on.
    pub fn tcp(&mut self, states: u32, each: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        self.socket.send(&request(states), 0)?;
        let mut has_holes = false;
        loop {
            self.room.clear();
            match self.socket.recv(&mut self.room, 0) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            // To its end, so that nothing of it is taken for the next one's.
            if let Some(end) = take(&self.room, &mut has_holes, each) {
                return end;
            }
        }
    }
}

/// Hands out the sockets of one datagram of a dump. Returns how the dump ended, if this was its end.
fn take(
    datagram: &[u8],
    has_holes: &mut bool,
    each: &mut dyn FnMut(&[u8]),
) -> Option<io::Result<()>> {
    for (kind, flags, body) in Messages(datagram) {
        *has_holes |= flags & INTERRUPTED != 0;
        match kind {
            OF_ALL_FAMILIES => each(body),
            // DONE carries an error number too: of a dump that failed on the way.
            DONE | ERROR if *has_holes => {
                let holes = io::Error::from_raw_os_error(libc::EINTR);
                return Some(refused(body).and(Err(holes)));
            }
            DONE | ERROR => return Some(refused(body)),
            _ => {}
        }
    }
    None
}

/// Receives each TCP socket when it is destroyed, with its last `INET_DIAG_INFO`.
///
/// That is when the connection is over and no program has it open any more. One that goes to
/// `TIME_WAIT` is destroyed on the way there: what waits is another, smaller one.
#[derive(Debug)]
pub struct Destroyed {
    socket: Socket,
    room: Vec<u8>,
}

impl Destroyed {
    /// Joins the groups for TCP of both families in the calling thread's network namespace
    /// (`SKNLGRP_INET_TCP_DESTROY`, `SKNLGRP_INET6_TCP_DESTROY`; Linux 4.4). What happens from then on
    /// waits in a buffer of up to `buffer` bytes, fewer without `CAP_NET_ADMIN`.
    ///
    /// # Errors
    /// `EPERM` where the kernel lets only `CAP_NET_ADMIN` listen; those of [`Dump::open`].
    pub fn open(buffer: i32) -> io::Result<Self> {
        let socket = open()?;
        let fd = fd(&socket);
        force_receive_buffer(&fd, buffer).or_else(|_| set_receive_buffer(&fd, buffer))?;
        for group in [TCP_DESTROY, TCP6_DESTROY] {
            socket.add_membership(group)?;
        }
        Ok(Self { socket, room: Vec::with_capacity(ROOM) })
    }

    /// Calls `each` with every socket that was destroyed since the last call. Does not wait.
    ///
    /// # Errors
    /// `ENOBUFS` when the buffer was full and some are missing, for good. What is in the buffer is
    /// still there, for the next call.
    pub fn receive(&mut self, each: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        loop {
            self.room.clear();
            match self.socket.recv(&mut self.room, libc::MSG_DONTWAIT) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            for (kind, _, body) in Messages(&self.room) {
                if kind == BY_FAMILY {
                    each(body);
                }
            }
        }
    }
}

/// From `include/uapi/linux/sock_diag.h`, `enum sknetlink_groups`.
const TCP_DESTROY: u32 = 1;
const TCP6_DESTROY: u32 = 3;

impl AsFd for Destroyed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        fd(&self.socket)
    }
}

/// A netlink socket that hears the kernel alone.
fn open() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

fn fd(socket: &Socket) -> BorrowedFd<'_> {
    // SAFETY: the descriptor is open as long as the socket is borrowed.
    unsafe { BorrowedFd::borrow_raw(socket.as_raw_fd()) }
}

/// A request for all sockets: `struct nlmsghdr`, then `struct inet_diag_req`, the older form, which
/// alone asks for both families in one go.
fn request(states: u32) -> [u8; 76] {
    /// `INET_DIAG_INFO`, `INET_DIAG_CONG`, `INET_DIAG_SKMEMINFO`, a bit for each, from the first.
    const EXTENSIONS: u8 = 1 << 1 | 1 << 3 | 1 << 6;
    let mut request = [0; 76];
    let mut put = |at: usize, bytes: &[u8]| request[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &76_u32.to_ne_bytes());
    put(4, &OF_ALL_FAMILIES.to_ne_bytes());
    put(6, &(REQUEST | DUMP).to_ne_bytes());
    put(HEADER + 3, &[EXTENSIONS]);
    put(HEADER + 52, &states.to_ne_bytes());
    request
}

/// The error number that the body of `NLMSG_ERROR` and `NLMSG_DONE` begins with.
fn refused(body: &[u8]) -> io::Result<()> {
    let number = body.first_chunk().map_or(0, |number| i32::from_ne_bytes(*number));
    if number < 0 { Err(io::Error::from_raw_os_error(-number)) } else { Ok(()) }
}

/// The messages of one datagram: kind, flags and body. What is cut off ends them.
struct Messages<'a>(&'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = (u16, u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = u32::from_ne_bytes(*self.0.first_chunk()?);
        let length = usize::try_from(length).ok()?;
        let message = self.0.get(..length)?;
        let (header, body) = message.split_at_checked(HEADER)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        let number = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        Some((number(4), number(6), body))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};

    use super::*;

    fn port(body: &[u8]) -> u16 {
        u16::from_be_bytes([body[4], body[5]])
    }

    #[test]
    fn what_listens_is_listed_and_told_of_when_it_goes() {
        let mut destroyed = Destroyed::open(1 << 20).unwrap();
        let mut dump = Dump::open().unwrap();
        let four = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let six = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).ok();
        let sockets = std::iter::once(&four).chain(&six);
        let ports: Vec<u16> = sockets.map(|s| s.local_addr().unwrap().port()).collect();
        let mut listed = Vec::new();
        dump.tcp(LISTENING, &mut |body| listed.push(port(body))).unwrap();
        assert!(ports.iter().all(|port| listed.contains(port)), "{ports:?} {listed:?}");
        dump.tcp(CONNECTED, &mut |body| assert_ne!(body[1], 10)).unwrap();
        drop((four, six));
        let mut gone = Vec::new();
        while !ports.iter().all(|port| gone.contains(port)) {
            let ready = crate::poll::wait_for(
                &destroyed,
                crate::poll::READABLE,
                std::time::Duration::from_secs(10),
            );
            assert!(ready.unwrap().readable, "{ports:?} {gone:?}");
            destroyed.receive(&mut |body| gone.push(port(body))).unwrap();
        }
    }

    #[test]
    fn a_buffer_that_overflows_is_an_error_and_not_silence() {
        let mut destroyed = Destroyed::open(1).unwrap();
        for _ in 0..1000 {
            drop(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        }
        let mut told = 0;
        let error = loop {
            let ready = crate::poll::wait_for(
                &destroyed,
                crate::poll::READABLE,
                std::time::Duration::from_secs(10),
            );
            assert!(ready.unwrap().readable, "{told}");
            if let Err(error) = destroyed.receive(&mut |_| told += 1) {
                break error;
            }
        };
        assert_eq!(error.raw_os_error(), Some(libc::ENOBUFS), "{told}");
    }

    /// A message of a dump: a header, and an error number.
    fn message(kind: u16, flags: u16, number: i32) -> Vec<u8> {
        let mut bytes = 20_u32.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(number.to_ne_bytes());
        bytes
    }

    /// The dump was interrupted, and its socket opened again: in the caller's namespace, which may
    /// differ from the dump's.
    #[test]
    fn a_dump_with_holes_is_read_to_its_end() {
        let (mut has_holes, mut seen) = (false, 0);
        let mut told = |datagram: &[u8]| take(datagram, &mut has_holes, &mut |_| seen += 1);
        let socket = |flags| message(OF_ALL_FAMILIES, flags, 0);
        assert!(told(&[socket(0), socket(INTERRUPTED), socket(0)].concat()).is_none());
        assert!(told(&socket(0)).is_none());
        let end = told(&message(DONE, 0, 0)).unwrap().unwrap_err();
        assert_eq!((end.raw_os_error(), seen), (Some(libc::EINTR), 4));
        let end = |datagram: &[u8]| take(datagram, &mut false, &mut |_| ()).unwrap();
        assert!(end(&message(DONE, 0, 0)).is_ok());
        let failed = [message(DONE, INTERRUPTED, -libc::EPERM), message(ERROR, 0, -libc::EPERM)];
        for datagram in failed {
            assert_eq!(end(&datagram).unwrap_err().raw_os_error(), Some(libc::EPERM));
        }
    }

    #[test]
    fn messages_end_where_they_are_cut_off() {
        let mut bytes = request(CONNECTED).to_vec();
        bytes.extend(request(LISTENING));
        assert_eq!(Messages(&bytes).count(), 2);
        let (kind, flags, body) = Messages(&bytes).next().unwrap();
        assert_eq!((kind, flags, body.len()), (OF_ALL_FAMILIES, REQUEST | DUMP, 60));
        for end in 0..bytes.len() {
            assert_eq!(Messages(&bytes[..end]).count(), usize::from(end >= 76), "{end}");
        }
        // A length of 0 is no message, and no endless loop.
        assert_eq!(Messages(&[0; 64]).count(), 0);
    }
}
