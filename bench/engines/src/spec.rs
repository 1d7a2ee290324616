//! What an engine is told, as text: `splice:pipe=1m,len=256k,fill`.

use std::net::SocketAddr;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// recv and send, on edge-triggered epoll.
    Copy,
    /// splice through a pipe, on edge-triggered epoll.
    Splice,
    /// copy until `after` bytes came in one go, then splice.
    Hybrid,
    /// io_uring: RECV, then SEND.
    UringCopy,
    /// io_uring: multishot RECV into a ring of buffers, SENDMSG of all that wait.
    UringRing,
    /// io_uring: RECV, then SEND_ZC.
    UringZeroCopy,
    /// io_uring: SPLICE from the socket linked with SPLICE to the other.
    UringSplice,
}

#[derive(Clone, Debug)]
pub struct Spec {
    pub kind: Kind,
    /// Bytes of a buffer of copy.
    pub buffer: usize,
    /// Bytes of a pipe.
    pub pipe: usize,
    /// Bytes that one splice from a socket asks for.
    pub len: usize,
    /// Splice in until nothing more comes, and only then out.
    pub fill: bool,
    /// A recv that came short of what was asked means that the socket is empty.
    pub trust_short: bool,
    /// SO_RCVLOWAT of a source after a megabyte.
    pub low_water: Option<i32>,
    /// Microseconds of sleep after a wake-up that moved something in bulk.
    pub nap: Option<u32>,
    /// SO_RCVBUF of both sockets; autotuned without.
    pub receive_buffer: Option<i32>,
    /// Bytes in one read from which hybrid takes to splice.
    pub after: usize,
    /// The way back is copied, whatever the way there is.
    pub copy_back: bool,
    /// SPLICE_F_MOVE.
    pub flags: u32,
    /// TCP_QUICKACK off (0) or on (1) on the source.
    pub quick_ack: Option<i32>,
    /// One multishot completion for several buffers.
    pub bundle: bool,
    /// RECV looks for news before it tries.
    pub poll_first: bool,
    /// SO_SNDBUF of the target.
    pub send_buffer: Option<i32>,
    pub to: SocketAddr,
}

impl Spec {
    pub fn parse(text: &str, to: SocketAddr) -> Result<Self, String> {
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        let kind = match name {
            "copy" => Kind::Copy,
            "splice" => Kind::Splice,
            "hybrid" => Kind::Hybrid,
            "uring-copy" => Kind::UringCopy,
            "uring-ring" => Kind::UringRing,
            "uring-zc" => Kind::UringZeroCopy,
            "uring-splice" => Kind::UringSplice,
            _ => return Err(format!("no engine {name}")),
        };
        let mut spec = Self {
            kind,
            buffer: 64 << 10,
            pipe: 1 << 20,
            len: 1 << 20,
            fill: false,
            trust_short: matches!(kind, Kind::Copy | Kind::Hybrid),
            low_water: None,
            nap: None,
            receive_buffer: None,
            after: 32 << 10,
            copy_back: false,
            flags: 0,
            quick_ack: None,
            bundle: false,
            poll_first: false,
            send_buffer: None,
            to,
        };
        for option in options.split(',').filter(|option| !option.is_empty()) {
            spec.set(option)?;
        }
        Ok(spec)
    }

    fn set(&mut self, option: &str) -> Result<(), String> {
        let (name, value) = option.split_once('=').unwrap_or((option, "1"));
        let value = bytes(value)?;
        let small = i32::try_from(value).map_err(|error| error.to_string())?;
        match name {
            "buf" => self.buffer = value,
            "pipe" => self.pipe = value,
            "len" => self.len = value,
            "fill" => self.fill = true,
            "short" => self.trust_short = value != 0,
            "lowat" => self.low_water = Some(small),
            "nap" => self.nap = Some(small.unsigned_abs()),
            "rcvbuf" => self.receive_buffer = Some(small),
            "sndbuf" => self.send_buffer = Some(small),
            "bundle" => self.bundle = true,
            "pollfirst" => self.poll_first = true,
            "after" => self.after = value,
            "copyback" => self.copy_back = true,
            "move" => self.flags = libc::SPLICE_F_MOVE,
            "quickack" => self.quick_ack = Some(small),
            _ => return Err(format!("no option {name}")),
        }
        Ok(())
    }
}

/// `64k` is 65,536.
pub fn bytes(text: &str) -> Result<usize, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 10),
        Some(b'm') => (&text[..text.len() - 1], 20),
        Some(b'g') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.parse::<usize>().map(|count| count << shift).map_err(|error| format!("{text}: {error}"))
}
