// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * YeAH: fast as Scalable TCP while the queue is short, Reno when it is not, and drains it by
 * itself.
 *
 * Baiocchi, Castellani, Vacirca: YeAH-TCP: yet another highspeed TCP (PFLDnet 2007), section 3.
 * Once a round it reckons the packets that it has in the queue, Q, and how much longer than the
 * path's own the round trip is, L, of the smallest round trip of the round. With little of both
 * the window grows by one packet for 100 acknowledged (fast mode), else by one a round (slow
 * mode). With Q above its limit the window goes down by Q at once, before there are losses
 * ("precautionary decongestion"), but not below the window that Reno would have beside it: against
 * Reno, which fills every queue, all giving way would be for nothing. A loss takes away the queue,
 * and an eighth at least, while there is no such neighbour.
 *
 * Where the paper leaves a number open, it is that of the kernel's module, which one of its
 * authors wrote. Other than there, an idle time makes it forget what it knew of the path.
 *
 * On a path that holds less than 8 * 80 packets it is L that ends fast mode, and Q comes to its
 * limit in slow mode. Reno's window is counted all that time, and is what decongestion may not go
 * below: the queue of a path all its own grows there as Reno's would, only later.
 *
 * Response, to losses that no queue made (increase by 1/100 a packet, decrease by 1/8; Kelly:
 * Scalable TCP, 2003): W = 0.08 / p packets at a loss rate of p. Below 100 packets it grows by one
 * packet a round: W = sqrt(7.5) / sqrt(p).
 */
#include "round.h"

/* Packets for which fast mode grows by one (Scalable TCP's increase, 0.01 a packet). */
#define FAST_PER 100
/* Packets in the queue from which on it gives way (Qmax). */
#define LARGEST_QUEUE 80
/* The share of the base round trip, 1 / 8, by which one may be longer in fast mode (phi). */
#define QUEUEING_SHARE 8
/* Decongestion takes this share of the window at most, 1 / 2 (epsilon is 1, a power of two). */
#define LARGEST_DECONGESTION 2
/* Rounds of slow mode from which on there are neighbours that do not give way (rho). */
#define COMPETITION_ROUNDS 16
/* Rounds of fast mode after which there are none, and Reno's window is counted anew (zeta). */
#define FREE_ROUNDS 50
/* What a loss takes away at least, where there are none: 1 / 8 (delta is 3, a power of two). */
#define SMALLEST_REDUCTION 8
/* The smallest window of Reno, packets (RFC 5681, equation 4). */
#define SMALLEST_WINDOW 2

struct yeah {
	struct round round;
	u32 queued;      /* packets in the queue in the last round */
	u32 slow_rounds; /* rounds of slow mode since the last one of fast mode; 0: fast mode */
	u32 fast_rounds; /* rounds of fast mode since a loss, or since reno_window began anew */
	u32 reno_window; /* the window that Reno would have, packets */
};
FITS(struct yeah);

SEC("struct_ops")
void yeah_init(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct yeah *yeah = STATE(tp, struct yeah);

	round_begin_anew(&yeah->round, tp);
	yeah->reno_window = SMALLEST_WINDOW;
}

SEC("struct_ops")
void yeah_pkts_acked(u64 *ctx)
{
	round_sample(&STATE(SOCKET(ctx), struct yeah)->round, SAMPLE(ctx));
}

INLINE void grow(struct tcp_sock *tp, const struct yeah *yeah, u32 acked);
INLINE void look_at_round(struct tcp_sock *tp, struct yeah *yeah);

SEC("struct_ops")
void yeah_cong_avoid(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct yeah *yeah = STATE(tp, struct yeah);

	if (is_cwnd_limited(tp))
		grow(tp, yeah, ACKED(ctx));
	if (!round_is_over(&yeah->round, tp))
		return;
	if (round_says_enough(&yeah->round))
		look_at_round(tp, yeah);
	round_begin(&yeah->round, tp);
}

INLINE void grow(struct tcp_sock *tp, const struct yeah *yeah, u32 acked)
{
	u32 per;

	if (in_slow_start(tp)) {
		acked = slow_start(tp, acked);
		if (!acked)
			return;
	}
	per = tp->snd_cwnd;
	if (!yeah->slow_rounds)
		per = MIN(per, FAST_PER);
	grow_by_one_per(tp, per, acked);
}

INLINE void decongest(struct tcp_sock *tp, const struct yeah *yeah);
INLINE void count_slow_round(struct yeah *yeah, u32 window);
INLINE void count_fast_round(struct yeah *yeah);

INLINE void look_at_round(struct tcp_sock *tp, struct yeah *yeah)
{
	const struct round *round = &yeah->round;
	u32 window = tp->snd_cwnd;

	yeah->queued = packets_queued(window, round->min_rtt_us, round->base_rtt_us);
	if (yeah->queued <= LARGEST_QUEUE &&
	    round_queueing_us(round) <= round->base_rtt_us / QUEUEING_SHARE) {
		count_fast_round(yeah);
		return;
	}
	if (yeah->queued > LARGEST_QUEUE)
		decongest(tp, yeah);
	count_slow_round(yeah, window);
}

/* Gives way before there are losses; slow start is over then. */
INLINE void decongest(struct tcp_sock *tp, const struct yeah *yeah)
{
	u32 window = tp->snd_cwnd;

	if (window <= yeah->reno_window)
		return;
	window -= MIN(yeah->queued, window / LARGEST_DECONGESTION);
	window = MAX(window, yeah->reno_window);
	tp->snd_cwnd = window;
	tp->snd_ssthresh = window;
}

/* Reno's window grows while there is a queue: that is where both would meet. */
INLINE void count_slow_round(struct yeah *yeah, u32 window)
{
	yeah->slow_rounds++;
	if (yeah->reno_window <= SMALLEST_WINDOW)
		yeah->reno_window = MAX(window / 2, SMALLEST_WINDOW);
	else
		yeah->reno_window++;
}

INLINE void count_fast_round(struct yeah *yeah)
{
	yeah->slow_rounds = 0;
	yeah->fast_rounds++;
	if (yeah->fast_rounds > FREE_ROUNDS) {
		yeah->fast_rounds = 0;
		yeah->reno_window = SMALLEST_WINDOW;
	}
}

SEC("struct_ops")
u32 yeah_ssthresh(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct yeah *yeah = STATE(tp, struct yeah);
	u32 window = tp->snd_cwnd;
	u32 reduction = window / 2;

	if (yeah->slow_rounds < COMPETITION_ROUNDS) {
		reduction = MIN(reduction, yeah->queued);
		reduction = MAX(reduction, window / SMALLEST_REDUCTION);
	}
	/* Of a window below eight packets, an eighth would be nothing. */
	reduction = MAX(reduction, 1);
	yeah->fast_rounds = 0;
	yeah->reno_window = MAX(yeah->reno_window / 2, SMALLEST_WINDOW);
	return window > reduction + SMALLEST_WINDOW ? window - reduction : SMALLEST_WINDOW;
}

SEC("struct_ops")
void yeah_cwnd_event(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct yeah *yeah = STATE(tp, struct yeah);

	if (ARGUMENT(ctx) != CA_EVENT_CWND_RESTART)
		return;
	round_begin_anew(&yeah->round, tp);
	yeah->queued = 0;
	yeah->slow_rounds = 0;
	yeah->fast_rounds = 0;
	yeah->reno_window = SMALLEST_WINDOW;
}

SEC("struct_ops")
void yeah_set_state(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);

	if (reduction_ends(tp, ARGUMENT(ctx)))
		round_begin(&STATE(tp, struct yeah)->round, tp);
}

SEC("struct_ops")
u32 yeah_undo_cwnd(u64 *ctx)
{
	return window_before_reduction(SOCKET(ctx));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops lb_yeah = {
	.init = yeah_init,
	.pkts_acked = yeah_pkts_acked,
	.cong_avoid = yeah_cong_avoid,
	.cwnd_event = yeah_cwnd_event,
	.set_state = yeah_set_state,
	.ssthresh = yeah_ssthresh,
	.undo_cwnd = yeah_undo_cwnd,
	.name = "lb_yeah",
};

SEC("license") const char terms[] = "Dual MIT/GPL";
