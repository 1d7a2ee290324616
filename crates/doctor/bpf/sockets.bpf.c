// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Sockets and processes: what happens to TCP connections, in whose name, and what was lost.
 *
 * Of sockets that are asked about (a process and its children, or a port) everything is told. Of all
 * others what matters is: resets, errors, bytes that were given up, connections that come late. A
 * connection that ends well costs a few comparisons and tells nothing.
 *
 * What has to be remembered of a socket stands in its own storage (struct story), which goes with it; it
 * is made only for those that are told about, and for those with long conversations. Who closed a
 * socket whose end is still open is kept apart, in a table of a fixed size (`closes`).
 *
 * Where a change of state comes from (net/ipv4/tcp.c, tcp_input.c):
 *
 *   -> FIN-WAIT-1, LAST-ACK      close, shutdown
 *   -> SYN-SENT, LISTEN          connect, listen
 *   ESTABLISHED, CLOSE-WAIT -> CLOSE without a pending error     close with unread bytes, an abort
 *   later states -> CLOSE        close with unread bytes or an abort; else a packet or timer
 *
 * On loopback a packet is handled on top of whatever process runs, and one that finds the socket in
 * use by the process that uses it: to run in a process does not say that its call was the cause. The
 * state that was left says so, or the socket's lock: a process owns it (sk_lock.owned), packets and timers
 * do not.
 */
#include "record.h"

/* --- the kernel's types: only what is used -------------------------------------------------------- */

struct in6_addr {
	u8 s6_addr[16];
};

struct net {
	struct ns_common ns;
} FROM_KERNEL;

typedef struct {
	struct net *net;
} FROM_KERNEL possible_net_t;

struct sock_common {
	u32 skc_daddr;
	u32 skc_rcv_saddr;
	u16 skc_dport; /* as on the wire */
	u16 skc_family;
	volatile u8 skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	unsigned long skc_flags; /* enum sock_flags */
	u32 skc_tw_rcv_nxt; /* of TIME-WAIT, as what follows */
	u32 skc_tw_snd_nxt;
} FROM_KERNEL;

struct socket {
	struct file *file;
} FROM_KERNEL;

struct bpf_local_storage;

typedef struct {
	int owned; /* by a process, for the length of a call */
} FROM_KERNEL socket_lock_t;

struct sock {
	struct sock_common __sk_common;
	socket_lock_t sk_lock;
	u16 sk_type;
	int sk_err; /* the pending error */
	int sk_sndbuf;
	int sk_rcvbuf;
	u8 sk_userlocks : 4;
	unsigned long sk_lingertime; /* jiffies */
	struct socket *sk_socket;
	struct pid *sk_peer_pid; /* of a Unix socket */
	struct bpf_local_storage *sk_bpf_storage;
} FROM_KERNEL;

/* Bits of skc_flags. */
enum {
	SOCK_DEAD = 0,   /* no program has it open */
	SOCK_DONE = 1,   /* the peer's FIN came */
	SOCK_LINGER = 4, /* SO_LINGER is on */
};

enum {
	SOCK_STREAM = 1,
	SOCK_SEQPACKET = 5,
};

enum {
	TCP_ESTABLISHED = 1,
	TCP_SYN_SENT = 2,
	TCP_SYN_RECV = 3,
	TCP_FIN_WAIT1 = 4,
	TCP_FIN_WAIT2 = 5,
	TCP_TIME_WAIT = 6,
	TCP_CLOSE = 7,
	TCP_CLOSE_WAIT = 8,
	TCP_LAST_ACK = 9,
	TCP_LISTEN = 10,
	TCP_CLOSING = 11,
};

struct inet_sock {
	struct sock sk;
	u16 inet_sport; /* as on the wire; stays where skc_num is given back */
} FROM_KERNEL;

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	u8 icsk_ca_state : 5; /* enum tcp_ca_state */
} FROM_KERNEL;

#define TCP_CA_LOSS 4 /* after a retransmission timeout */

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 mss_cache; /* bytes in a full segment */
	u32 write_seq;
	u32 snd_nxt;
	u32 snd_una;
	u32 snd_wnd; /* the peer's window, bytes */
	u32 snd_cwnd; /* congestion window, packets */
	u32 rcv_nxt;
	u32 copied_seq;
	u32 srtt_us; /* smoothed round trip, microseconds times 8 */
	u32 packets_out; /* sent and not acknowledged */
	u32 data_segs_in;
	u32 data_segs_out;
	u64 bytes_acked;
	u64 bytes_received;
	u64 tcp_wstamp_ns; /* when the last packet left, CLOCK_MONOTONIC */
	u32 retrans_stamp; /* in SYN-SENT: when the first SYN left; milliseconds, or microseconds */
	u8 tcp_usec_ts : 1; /* ... if so */
	u8 nonagle : 4;
	bool is_mptcp; /* a subflow of an MPTCP connection, since Linux 5.6 */
} FROM_KERNEL;

struct request_sock;

struct sk_buff {
	struct sock *sk;
	u32 len;
	u8 cb[48];
	u8 *head;
	u16 network_header;   /* from head */
	u16 transport_header; /* from head */
} FROM_KERNEL;

/* In the cb of a packet of a Unix socket. */
struct unix_skb_parms {
	struct pid *pid; /* who sent it, where either end asks for that (SO_PASSCRED) */
	u32 consumed; /* of a stream: bytes that were read of it */
} FROM_KERNEL;

struct sockaddr_un {
	u16 sun_family;
	u8 sun_path[108];
};

struct unix_address {
	int len; /* with sun_family */
	struct sockaddr_un name[1];
} FROM_KERNEL;

struct unix_sock {
	struct unix_address *addr;
	struct sock *peer;
} FROM_KERNEL;

struct linux_binprm;

/* A bit field, wherever this kernel has it. */
#define BIT_FIELD(object, field)                                                               \
	({                                                                                     \
		const void *place = (const void *)(object) +                                   \
				    __builtin_preserve_field_info((object)->field, 0);         \
		u64 word = 0;                                                                  \
		/* Else the compiler loads from within the object, by a size of its own. */    \
		asm volatile("" : "+r"(place));                                                \
		switch (__builtin_preserve_field_info((object)->field, 1)) {                   \
		case 1: word = *(const u8 *)place; break;                                      \
		case 2: word = *(const u16 *)place; break;                                     \
		case 4: word = *(const u32 *)place; break;                                     \
		case 8: word = *(const u64 *)place; break;                                     \
		}                                                                              \
		word <<= __builtin_preserve_field_info((object)->field, 4);                    \
		word >> __builtin_preserve_field_info((object)->field, 5);                     \
	})

/* --- what the loader says ----------------------------------------------------------------------- */

enum scope {
	SCOPE_MACHINE = 0,
	SCOPE_PROCESS = 1,
	SCOPE_PORT = 2,
};

/* Constant once the object is loaded. The loader (observe/kernel.rs) has the same structure. */
struct given {
	u32 scope;             /* enum scope */
	u32 port;              /* of SCOPE_PORT */
	u32 socket_close;      /* SKB_DROP_REASON_SOCKET_CLOSE, since Linux 6.14; else NO_REASON */
	u32 reset_has_reason;  /* tcp_send_reset(sk, skb, reason), since Linux 6.10 */
	u64 unix_release;      /* where unix_release_sock() begins, for a kernel without that reason */
	u64 unix_release_bytes;
};

#define NO_REASON 0xffffffff

SEC(".rodata.given") const volatile struct given given = {};

/* --- what is remembered --------------------------------------------------------------------------- */

/* Who closed a socket, or shut down its writing, and what stood where. */
struct close {
	u64 socket; /* whose cookie; 0: none */
	u64 at_ns;
	struct actor by;
	u8 from;
	u8 to;
	u8 flags;
	u8 locks;
	struct counts counts;
	u8 comm[16];
};

enum {
	TOLD = 1,     /* user space knows it */
	WATCHED = 2,  /* everything of it is told */
	TROUBLED = 4, /* as well, from now on */
	LISTENS = 8,  /* of a listening socket, or cloned from one and not looked at since */
	ACCEPTED = 16,
	CONNECTED = 32,
	ENDED_HELD = 64, /* it came to its end while a program had it open */
};

enum again {
	AGAIN_SYN = 0,
	AGAIN_SYN_ACK = 1,
	AGAIN_TIME_OUT = 2,
	AGAIN_LOSS = 3,
};

struct story {
	u32 flags;
	u32 holder; /* the process that was last told to hold it */
	struct close close;
	u32 io_pid;
	u32 held_seq;      /* the end of what is held back */
	u64 held_since_ns; /* 0: nothing is */
	u64 io_since_ns;
	struct io io;
	u64 losses_since_ns;
	u32 losses;
	u32 was_read; /* and nothing was written since */
};

struct {
	NUMBER(type, BPF_MAP_TYPE_SK_STORAGE);
	NUMBER(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	TYPE(key, int);
	TYPE(value, struct story);
} stories SEC(".maps");

/*
 * Those who closed a socket that had nothing of their own to lose, but may still refuse what the peer
 * sends. Cookies are counted up, so that an entry lasts until about so many sockets later.
 */
#define MOST_CLOSES 32768

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, MOST_CLOSES);
	TYPE(key, u32);
	TYPE(value, struct close);
} closes SEC(".maps");

INLINE struct story *story_of(struct sock *sk)
{
	return sk->sk_bpf_storage ? bpf_sk_storage_get(&stories, sk, NULL, 0) : NULL;
}

INLINE struct story *make_story(struct sock *sk)
{
	return bpf_sk_storage_get(&stories, sk, NULL, BPF_SK_STORAGE_CREATE);
}

/* --- what is looked at ---------------------------------------------------------------------------- */

INLINE bool has_flag(const struct sock *sk, u32 bit)
{
	return sk->__sk_common.skc_flags >> bit & 1;
}

/* Whether the last descriptor of it is being closed. */
INLINE bool is_closing(const struct sock *sk)
{
	struct socket *socket = NULL;
	struct file *file = NULL;
	s64 users = 0;

	READ(socket, sk->sk_socket);
	if (!socket)
		return false;
	READ(file, socket->file);
	if (!file)
		return false;
	if (EXISTS(struct file, f_ref)) {
		READ(users, file->f_ref.refcnt.counter);
		return users < 0;
	}
	READ(users, file->f_count.counter);
	return users == 0;
}

INLINE u32 network_of(const struct sock *sk)
{
	struct net *network = NULL;
	u32 number = 0;

	READ(network, sk->__sk_common.skc_net.net);
	READ(number, network->ns.inum);
	return number;
}

INLINE struct counts counts_of(const struct tcp_sock *tp)
{
	const struct sock *sk = &tp->inet_conn.icsk_inet.sk;
	struct counts counts = {
		.write_seq = tp->write_seq,
		.snd_nxt = tp->snd_nxt,
		.snd_una = tp->snd_una,
		.rcv_nxt = tp->rcv_nxt,
		.copied_seq = tp->copied_seq,
		.rtt_us = tp->srtt_us >> 3,
		.send_buffer = sk->sk_sndbuf,
		.receive_buffer = sk->sk_rcvbuf,
		.bytes_acked = tp->bytes_acked,
		.bytes_received = tp->bytes_received,
	};

	return counts;
}

/* Whether it is a subflow of an MPTCP connection; `sk` is a TCP socket. */
INLINE bool is_subflow(const struct sock *sk)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	bool is_mptcp = false;

	if (EXISTS(struct tcp_sock, is_mptcp))
		READ(is_mptcp, tp->is_mptcp);
	return is_mptcp;
}

INLINE u8 locks_of(const struct tcp_sock *tp)
{
	return BIT_FIELD(tp, inet_conn.icsk_inet.sk.sk_userlocks) & 3;
}

/* Bytes that came and were not read, the peer's FIN left out. */
INLINE u32 unread(const struct sock *sk, const struct tcp_sock *tp)
{
	u32 bytes = tp->rcv_nxt - tp->copied_seq;

	return bytes && has_flag(sk, SOCK_DONE) ? bytes - 1 : bytes;
}

/* Bytes that were written and are not acked, our FIN left out where it was queued in this state. */
INLINE u32 unacked(const struct tcp_sock *tp, u32 state)
{
	u32 bytes = tp->write_seq - tp->snd_una;
	bool has_fin = state == TCP_FIN_WAIT1 || state == TCP_CLOSING || state == TCP_LAST_ACK;

	return bytes && has_fin ? bytes - 1 : bytes;
}

INLINE u16 own_port(const struct sock *sk)
{
	u16 port = 0;

	bpf_probe_read_kernel(&port, sizeof(port), &((const struct inet_sock *)sk)->inet_sport);
	return __builtin_bswap16(port);
}

INLINE bool has_port(const struct sock *sk, u32 port)
{
	return own_port(sk) == port ||
	       __builtin_bswap16(sk->__sk_common.skc_dport) == port;
}

/* Whether everything of a socket is to be told. */
INLINE bool is_asked_about(const struct sock *sk, u32 pid)
{
	if (given.scope == SCOPE_PORT)
		return has_port(sk, given.port);
	return given.scope == SCOPE_PROCESS && pid && is_watched_process(pid);
}

/* Whether what a process does is asked about, on a socket of which nothing is remembered. */
INLINE bool is_asked_process(u32 pid)
{
	return given.scope == SCOPE_MACHINE || (pid && is_watched_process(pid));
}

/* Whether a socket is asked about, and no other's, of which is told for its trouble. */
INLINE bool is_asked_socket(const struct sock *sk, const struct story *story)
{
	return given.scope == SCOPE_MACHINE || (story && story->flags & WATCHED) ||
	       is_asked_about(sk, 0);
}

INLINE void write_addresses(struct record *record, const struct sock *sk)
{
	record->family = sk->__sk_common.skc_family;
	record->network = network_of(sk);
	record->local_port = own_port(sk);
	record->peer_port = __builtin_bswap16(sk->__sk_common.skc_dport);
	if (record->family == AF_INET6) {
		bpf_probe_read_kernel(record->local, 16, &sk->__sk_common.skc_v6_rcv_saddr);
		bpf_probe_read_kernel(record->peer, 16, &sk->__sk_common.skc_v6_daddr);
	} else {
		*(u32 *)record->local = sk->__sk_common.skc_rcv_saddr;
		*(u32 *)record->peer = sk->__sk_common.skc_daddr;
	}
}

/* --- telling of sockets --------------------------------------------------------------------------- */

APART void tell_socket(struct sock *sk, struct story *story, u64 at_ns)
{
	struct record *record = begin(KIND_SOCKET, at_ns, bpf_get_socket_cookie(sk),
				      is_asked_socket(sk, story));

	if (!record)
		return;
	write_addresses(record, sk);
	if (is_subflow(sk))
		record->flags = IS_SUBFLOW;
	if (story->flags & CONNECTED)
		record->role = ROLE_CONNECTED;
	else if (story->flags & ACCEPTED)
		record->role = ROLE_ACCEPTED;
	else if (sk->__sk_common.skc_state == TCP_LISTEN || story->flags & LISTENS)
		record->role = ROLE_LISTENS;
	story->flags |= TOLD;
	end(record);
}

/* That a process holds it, unless that is what was told last. `story` may be NULL. */
INLINE void tell_holder(struct story *story, u64 socket, u64 at_ns, const struct actor *by,
			const u8 *comm)
{
	bool is_asked = (story && story->flags & WATCHED) || is_asked_process(by->pid);
	struct record *record;

	if (!by->pid || (story && story->holder == by->pid))
		return;
	record = begin(KIND_HOLDS, at_ns, socket, is_asked);
	if (!record)
		return;
	record->by = *by;
	if (comm)
		__builtin_memcpy(record->comm, comm, sizeof(record->comm));
	else
		write_name(record->comm);
	if (story)
		story->holder = by->pid;
	end(record);
}

/* A close that was kept for the case that something comes of it. `story` may be NULL. */
APART void tell_close(struct story *story, const struct close *close)
{
	bool is_asked = (story && story->flags & WATCHED) || is_asked_process(close->by.pid);
	struct record *record;

	tell_holder(story, close->socket, close->at_ns, &close->by, close->comm);
	record = begin(KIND_CHANGED, close->at_ns, close->socket, is_asked);
	if (!record)
		return;
	record->by = close->by;
	record->from = close->from;
	record->to = close->to;
	record->flags = close->flags;
	record->locks = close->locks;
	record->counts = close->counts;
	__builtin_memcpy(record->comm, close->comm, sizeof(record->comm));
	end(record);
}

/* A story's beginning, where it was not told. */
APART void tell_story(struct sock *sk, struct story *story, u64 at_ns)
{
	u64 socket = bpf_get_socket_cookie(sk);
	u32 place = socket % MOST_CLOSES;
	struct close *close;

	close = story->close.socket ? &story->close : bpf_map_lookup_elem(&closes, &place);
	if (close && close->socket != socket)
		close = NULL;
	/* A socket is told of before anything that happened to it. */
	if (!(story->flags & TOLD))
		tell_socket(sk, story, close ? close->at_ns : at_ns);
	if (close) {
		tell_close(story, close);
		close->socket = 0;
	}
}

/* A function of BPF has five arguments at most. */
#define CHANGE(from, to, flags) ((from) << 16 | (to) << 8 | (flags))

APART void keep_close(struct close *close, struct sock *sk, struct tcp_sock *tp, u64 at_ns, u32 change)
{
	close->at_ns = at_ns;
	close->by = caller();
	close->from = change >> 16;
	close->to = change >> 8;
	close->flags = change;
	close->locks = locks_of(tp);
	close->counts = counts_of(tp);
	write_name(close->comm);
	close->socket = bpf_get_socket_cookie(sk);
}

APART void tell_change(struct sock *sk, struct tcp_sock *tp, struct story *story, u64 at_ns, u32 change)
{
	u64 socket = bpf_get_socket_cookie(sk);
	struct actor by = {};
	struct record *record;

	if (change & IS_ACTIVE) {
		by = caller();
		tell_holder(story, socket, at_ns, &by, NULL);
	}
	record = begin(KIND_CHANGED, at_ns, socket, is_asked_socket(sk, story));
	if (!record)
		return;
	record->by = by;
	if (by.pid)
		write_name(record->comm);
	record->from = change >> 16;
	record->to = change >> 8;
	record->number = sk->sk_err;
	record->flags = change;
	record->locks = locks_of(tp);
	record->counts = counts_of(tp);
	end(record);
}

/* What a process did with it since that was last told. */
APART void tell_io(struct sock *sk, struct story *story, u64 now)
{
	struct record *record;
	u64 since = story->io_since_ns;

	/* What somebody did who has no number is nobody's. */
	if (!story->io_pid)
		__builtin_memset(&story->io, 0, sizeof(story->io));
	if (!(story->io.writes | story->io.reads | story->io.not_now))
		return;
	if (!(story->flags & TOLD))
		tell_socket(sk, story, now);
	record = begin(KIND_IO, now, bpf_get_socket_cookie(sk), is_asked_socket(sk, story));
	if (!record)
		return;
	record->by.pid = story->io_pid;
	record->io.over_ns = now - since;
#define MOVE(field) record->io.field = __sync_lock_test_and_set(&story->io.field, 0)
	MOVE(writes);
	MOVE(written_bytes);
	MOVE(tiny_writes);
	MOVE(reads);
	MOVE(read_bytes);
	MOVE(not_now);
	MOVE(held_back);
	MOVE(held_back_ns);
	MOVE(turns);
#undef MOVE
	story->io_since_ns = now;
	end(record);
}

APART void tell_losses(struct sock *sk, struct story *story, u64 now)
{
	struct record *record;

	if (!story->losses)
		return;
	record = begin(KIND_AGAIN, now, bpf_get_socket_cookie(sk), is_asked_socket(sk, story));
	if (!record)
		return;
	record->role = AGAIN_LOSS;
	record->number = story->losses;
	story->losses = 0;
	end(record);
}

/* --- changes of state ----------------------------------------------------------------------------- */

/* Whether the call that runs caused it; see the top. */
INLINE bool is_by_call(const struct sock *sk, const struct tcp_sock *tp, u32 from, u32 to)
{
	if (to == TCP_CLOSE && !sk->sk_lock.owned && from != TCP_ESTABLISHED && from != TCP_CLOSE_WAIT)
		return false;
	if (is_kernels_own())
		return false;
	if (to == TCP_FIN_WAIT1 || to == TCP_LAST_ACK || to == TCP_SYN_SENT || to == TCP_LISTEN)
		return true;
	if (to != TCP_CLOSE || sk->sk_err || from == TCP_SYN_RECV)
		return false;
	if (from == TCP_FIN_WAIT1 || from == TCP_FIN_WAIT2 || from == TCP_LAST_ACK ||
	    from == TCP_CLOSING)
		return sk->sk_lock.owned && is_closing(sk) &&
		       (unread(sk, tp) || (has_flag(sk, SOCK_LINGER) && !sk->sk_lingertime));
	return true;
}

/* A connection that took longer than this came late, microseconds. */
#define LATE_US 200000

/* Whether a change matters though nobody asked about the socket. */
INLINE bool matters(const struct sock *sk, const struct tcp_sock *tp, u32 from, u32 to, bool by_call)
{
	if (to == TCP_CLOSE) {
		if (from == TCP_LISTEN || from == TCP_CLOSE)
			return false;
		if (sk->sk_err || from == TCP_SYN_SENT)
			return true;
		if (from == TCP_SYN_RECV)
			return false;
		return unacked(tp, from) || (by_call && unread(sk, tp));
	}
	if (to == TCP_FIN_WAIT1 || to == TCP_LAST_ACK) {
		struct task_struct *task = bpf_get_current_task_btf();

		return by_call && task->flags & PF_EXITING && unacked(tp, from);
	}
	return from == TCP_SYN_SENT && to == TCP_ESTABLISHED && tp->srtt_us >> 3 > LATE_US;
}

/* For how long a connection has been in SYN-SENT, nanoseconds. */
INLINE u64 waited_ns(const struct tcp_sock *tp, u64 now)
{
	u64 us = now / 1000;

	if (!tp->retrans_stamp)
		return 0;
	if (__builtin_preserve_field_info(tp->tcp_usec_ts, 2) && BIT_FIELD(tp, tcp_usec_ts))
		return (u64)((u32)us - tp->retrans_stamp) * 1000;
	return (u64)((u32)(us / 1000) - tp->retrans_stamp) * 1000000;
}

/* Tells of a connection that was in SYN-SENT before it was looked at when that began. */
INLINE void tell_opening(struct sock *sk, struct tcp_sock *tp, struct story *story, u64 now)
{
	u64 waited = waited_ns(tp, now);

	/* A stamp of another unit gives nonsense. */
	if (waited > 600ULL * 1000000000)
		waited = tp->srtt_us / 8 * 1000ULL;
	story->flags |= CONNECTED;
	tell_socket(sk, story, now - waited);
	tell_change(sk, tp, story, now - waited, CHANGE(TCP_CLOSE, TCP_SYN_SENT, 0));
}

/* connect() found no local port: nothing was sent. */
INLINE void tell_not_connected(struct sock *sk, u64 now)
{
	bool is_asked = given.scope == SCOPE_MACHINE || is_asked_about(sk, current_process());
	struct record *record = begin(KIND_NOT_CONNECTED, now, 0, is_asked);

	if (!record)
		return;
	write_addresses(record, sk);
	record->number = EADDRNOTAVAIL;
	record->by = caller();
	write_name(record->comm);
	end(record);
}

INLINE void note_role(struct story *story, u32 from, u32 to)
{
	if (from == TCP_SYN_RECV)
		story->flags = (story->flags & WATCHED) | ACCEPTED | (story->flags & TOLD);
	else if (to == TCP_SYN_SENT)
		story->flags = (story->flags & ~LISTENS) | CONNECTED;
	else if (to == TCP_LISTEN)
		story->flags |= LISTENS;
}

/* Whether a change of a socket of which nothing is remembered can be passed over, at little cost. */
INLINE bool is_dull(const struct sock *sk, u32 from, u32 to)
{
	if (to == TCP_SYN_RECV)
		/* It is being made from a listening socket and has no addresses yet. */
		return true;
	if (given.scope == SCOPE_PORT || sk->sk_bpf_storage)
		return false;
	if (to == TCP_ESTABLISHED)
		return from != TCP_SYN_SENT;
	if (given.scope == SCOPE_MACHINE && (to == TCP_SYN_SENT || to == TCP_LISTEN))
		return true;
	return to == TCP_FIN_WAIT2 || to == TCP_CLOSE_WAIT || to == TCP_CLOSING ||
	       to == TCP_TIME_WAIT;
}

/* An argument, loaded anew. The load is spelled out: the verifier takes constant places alone. */
#define ARGUMENT(ctx, place)                                                                   \
	({                                                                                     \
		u64 word;                                                                      \
		asm volatile("%0 = *(u64 *)(%1 + " #place ")" : "=r"(word) : "r"(ctx));         \
		word;                                                                          \
	})

/* 0, which the verifier does not know: it knows nothing of the numbers in `ctx`, and one less itself is 0. */
#define NOTHING(ctx)                                                                           \
	({                                                                                     \
		u64 nothing = ARGUMENT(ctx, 8);                                                \
		u64 same = ARGUMENT(ctx, 8);                                                   \
		asm volatile("%0 -= %1" : "+r"(nothing) : "r"(same));                          \
		nothing;                                                                       \
	})

/*
 * A truth that the verifier has forgotten. It follows each way that leads to one into all that comes after: with
 * two of a dozen ways each the program below took it most of half a second.
 */
#define FORGOTTEN(ctx, truth)                                                                  \
	((bool)(((truth) | NOTHING(ctx)) & 1))

/* The same for what it knows of a change by now, which took it 174 ms where it takes 35 with this. */
#define FORGET(ctx, from, to, flags)                                                           \
	({                                                                                     \
		from = (u32)ARGUMENT(ctx, 8);                                                  \
		to = (u32)ARGUMENT(ctx, 16);                                                   \
		flags |= NOTHING(ctx);                                                         \
	})

SEC("tp_btf/inet_sock_set_state")
int socket_state(u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	u32 from = (u32)ctx[1];
	u32 to = (u32)ctx[2];
	struct tcp_sock *tp;
	struct story *story;
	bool by_call;
	bool matter;
	u32 pid = 0;
	u32 flags = HAS_COUNTS | HAS_HELD;
	u64 now;

	if (is_dull(sk, from, to))
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	story = story_of(sk);
	by_call = FORGOTTEN(ctx, is_by_call(sk, tp, from, to));
	if (by_call)
		pid = current_process();
	matter = FORGOTTEN(ctx, matters(sk, tp, from, to, by_call));
	FORGET(ctx, from, to, flags);
	if (story && from == TCP_SYN_RECV && story->flags & LISTENS) {
		/* Cloned: nothing of what the listening socket did is its own. */
		u32 inherited = story->flags & WATCHED;

		__builtin_memset(story, 0, sizeof(*story));
		story->flags = inherited;
	}
	if (!(story && story->flags & WATCHED) && is_asked_about(sk, pid)) {
		story = make_story(sk);
		if (story)
			story->flags |= WATCHED;
	}
	if (!matter && !(story && story->flags & (WATCHED | TROUBLED)) &&
	    !(by_call && to == TCP_FIN_WAIT1))
		return 0;

	now = bpf_ktime_get_ns();
	if (by_call)
		flags |= IS_ACTIVE;
	if (!has_flag(sk, SOCK_DEAD) && !(by_call && is_closing(sk)))
		flags |= IS_HELD;
	if (matter && !story)
		story = make_story(sk);
	if (matter && story)
		story->flags |= TROUBLED;
	if (!(story && story->flags & (WATCHED | TROUBLED))) {
		/* An end that is open: who made it is wanted if something comes of it. */
		u32 place = bpf_get_socket_cookie(sk) % MOST_CLOSES;
		struct close *close;

		if (unacked(tp, from)) {
			story = story ?: make_story(sk);
			if (story)
				keep_close(&story->close, sk, tp, now, CHANGE(from, to, flags));
			return 0;
		}
		close = bpf_map_lookup_elem(&closes, &place);
		if (close)
			keep_close(close, sk, tp, now, CHANGE(from, to, flags));
		return 0;
	}
	FORGET(ctx, from, to, flags);
	note_role(story, from, to);
	if (to == TCP_CLOSE && flags & IS_HELD)
		story->flags |= ENDED_HELD;
	if (from == TCP_SYN_SENT && to == TCP_CLOSE && by_call && !own_port(sk)) {
		tell_not_connected(sk, now);
		return 0;
	}
	if (!(story->flags & TOLD) && from == TCP_SYN_SENT)
		tell_opening(sk, tp, story, now);
	/* Its addresses are known from here on. */
	if (to == TCP_ESTABLISHED)
		story->flags &= ~TOLD;
	FORGET(ctx, from, to, flags);
	tell_story(sk, story, now);
	tell_change(sk, tp, story, now, CHANGE(from, to, flags));
	return 0;
}

/* --- resets, retransmissions, errors, the last of a socket ---------------------------------------- */

/* A story that is told from here on; NULL where there is none to be had. */
INLINE struct story *trouble(struct sock *sk, u64 now)
{
	struct story *story = story_of(sk) ?: make_story(sk);

	if (!story)
		return NULL;
	if (story->flags & LISTENS && sk->__sk_common.skc_state != TCP_LISTEN)
		story->flags = ACCEPTED | (story->flags & WATCHED);
	story->flags |= TROUBLED;
	tell_story(sk, story, now);
	return story;
}

struct iphdr {
	u8 version_and_length;
	u8 unused[11];
	u32 saddr;
	u32 daddr;
};

struct ipv6hdr {
	u32 version_and_class;
	u32 unused;
	u8 saddr[16];
	u8 daddr[16];
};

/* Addresses of the packet that a reset answers: the peer's first. */
INLINE void write_addresses_of_packet(struct record *record, const struct sk_buff *skb)
{
	u8 *head = skb->head;
	u8 *network = head + skb->network_header;
	u16 ports[2] = {};
	u8 version = 0;

	bpf_probe_read_kernel(&version, 1, network);
	bpf_probe_read_kernel(ports, sizeof(ports), head + skb->transport_header);
	record->peer_port = __builtin_bswap16(ports[0]);
	record->local_port = __builtin_bswap16(ports[1]);
	if (version >> 4 == 6) {
		record->family = AF_INET6;
		bpf_probe_read_kernel(record->peer, 16, network + 8);
		bpf_probe_read_kernel(record->local, 16, network + 24);
	} else {
		record->family = AF_INET;
		bpf_probe_read_kernel(record->peer, 4, network + 12);
		bpf_probe_read_kernel(record->local, 4, network + 16);
	}
}

/*
 * Whether a reset that answers this packet is asked about: by its ports, or because the process that is at
 * work is. On loopback that is mostly the one that sent the packet.
 */
INLINE bool is_asked_packet(const struct sk_buff *skb)
{
	u16 ports[2] = {};

	if (given.scope == SCOPE_PORT) {
		bpf_probe_read_kernel(ports, sizeof(ports), skb->head + skb->transport_header);
		return __builtin_bswap16(ports[0]) == given.port ||
		       __builtin_bswap16(ports[1]) == given.port;
	}
	return is_asked_process(current_process());
}

/*
 * A packet came for what is left of a connection in TIME-WAIT or FIN-WAIT-2, which has the cookie of the
 * socket that it was: tells who closed that, and says how far it was. Returns whether that is asked about.
 */
INLINE bool tell_of_late(struct sock *sk, struct sk_buff *skb, u64 socket, u64 now, struct counts *counts)
{
	u32 place = socket % MOST_CLOSES;
	struct close *close = bpf_map_lookup_elem(&closes, &place);
	bool is_asked = is_asked_packet(skb);
	struct record *record;

	if (close && socket && close->socket == socket) {
		is_asked = is_asked || is_asked_process(close->by.pid);
		*counts = close->counts;
		record = begin(KIND_SOCKET, MIN(close->at_ns, now), socket, is_asked);
		if (record) {
			write_addresses_of_packet(record, skb);
			record->network = network_of(sk);
			end(record);
			tell_close(NULL, close);
			close->socket = 0;
		}
	}
	/* All that it sent is acked, its FIN too, and all that came was read. */
	counts->write_seq = sk->__sk_common.skc_tw_snd_nxt;
	counts->snd_nxt = counts->write_seq;
	counts->bytes_acked += counts->bytes_acked ? counts->write_seq - counts->snd_una : 0;
	counts->snd_una = counts->write_seq;
	counts->rcv_nxt = sk->__sk_common.skc_tw_rcv_nxt;
	counts->copied_seq = counts->rcv_nxt;
	return is_asked;
}

/* A reset is sent by a socket, or answers a packet that meets what is left of one, or none. */
INLINE int tell_reset(struct sock *sk, struct sk_buff *skb, u32 reason)
{
	struct tcp_sock *tp = NULL;
	struct counts late = {};
	struct actor by = {};
	struct record *record;
	u32 flags = skb ? 0 : IS_ACTIVE;
	u64 socket = 0;
	u64 now = bpf_ktime_get_ns();
	bool is_asked;

	if (sk) {
		tp = bpf_skc_to_tcp_sock(sk);
		socket = bpf_get_socket_cookie(sk);
	}
	/* A listening socket refuses for others: it has no part in it. */
	if (sk && tp && sk->__sk_common.skc_state != TCP_LISTEN) {
		struct story *story = trouble(sk, now);

		is_asked = is_asked_socket(sk, story);
		/* The lock of a connection that nobody accepted is not taken: who listened closes it. */
		bool is_unaccepted = !sk->sk_socket && !has_flag(sk, SOCK_DEAD);

		if (!skb && (sk->sk_lock.owned || is_unaccepted) && !is_kernels_own()) {
			by = caller();
			if (story)
				tell_holder(story, socket, now, &by, NULL);
		}
	} else {
		if (!skb)
			return 0;
		if (sk && sk->__sk_common.skc_state == TCP_TIME_WAIT) {
			is_asked = tell_of_late(sk, skb, socket, now, &late);
			flags |= HAS_COUNTS;
		} else {
			is_asked = is_asked_packet(skb);
		}
		tp = NULL;
	}
	record = begin(KIND_RESET_SENT, now, socket, is_asked);
	if (!record)
		return 0;
	record->by = by;
	if (by.pid)
		write_name(record->comm);
	record->number = reason;
	record->flags = flags;
	record->counts = late;
	if (tp) {
		write_addresses(record, sk);
		record->flags |= HAS_COUNTS;
		record->locks = locks_of(tp);
		record->counts = counts_of(tp);
	} else if (skb) {
		write_addresses_of_packet(record, skb);
		if (sk)
			record->network = network_of(sk);
	}
	end(record);
	return 0;
}

SEC("tp_btf/tcp_send_reset")
int reset_sent(u64 *ctx)
{
	u32 reason = 0;

	if (given.reset_has_reason)
		reason = (u32)ARGUMENT(ctx, 16);
	return tell_reset((struct sock *)ctx[0], (struct sk_buff *)ctx[1], reason);
}

/*
 * Before Linux 6.10 the tracepoint tells of no reset that answers a packet for which there is no whole socket
 * any more: the functions that send those are looked at themselves. A reset is never answered by one.
 */
INLINE int tell_late_reset(struct sock *sk, struct sk_buff *skb)
{
	u8 flags = 0;

	if (!skb)
		return 0;
	if (sk && sk->__sk_common.skc_state != TCP_TIME_WAIT)
		return 0;
	bpf_probe_read_kernel(&flags, 1, skb->head + skb->transport_header + 13);
	if (flags & 4)
		return 0;
	return tell_reset(sk, skb, 0);
}

SEC("fentry/tcp_v4_send_reset")
int late_reset_v4(u64 *ctx)
{
	return tell_late_reset((struct sock *)ctx[0], (struct sk_buff *)ctx[1]);
}

SEC("fentry/tcp_v6_send_reset")
int late_reset_v6(u64 *ctx)
{
	return tell_late_reset((struct sock *)ctx[0], (struct sk_buff *)ctx[1]);
}

INLINE void tell_with_counts(struct sock *sk, struct tcp_sock *tp, u32 kind, u64 now)
{
	struct record *record = begin(kind, now, bpf_get_socket_cookie(sk),
				      is_asked_socket(sk, story_of(sk)));

	if (!record)
		return;
	record->number = sk->sk_err;
	record->flags = HAS_COUNTS;
	record->locks = locks_of(tp);
	record->counts = counts_of(tp);
	end(record);
}

SEC("tp_btf/tcp_receive_reset")
int reset_received(u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	u64 now = bpf_ktime_get_ns();
	struct story *story;

	if (!tp)
		return 0;
	story = story_of(sk);
	if (!(story && story->flags & TOLD) && sk->__sk_common.skc_state == TCP_SYN_SENT) {
		story = make_story(sk);
		if (story)
			tell_opening(sk, tp, story, now);
	}
	trouble(sk, now);
	tell_with_counts(sk, tp, KIND_RESET_RECEIVED, now);
	return 0;
}

SEC("tp_btf/inet_sk_error_report")
int socket_failed(u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	u64 now = bpf_ktime_get_ns();

	/* The queue of errors (timestamps, zero copy) is reported by the same way. */
	if (!tp || !sk->sk_err)
		return 0;
	trouble(sk, now);
	tell_with_counts(sk, tp, KIND_FAILED, now);
	return 0;
}

/* At most so seldom is told what is counted, nanoseconds. */
#define SELDOM_NS 950000000

SEC("tp_btf/tcp_retransmit_skb")
int sent_again(u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	u32 why = AGAIN_LOSS;
	u64 now = bpf_ktime_get_ns();
	struct record *record;
	struct story *story;

	if (!tp)
		return 0;
	if (sk->__sk_common.skc_state == TCP_SYN_SENT)
		why = AGAIN_SYN;
	else if (BIT_FIELD(tp, inet_conn.icsk_ca_state) == TCP_CA_LOSS)
		why = AGAIN_TIME_OUT;
	story = story_of(sk);
	if (!(story && story->flags & WATCHED) && is_asked_about(sk, 0)) {
		story = make_story(sk);
		if (story)
			story->flags |= WATCHED;
	}
	if (why == AGAIN_LOSS) {
		if (!story)
			return 0;
		story->losses++;
		if (now - story->losses_since_ns < SELDOM_NS)
			return 0;
		story->losses_since_ns = now;
		if (!(story->flags & TOLD))
			tell_socket(sk, story, now);
		tell_losses(sk, story, now);
		return 0;
	}
	story = story ?: make_story(sk);
	if (!story)
		return 0;
	if (why == AGAIN_SYN) {
		story->flags |= TROUBLED;
		if (!(story->flags & TOLD))
			tell_opening(sk, tp, story, now);
	} else if (!(story->flags & TOLD)) {
		tell_socket(sk, story, now);
	}
	record = begin(KIND_AGAIN, now, bpf_get_socket_cookie(sk), is_asked_socket(sk, story));
	if (!record)
		return 0;
	record->role = why;
	record->number = 1;
	end(record);
	return 0;
}

SEC("tp_btf/tcp_retransmit_synack")
int answered_again(u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct story *story = story_of(sk);
	u64 now = bpf_ktime_get_ns();
	struct record *record;

	if (!story || !(story->flags & WATCHED))
		return 0;
	if (!(story->flags & TOLD))
		tell_socket(sk, story, now);
	record = begin(KIND_AGAIN, now, bpf_get_socket_cookie(sk), is_asked_socket(sk, story));
	if (!record)
		return 0;
	record->role = AGAIN_SYN_ACK;
	record->number = 1;
	end(record);
	return 0;
}

SEC("tp_btf/tcp_destroy_sock")
int socket_gone(u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct story *story = story_of(sk);
	struct tcp_sock *tp;
	u64 now;

	if (!story || story->flags & LISTENS)
		return 0;
	if (story->close.socket) {
		/* All of it arrived; what the peer still sends may be refused. */
		u32 place = story->close.socket % MOST_CLOSES;

		bpf_map_update_elem(&closes, &place, &story->close, 0);
	}
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	now = bpf_ktime_get_ns();
	tell_losses(sk, story, now);
	tell_io(sk, story, now);
	if (!(story->flags & TOLD))
		return 0;
	/* What ended while a program had it open is destroyed by the call that closes it. */
	if (story->flags & ENDED_HELD && !is_kernels_own()) {
		struct actor by = caller();

		tell_holder(story, bpf_get_socket_cookie(sk), now, &by, NULL);
	}
	tell_with_counts(sk, tp, KIND_GONE, now);
	return 0;
}

/* --- who writes to Unix sockets ------------------------------------------------------------------ */

/* Which process wrote to a Unix socket last. */
struct writer {
	u64 socket; /* its cookie */
	u32 pid;
	u32 reserved;
};

struct {
	NUMBER(type, BPF_MAP_TYPE_SK_STORAGE);
	NUMBER(map_flags, BPF_F_NO_PREALLOC);
	TYPE(key, int);
	TYPE(value, struct writer);
} writers SEC(".maps");

/* Whether it is a Unix socket in which bytes can be left unread. */
INLINE bool is_unix_connection(const struct sock *sk)
{
	return sk->__sk_common.skc_family == AF_UNIX &&
	       (sk->sk_type == SOCK_STREAM || sk->sk_type == SOCK_SEQPACKET);
}

/*
 * Once the writer's end is closed nothing of the socket says any more who that was; and who holds an end
 * may be another one than who made it.
 */
APART void note_writer(struct sock *sk)
{
	struct writer *writer;

	if (!is_unix_connection(sk))
		return;
	writer = bpf_sk_storage_get(&writers, sk, NULL, BPF_SK_STORAGE_CREATE);
	if (!writer)
		return;
	if (!writer->socket)
		writer->socket = bpf_get_socket_cookie(sk);
	writer->pid = current_process();
}

/* --- reads and writes ----------------------------------------------------------------------------- */

/* Conversations of at least so many segments are counted, whoever has them. */
#define LONG_CONVERSATION 64
/* A write of at most so many bytes is a tiny one. */
#define TINY 128
#define EAGAIN 11
#define MSG_PEEK 2

/* tcp_sock.nonagle: nobody waits, or the program asked for more than Nagle does. */
#define NAGLE_OFF 1
#define NAGLE_CORK 2

/* The story that counts reads and writes of a socket, if that is wanted. */
INLINE struct story *counted(struct sock *sk, struct tcp_sock *tp)
{
	struct story *story = story_of(sk);
	bool is_long = tp->data_segs_in + tp->data_segs_out >= LONG_CONVERSATION;

	if (!story && !is_long && given.scope == SCOPE_MACHINE)
		return NULL;
	if (story && story->flags & LISTENS)
		story->flags = ACCEPTED | (story->flags & WATCHED);
	if (story && story->flags & WATCHED)
		return story;
	if (is_asked_about(sk, current_process())) {
		story = make_story(sk);
		if (story)
			story->flags |= WATCHED;
		return story;
	}
	if (!story && is_long)
		story = make_story(sk);
	return story;
}

/* Whose the counts are, and whether it is time to tell them. */
INLINE void turn_to(struct sock *sk, struct story *story, u64 now)
{
	struct actor by = caller();

	if (story->io_pid != by.pid || now - story->io_since_ns > SELDOM_NS) {
		tell_io(sk, story, now);
		if (!(story->io.writes | story->io.reads | story->io.not_now))
			story->io_since_ns = now;
		story->io_pid = by.pid;
	}
	if (story->flags & WATCHED && !(story->flags & TOLD))
		tell_socket(sk, story, now);
	if (story->flags & TOLD && story->holder != by.pid)
		tell_holder(story, bpf_get_socket_cookie(sk), now, &by, NULL);
}

/* Bytes that were held back and have left by now: for how long. */
INLINE void look_at_held(struct tcp_sock *tp, struct story *story, u64 now)
{
	u64 left;

	if (!story->held_since_ns || (s32)(tp->snd_nxt - story->held_seq) < 0)
		return;
	left = MIN(tp->tcp_wstamp_ns, now);
	if (left > story->held_since_ns)
		__sync_fetch_and_add(&story->io.held_back_ns, left - story->held_since_ns);
	story->held_since_ns = 0;
}

/* Whether what was just written waits for an ACK of what was sent before, and for nothing else. */
INLINE bool is_held_back(const struct tcp_sock *tp)
{
	u32 unsent = tp->write_seq - tp->snd_nxt;
	u32 way = tp->write_seq - tp->snd_una;

	return unsent && unsent < tp->mss_cache && tp->packets_out &&
	       !(BIT_FIELD(tp, nonagle) & (NAGLE_OFF | NAGLE_CORK)) && way <= tp->snd_wnd &&
	       tp->packets_out < tp->snd_cwnd;
}

#define ADD(field, much) __sync_fetch_and_add(&story->io.field, much)

SEC("tp_btf/sock_send_length")
int written(u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	s32 bytes = (s32)ctx[1];
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct story *story;
	u64 now;

	if (!tp) {
		if (bytes > 0)
			note_writer(sk);
		return 0;
	}
	story = counted(sk, tp);
	if (!story)
		return 0;
	now = bpf_ktime_get_ns();
	turn_to(sk, story, now);
	look_at_held(tp, story, now);
	if (bytes < 0) {
		if (bytes == -EAGAIN)
			ADD(not_now, 1);
		return 0;
	}
	ADD(writes, 1);
	ADD(written_bytes, bytes);
	if (story->was_read) {
		story->was_read = 0;
		ADD(turns, 1);
	}
	if (bytes <= TINY)
		ADD(tiny_writes, 1);
	if (is_held_back(tp)) {
		ADD(held_back, 1);
		story->held_seq = tp->write_seq;
		if (!story->held_since_ns)
			story->held_since_ns = now;
	}
	return 0;
}

SEC("tp_btf/sock_recv_length")
int read(u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	s32 bytes = (s32)ctx[1];
	u32 flags = (u32)ctx[2];
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct story *story;
	u64 now;

	if (!tp)
		return 0;
	story = counted(sk, tp);
	if (!story)
		return 0;
	now = bpf_ktime_get_ns();
	turn_to(sk, story, now);
	look_at_held(tp, story, now);
	if (bytes < 0) {
		if (bytes == -EAGAIN)
			ADD(not_now, 1);
		return 0;
	}
	ADD(reads, 1);
	if (!(flags & MSG_PEEK)) {
		ADD(read_bytes, bytes);
		/* The end of the peer asks for nothing. */
		if (bytes)
			story->was_read = 1;
	}
	return 0;
}

struct bpf_iter__bpf_sk_storage_map {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	struct sock *sk;
	struct story *value;
} FROM_KERNEL;

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
} FROM_KERNEL;

/* Tells what was counted of a socket and not told, because nothing came after it. */
INLINE void tell_counted(struct sock *sk, struct story *story)
{
	u64 now = bpf_ktime_get_ns();

	if (now - story->losses_since_ns > SELDOM_NS) {
		story->losses_since_ns = now;
		if (story->flags & TOLD)
			tell_losses(sk, story, now);
	}
	if (now - story->io_since_ns > SELDOM_NS)
		tell_io(sk, story, now);
}

/* Of all sockets that have a story. Run by the loader. */
SEC("iter/bpf_sk_storage_map")
int tell_counts(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct sock *sk = ctx->sk;
	struct story *story;

	if (!sk)
		return 0;
	story = bpf_sk_storage_get(&stories, sk, NULL, 0);
	if (story)
		tell_counted(sk, story);
	return 0;
}

/*
 * Of the sockets of one network namespace: for a kernel whose policy refuses the program above. It looks at
 * every TCP socket there, with a story or without. Run by the loader, in each namespace.
 */
SEC("iter/tcp")
int tell_counts_of_network(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	struct tcp_sock *tp;
	struct story *story;

	if (!common)
		return 0;
	/* Of TIME-WAIT and of a SYN that is not answered yet there is none. */
	tp = bpf_skc_to_tcp_sock(common);
	if (!tp)
		return 0;
	story = story_of((struct sock *)tp);
	if (story)
		tell_counted((struct sock *)tp, story);
	return 0;
}

/* --- Unix sockets --------------------------------------------------------------------------------- */

/* The path or abstract name that a Unix socket is bound to. */
INLINE void write_path(struct record *record, struct unix_sock *unix)
{
	struct unix_address *address = NULL;
	int length = 0;

	READ(address, unix->addr);
	if (!address)
		return;
	READ(length, address->len);
	length -= 2;
	if (length <= 0 || length > 108)
		return;
	bpf_probe_read_kernel(record->unread.path, 108, (void *)&address->name + 2);
	record->unread.path_length = length;
}

/* Which process sent a packet to `receiver`; NULL, where its own end is closed. */
INLINE u32 sender_of(struct sk_buff *skb, const struct writer *writer, struct sock *receiver)
{
	struct pid *pid = NULL;

	if (EXISTS(struct unix_skb_parms, pid))
		READ(pid, ((struct unix_skb_parms *)skb->cb)->pid);
	if (pid)
		return number_of(pid);
	if (writer)
		return writer->pid;
	/* It was written before this was attached: as it was at connect() or socketpair(). */
	if (receiver)
		READ(pid, receiver->sk_peer_pid);
	return number_of(pid);
}

/* Whether a packet is thrown away because a socket is closed: for that reason, or by that function. */
INLINE bool is_by_close(u64 *ctx)
{
	if (given.socket_close != NO_REASON)
		return (u32)ctx[2] == given.socket_close;
	return ctx[1] - given.unix_release < given.unix_release_bytes;
}

/* A packet is thrown away: that of a Unix socket, because its receiver closes it. */
SEC("tp_btf/kfree_skb")
int packet_dropped(u64 *ctx)
{
	struct sk_buff *skb = (struct sk_buff *)ctx[0];
	struct unix_sock *sender;
	struct sock *receiver = NULL;
	struct record *record;
	struct writer *writer;
	struct sock *sk;
	bool is_guess = given.socket_close == NO_REASON;
	u64 socket = 0;
	u32 consumed = 0;
	u32 length;
	bool is_asked;

	if (!is_by_close(ctx))
		return 0;
	sk = skb->sk;
	if (!sk || !is_unix_connection(sk))
		return 0;
	/* Before there was a reason, a close said of all of it that it had been read. */
	if (EXISTS(struct unix_skb_parms, consumed) && sk->sk_type == SOCK_STREAM && !is_guess)
		READ(consumed, ((struct unix_skb_parms *)skb->cb)->consumed);
	length = skb->len;
	if (length <= consumed)
		return 0;
	writer = bpf_sk_storage_get(&writers, sk, NULL, 0);
	is_asked = is_asked_process(current_process()) || (writer && is_asked_process(writer->pid));
	/* By it packets of one socket are put together, and it is shown to nobody. */
	READ(socket, skb->sk);
	if (writer)
		socket = writer->socket;
	record = begin(KIND_UNIX, bpf_ktime_get_ns(), socket, is_asked);
	if (!record)
		return 0;
	if (!is_kernels_own()) {
		record->by = caller();
		write_name(record->comm);
	}
	record->network = network_of(sk);
	record->unread.bytes = length - consumed;
	if (is_guess && sk->sk_type == SOCK_STREAM)
		record->flags |= AT_MOST;
	sender = (struct unix_sock *)sk;
	write_path(record, sender);
	/* None once the sender's end is closed. */
	READ(receiver, sender->peer);
	if (receiver)
		write_path(record, (struct unix_sock *)receiver);
	record->unread.sender = sender_of(skb, writer, receiver);
	end(record);
	return 0;
}

/* --- processes ------------------------------------------------------------------------------------ */

#define COMMAND 256
#define STEPS 3
#define STEP 96

/* What a process runs, kept for those that are gone before /proc is looked at. */
struct command {
	u32 parent;
	u32 user;
	u32 length;
	u8 comm[16];
	u8 line[COMMAND]; /* words that end in 0 */
	u8 cgroup[STEPS][STEP]; /* the last steps of its path, the innermost first; each ends in 0 */
};

struct {
	NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	NUMBER(max_entries, 4096);
	TYPE(key, u32);
	TYPE(value, struct command);
} commands SEC(".maps");

/* Too large for the stack. */
struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct command);
} command_at_hand SEC(".maps");

/* The control group of version 2 that a task is in. That of the root has no name. */
INLINE void write_cgroup(struct command *command, struct task_struct *task)
{
	struct cgroup_subsys_state *outside;
	struct kernfs_node *node;
	struct css_set *groups;
	struct cgroup *group;
	const char *name;

	for (int step = 0; step < STEPS; step++)
		command->cgroup[step][0] = 0;
	READ(groups, task->cgroups);
	READ(group, groups->dfl_cgrp);
	for (int step = 0; step < STEPS && group; step++) {
		READ(node, group->kn);
		READ(name, node->name);
		if (bpf_probe_read_kernel_str(command->cgroup[step], STEP, name) < 0)
			command->cgroup[step][0] = 0;
		READ(outside, group->self.parent);
		group = NULL;
		if (outside)
			READ(group, outside->cgroup);
	}
}

SEC("tp_btf/sched_process_exec")
int executed(u64 *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx[0];
	u32 pid = process_of(task);
	u32 parent = process_of(task->real_parent);
	u32 first = 0;
	struct command *command = bpf_map_lookup_elem(&command_at_hand, &first);
	struct mm_struct *mm = task->mm;
	struct record *record;

	if (pid && command && mm) {
		u64 length = mm->arg_end - mm->arg_start;

		command->parent = parent;
		command->user = (u32)bpf_get_current_uid_gid();
		write_name(command->comm);
		if (length > COMMAND)
			length = COMMAND;
		command->length = length;
		if (bpf_probe_read_user(command->line, length, (void *)mm->arg_start))
			command->length = 0;
		write_cgroup(command, task);
		bpf_map_update_elem(&commands, &pid, command, 0);
	}
	if (!is_watched_process(pid))
		return 0;
	record = begin(KIND_EXEC, bpf_ktime_get_ns(), 0, true);
	if (!record)
		return 0;
	record->by.pid = pid;
	record->by.tid = pid;
	record->number = parent;
	write_name(record->comm);
	end(record);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int forked(u64 *ctx)
{
	struct task_struct *parent = (struct task_struct *)ctx[0];
	struct task_struct *child = (struct task_struct *)ctx[1];
	struct record *record;
	u32 parent_pid;
	u8 one = 1;
	u32 pid;

	/* A thread. */
	if (parent->tgid == child->tgid)
		return 0;
	parent_pid = process_of(parent);
	pid = process_of(child);
	if (!pid || !is_watched_process(parent_pid))
		return 0;
	bpf_map_update_elem(&watched, &pid, &one, 0);
	record = begin(KIND_FORK, bpf_ktime_get_ns(), 0, true);
	if (!record)
		return 0;
	record->by.pid = pid;
	record->by.tid = pid;
	record->number = parent_pid;
	bpf_get_current_comm(record->comm, sizeof(record->comm));
	end(record);
	return 0;
}

/* The sockets of a process are closed after this. */
SEC("tp_btf/sched_process_exit")
int exited(u64 *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx[0];
	struct record *record;

	if (task->signal->live.counter > 0 || !current_process())
		return 0;
	record = begin(KIND_EXIT, bpf_ktime_get_ns(), 0, is_asked_process(current_process()));
	if (!record)
		return 0;
	record->by = caller();
	record->by.ending |= BY_ENDING;
	write_name(record->comm);
	end(record);
	return 0;
}

SEC("license") const char terms[] = "Dual MIT/GPL";
