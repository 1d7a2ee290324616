//! Connects to a host by name and port.

use std::ffi::{CStr, c_char, c_int};
use std::io;
use std::net::IpAddr;
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use lastbyte::blocking::Stream;
use lastbyte::dial::blocking::Dialer;
use lastbyte::dial::{self, DialError, Families, Resolver, What};

use crate::boundary::{Errno, PANICKED, caught, set_errno};
use crate::receipt::UNKNOWN;
use crate::types::{Family, ResolvedBy, Undialed};

/// How to dial. Begin with the defaults, and change what you need:
///
///     struct lb_dial_options options = LB_DIAL_OPTIONS_INIT;
///     options.congestion = "bbr";
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DialOptions {
    /// How long the dial may take, name resolution included, in milliseconds. Negative, the
    /// default: 30,000. 0: it gives up at once.
    pub timeout_ms: i32,
    /// Which addresses to use: an `enum lb_family`, default `LB_FAMILY_BOTH`.
    pub family: i32,
    /// What resolves names: an `enum lb_resolver`, default `LB_RESOLVER_DNS`.
    pub resolver: i32,
    /// How long an attempt runs alone before the next address is tried beside it, in milliseconds.
    /// 0, the default: 200, or a delay derived from the round-trip time of an earlier connection.
    pub attempt_delay_ms: i32,
    /// The send buffer in bytes (`SO_SNDBUF`). 0, the default: the kernel sizes it.
    pub send_buffer: i32,
    /// The receive buffer in bytes (`SO_RCVBUF`). 0, the default: the kernel sizes it.
    pub receive_buffer: i32,
    /// The mark of its packets (`SO_MARK`, needs `CAP_NET_ADMIN`). 0, the default: none.
    pub mark: u32,
    /// 1: request Multipath TCP. If this kernel or the peer does not support it, the connection is
    /// plain TCP. 0, the default: plain TCP.
    pub mptcp: i32,
    /// The congestion control, such as "bbr". NULL, the default: the system's.
    pub congestion: *const c_char,
    /// The source address, as text; addresses of the other family are not tried. NULL, the default:
    /// the kernel's choice.
    pub source: *const c_char,
    /// The only interface that its packets may use, such as "eth0" (`SO_BINDTODEVICE`). NULL, the
    /// default: any.
    pub interface: *const c_char,
    /// For future options: 0 each.
    pub reserved: [i64; 5],
}

/// How a dial went. `lb_dial` fills all of it; it need not be initialised.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Dialed {
    /// The `errno` of this dial; 0 if it connected.
    pub error: i32,
    /// Why there is no connection: an `enum lb_undialed`, 0 if there is one.
    pub why: i32,
    /// The family of the connection: `LB_FAMILY_IPV4` or `LB_FAMILY_IPV6`; 0 if there is none.
    pub family: i32,
    /// How many attempts were begun.
    pub attempts: i32,
    /// How long it took, in microseconds.
    pub took_us: i64,
    /// The peer, such as `192.0.2.1:443` or `[2001:db8::1]:443`; empty if there is no connection.
    pub peer: [c_char; 64],
    /// Our address, likewise.
    pub local: [c_char; 64],
    /// The error in one line: that of the first attempt, then the others. It is truncated if too
    /// long, and always ends with NUL. "" if it connected.
    pub text: [c_char; 512],
    /// For future fields: -1 each.
    pub reserved: [i64; 6],
}

/// Connects to a host, a name or an address, by TCP. It resolves both address families at once and
/// tries addresses in parallel (RFC 8305, Happy Eyeballs): a dead address costs 200 milliseconds,
/// not its time-out. It remembers what worked for the next dial.
///
/// `options` may be NULL for the defaults. `dialed` may be NULL; otherwise all of it is filled,
/// whatever is returned.
///
/// Returns a descriptor: connected, blocking, closed on `exec`, as if `lb_prepare` had been called.
/// You have to close it. Otherwise it returns -1, leaves no descriptor open, and `errno` is
///
/// - ETIMEDOUT: `timeout_ms` passed, or the kernel's own time for the first address.
/// - ENOENT: the name has no address.
/// - EAGAIN: it is not known whether the name has one: no server answered, or a server failed.
/// - ECONNREFUSED, ENETUNREACH, EHOSTUNREACH, EACCES, EADDRNOTAVAIL, ... : the kernel's error for
///   the first failed attempt; also ENOENT, EPERM or ENODEV for an option that it refused, which
///   `text` names.
/// - EINVAL: `host` is not a valid host, `port` is 0, or the options are invalid. Nothing was done.
/// - EFAULT: `host` is NULL.
/// - EMFILE, ENFILE, ENOMEM: no descriptor or memory is left.
/// - EIO: the system's configuration of DNS cannot be read.
/// - ENOTRECOVERABLE: a bug in this library; nothing is known.
///
/// `why` distinguishes reasons that share a number. Signals do not end the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lb_dial(
    host: *const c_char,
    port: u16,
    options: *const DialOptions,
    dialed: *mut Dialed,
) -> c_int {
    let outcome = caught(|| {
        // SAFETY: the promise is the same as ours.
        let host = unsafe { text_at(host) }.map_err(|NotText| {
            Failure::new(Undialed::BadHost, libc::EINVAL, "the host is not in UTF-8")
        })?;
        let host = host.ok_or_else(|| {
            Failure::new(Undialed::BadHost, libc::EFAULT, "the host is a NULL pointer")
        })?;
        let (by, options) = if options.is_null() {
            (ResolvedBy::Dns, dial::DialOptions::default())
        } else {
            // SAFETY: it is not NULL, so C promises options; any numbers in it are valid.
            let options = unsafe { options.read() };
            // SAFETY: C promises that what is not NULL in it is text.
            unsafe { options.checked() }?
        };
        connect(by, host, port, &options)
    });
    let outcome = outcome
        .unwrap_or_else(|| Err(Failure::new(Undialed::Broken, PANICKED, "a bug in liblastbyte")));
    let account = match &outcome {
        Ok(connected) => Dialed::of(connected),
        Err(failure) => Dialed::not(failure),
    };
    if !dialed.is_null() {
        // SAFETY: it is not NULL, so C promises the room. What was there is not read.
        unsafe { dialed.write(account) };
    }
    match outcome {
        Ok(connected) => connected.stream.into_inner().into_raw_fd(),
        Err(failure) => {
            set_errno(failure.errno);
            -1
        }
    }
}

fn connect(
    by: ResolvedBy,
    host: &str,
    port: u16,
    options: &dial::DialOptions,
) -> Result<dial::Dialed<Stream>, Failure> {
    let dialer = match by {
        ResolvedBy::Dns => dialer_in(&DNS, || {
            Resolver::dns()
                .map_err(|error| Failure::new(Undialed::NoResolver, libc::EIO, &error.to_string()))
        }),
        ResolvedBy::System => dialer_in(&SYSTEM, || Ok(Resolver::system())),
    }?;
    dialer.dial((host, port), options).map_err(|error| Failure::of(&error))
}

/// The dialer for all threads of a process.
struct ForAll {
    process: u32,
    dialer: Dialer,
}

/// Made on first use and never freed: a dial in another thread may be using it.
static DNS: AtomicPtr<ForAll> = AtomicPtr::new(std::ptr::null_mut());
static SYSTEM: AtomicPtr<ForAll> = AtomicPtr::new(std::ptr::null_mut());

/// The dialer of this process. A forked process makes its own, since it would share its parent's
/// epoll queue. There is no lock, which a fork could leave locked for ever.
fn dialer_in(
    place: &'static AtomicPtr<ForAll>,
    resolver: impl FnOnce() -> Result<Resolver, Failure>,
) -> Result<&'static Dialer, Failure> {
    let process = std::process::id();
    let there = place.load(Ordering::Acquire);
    // SAFETY: it is NULL, or one of those made below, which are never freed or changed.
    if let Some(made) = unsafe { there.as_ref() }
        && made.process == process
    {
        return Ok(&made.dialer);
    }
    let dialer = Dialer::new(resolver()?).map_err(|error| {
        let errno = error.raw_os_error().unwrap_or(libc::ENOMEM);
        Failure::new(Undialed::NoEvents, errno, &format!("event loop: {error}"))
    })?;
    let made = Box::into_raw(Box::new(ForAll { process, dialer }));
    match place.compare_exchange(there, made, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: it was made here, and is never freed from now on.
        Ok(_) => Ok(unsafe { &(*made).dialer }),
        Err(other) => {
            // SAFETY: it was made here, and nobody else has seen it.
            drop(unsafe { Box::from_raw(made) });
            // SAFETY: another thread of this process has made it, as here.
            Ok(unsafe { &(*other).dialer })
        }
    }
}

/// Bytes that are not UTF-8.
#[derive(Debug)]
struct NotText;

/// The text at a C pointer; `None` for NULL.
///
/// # Safety
/// It is NULL, or leads to a text that ends with NUL and stays as it is for `'a`.
unsafe fn text_at<'a>(pointer: *const c_char) -> Result<Option<&'a str>, NotText> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: it is not NULL, so the caller promises a text.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| NotText)
}

impl DialOptions {
    /// The same in Rust, or what is invalid.
    ///
    /// # Safety
    /// Each pointer in it is NULL, or leads to a text that ends with NUL.
    unsafe fn checked(self) -> Result<(ResolvedBy, dial::DialOptions), Failure> {
        let bad = |what| Failure::new(Undialed::BadOptions, libc::EINVAL, what);
        let size = |bytes: i32| u32::try_from(bytes).map(|bytes| (bytes > 0).then_some(bytes));
        let text = |pointer| {
            // SAFETY: the promise is the same as ours.
            let text = unsafe { text_at(pointer) };
            text.map_err(|NotText| bad("options: a text is not in UTF-8"))
        };
        if self.reserved != [0; 5] {
            return Err(bad("options: a reserved field is not 0"));
        }
        let by = ResolvedBy::numbered(self.resolver);
        let by = by.ok_or_else(|| bad("options: resolver is no enum lb_resolver"))?;
        let mut options = dial::DialOptions::default();
        options.families = match Family::numbered(self.family) {
            Some(Family::Both) => Families::Both,
            Some(Family::Ipv4) => Families::Ipv4,
            Some(Family::Ipv6) => Families::Ipv6,
            None => return Err(bad("options: family is no enum lb_family")),
        };
        if let Ok(milliseconds) = u64::try_from(self.timeout_ms) {
            options.race.deadline = Duration::from_millis(milliseconds);
        }
        let delay = u64::try_from(self.attempt_delay_ms);
        match delay.map_err(|_| bad("options: attempt_delay_ms is negative"))? {
            0 => {}
            delay => options.race.connection_attempt_delay = Duration::from_millis(delay),
        }
        options.connect.mptcp = match self.mptcp {
            0 => false,
            1 => true,
            _ => return Err(bad("options: mptcp is neither 0 nor 1")),
        };
        if let Some(source) = text(self.source)? {
            let source = source.parse::<IpAddr>();
            options.connect.sources =
                vec![source.map_err(|_| bad("options: source is no address"))?];
        }
        let tune = &mut options.connect.socket;
        tune.send_buffer =
            size(self.send_buffer).map_err(|_| bad("options: send_buffer is negative"))?;
        tune.receive_buffer =
            size(self.receive_buffer).map_err(|_| bad("options: receive_buffer is negative"))?;
        tune.mark = (self.mark > 0).then_some(self.mark);
        tune.congestion = text(self.congestion)?.map(str::to_owned);
        tune.interface = text(self.interface)?.map(str::to_owned);
        Ok((by, options))
    }
}

/// Why a dial did not connect.
struct Failure {
    why: Undialed,
    errno: Errno,
    text: String,
    attempts: usize,
    took: Duration,
}

impl Failure {
    fn new(why: Undialed, errno: Errno, text: &str) -> Self {
        Self { why, errno, text: text.to_owned(), attempts: 0, took: Duration::ZERO }
    }

    fn of(error: &DialError) -> Self {
        let (why, errno) = reason(error);
        let (attempts, took) = (error.attempts.len(), error.timeline.took);
        Self { why, errno, text: error.to_string(), attempts, took }
    }
}

fn reason(error: &DialError) -> (Undialed, Errno) {
    match error.why {
        dial::Undialed::BadHost(_) => (Undialed::BadHost, libc::EINVAL),
        dial::Undialed::BadPort => (Undialed::BadPort, libc::EINVAL),
        dial::Undialed::NoAddress if error.may_resolve_later() => {
            (Undialed::NoAnswer, libc::EAGAIN)
        }
        dial::Undialed::NoAddress => (Undialed::NoAddress, libc::ENOENT),
        dial::Undialed::TimedOut => (Undialed::TimedOut, libc::ETIMEDOUT),
        dial::Undialed::AllFailed => {
            let first = error.first().map_or(libc::EIO, |first| errno_of(&first.cause));
            (Undialed::AllFailed, first)
        }
        // In a C process, no thread runs our event loop when it dials.
        _ => (Undialed::NoEvents, libc::EIO),
    }
}

/// The kernel's `errno`, or the one closest to the kind of error.
fn errno_of(error: &io::Error) -> Errno {
    let by_kind = || match error.kind() {
        io::ErrorKind::ConnectionRefused => libc::ECONNREFUSED,
        io::ErrorKind::TimedOut => libc::ETIMEDOUT,
        io::ErrorKind::AddrNotAvailable => libc::EADDRNOTAVAIL,
        io::ErrorKind::InvalidInput => libc::EINVAL,
        io::ErrorKind::Unsupported => libc::EOPNOTSUPP,
        _ => libc::EIO,
    };
    error.raw_os_error().unwrap_or_else(by_kind)
}

impl Dialed {
    fn nothing() -> Self {
        Self {
            error: 0,
            why: Undialed::Connected as i32,
            family: Family::Both as i32,
            attempts: 0,
            took_us: 0,
            peer: [0; 64],
            local: [0; 64],
            text: [0; 512],
            reserved: [UNKNOWN; 6],
        }
    }

    fn not(failure: &Failure) -> Self {
        Self {
            error: failure.errno,
            why: failure.why as i32,
            attempts: count(failure.attempts),
            took_us: microseconds(failure.took),
            text: chars(&failure.text),
            ..Self::nothing()
        }
    }

    fn of(connected: &dial::Dialed<Stream>) -> Self {
        let dial::Dialed { stream, timeline, .. } = connected;
        let peer = stream.peer_addr().ok();
        let family = match peer {
            Some(peer) if peer.is_ipv6() => Family::Ipv6,
            Some(_) => Family::Ipv4,
            None => Family::Both,
        };
        let written = |address: Option<std::net::SocketAddr>| {
            chars(&address.map(|address| address.to_string()).unwrap_or_default())
        };
        let started = |what: &What| matches!(what, What::Started { .. });
        Self {
            family: family as i32,
            attempts: count(timeline.events.iter().filter(|event| started(&event.what)).count()),
            took_us: microseconds(timeline.took),
            peer: written(peer),
            local: written(stream.local_addr().ok()),
            ..Self::nothing()
        }
    }
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn microseconds(took: Duration) -> i64 {
    i64::try_from(took.as_micros()).unwrap_or(i64::MAX)
}

/// A text for C, with its NUL; cut between two characters where it is too long.
fn chars<const ROOM: usize>(text: &str) -> [c_char; ROOM] {
    let mut cut = text.len().min(ROOM - 1);
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    let mut chars = [0; ROOM];
    for (place, byte) in chars.iter_mut().zip(text[..cut].bytes()) {
        *place = c_char::from_ne_bytes([byte]);
    }
    chars
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    /// `LB_DIAL_OPTIONS_INIT`.
    const DEFAULT: DialOptions = DialOptions {
        timeout_ms: -1,
        family: 0,
        resolver: 0,
        attempt_delay_ms: 0,
        send_buffer: 0,
        receive_buffer: 0,
        mark: 0,
        mptcp: 0,
        congestion: std::ptr::null(),
        source: std::ptr::null(),
        interface: std::ptr::null(),
        reserved: [0; 5],
    };

    fn checked(options: DialOptions) -> Result<(ResolvedBy, dial::DialOptions), Failure> {
        // SAFETY: the texts of these tests are constants.
        unsafe { options.checked() }
    }

    fn refused(wishes: DialOptions) -> String {
        let Err(failure) = checked(wishes) else { return String::new() };
        let told = Dialed::not(&failure);
        assert_eq!((told.error, told.why), (libc::EINVAL, Undialed::BadOptions as i32));
        text_of(&told.text)
    }

    fn text_of(chars: &[c_char]) -> String {
        let bytes: Vec<u8> = chars.iter().map(|char| char.to_ne_bytes()[0]).collect();
        CStr::from_bytes_until_nul(&bytes).unwrap().to_str().unwrap().to_owned()
    }

    #[test]
    fn defaults_are_those_of_the_library() {
        let (by, options) = checked(DEFAULT).ok().unwrap();
        assert_eq!((by, options), (ResolvedBy::Dns, dial::DialOptions::default()));
        let race = dial::DialOptions::default().race;
        assert_eq!(race.deadline, Duration::from_millis(30_000), "the header says so");
        assert_eq!(race.connection_attempt_delay, Duration::from_millis(200), "the header says so");
    }

    #[test]
    fn options_are_looked_at() {
        let all = DialOptions {
            timeout_ms: 0,
            family: 6,
            resolver: 1,
            attempt_delay_ms: 150,
            send_buffer: 1,
            receive_buffer: 2,
            mark: 3,
            mptcp: 1,
            congestion: c"reno".as_ptr(),
            source: c"::1".as_ptr(),
            interface: c"lo".as_ptr(),
            ..DEFAULT
        };
        let (by, options) = checked(all).ok().unwrap();
        assert_eq!((by, options.families), (ResolvedBy::System, Families::Ipv6));
        assert_eq!(options.race.deadline, Duration::ZERO);
        assert_eq!(options.race.connection_attempt_delay, Duration::from_millis(150));
        let tune = &options.connect.socket;
        assert_eq!((tune.send_buffer, tune.receive_buffer, tune.mark), (Some(1), Some(2), Some(3)));
        assert_eq!(tune.congestion.as_deref(), Some("reno"));
        assert_eq!(tune.interface.as_deref(), Some("lo"));
        assert!(options.connect.mptcp);
        assert_eq!(options.connect.sources, ["::1".parse::<IpAddr>().unwrap()]);

        for (nonsense, named) in [
            (DialOptions { family: 5, ..DEFAULT }, "family"),
            (DialOptions { resolver: 2, ..DEFAULT }, "resolver"),
            (DialOptions { attempt_delay_ms: -1, ..DEFAULT }, "attempt_delay_ms"),
            (DialOptions { send_buffer: -1, ..DEFAULT }, "send_buffer"),
            (DialOptions { receive_buffer: -1, ..DEFAULT }, "receive_buffer"),
            (DialOptions { mptcp: 2, ..DEFAULT }, "mptcp"),
            (DialOptions { source: c"example.org".as_ptr(), ..DEFAULT }, "source"),
            (DialOptions { congestion: c"\xff".as_ptr(), ..DEFAULT }, "UTF-8"),
            (DialOptions { reserved: [0, 0, 0, 0, 1], ..DEFAULT }, "reserved"),
        ] {
            assert!(refused(nonsense).contains(named), "{named}: {}", refused(nonsense));
        }
    }

    #[test]
    fn a_text_is_cut_between_two_characters() {
        assert_eq!(text_of(&chars::<8>("seven__")), "seven__");
        assert_eq!(text_of(&chars::<8>("eight___")), "eight__");
        assert_eq!(text_of(&chars::<8>("sieben\u{fc}")), "sieben");
        assert_eq!(text_of(&chars::<1>("none")), "");
    }

    #[test]
    fn threads_that_come_first_agree_on_one_dialer() {
        static PLACE: AtomicPtr<ForAll> = AtomicPtr::new(std::ptr::null_mut());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let dialers: Vec<usize> = std::thread::scope(|scope| {
            let dial = || {
                let dialer = dialer_in(&PLACE, || Ok(Resolver::system())).ok().unwrap();
                dialer.dial(("127.0.0.1", port), &dial::DialOptions::default()).unwrap();
                std::ptr::from_ref(dialer) as usize
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(dial)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(dialers.iter().all(|dialer| *dialer == dialers[0]));
    }

    #[test]
    fn an_error_without_a_number_gets_one() {
        assert_eq!(errno_of(&io::Error::from_raw_os_error(libc::ENETUNREACH)), libc::ENETUNREACH);
        assert_eq!(errno_of(&io::ErrorKind::ConnectionRefused.into()), libc::ECONNREFUSED);
        assert_eq!(errno_of(&io::Error::other("?")), libc::EIO);
    }
}
