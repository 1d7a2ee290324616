/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a congestion control written in BPF sees of the kernel, and what several of them share.
 *
 * The kernel calls an algorithm's functions with the socket locked, so that nothing here needs a lock.
 * It counts in segments ("packets": mss_cache bytes each), and so do the windows here. Arithmetic is
 * in integers: BPF has neither floating point nor signed division.
 *
 * Types have only the members that are used. Their places are found when the object is loaded, from
 * the running kernel's own description (BTF; "compile once, run everywhere"), so that one object
 * fits every kernel that has these members.
 *
 * The order of calls (net/ipv4/tcp_cong.c and tcp_input.c; Documentation/bpf and RFC 5681 for the terms):
 *
 *   init          the algorithm is given to a connection, at its beginning or later
 *   cwnd_event    the first data after a pause, an idle restart, the end of a reduction, a timeout
 *   cwnd_event_tx_start   the first data after a pause, since Linux 7.1: no longer by cwnd_event
 *   in_ack_event  every ACK, before anything of it was looked at
 *   pkts_acked    every ACK that acknowledged segments: how many, and the round trip of the last
 *   cong_avoid    the same, where the window may grow (not while losses are repaired)
 *   cong_control  instead of cong_avoid: every ACK; window and pace are the algorithm's own then
 *   ssthresh      a loss, a timeout or an ECN echo: the window to go down to
 *   undo_cwnd     the loss was none: the window to go back to
 *   set_state     the connection's state changes (enum tcp_ca_state)
 *   release       the connection is over, or another algorithm takes it
 *
 * The kernel lets an algorithm write these members and no others: snd_cwnd, snd_cwnd_cnt,
 * snd_ssthresh, ecn_flags, sk_pacing_rate, sk_pacing_status, icsk_ack.pending and its own
 * icsk_ca_priv (bpf_tcp_ca_btf_struct_access in net/ipv4/bpf_tcp_ca.c).
 */
#ifndef LASTBYTE_TCP_H
#define LASTBYTE_TCP_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
typedef long long s64;
typedef u8 bool;

#define true 1
#define false 0

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define FROM_KERNEL __attribute__((preserve_access_index))

/* --- the kernel's types: only what is used -------------------------------------------------------- */

/* What all sockets have. */
struct sock {
	unsigned long sk_pacing_rate;     /* bytes a second; all ones: none */
	unsigned long sk_max_pacing_rate; /* the program's own limit (SO_MAX_PACING_RATE), the same */
	u32 sk_pacing_status;             /* enum sk_pacing */
	u8 sk_pacing_shift;               /* at most 2^-shift seconds of data wait below TCP */
} FROM_KERNEL;

enum sk_pacing {
	SK_PACING_NONE = 0,
	SK_PACING_NEEDED = 1, /* by TCP's own timer */
	SK_PACING_FQ = 2,     /* by the fq qdisc */
};

struct inet_sock {
	struct sock sk;
} FROM_KERNEL;

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	u32 icsk_rto;         /* jiffies */
	u8 icsk_ca_state : 5; /* enum tcp_ca_state */
	struct {
		u8 pending; /* ICSK_ACK_* */
	} icsk_ack;
	u64 icsk_ca_priv[13]; /* the algorithm's own state, zero at init */
} FROM_KERNEL;

/* Of icsk_ack.pending. */
enum {
	ICSK_ACK_TIMER = 2, /* an ACK is held back, to be sent by a timer at the latest */
	ICSK_ACK_NOW = 16,  /* one has to be sent at once; since Linux 4.19 */
};

enum tcp_ca_state {
	TCP_CA_Open = 0,     /* nothing unusual */
	TCP_CA_Disorder = 1, /* duplicate ACKs: a loss, or another order */
	TCP_CA_CWR = 2,      /* the window goes down for an ECN echo or a local reason */
	TCP_CA_Recovery = 3, /* fast retransmit: losses are repaired */
	TCP_CA_Loss = 4,     /* after a retransmission timeout */
};

enum tcp_ca_event {
	CA_EVENT_TX_START = 0,     /* data after nothing was in flight */
	CA_EVENT_CWND_RESTART = 1, /* the window was cut after an idle time */
	CA_EVENT_COMPLETE_CWR = 2, /* a reduction is over */
	CA_EVENT_LOSS = 3,         /* a retransmission timeout */
	CA_EVENT_ECN_NO_CE = 4,    /* a data packet came without a congestion mark */
	CA_EVENT_ECN_IS_CE = 5,    /* one came with it */
};

/* Flags of in_ack_event. */
enum tcp_ca_ack_event_flags {
	CA_ACK_SLOWPATH = 1,
	CA_ACK_WIN_UPDATE = 2,
	CA_ACK_ECE = 4, /* the ACK echoes a congestion mark */
};

struct tcp_options_received {
	u32 rcv_tsval;
	u32 rcv_tsecr;
	u16 saw_tstamp : 1; /* the packet at hand has a timestamp */
	u16 tstamp_ok : 1;  /* both ends send them */
} FROM_KERNEL;

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 mss_cache;      /* bytes in a full segment */
	u32 snd_cwnd;       /* congestion window, packets */
	u32 snd_cwnd_cnt;   /* ACKed packets counted towards the next growth */
	u32 snd_cwnd_clamp; /* the window's own limit, packets */
	u32 snd_cwnd_stamp; /* when the window was last looked at, jiffies (tcp_jiffies32) */
	u32 snd_ssthresh;   /* slow start ends here, packets */
	u32 prior_cwnd;     /* the window before the last reduction, packets */
	u32 prior_ssthresh; /* the threshold before it */
	u8 is_cwnd_limited : 1;
	u32 max_packets_out; /* packets in flight at most, in the last window */
	u32 packets_out;     /* sent and not acknowledged */
	u32 sacked_out;      /* of these, selectively acknowledged */
	u32 lost_out;        /* of these, held for lost */
	u32 retrans_out;     /* sent again and not acknowledged */
	u32 snd_una;         /* the oldest byte not acknowledged */
	u32 snd_nxt;         /* the next byte to be sent */
	u32 write_seq;       /* the next byte that the program will write */
	u32 rcv_nxt;         /* the next byte awaited */
	u32 srtt_us;         /* smoothed round trip, microseconds times 8 */
	u32 mdev_us;         /* its mean deviation */
	u64 tcp_mstamp;      /* when the segment at hand came, microseconds */
	u64 tcp_wstamp_ns;   /* when the next packet may leave, nanoseconds */
	u64 tcp_clock_cache; /* the clock as last read, nanoseconds */
	u64 delivered_mstamp; /* when the last packet was delivered, microseconds */
	u64 first_tx_mstamp;  /* when the window now measured was begun, microseconds */
	u32 delivered;       /* packets delivered, retransmitted ones too */
	u32 delivered_ce;    /* of these, with a congestion mark */
	u32 lost;            /* packets held for lost, in all */
	u32 app_limited;     /* the program had too little to send until this many are delivered; 0: not so */
	u64 bytes_acked;     /* bytes acknowledged */
	u32 reordering;      /* packets out of order that are no loss yet */
	u32 snd_wnd;         /* the peer's window, bytes */
	u8 ecn_flags;        /* TCP_ECN_* */
	struct tcp_options_received rx_opt;
} FROM_KERNEL;

/* Of tcp_sock.ecn_flags. */
enum {
	TCP_ECN_OK = 1,         /* both ends do ECN */
	TCP_ECN_QUEUE_CWR = 2,  /* the next segment says that the window went down */
	TCP_ECN_DEMAND_CWR = 4, /* our ACKs echo a mark */
	TCP_ECN_SEEN = 8,
};

/* What pkts_acked is told. */
struct ack_sample {
	u32 pkts_acked; /* packets that this ACK delivered */
	s32 rtt_us;     /* the round trip of the last of them, microseconds; negative: not known */
	u32 in_flight;  /* bytes delivered between its sending and its ACK, with it: a flight */
} FROM_KERNEL;

/*
 * What cong_control is told: how fast packets were delivered over the last flight
 * (draft-cheng-iccrg-delivery-rate-estimation).
 */
struct rate_sample {
	u64 prior_mstamp;     /* when the flight began, microseconds */
	u32 prior_delivered;  /* packets delivered until then */
	s32 delivered;        /* packets delivered since; negative: no sample */
	long interval_us;     /* over this time; negative: no sample */
	long rtt_us;          /* the round trip of the last packet, microseconds; negative: not known */
	int losses;           /* packets that this ACK showed to be lost */
	u32 acked_sacked;     /* packets that this ACK delivered */
	u32 prior_in_flight;  /* packets in flight before this ACK */
	u32 last_end_seq;     /* where the last of them ends */
	bool is_app_limited;  /* the program had too little to send at some time in the flight */
	bool is_retrans;      /* the last packet was a retransmission */
	bool is_ack_delayed;  /* its round trip probably has a delayed ACK in it */
} FROM_KERNEL;

/* The table of an algorithm. libbpf finds each member in the kernel's own by its name. */
struct tcp_congestion_ops {
	/* The first member, which the loader empties where the kernel has none: before Linux 7.1. */
	void (*cwnd_event_tx_start)(u64 *);
	u32 (*ssthresh)(u64 *);
	void (*cong_avoid)(u64 *);
	void (*set_state)(u64 *);
	void (*cwnd_event)(u64 *);
	void (*in_ack_event)(u64 *);
	void (*pkts_acked)(u64 *);
	u32 (*min_tso_segs)(u64 *);
	void (*cong_control)(u64 *);
	u32 (*undo_cwnd)(u64 *);
	u32 (*sndbuf_expand)(u64 *);
	void (*init)(u64 *);
	void (*release)(u64 *);
	char name[16];
	u32 flags;
};

/* Of tcp_congestion_ops.flags. */
enum {
	TCP_CONG_NON_RESTRICTED = 1, /* anybody may choose it */
	TCP_CONG_NEEDS_ECN = 2,      /* connections ask for ECN and mark all their packets */
};

/* --- what the loader says ----------------------------------------------------------------------- */

/*
 * Written before the object is loaded and constant from then on, so that the verifier leaves out what
 * cannot happen. The loader (crates/congestion/src/load.rs) has the same structure.
 */
struct given {
	/* cong_control(sk, ack, flag, rs), since Linux 6.10; before that cong_control(sk, rs). */
	u32 cong_control_has_ack;
	u32 reserved;
	/* A rate that the user asked for, bytes a second; 0: none. */
	u64 rate;
};

SEC(".rodata.given") const volatile struct given given = {};

/* --- helpers of the kernel (their numbers are part of its interface: bpf.h) ---------------------- */

static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*const bpf_get_prandom_u32)(void) = (void *)7;
/* An ACK of all before `rcv_nxt`, at once. */
static long (*const bpf_tcp_send_ack)(struct tcp_sock *tp, u32 rcv_nxt) = (void *)116;

/* --- arguments ---------------------------------------------------------------------------------- */

/*
 * A function gets its arguments as an array of 8-byte words. The kernel takes the socket, the first of
 * them, for a TCP socket.
 */
#define SOCKET(ctx) ((struct tcp_sock *)(ctx)[0])
/* cong_avoid(sk, ack, acked): packets that the ACK delivered. */
#define ACKED(ctx) ((u32)(ctx)[2])
/*
 * set_state(sk, state), cwnd_event(sk, event), in_ack_event(sk, flags). All of them fit into 8 bits,
 * and the state has no more: what stands above these is anything on x86 before Linux 6.6.
 */
#define ARGUMENT(ctx) ((u8)(ctx)[1])
/* pkts_acked(sk, sample). */
#define SAMPLE(ctx) ((const struct ack_sample *)(ctx)[1])
/*
 * cong_control(sk, ack, flag, rs) or (sk, rs). The loads are spelled out: the compiler would choose the
 * address first and load then, and the verifier takes constant places in the arguments only.
 */
#define RATE_SAMPLE(ctx)                                                                       \
	({                                                                                     \
		const struct rate_sample *sample;                                              \
		if (given.cong_control_has_ack)                                                \
			asm volatile("%0 = *(u64 *)(%1 + 24)" : "=r"(sample) : "r"(ctx));      \
		else                                                                           \
			asm volatile("%0 = *(u64 *)(%1 + 8)" : "=r"(sample) : "r"(ctx));       \
		sample;                                                                        \
	})

/* The algorithm's own state. It must not be larger than LARGEST_STATE. */
#define STATE(tp, type) ((type *)(tp)->inet_conn.icsk_ca_priv)
#define LARGEST_STATE 104
#define FITS(type) _Static_assert(sizeof(type) <= LARGEST_STATE, "the kernel keeps 104 bytes for it")

/* --- arithmetic --------------------------------------------------------------------------------- */

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* Whether a sequence number, or a time of 32 bits, lies before another; both go round. */
INLINE bool before(u32 a, u32 b)
{
	return (s32)(a - b) < 0;
}

/*
 * All ones if a < b, else 0; for numbers below 2^63. The roots have no branches, because the
 * verifier follows both sides of each: 2^21 ways through a cube root are too many for it.
 */
INLINE u64 mask_if_less(u64 a, u64 b)
{
	return (u64)((s64)(a - b) >> 63);
}

/*
 * The cube root, rounded down: one bit of the result at a time, from the highest. Numbers from 2^63 on,
 * whose root is 2^21, are taken for the one before.
 */
INLINE u32 cube_root(u64 x)
{
	u64 root = 0;

	x = MIN(x, (1ULL << 63) - 1);
	for (int bit = 20; bit >= 0; bit--) {
		u64 more = root + (1ULL << bit);

		root += (1ULL << bit) & ~mask_if_less(x, more * more * more);
	}
	return root;
}

/* The square root, rounded down. Numbers from 2^62 on are taken for the one before. */
INLINE u32 square_root(u64 x)
{
	u64 root = 0;

	x = MIN(x, (1ULL << 62) - 1);
	for (int bit = 30; bit >= 0; bit--) {
		u64 more = root + (1ULL << bit);

		root += (1ULL << bit) & ~mask_if_less(x, more * more);
	}
	return root;
}

/*
 * The logarithm to base 2, times 1024. Between powers of two a parabola through both stands for it;
 * it is 0.01 off at most, which is 0.7 % of x. That of 0 is taken for that of 1.
 */
INLINE u32 log2_1024(u32 x)
{
	u32 whole = 0;
	u32 part;

	for (int step = 16; step; step /= 2) {
		if (x >> (whole + step))
			whole += step;
	}
	/* x = (1 + part / 1024) * 2^whole. */
	part = (((u64)MAX(x, 1) << 10) >> whole) - 1024;
	return whole * 1024 + part + part * (1024 - part) * 352 / (1024 * 1024);
}

/* The power of two to x / 1024, times 1024; of at most 2^31. A parabola too, 0.4 % off at most. */
INLINE u64 exp2_1024(u32 x)
{
	u32 whole = MIN(x / 1024, 31);
	u32 part = x % 1024;

	return (u64)(1024 + part * (672 * 1024 + 352 * part) / (1024 * 1024)) << whole;
}

/* --- what the kernel's own algorithms share ------------------------------------------------------ */

/*
 * A bit field of the kernel, wherever this kernel has it. `object` is what the verifier knows, and
 * `field` the whole way from there: BIT_FIELD(tp, rx_opt.saw_tstamp). A build for the host, which
 * has no kernel, brings its own (tests/native/walk.c).
 */
#ifndef BIT_FIELD
#define BIT_FIELD(object, field)                                                               \
	({                                                                                     \
		const void *place = (const void *)(object) +                                   \
				    __builtin_preserve_field_info((object)->field, 0);         \
		u64 word = 0;                                                                  \
		switch (__builtin_preserve_field_info((object)->field, 1)) {                   \
		case 1: word = *(const u8 *)place; break;                                      \
		case 2: word = *(const u16 *)place; break;                                     \
		case 4: word = *(const u32 *)place; break;                                     \
		case 8: word = *(const u64 *)place; break;                                     \
		}                                                                              \
		word <<= __builtin_preserve_field_info((object)->field, 4);                    \
		word >>= __builtin_preserve_field_info((object)->field, 5);                    \
		word;                                                                          \
	})
#endif

INLINE bool in_slow_start(const struct tcp_sock *tp)
{
	return tp->snd_cwnd < tp->snd_ssthresh;
}

/* The largest window that a packet is to be counted against: the socket's own limit. */
INLINE u32 within_clamp(const struct tcp_sock *tp, u32 window)
{
	return MIN(window, tp->snd_cwnd_clamp);
}

/*
 * Whether the window is what holds the connection back; if not, it says nothing and must not grow
 * (RFC 7661). In slow start, half of it in use is enough.
 */
INLINE bool is_cwnd_limited(const struct tcp_sock *tp)
{
	if (BIT_FIELD(tp, is_cwnd_limited))
		return true;
	return in_slow_start(tp) && tp->snd_cwnd < 2 * tp->max_packets_out;
}

/* Packets in flight, as RFC 6675 counts its pipe. */
INLINE u32 packets_in_flight(const struct tcp_sock *tp)
{
	return tp->packets_out - (tp->sacked_out + tp->lost_out) + tp->retrans_out;
}

/*
 * Slow start (RFC 5681 section 3.1, with L = all that was acknowledged, as RFC 9406 has it): a packet
 * more for each one delivered, up to ssthresh. Returns how many are left over, for congestion avoidance.
 */
INLINE u32 slow_start(struct tcp_sock *tp, u32 acked)
{
	u32 window = MIN(tp->snd_cwnd + acked, tp->snd_ssthresh);
	u32 used = window - tp->snd_cwnd;

	tp->snd_cwnd = within_clamp(tp, window);
	return acked - used;
}

/*
 * Grows by one packet for each `per` delivered: with `per` = the window, by one a round trip
 * (RFC 5681, equation 3).
 */
INLINE void grow_by_one_per(struct tcp_sock *tp, u32 per, u32 acked)
{
	u32 window = tp->snd_cwnd;
	u32 count = tp->snd_cwnd_cnt;

	per = MAX(per, 1);
	/* What was counted towards a slower growth is worth one packet at most. */
	if (count >= per) {
		count = 0;
		window++;
	}
	count += acked;
	if (count >= per) {
		window += count / per;
		count %= per;
	}
	tp->snd_cwnd_cnt = count;
	tp->snd_cwnd = within_clamp(tp, window);
}

/*
 * Grows by so many 256ths of a packet a round trip, spread evenly over the packets of the window. What
 * does not yet make a whole packet stays in snd_cwnd_cnt: in 256ths of a packet, times the window.
 */
INLINE void grow_per_round_trip(struct tcp_sock *tp, u32 packets_256, u32 acked)
{
	u32 window = tp->snd_cwnd;
	u64 whole = (u64)MAX(window, 1) * 256;
	/* What was counted at a larger window is worth one packet at most. */
	u64 count = MIN(tp->snd_cwnd_cnt, whole) + (u64)packets_256 * acked;

	tp->snd_cwnd_cnt = count % whole;
	tp->snd_cwnd = within_clamp(tp, window + (u32)(count / whole));
}

/*
 * What an algorithm's congestion avoidance begins with: slow start, while it is on. Returns how many
 * of the delivered packets are left for congestion avoidance; none, if the window must not grow.
 */
INLINE u32 left_by_slow_start(struct tcp_sock *tp, u32 acked)
{
	if (!is_cwnd_limited(tp))
		return 0;
	return in_slow_start(tp) ? slow_start(tp, acked) : acked;
}

/* Congestion avoidance of Reno, and slow start before it. */
INLINE void grow_as_reno(struct tcp_sock *tp, u32 acked)
{
	acked = left_by_slow_start(tp, acked);
	if (acked)
		grow_by_one_per(tp, tp->snd_cwnd, acked);
}

/* Half the window, and no less than two packets (RFC 5681, equation 4). */
INLINE u32 half_of_window(const struct tcp_sock *tp)
{
	return MAX(tp->snd_cwnd / 2, 2);
}

/* The window from before a reduction that was for nothing. */
INLINE u32 window_before_reduction(const struct tcp_sock *tp)
{
	return MAX(tp->snd_cwnd, tp->prior_cwnd);
}

/* The time of the ACK at hand, microseconds; goes round after 71 minutes. Costs no look at a clock. */
INLINE u32 now_us(const struct tcp_sock *tp)
{
	return (u32)tp->tcp_mstamp;
}

/* At CA_EVENT_TX_START: how long nothing was in flight, microseconds. */
INLINE u64 idle_us(const struct tcp_sock *tp)
{
	u64 now = tp->tcp_mstamp;
	u64 since = tp->delivered_mstamp;

	return since && since < now ? now - since : 0;
}

#endif
