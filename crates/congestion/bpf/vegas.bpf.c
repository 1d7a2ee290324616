// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Vegas: keeps two to four packets of its own in the queue, by the round trips.
 *
 * Brakmo and Peterson: TCP Vegas: end to end congestion avoidance on a global Internet (IEEE JSAC
 * 13(8), 1995), sections III.B (congestion avoidance) and III.C (slow start). Once a round, the
 * rate that the window would make on the empty path (window / base round trip) is compared with
 * the rate that it makes (window / round trip). The difference, times the base round trip, is
 *
 *   diff = window * (rtt - base) / rtt
 *
 * packets that wait in a queue. Below alpha the window grows by a packet, above beta it shrinks by
 * one.
 *
 * Differs from the paper:
 * - The round trip of a round is its smallest, not that of one packet: the kernel acknowledges in
 *   bursts, in which one packet says little. The kernel's module takes the smallest as well.
 * - Leaving slow start, the window goes down to what is under way, and not by one eighth: with
 *   more than that in the queue, a packet less a round would take long to drain it. As the
 *   kernel's module.
 * - A loss halves the window (RFC 5681), as in the kernel's module; the authors' own code takes a
 *   quarter at the first one. Losses are found by the kernel (RACK, SACK), and not by the paper's
 *   clock of each segment (section III.A).
 * - alpha and beta are 2 and 4 packets, the second of the pairs that the paper tries, as in the
 *   kernel's module; the first is 1 and 3.
 *
 * The window doubles every second round only, as in the paper; the kernel's module doubles it in
 * every.
 *
 * Response: alpha to beta packets in the queue, at any rate. To losses that no queue made it is
 * Reno, W = sqrt(3 / 2) / sqrt(p) packets at a loss rate of p.
 */
#include "round.h"

/* The queue that it holds, packets (Vegas-2,4 in section IV of the paper). */
#define ALPHA 2
#define BETA 4

struct vegas {
	struct round round;
	u32 holds; /* 1: this round of slow start holds the window, so that it can be measured */
};
FITS(struct vegas);

SEC("struct_ops")
void vegas_init(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);

	round_begin_anew(&STATE(tp, struct vegas)->round, tp);
}

SEC("struct_ops")
void vegas_pkts_acked(u64 *ctx)
{
	round_sample(&STATE(SOCKET(ctx), struct vegas)->round, SAMPLE(ctx));
}

INLINE void look_at_round(struct tcp_sock *tp, struct vegas *vegas);

SEC("struct_ops")
void vegas_cong_avoid(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct vegas *vegas = STATE(tp, struct vegas);

	if (is_cwnd_limited(tp) && in_slow_start(tp) && !vegas->holds)
		slow_start(tp, ACKED(ctx));
	if (!round_is_over(&vegas->round, tp))
		return;
	if (is_cwnd_limited(tp))
		look_at_round(tp, vegas);
	round_begin(&vegas->round, tp);
}

INLINE void leave_slow_start(struct tcp_sock *tp, u32 queued);
INLINE void hold_queue(struct tcp_sock *tp, u32 queued);

INLINE void look_at_round(struct tcp_sock *tp, struct vegas *vegas)
{
	/* Packets in the queue that end slow start (section III.C of the paper). */
	const u32 gamma = 1;
	const struct round *round = &vegas->round;
	u32 queued = 0;

	if (round_says_enough(round))
		queued = packets_queued(tp->snd_cwnd, round->min_rtt_us, round->base_rtt_us);
	if (!in_slow_start(tp)) {
		hold_queue(tp, queued);
	} else if (queued > gamma) {
		leave_slow_start(tp, queued);
		vegas->holds = 0;
	} else {
		vegas->holds = !vegas->holds;
	}
}

INLINE void leave_slow_start(struct tcp_sock *tp, u32 queued)
{
	u32 window = MAX(tp->snd_cwnd - queued + 1, 2);

	tp->snd_cwnd = window;
	tp->snd_ssthresh = window;
}

INLINE void hold_queue(struct tcp_sock *tp, u32 queued)
{
	u32 window = tp->snd_cwnd;

	if (queued < ALPHA) {
		tp->snd_cwnd = within_clamp(tp, window + 1);
	} else if (queued > BETA) {
		window = MAX(window - 1, 2);
		tp->snd_cwnd = window;
		/* Less than the threshold would be slow start. */
		tp->snd_ssthresh = MIN(tp->snd_ssthresh, window);
	}
}

/*
 * After an idle time the path may be another one, with a longer round trip: measured against the
 * old one, it would look like a queue for ever.
 */
SEC("struct_ops")
void vegas_cwnd_event(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);

	if (ARGUMENT(ctx) == CA_EVENT_CWND_RESTART)
		round_begin_anew(&STATE(tp, struct vegas)->round, tp);
}

SEC("struct_ops")
void vegas_set_state(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);

	if (reduction_ends(tp, ARGUMENT(ctx)))
		round_begin(&STATE(tp, struct vegas)->round, tp);
}

SEC("struct_ops")
u32 vegas_ssthresh(u64 *ctx)
{
	return half_of_window(SOCKET(ctx));
}

SEC("struct_ops")
u32 vegas_undo_cwnd(u64 *ctx)
{
	return window_before_reduction(SOCKET(ctx));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops lb_vegas = {
	.init = vegas_init,
	.pkts_acked = vegas_pkts_acked,
	.cong_avoid = vegas_cong_avoid,
	.cwnd_event = vegas_cwnd_event,
	.set_state = vegas_set_state,
	.ssthresh = vegas_ssthresh,
	.undo_cwnd = vegas_undo_cwnd,
	.name = "lb_vegas",
};

SEC("license") const char terms[] = "Dual MIT/GPL";
