// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * TCP-NV: Vegas for fast, short paths: sees the queue grow, and takes back a part of what is too
 * much.
 *
 * Brakmo: TCP-NV: congestion avoidance for data centers, Linux Plumbers Conference 2010, and
 * TCP-NV: an update to TCP-Vegas, 2015 (slides and a note; there is no paper). As Vegas it
 * compares the window with what the path holds without a queue: the rate times the least round
 * trip, and `PAD` packets more. What differs from Vegas is that noise is expected, as segmentation
 * offload and interrupts that come late make it:
 * - the rate is the largest of many ACKs, each the bytes delivered in a packet's own round trip;
 * - nothing is decided before enough ACKs were seen, over two round trips or more;
 * - the window goes down by a share of what is too much, not by one packet;
 * - windows too small to be measured with (an ACK or so in a round trip) are made larger;
 * - the least round trip is forgotten after some seconds, at random times, for flows not to do so
 *   at once.
 *
 * Differs from the slides: they have the least round trip of a flow under load found by itself,
 * which the standing queue of `PAD` packets becomes part of, the next `PAD` on top of that and so
 * on. Here the window goes down to what holds no queue for a round trip when the least one is
 * about to be forgotten. And the rate is compared with the window that its packets were sent with:
 * the kernel's takes the present one, which in slow start is twice as large already, so that slow
 * start always ends at some tens of packets. The constants are those of the kernel's tcp_nv where
 * the slides give none; what it has for a limit from outside (nv_base_rtt, by a BPF program of its
 * own) is left out.
 *
 * Response: none against loss that is given; a loss takes a fifth, and a timeout slows the growth,
 * so that under random loss it does as Reno does with a smaller reduction.
 */
#include "tcp.h"

/* Packets that may wait in the queue: as many as a burst of offload may have. */
#define PAD 10
/* Below the limit by less than this the window stays as it is, packets. */
#define PAD_BUFFER 2
/* The least round trip is forgotten after this time, microseconds, less a quarter or so. */
#define FORGET_AFTER 5000000u
/* ACKs to be seen before the window goes down, before slow start ends, and before it may grow. */
#define ACKS_TO_SHRINK 60
#define ACKS_TO_END_SLOW_START 30
#define ACKS_TO_GROW 20
/* Round trips before the window goes down, and without a decision until it grows no more. */
#define ROUNDS_TO_SHRINK 2
#define ROUNDS_TO_STOP 10
/* What goes of what is too much, and what stays after a loss, in 1024ths: 30 % and 80 %. */
#define TAKEN_BACK 307
#define AFTER_LOSS 819
/* After timeouts the window grows slower by powers of two; decisions to grow that undo one. */
#define SLOWEST_GROWTH 8
#define GROWTHS_TO_RECOVER 8
/* Windows that can be measured with, packets. */
#define LEAST_WINDOW 4
#define MOST_LEAST_WINDOW 80

struct nv {
	u64 largest_rate;  /* since the last decision, bytes a second */
	u32 base_rtt;      /* the least round trip, microseconds; 0: not known */
	u32 next_base_rtt; /* the least since it was last forgotten, microseconds; 0: not known */
	u32 forget_at;     /* when that takes its place, microseconds */
	u32 rtt;           /* smoothed, microseconds; 0: not known */
	u32 round_ends;    /* the round trip is over when this byte is acknowledged */
	u32 window;        /* at the beginning of this round trip, packets */
	u32 restore;       /* the window to go back to after the look without a queue, packets; 0: none */
	u8 rounds;         /* round trips since the last decision */
	u8 acks;           /* ACKs since then, no more counted than 255 */
	u8 round_acks;     /* ACKs of this round trip, no more counted than 255 */
	u8 least_window;   /* packets */
	u8 slower;         /* the window grows by one packet in 2^this round trips */
	u8 growths;        /* decisions to grow in a row */
	bool may_grow;
	bool starts_anew; /* a loss: what was measured is of no use */
};
FITS(struct nv);

INLINE u32 randomly(u32 time)
{
	return time - bpf_get_prandom_u32() % (time / 4);
}

INLINE void begin_round(struct tcp_sock *tp, struct nv *nv)
{
	nv->round_ends = tp->snd_nxt;
	nv->window = tp->snd_cwnd;
	nv->round_acks = 0;
}

INLINE void measure_anew(struct tcp_sock *tp, struct nv *nv)
{
	nv->largest_rate = 0;
	nv->rtt = 0;
	nv->rounds = 0;
	nv->acks = 0;
	nv->growths = 0;
	nv->restore = 0;
	nv->starts_anew = false;
	begin_round(tp, nv);
}

SEC("struct_ops")
void nv_init(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct nv *nv = STATE(tp, struct nv);

	measure_anew(tp, nv);
	nv->base_rtt = 0;
	nv->next_base_rtt = 0;
	nv->forget_at = now_us(tp) + randomly(FORGET_AFTER);
	nv->least_window = LEAST_WINDOW;
	nv->slower = 0;
	nv->may_grow = true;
}

/* Half of each sample and half of the one before. */
INLINE void note_rtt(struct nv *nv, u32 rtt)
{
	nv->rtt = nv->rtt ? nv->rtt / 2 + rtt / 2 : rtt;
	nv->rtt = MAX(nv->rtt, 1);
	if (!nv->base_rtt || nv->rtt < nv->base_rtt)
		nv->base_rtt = nv->rtt;
	if (!nv->next_base_rtt || nv->rtt < nv->next_base_rtt)
		nv->next_base_rtt = nv->rtt;
}

/* What the path holds without a queue, packets. */
INLINE u32 without_queue(const struct tcp_sock *tp, const struct nv *nv)
{
	u64 bytes = nv->largest_rate * nv->base_rtt / 1000000;

	return bytes / MAX(tp->mss_cache, 1);
}

/*
 * When the least round trip is to be forgotten: a round trip without a queue first, to see it
 * again, then the window from before.
 */
INLINE bool looks_without_queue(struct tcp_sock *tp, struct nv *nv, u32 now)
{
	u32 holds;

	if (nv->restore) {
		nv->base_rtt = nv->next_base_rtt;
		nv->next_base_rtt = 0;
		nv->forget_at = now + randomly(FORGET_AFTER);
		nv->least_window = MAX(nv->least_window / 2, LEAST_WINDOW);
		tp->snd_cwnd = MAX(tp->snd_cwnd, nv->restore);
		measure_anew(tp, nv);
		return true;
	}
	if (before(now, nv->forget_at) || in_slow_start(tp))
		return false;
	holds = without_queue(tp, nv);
	nv->restore = MIN(tp->snd_cwnd, holds + PAD);
	nv->restore = MAX(nv->restore, nv->least_window);
	tp->snd_cwnd = MAX(MIN(tp->snd_cwnd, holds - holds / 8), nv->least_window);
	/* Until all that is sent now has come back, and a window of those behind it. */
	nv->next_base_rtt = 0;
	nv->round_ends = tp->snd_nxt + tp->snd_cwnd * tp->mss_cache;
	return true;
}

/* A window of which all is acknowledged at once gives one sample a round trip: too few. */
INLINE bool too_small_to_measure(struct tcp_sock *tp, struct nv *nv, u32 acked)
{
	if (nv->round_acks > 1 || acked + 1 < nv->least_window ||
	    nv->least_window > MOST_LEAST_WINDOW)
		return false;
	nv->least_window += 2;
	tp->snd_cwnd = within_clamp(tp, MAX(tp->snd_cwnd, nv->least_window));
	nv->acks = 0;
	nv->may_grow = true;
	return true;
}

/* Takes the window down, if enough was seen for that; says whether it was. */
INLINE bool shrink(struct tcp_sock *tp, struct nv *nv, u32 limit)
{
	u32 enough = in_slow_start(tp) ? ACKS_TO_END_SLOW_START : ACKS_TO_SHRINK;
	u32 window = MIN(tp->snd_cwnd, nv->window);
	u32 too_much = window > limit ? window - limit : 0;

	if (nv->rounds < ROUNDS_TO_SHRINK)
		return false;
	if (nv->acks < enough) {
		/* Too few ACKs to be sure, and for a long time: at least no more of it. */
		if (nv->rounds > ROUNDS_TO_STOP)
			nv->may_grow = false;
		return false;
	}
	nv->may_grow = false;
	nv->growths = 0;
	tp->snd_ssthresh = MAX(limit, 2);
	if (too_much > 2)
		window -= MAX(too_much * TAKEN_BACK / 1024, 2);
	else
		window = MIN(window, limit);
	tp->snd_cwnd = window;
	return true;
}

/* Lets the window grow, if enough was seen for that; says whether it was. */
INLINE bool let_grow(struct nv *nv)
{
	if (nv->acks < ACKS_TO_GROW)
		return false;
	nv->may_grow = true;
	nv->growths++;
	if (nv->slower && nv->growths > GROWTHS_TO_RECOVER) {
		nv->slower--;
		nv->growths = 0;
	}
	return true;
}

INLINE void decide(struct tcp_sock *tp, struct nv *nv)
{
	u32 limit = without_queue(tp, nv) + PAD;

	/* A program that sends less than it may says nothing of the path by its rate. */
	if (!is_cwnd_limited(tp))
		return;
	if (nv->window > limit) {
		if (!shrink(tp, nv, limit))
			return;
	} else if (nv->window + PAD_BUFFER < limit) {
		if (!let_grow(nv))
			return;
	} else {
		return;
	}
	nv->acks = 0;
	nv->rounds = 0;
	nv->largest_rate = 0;
	tp->snd_cwnd = MAX(tp->snd_cwnd, nv->least_window);
}

SEC("struct_ops")
void nv_pkts_acked(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct nv *nv = STATE(tp, struct nv);
	const struct ack_sample *sample = SAMPLE(ctx);
	s32 rtt = sample->rtt_us;
	u32 delivered = sample->in_flight;
	u64 rate;

	if (rtt <= 0 || !delivered)
		return;
	/* While losses are repaired the window is the kernel's. */
	if (BIT_FIELD(tp, inet_conn.icsk_ca_state) > TCP_CA_Disorder)
		return;
	if (nv->starts_anew)
		measure_anew(tp, nv);

	note_rtt(nv, rtt);
	rate = (u64)delivered * 1000000 / nv->rtt;
	nv->largest_rate = MAX(nv->largest_rate, rate);
	nv->acks = MIN(nv->acks + 1, 255);
	nv->round_acks = MIN(nv->round_acks + 1, 255);

	if (before(tp->snd_una, nv->round_ends))
		return;
	if (looks_without_queue(tp, nv, now_us(tp)))
		return;
	nv->rounds = MIN(nv->rounds + 1, 255);
	if (!too_small_to_measure(tp, nv, sample->pkts_acked))
		decide(tp, nv);
	begin_round(tp, nv);
}

SEC("struct_ops")
void nv_cong_avoid(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct nv *nv = STATE(tp, struct nv);
	u32 acked = ACKED(ctx);

	if (!nv->may_grow || nv->restore || !is_cwnd_limited(tp))
		return;
	if (in_slow_start(tp)) {
		acked = slow_start(tp, acked);
		if (!acked)
			return;
	}
	grow_by_one_per(tp, MIN(tp->snd_cwnd, 1u << 20) << MIN(nv->slower, SLOWEST_GROWTH), acked);
}

SEC("struct_ops")
u32 nv_ssthresh(u64 *ctx)
{
	u32 window = SOCKET(ctx)->snd_cwnd;

	return MAX((u64)window * AFTER_LOSS / 1024, 2);
}

SEC("struct_ops")
void nv_set_state(u64 *ctx)
{
	struct nv *nv = STATE(SOCKET(ctx), struct nv);
	u32 state = ARGUMENT(ctx);

	if (state <= TCP_CA_Disorder)
		return;
	/* The kernel sets the window from here on, and what waited is gone. */
	nv->starts_anew = true;
	nv->restore = 0;
	nv->may_grow = true;
	if (state == TCP_CA_Loss && nv->slower < SLOWEST_GROWTH)
		nv->slower++;
}

SEC("struct_ops")
u32 nv_undo_cwnd(u64 *ctx)
{
	return window_before_reduction(SOCKET(ctx));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops lb_nv = {
	.init = nv_init,
	.pkts_acked = nv_pkts_acked,
	.cong_avoid = nv_cong_avoid,
	.set_state = nv_set_state,
	.ssthresh = nv_ssthresh,
	.undo_cwnd = nv_undo_cwnd,
	.name = "lb_nv",
};

SEC("license") const char terms[] = "Dual MIT/GPL";
