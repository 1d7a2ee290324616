//! Names of hosts and devices as the C library knows them: `getaddrinfo(3)`, `if_nametoindex(3)`.

use std::ffi::{CStr, c_int};
use std::io;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::ptr;

/// [`GaiError::code`]: the name is unknown.
pub const EAI_NONAME: i32 = libc::EAI_NONAME;
/// [`GaiError::code`]: the name is known, and has no address.
pub const EAI_NODATA: i32 = libc::EAI_NODATA;
/// [`GaiError::code`]: the name is known, and has no address of this family. Not in the `libc` crate:
/// glibc's `netdb.h`.
pub const EAI_ADDRFAMILY: i32 = -9;
/// [`GaiError::code`]: see [`GaiError::os`].
pub const EAI_SYSTEM: i32 = libc::EAI_SYSTEM;

/// Why `getaddrinfo` has no addresses.
#[derive(Debug)]
pub struct GaiError {
    /// One of `EAI_...`.
    pub code: i32,
    /// `errno`, for [`EAI_SYSTEM`].
    pub os: Option<io::Error>,
}

/// The addresses of a name, of one family: [`crate::socket::FAMILY_IPV4`] or
/// [`crate::socket::FAMILY_IPV6`] (`getaddrinfo(3)`). Their ports are 0, scopes are kept. It blocks as
/// long as the system's configuration says.
///
/// # Errors
/// The library's: [`EAI_NONAME`] and so on.
pub fn addresses(name: &CStr, family: i32) -> Result<Vec<SocketAddr>, GaiError> {
    // SAFETY: `addrinfo` is numbers and pointers, for which zero is a value.
    let mut hints: libc::addrinfo = unsafe { mem::zeroed() };
    hints.ai_family = family;
    // Else each address comes once per type of socket.
    hints.ai_socktype = libc::SOCK_STREAM;
    let mut list: *mut libc::addrinfo = ptr::null_mut();
    // SAFETY: name and hints are valid during the call, `list` is ours to write.
    let code = unsafe { libc::getaddrinfo(name.as_ptr(), ptr::null(), &hints, &mut list) };
    if code != 0 {
        let os = (code == EAI_SYSTEM).then(io::Error::last_os_error);
        return Err(GaiError { code, os });
    }
    let mut addresses = Vec::new();
    let mut next = list.cast_const();
    // SAFETY: the library's list, of valid entries up to the null pointer, until it is freed below.
    while let Some(entry) = unsafe { next.as_ref() } {
        addresses.extend(address_of(entry));
        next = entry.ai_next;
    }
    // SAFETY: the list is the library's and nothing refers to it any more.
    unsafe { libc::freeaddrinfo(list) };
    Ok(addresses)
}

/// An entry's address; of no other family.
fn address_of(entry: &libc::addrinfo) -> Option<SocketAddr> {
    let length = usize::try_from(entry.ai_addrlen).ok()?;
    match entry.ai_family {
        libc::AF_INET if length >= size_of::<libc::sockaddr_in>() => {
            // SAFETY: the entry says that this is what it points to, and how long it is.
            let v4 = unsafe { ptr::read_unaligned(entry.ai_addr.cast::<libc::sockaddr_in>()) };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddr::from((ip, u16::from_be(v4.sin_port))))
        }
        libc::AF_INET6 if length >= size_of::<libc::sockaddr_in6>() => {
            // SAFETY: the entry says that this is what it points to, and how long it is.
            let v6 = unsafe { ptr::read_unaligned(entry.ai_addr.cast::<libc::sockaddr_in6>()) };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// What an error of `getaddrinfo` is called (`gai_strerror(3)`).
#[must_use]
pub fn text_of(code: i32) -> String {
    // SAFETY: any number may be asked for.
    let text = unsafe { libc::gai_strerror(c_int::from(code)) };
    // SAFETY: a text of the library's that ends in NUL and is never freed.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The number of a network device of this thread's namespace (`if_nametoindex(3)`).
///
/// # Errors
/// The kernel's: `ENODEV` when there is none of that name.
pub fn device_index(name: &CStr) -> io::Result<u32> {
    // SAFETY: a text that ends in NUL, valid during the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{FAMILY_IPV4, FAMILY_IPV6};

    #[test]
    fn literals_come_once_with_their_scope() {
        let v4 = addresses(c"192.0.2.1", FAMILY_IPV4).unwrap();
        assert_eq!(v4, ["192.0.2.1:0".parse::<SocketAddr>().unwrap()]);
        let index = device_index(c"lo").unwrap();
        let scoped = addresses(c"fe80::1%lo", FAMILY_IPV6).unwrap();
        let expected = SocketAddrV6::new("fe80::1".parse().unwrap(), 0, 0, index);
        assert_eq!(scoped, [SocketAddr::from(expected)]);
    }

    #[test]
    fn a_wrong_family_and_no_name_are_errors() {
        let error = addresses(c"192.0.2.1", FAMILY_IPV6).unwrap_err();
        assert_eq!(error.code, EAI_ADDRFAMILY, "{}", text_of(error.code));
        assert_eq!(addresses(c"", FAMILY_IPV4).unwrap_err().code, EAI_NONAME);
        assert_eq!(text_of(EAI_NONAME), "Name or service not known");
        assert!(device_index(c"nothing0").is_err());
    }
}
