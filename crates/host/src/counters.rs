//! Counters of a network namespace: `/proc/net/snmp`, `netstat` and `sockstat` (`proc_pid_net(5)`).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The directory of these files for the namespace that the calling thread is in.
pub const OF_THIS_THREAD: &str = "/proc/thread-self/net";
/// More than the length of each of these files, bytes.
const ROOM: usize = 16 * 1024;

/// Opens a file, such as `snmp`, of the directory `net` of a process or thread. It keeps showing
/// the namespace that the thread is in now, whichever process reads it later and wherever the
/// thread moves.
///
/// # Errors
/// `NotFound` if the thread has ended, or the kernel has no such file.
pub fn open(net: &Path, name: &str) -> io::Result<File> {
    File::open(net.join(name))
}

/// The current content of an open file.
///
/// # Errors
/// The kernel's.
pub fn text(file: &File) -> io::Result<String> {
    let mut bytes = [0; ROOM];
    let length = file.read_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

/// The current content of a file of the calling thread's namespace.
///
/// # Errors
/// As [`open`].
pub fn read(name: &str) -> io::Result<String> {
    text(&open(Path::new(OF_THIS_THREAD), name)?)
}

/// The counters of a group, such as `Tcp` or `TcpExt`, each with its name. In `snmp` and `netstat` a line of
/// names comes before a line of numbers, and both begin with the group. There are none if the group is
/// missing; negative numbers, which are not counts, are left out.
pub fn of_group<'a>(text: &'a str, group: &'a str) -> impl Iterator<Item = (&'a str, u64)> {
    let mut lines =
        text.lines().filter_map(move |line| line.strip_prefix(group)?.strip_prefix(':'));
    let names = lines.next().unwrap_or_default().split_ascii_whitespace();
    let numbers = lines.next().unwrap_or_default().split_ascii_whitespace();
    names.zip(numbers).filter_map(|(name, number)| Some((name, number.parse().ok()?)))
}

/// Sockets of a protocol, such as `TCP` or `TCP6`, that are in the kernel's tables, by `sockstat` or
/// `sockstat6`.
#[must_use]
pub fn sockets_in_use(text: &str, protocol: &str) -> Option<u64> {
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix(protocol)?.strip_prefix(':'))?;
    let mut words = line.split_ascii_whitespace().skip_while(|word| *word != "inuse");
    words.nth(1)?.parse::<u32>().ok().map(u64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stands_below_its_name() {
        let snmp = "Ip: A B\nIp: 1 2\nTcp: RtoMin MaxConn EstabResets\nTcp: 200 -1 7\n";
        let all: Vec<(&str, u64)> = of_group(snmp, "Tcp").collect();
        assert_eq!(all, [("RtoMin", 200), ("EstabResets", 7)]);
        let netstat = "TcpExt: X Y\nTcpExt: 5 many\nIpExt: X\nIpExt: 3\n";
        assert_eq!(of_group(netstat, "TcpExt").collect::<Vec<_>>(), [("X", 5)]);
        for (text, group) in [(netstat, "Tcp"), ("Tcp: A\nTcpExt: 3", "Tcp"), ("", "Tcp")] {
            assert_eq!(of_group(text, group).count(), 0, "{text:?} {group}");
        }
    }

    #[test]
    fn sockets_in_use_are_those_of_one_protocol() {
        let text = "sockets: used 99\nTCP: inuse 7 orphan 0 tw 1 alloc 13 mem 2004\n";
        assert_eq!(sockets_in_use(text, "TCP"), Some(7));
        assert_eq!(sockets_in_use("TCP6: inuse x\n", "TCP6"), None);
        assert_eq!(sockets_in_use("TCP6: inuse 7\n", "TCP"), None);
        assert_eq!(sockets_in_use("UDP: inuse 7\n", "TCP"), None);
    }

    #[test]
    fn this_kernel_has_them() {
        let of = |name| read(name).unwrap();
        assert!(of_group(&of("netstat"), "TcpExt").any(|(name, _)| name == "TCPAbortOnTimeout"));
        assert!(of_group(&of("snmp"), "Tcp").any(|(name, _)| name == "OutRsts"));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(sockets_in_use(&of("sockstat"), "TCP").unwrap() >= 1);
        drop(listener);
    }
}
