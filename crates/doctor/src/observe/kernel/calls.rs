//! System calls: counted in the kernel (`bpf/calls.bpf.c`), and fetched from there twice a second.

use std::collections::BTreeMap;

use lastbyte_bpf::{Kernel, Linked, Loaded, Object};
use lastbyte_host::Proc;
use lastbyte_sys::calls::CALLS;

use super::record::{u32_at, u64_at};
use super::{Objects, image, numbering, sentence};
use crate::event::{Calls, Event, Ready, SocketId, What};
use crate::observe::{Each, Roots};

/// How often counts are fetched, nanoseconds.
const FETCH_NS: u64 = 500_000_000;
/// As `calls.bpf.c` has it.
const MOST_CALLS: usize = 1024;

// Properties of a call, as in `calls.bpf.c`.
const IS_CONNECT: u8 = 1;
const WAITS: u8 = 2;
const DOES: u8 = 4;
const HAS_FD: u8 = 8;
const IS_IOCTL: u8 = 16;
const IS_EPOLL: u8 = 32;
const IS_POLL: u8 = 64;
const IS_SELECT: u8 = 128;

/// The programs that count calls.
pub(super) struct CallSource {
    loaded: Loaded,
    /// Attached programs, while calls are traced.
    links: Vec<Linked>,
    fetched_ns: u64,
    proc: Proc,
}

impl CallSource {
    /// Loads them; they are not attached yet.
    ///
    /// # Errors
    /// The reason in one sentence.
    pub(super) fn load(
        (objects, kernel): (Objects, &Kernel),
        sockets: &Loaded,
        all_processes: bool,
        roots: &Roots,
    ) -> Result<Self, String> {
        if kernel.arguments_at("sys_enter").is_none() || kernel.arguments_at("sys_exit").is_none() {
            return Err(
                "this kernel does not let BPF programs see system calls (CONFIG_FTRACE_SYSCALLS)"
                    .to_owned(),
            );
        }
        let mut object = Object::open("lb_calls", image(objects, "calls")?).map_err(sentence)?;
        object.give(".rodata.given", &given(all_processes)).map_err(sentence)?;
        object.give(".rodata.numbering", &numbering(roots)).map_err(sentence)?;
        for map in ["watched", "records", "dropped"] {
            object.share(map, sockets).map_err(sentence)?;
        }
        let loaded = object.load().map_err(sentence)?;
        Ok(Self { loaded, links: Vec::new(), fetched_ns: 0, proc: roots.proc() })
    }

    /// Begins to trace, or ends it.
    ///
    /// # Errors
    /// The reason in one sentence.
    pub(super) fn turn(&mut self, is_on: bool, now_ns: u64) -> Result<(), String> {
        self.links.clear();
        if is_on {
            self.fetched_ns = now_ns;
            for program in ["call_entered", "call_returned"] {
                self.links.push(self.loaded.link(program).map_err(sentence)?);
            }
        }
        Ok(())
    }

    pub(super) fn is_on(&self) -> bool {
        !self.links.is_empty()
    }

    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        self.is_on() && now_ns >= self.fetched_ns + FETCH_NS
    }

    /// Hands out the counts since the last call.
    pub(super) fn fetch(&mut self, now_ns: u64, each: Each<'_>) {
        let over_ns = now_ns.saturating_sub(self.fetched_ns);
        self.fetched_ns = now_ns;
        let mut fetched = Vec::new();
        // Counts that cannot be fetched now remain for the next time.
        let _ = self.loaded.empty("calls", &mut |key, counts| {
            fetched.push(What::Calls(calls(&Key::read(key), counts, over_ns)));
        });
        let mut epolls = Epolls { proc: &self.proc, known: BTreeMap::new() };
        let _ = self.loaded.empty("ready", &mut |key, counts| {
            fetched.push(What::Ready(ready(&Key::read(key), counts, over_ns, &mut epolls)));
        });
        fetched.into_iter().for_each(|what| each(Event { at_ns: now_ns, what }));
    }
}

/// `struct given` of `bpf/calls.bpf.c`.
fn given(all_processes: bool) -> Vec<u8> {
    // The structure is packed on x86-64 only (epoll_ctl(2)).
    let epoll_data: u32 = if cfg!(target_arch = "x86_64") { 4 } else { 8 };
    let mut given = Vec::with_capacity(8 + MOST_CALLS);
    given.extend(u32::from(all_processes).to_ne_bytes());
    given.extend(epoll_data.to_ne_bytes());
    let mut kinds = [0; MOST_CALLS];
    for (name, number) in CALLS {
        let place = usize::try_from(*number).ok().and_then(|number| kinds.get_mut(number));
        if let Some(place) = place {
            *place = kind(name);
        }
    }
    given.extend(kinds);
    given
}

fn kind(name: &str) -> u8 {
    match name {
        "epoll_wait" | "epoll_pwait" | "epoll_pwait2" => WAITS | IS_EPOLL | HAS_FD,
        "poll" | "ppoll" => WAITS | IS_POLL,
        "select" | "pselect6" => WAITS | IS_SELECT,
        "ioctl" => IS_IOCTL | HAS_FD,
        "getsockopt" => HAS_FD,
        "connect" => IS_CONNECT | DOES | HAS_FD,
        _ => DOES | HAS_FD,
    }
}

/// `struct call` of `bpf/calls.bpf.c`.
struct Key {
    pid: u32,
    tid: u32,
    number: u32,
    fd: Option<i32>,
    command: u32,
}

impl Key {
    fn read(bytes: &[u8]) -> Self {
        let fd = u32_at(bytes, 12).cast_signed();
        Self {
            pid: u32_at(bytes, 0),
            tid: u32_at(bytes, 4),
            number: u32_at(bytes, 8),
            fd: (fd >= 0).then_some(fd),
            command: u32_at(bytes, 16),
        }
    }

    fn name(&self) -> &'static str {
        let found = CALLS.iter().find(|(_, number)| *number == i64::from(self.number));
        found.map_or("", |(name, _)| name)
    }

    /// The name of the call; on a socket an `ioctl` includes its request.
    fn call(&self, is_socket: bool) -> String {
        match (self.name(), is_socket, self.command) {
            ("ioctl", true, 0x5411) => "ioctl:SIOCOUTQ".to_owned(),
            ("ioctl", true, 0x541B) => "ioctl:SIOCINQ".to_owned(),
            ("ioctl", true, 0x894B) => "ioctl:SIOCOUTQNSD".to_owned(),
            (name, ..) => name.to_owned(),
        }
    }
}

/// `struct tally` of `bpf/calls.bpf.c`.
fn calls(key: &Key, counts: &[u8], over_ns: u64) -> Calls {
    const ERRORS: usize = 56;
    let word = |index: usize| u64_at(counts, 8 * index);
    let errors = counts.get(ERRORS..).unwrap_or_default().chunks_exact(8);
    let errors = errors.map(|error| (u32_at(error, 0).cast_signed(), u64::from(u32_at(error, 4))));
    Calls {
        pid: key.pid,
        tid: key.tid,
        call: key.call(u32_at(counts, 48) != 0),
        fd: key.fd,
        socket: socket(word(5)),
        over_ns,
        count: word(0),
        returned: word(1),
        zero: word(2),
        errors: errors.filter(|(_, count)| *count > 0).collect(),
        in_call_ns: word(3),
        highest: word(4),
    }
}

/// `struct readiness` of `bpf/calls.bpf.c`.
fn ready(key: &Key, counts: &[u8], over_ns: u64, epolls: &mut Epolls<'_>) -> Ready {
    let word = |index: usize| u64_at(counts, 8 * index);
    let fd = u32_at(counts, 36).cast_signed();
    let idle = word(1);
    let fd = match key.fd {
        // For an epoll the program in the kernel saw the data that the process set for the
        // descriptor.
        Some(epoll) if idle > 0 => epolls.descriptor(key.pid, epoll, word(2)),
        _ => (fd >= 0).then_some(fd),
    };
    Ready {
        pid: key.pid,
        tid: key.tid,
        call: key.name().to_owned(),
        over_ns,
        count: word(0),
        idle,
        fd,
        socket: socket(word(3)),
        ready: u32_at(counts, 32),
    }
}

fn socket(cookie: u64) -> Option<SocketId> {
    (cookie != 0).then_some(SocketId(cookie))
}

/// The data that processes set for the descriptors of their epolls.
struct Epolls<'a> {
    proc: &'a Proc,
    known: BTreeMap<(u32, i32), Vec<(u64, i32)>>,
}

impl Epolls<'_> {
    /// The descriptor with this data; `None` if none has it, or several.
    fn descriptor(&mut self, pid: u32, epoll: i32, data: u64) -> Option<i32> {
        let read = || self.proc.epoll(pid, epoll);
        let all = self.known.entry((pid, epoll)).or_insert_with(read);
        let mut found = all.iter().filter(|(known, _)| *known == data).map(|(_, fd)| *fd);
        found.next().filter(|_| found.next().is_none())
    }
}
