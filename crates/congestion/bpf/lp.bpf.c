// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * TCP-LP: takes what others leave, and gives way as soon as packets have to wait.
 *
 * Kuzmanovic, Knightly: TCP-LP: low-priority service via end-point congestion control, IEEE/ACM
 * Transactions on Networking 14(4), 2006 (first in INFOCOM 2003). Reno (RFC 5681), and beside it:
 * the one-way delay, smoothed, above the least by 15 % of its range is an early sign of
 * congestion. The first sign halves the window and begins a time of inference, in which the window
 * does not grow; a second sign in it means that others send too, and takes the window down as far
 * as it goes.
 *
 * Differs from the paper:
 * - Signs in the first round trip after a sign do not count: they are of packets that were under
 *   way before. The paper has no such pause, the kernel's tcp_lp begins a new range of delays
 *   instead.
 * - The window goes down to 2 packets and not to 1: a lone packet is acknowledged late (RFC 1122
 *   section 4.2.3.2), and the wait would be taken for a queue, for ever.
 * - ssthresh follows the window down, so that it grows back by one packet a round trip.
 * - A sign takes two ticks at least: a delay is the difference of two clocks that are read in
 *   whole ticks, milliseconds on most hosts.
 * - The least and the largest delay are of the last minutes (as in RFC 6817), so that a new route
 *   and clocks that drift are forgotten. The kernel's begins anew with every sign.
 * - Where the peer sends no timestamps (RFC 7323), or its clock does not tick as ours does, the
 *   round trip takes the place of the one-way delay; then queues on the way back count too.
 *
 * As in the paper, the range is measured in slow start and used from the first loss on: slow start
 * itself gives way to nobody.
 *
 * Response: alone Reno's at most, W = sqrt(3 / 2) / sqrt(p); beside others it has none of its own.
 */
#include "tcp.h"

/* The share of the range of delays that is a sign, percent (the paper's delta). */
#define SIGN_PERCENT 15
/* The least that is a sign, ticks. */
#define LEAST_SIGN 2
/* The time of inference, round trips (the paper's itt). */
#define INFERENCE_RTTS 3
/* The smallest window, packets. */
#define LEAST_WINDOW 2
/* The range is that of the last one or two of these, microseconds: RFC 6817 keeps 10 minutes. */
#define RANGE_FOR 300000000u
/* What the first delay counts as, ticks, so that later ones are not negative. */
#define FIRST_DELAY (1u << 24)
/* Clocks are compared when ours has gone on by so many ticks: a second of milliseconds. */
#define COMPARED_AFTER 1024

enum clock {
	CLOCK_UNKNOWN = 0,
	CLOCK_ALIKE = 1, /* ticks as ours */
	CLOCK_OTHER = 2, /* does not: of no use */
};

/* The least and the largest delay in some time, ticks. */
struct range {
	u32 least;
	u32 most;
};

struct lp {
	struct range now;    /* since `since` */
	struct range before; /* in the time before that */
	u32 since;           /* microseconds */
	u32 smoothed;        /* delay, ticks times 8 */
	u32 first_theirs;    /* the peer's clock at the first sample, ticks */
	u32 first_ours;      /* ours, as it echoed it, ticks */
	u32 sign_at;         /* when the last sign came, microseconds */
	u32 rtt;             /* the last round trip, microseconds */
	u8 clock;            /* enum clock */
	bool has_delay;      /* there is a range */
	bool is_used;        /* there was a loss: signs count */
	bool infers;         /* a sign came, and its time of inference is not over */
};
FITS(struct lp);

INLINE void forget_delays(struct lp *lp)
{
	lp->has_delay = false;
}

INLINE u32 one_way_delay(struct tcp_sock *tp, struct lp *lp)
{
	u32 theirs = tp->rx_opt.rcv_tsval;
	u32 ours = tp->rx_opt.rcv_tsecr;

	if (!lp->has_delay) {
		lp->first_theirs = theirs;
		lp->first_ours = ours;
	}
	return FIRST_DELAY + (theirs - lp->first_theirs) - (ours - lp->first_ours);
}

/* Whether the peer's clock is as fast as ours, within a quarter. */
INLINE void compare_clocks(struct tcp_sock *tp, struct lp *lp)
{
	u32 ours = tp->rx_opt.rcv_tsecr - lp->first_ours;
	u32 theirs = tp->rx_opt.rcv_tsval - lp->first_theirs;

	if (lp->clock != CLOCK_UNKNOWN || !lp->has_delay || ours < COMPARED_AFTER)
		return;
	lp->clock = CLOCK_ALIKE;
	if (theirs - ours + ours / 4 > ours / 2) {
		lp->clock = CLOCK_OTHER;
		forget_delays(lp);
	}
}

INLINE void widen(struct range *range, u32 delay)
{
	range->least = MIN(range->least, delay);
	range->most = MAX(range->most, delay);
}

INLINE void note_delay(struct lp *lp, u32 delay, u32 now)
{
	struct range only = { delay, delay };

	if (!lp->has_delay) {
		lp->now = only;
		lp->before = only;
		lp->since = now;
		lp->smoothed = delay * 8;
		lp->has_delay = true;
		return;
	}
	if (now - lp->since > RANGE_FOR) {
		lp->before = lp->now;
		lp->now = only;
		lp->since = now;
	}
	widen(&lp->now, delay);
	/* The paper's gamma is 1/8. */
	lp->smoothed += delay - lp->smoothed / 8;
}

INLINE bool is_sign(const struct lp *lp)
{
	u32 least = MIN(lp->now.least, lp->before.least);
	u32 most = MAX(lp->now.most, lp->before.most);
	u32 above = (most - least) * 8 / 100 * SIGN_PERCENT;

	return lp->is_used && lp->smoothed > least * 8 + MAX(above, LEAST_SIGN * 8);
}

INLINE void give_way(struct tcp_sock *tp, struct lp *lp, u32 now)
{
	u32 window = LEAST_WINDOW;

	if (!lp->infers)
		window = MAX(tp->snd_cwnd / 2, LEAST_WINDOW);
	window = MIN(window, tp->snd_cwnd);
	tp->snd_cwnd = window;
	tp->snd_cwnd_cnt = 0;
	tp->snd_ssthresh = MAX(window, 2);
	lp->sign_at = now;
	lp->infers = true;
}

SEC("struct_ops")
void lp_pkts_acked(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct lp *lp = STATE(tp, struct lp);
	s32 rtt = SAMPLE(ctx)->rtt_us;
	u32 now = now_us(tp);

	if (rtt > 0)
		lp->rtt = rtt;
	if (lp->infers && now - lp->sign_at > INFERENCE_RTTS * lp->rtt)
		lp->infers = false;

	if (BIT_FIELD(tp, rx_opt.tstamp_ok) && lp->clock != CLOCK_OTHER) {
		/* Without one: the round trip is no delay of this range. */
		if (!BIT_FIELD(tp, rx_opt.saw_tstamp))
			return;
		note_delay(lp, one_way_delay(tp, lp), now);
		compare_clocks(tp, lp);
	} else if (rtt > 0) {
		note_delay(lp, rtt / 1000u, now);
	} else {
		return;
	}

	/* While losses are repaired the window is the kernel's. */
	if (BIT_FIELD(tp, inet_conn.icsk_ca_state) > TCP_CA_Disorder)
		return;
	if (lp->infers && now - lp->sign_at <= lp->rtt)
		return;
	if (lp->has_delay && is_sign(lp))
		give_way(tp, lp, now);
}

SEC("struct_ops")
void lp_cong_avoid(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);

	if (!STATE(tp, struct lp)->infers)
		grow_as_reno(tp, ACKED(ctx));
}

SEC("struct_ops")
u32 lp_ssthresh(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);

	STATE(tp, struct lp)->is_used = true;
	return half_of_window(tp);
}

SEC("struct_ops")
u32 lp_undo_cwnd(u64 *ctx)
{
	return window_before_reduction(SOCKET(ctx));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops lb_lp = {
	.pkts_acked = lp_pkts_acked,
	.cong_avoid = lp_cong_avoid,
	.ssthresh = lp_ssthresh,
	.undo_cwnd = lp_undo_cwnd,
	.name = "lb_lp",
};

SEC("license") const char terms[] = "Dual MIT/GPL";
