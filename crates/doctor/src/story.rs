//! Short sequences of events for tests, with times in milliseconds after the beginning.

use std::net::SocketAddr;

use lastbyte_core::sample::State;

use crate::event::{
    Actor, Began, Changed, Counts, Ending, Event, Info, Process, ResetSent, Role, Sample, Scope,
    Socket, SocketId, Tier, What,
};

/// A story.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    pub(crate) events: Vec<Event>,
    now_ms: u64,
}

/// The network namespace of all sockets.
pub(crate) const NETWORK: u64 = 4_026_531_840;

impl Story {
    pub(crate) fn new(scope: Scope) -> Self {
        Self::of_tier(Tier::Bpf, scope)
    }

    pub(crate) fn of_tier(tier: Tier, scope: Scope) -> Self {
        let kernel = "6.18.0".to_owned();
        let began = Began { tier, kernel, scope, calls: None, sees_each_loss: None };
        Self { events: Vec::new(), now_ms: 1_000 }.with(What::Began(began))
    }

    /// Time goes on, with its ticks.
    pub(crate) fn after(mut self, ms: u64) -> Self {
        let end_ms = self.now_ms + ms;
        while self.now_ms / 100 < end_ms / 100 {
            self.now_ms = (self.now_ms / 100 + 1) * 100;
            self = self.with(What::Tick);
        }
        self.now_ms = end_ms;
        self
    }

    pub(crate) fn with(mut self, what: What) -> Self {
        self.events.push(Event { at_ns: self.now_ms * 1_000_000, what });
        self
    }

    pub(crate) fn process(self, pid: u32, name: &str) -> Self {
        let (name, network) = (name.to_owned(), Some(NETWORK));
        self.with(What::Process(Process { pid, parent: 1, name, network, ..Process::default() }))
    }

    pub(crate) fn exited(self, pid: u32, ending: Ending) -> Self {
        self.with(What::Exited { pid, ending })
    }

    /// A connected socket that a process holds.
    pub(crate) fn socket(self, id: u64, addresses: (&str, &str), pid: u32) -> Self {
        self.socket_of_nobody(id, addresses).holds(id, pid)
    }

    /// A socket without a known holder.
    pub(crate) fn socket_of_nobody(self, id: u64, addresses: (&str, &str)) -> Self {
        let socket = Socket {
            id: SocketId(id),
            local: address(addresses.0),
            peer: address(addresses.1),
            mapped: false,
            network: Some(NETWORK),
            role: Role::Unknown,
            subflow: false,
            earlier: false,
        };
        self.with(What::Socket(socket))
    }

    /// It was accepted during the observation.
    pub(crate) fn accepted(self, id: u64) -> Self {
        self.in_role(id, Role::Accepted)
    }

    /// Its role is known.
    pub(crate) fn in_role(mut self, id: u64, role: Role) -> Self {
        for event in &mut self.events {
            if let What::Socket(socket) = &mut event.what
                && socket.id.0 == id
            {
                socket.role = role;
            }
        }
        self
    }

    /// When calls are traced.
    pub(crate) fn traced(mut self, calls: Option<bool>) -> Self {
        for event in &mut self.events {
            if let What::Began(began) = &mut event.what {
                began.calls = calls;
            }
        }
        self
    }

    pub(crate) fn holds(self, id: u64, pid: u32) -> Self {
        self.with(What::Holds { socket: SocketId(id), pid, fd: Some(3) })
    }

    /// A change that a packet or a timer caused.
    pub(crate) fn change(self, id: u64, states: (State, State), counts: Option<Counts>) -> Self {
        self.changed(id, states, None, counts)
    }

    /// A change that a call caused.
    pub(crate) fn call(
        self,
        id: u64,
        states: (State, State),
        pid: u32,
        counts: Option<Counts>,
    ) -> Self {
        self.changed(id, states, Some(actor(pid, None)), counts)
    }

    /// A change that the end of a process caused.
    pub(crate) fn exit(
        self,
        id: u64,
        states: (State, State),
        (pid, ending): (u32, Ending),
        counts: Option<Counts>,
    ) -> Self {
        self.changed(id, states, Some(actor(pid, Some(ending))), counts)
    }

    fn changed(
        self,
        id: u64,
        (from, to): (State, State),
        by: Option<Actor>,
        counts: Option<Counts>,
    ) -> Self {
        let held = Some(by.is_some_and(|by| by.ending.is_none()) && to != State::Close);
        let socket = SocketId(id);
        self.with(What::Changed(Changed { socket, from, to, by, counts, errno: 0, held }))
    }

    /// A change to CLOSED with an error.
    pub(crate) fn dies(self, id: u64, from: State, errno: i32, counts: Option<Counts>) -> Self {
        let (socket, to) = (SocketId(id), State::Close);
        self.with(What::Changed(Changed { socket, from, to, by: None, counts, errno, held: None }))
    }

    /// A reset by a call.
    pub(crate) fn aborts(self, id: u64, reason: &str, pid: u32, counts: Option<Counts>) -> Self {
        let (local, peer) = self.addresses(id);
        self.with(What::ResetSent(Box::new(ResetSent {
            socket: Some(SocketId(id)),
            local,
            peer,
            network: None,
            reason: Some(reason.to_owned()),
            active: true,
            by: Some(actor(pid, None)),
            counts,
        })))
    }

    /// A reset that answers a packet; without a socket if the reason says so.
    pub(crate) fn answers(self, id: u64, reason: &str) -> Self {
        let (local, peer) = self.addresses(id);
        self.with(What::ResetSent(Box::new(ResetSent {
            socket: (reason == "TCP_ABORT_ON_DATA").then_some(SocketId(id)),
            local,
            peer,
            network: None,
            reason: Some(reason.to_owned()),
            active: false,
            by: None,
            counts: None,
        })))
    }

    /// As [`Story::answers`], by a kernel that reports no reasons: by the TIME-WAIT remainder of
    /// the socket, or by none.
    pub(crate) fn answers_unsaid(self, id: u64, by_socket: bool) -> Self {
        let mut story = self.answers(id, "");
        if let Some(What::ResetSent(reset)) = story.events.last_mut().map(|event| &mut event.what) {
            (reset.socket, reset.reason) = (by_socket.then_some(SocketId(id)), None);
        }
        story
    }

    pub(crate) fn reset_comes(self, id: u64, counts: Counts) -> Self {
        self.with(What::ResetReceived { socket: SocketId(id), counts: Some(counts) })
    }

    pub(crate) fn gone(self, id: u64) -> Self {
        self.with(What::Gone { socket: SocketId(id), counts: None })
    }

    /// As [`Story::sample`], with `tcpi_bytes_acked` and `tcpi_bytes_received`.
    pub(crate) fn sample_with(
        self,
        id: u64,
        queues: (u32, u32),
        (acked, received): (u64, u64),
    ) -> Self {
        // Where they stand in `struct tcp_info` (include/uapi/linux/tcp.h).
        let mut info = vec![0; 232];
        info[0] = 1;
        info[120..128].copy_from_slice(&acked.to_ne_bytes());
        info[128..136].copy_from_slice(&received.to_ne_bytes());
        let mut story = self.sample(id, State::Established, queues, true);
        if let Some(What::Sample(sample)) = story.events.last_mut().map(|event| &mut event.what) {
            sample.info = Info(Some(info.into()));
        }
        story
    }

    /// What a socket table shows: the receive and send queue.
    pub(crate) fn sample(self, id: u64, state: State, queues: (u32, u32), held: bool) -> Self {
        self.with(What::Sample(Box::new(Sample {
            socket: SocketId(id),
            state,
            receive_queue: queues.0,
            send_queue: queues.1,
            receive_buffer: None,
            send_buffer: None,
            queued: None,
            locks: None,
            held,
            congestion: None,
            info: Info::default(),
        })))
    }

    /// Asserts that the recording of this name in the corpus is this story. With LASTBYTE_BLESS
    /// set, writes it.
    #[track_caller]
    pub(crate) fn is_in_corpus_as(&self, name: &str) {
        let mut writer = crate::recording::Writer::plain(Vec::new()).unwrap();
        for event in &self.events {
            writer.add(event).unwrap();
        }
        let told = String::from_utf8(writer.finish().unwrap()).unwrap();
        let file = format!("{}/corpus/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("LASTBYTE_BLESS").is_some() {
            std::fs::write(&file, &told).unwrap();
        }
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            told,
            "{file}: LASTBYTE_BLESS=1 writes it"
        );
    }

    fn addresses(&self, id: u64) -> (SocketAddr, SocketAddr) {
        let of = |event: &Event| match &event.what {
            What::Socket(socket) if socket.id.0 == id => Some((socket.local, socket.peer)),
            _ => None,
        };
        self.events.iter().rev().find_map(of).unwrap()
    }
}

fn actor(pid: u32, ending: Option<Ending>) -> Actor {
    Actor { pid, tid: pid, ending }
}

pub(crate) fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Counts of an end whose sequence numbers all began at `start`: bytes written, sent, acked,
/// received, read since.
pub(crate) fn counts(start: u32, far: [u32; 5]) -> Counts {
    let [written, sent, acked, received, read] = far.map(|bytes| start.wrapping_add(bytes));
    Counts {
        write_seq: written,
        snd_nxt: sent,
        snd_una: acked,
        rcv_nxt: received,
        copied_seq: read,
        ..Counts::default()
    }
}
