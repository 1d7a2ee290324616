// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Illinois: losses say when the window grows and shrinks, the queueing delay says by how much.
 *
 * Liu, Basar, Srikant: TCP-Illinois: a loss- and delay-based congestion control algorithm for
 * high-speed networks (Performance Evaluation 65, 2008), section 3. A round adds alpha packets to
 * the window and a loss takes away a share of beta. Of the average queueing delay of a round, da,
 * and the largest ever seen, dm:
 *
 *   alpha = 10 for da <= d1 = dm / 100, then k1 / (k2 + da), down to 0.3 at dm
 *   beta = 1/8 for da <= d2 = dm / 10, then a straight line up to 1/2 for da >= d3 = 8 dm / 10
 *
 * Differs from the paper, always as the kernel's module does:
 * - The smallest alpha is 0.3, not 0.1, and the window from which on all that holds is 15 packets,
 *   not 10; a smaller one is Reno's.
 * - dm is that of the largest single round trip, not of averages: one late packet makes all later
 *   queues look short.
 * - After a timeout it is Reno until a round is over: alpha 1, beta 1/2. So is the loss that ends
 *   the first slow start, if no round came before it.
 *
 * Response, to losses that no queue made (alpha 10, beta 1/8; Floyd, Handley, Padhye: A comparison
 * of equation-based and AIMD congestion control, 2000): W = sqrt(75) / sqrt(p) packets at a loss
 * rate of p, 7 times Reno's. Where da is dm it is sqrt(0.45) / sqrt(p).
 */
#include "round.h"

/* Packets added a round, in thousandths: with no queue, with the longest one, and Reno's. */
#define ALPHA_MAX 10000
#define ALPHA_MIN 300
#define ALPHA_RENO 1000
/* The share of the window that a loss takes away, in thousandths; the largest is Reno's. */
#define BETA_MIN 125
#define BETA_MAX 500
/* Packets in the smallest window that is not Reno's. */
#define SMALLEST_WINDOW 15

struct illinois {
	struct round round;
	u32 max_rtt_us;       /* the largest round trip ever, microseconds; 0: none yet */
	u32 alpha;            /* packets added a round, in thousandths */
	u32 beta;             /* the share of the window that a loss takes away, in thousandths */
	u32 was_delayed;      /* 1: alpha is not the largest, since a round with a queue */
	u32 undelayed_rounds; /* rounds without a queue since then */
	u64 sum_rtt_us;       /* all round trips of this round, microseconds */
	u64 credit;           /* packets acknowledged times alpha, not yet made a larger window */
};
FITS(struct illinois);

INLINE void path_anew(struct tcp_sock *tp, struct illinois *illinois);

SEC("struct_ops")
void illinois_init(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);

	path_anew(tp, STATE(tp, struct illinois));
}

INLINE void path_anew(struct tcp_sock *tp, struct illinois *illinois)
{
	round_begin_anew(&illinois->round, tp);
	illinois->sum_rtt_us = 0;
	illinois->max_rtt_us = 0;
	illinois->alpha = ALPHA_MAX;
	illinois->beta = BETA_MAX;
	illinois->was_delayed = 0;
	illinois->undelayed_rounds = 0;
}

SEC("struct_ops")
void illinois_pkts_acked(u64 *ctx)
{
	struct illinois *illinois = STATE(SOCKET(ctx), struct illinois);
	u32 rtt_us = round_sample(&illinois->round, SAMPLE(ctx));

	illinois->max_rtt_us = MAX(illinois->max_rtt_us, rtt_us);
	illinois->sum_rtt_us += rtt_us;
}

INLINE void grow_by_alpha(struct tcp_sock *tp, struct illinois *illinois, u32 acked);
INLINE void look_at_round(struct illinois *illinois, u32 window);
INLINE void begin_round(struct tcp_sock *tp, struct illinois *illinois);

SEC("struct_ops")
void illinois_cong_avoid(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct illinois *illinois = STATE(tp, struct illinois);
	u32 acked = ACKED(ctx);

	if (round_is_over(&illinois->round, tp)) {
		look_at_round(illinois, tp->snd_cwnd);
		begin_round(tp, illinois);
	}
	acked = left_by_slow_start(tp, acked);
	if (acked)
		grow_by_alpha(tp, illinois, acked);
}

INLINE void begin_round(struct tcp_sock *tp, struct illinois *illinois)
{
	round_begin(&illinois->round, tp);
	illinois->sum_rtt_us = 0;
}

/* As grow_by_one_per, with fractions: of a small window, window / alpha is a few packets only. */
INLINE void grow_by_alpha(struct tcp_sock *tp, struct illinois *illinois, u32 acked)
{
	u32 window = MAX(tp->snd_cwnd, 1);
	u64 price = (u64)window * 1000;
	/* What was credited at a larger window is worth one packet at most. */
	u64 credit = MIN(illinois->credit, price) + (u64)acked * illinois->alpha;

	if (credit >= price) {
		tp->snd_cwnd = within_clamp(tp, window + (u32)(credit / price));
		credit %= price;
	}
	illinois->credit = credit;
}

INLINE u32 alpha_of(struct illinois *illinois, u32 delay_us, u32 max_delay_us);
INLINE u32 beta_of(u32 delay_us, u32 max_delay_us);

INLINE void look_at_round(struct illinois *illinois, u32 window)
{
	const struct round *round = &illinois->round;
	u32 delay_us, max_delay_us;

	if (window < SMALLEST_WINDOW) {
		illinois->alpha = ALPHA_RENO;
		illinois->beta = BETA_MAX;
		return;
	}
	if (!round->samples)
		return;
	delay_us = illinois->sum_rtt_us / round->samples - round->base_rtt_us;
	max_delay_us = illinois->max_rtt_us - round->base_rtt_us;
	illinois->alpha = alpha_of(illinois, delay_us, max_delay_us);
	illinois->beta = beta_of(delay_us, max_delay_us);
}

INLINE u32 alpha_of(struct illinois *illinois, u32 delay_us, u32 max_delay_us)
{
	/*
	 * Rounds without a queue until alpha is the largest again: a short delay may be a chance
	 * (theta, section 3 of the paper).
	 */
	const u32 undelayed_rounds = 5;
	u32 d1_us = max_delay_us / 100;
	u64 above_us, largest_above_us;

	if (delay_us <= d1_us) {
		if (illinois->was_delayed && ++illinois->undelayed_rounds < undelayed_rounds)
			return illinois->alpha;
		illinois->was_delayed = 0;
		illinois->undelayed_rounds = 0;
		return ALPHA_MAX;
	}
	illinois->was_delayed = 1;
	illinois->undelayed_rounds = 0;
	/* k1 / (k2 + da), with the k that make it ALPHA_MAX at d1 and ALPHA_MIN at dm. */
	above_us = delay_us - d1_us;
	largest_above_us = max_delay_us - d1_us;
	return largest_above_us * ALPHA_MIN * ALPHA_MAX /
	       (largest_above_us * ALPHA_MIN + above_us * (ALPHA_MAX - ALPHA_MIN));
}

INLINE u32 beta_of(u32 delay_us, u32 max_delay_us)
{
	u64 d2_us = max_delay_us / 10;
	u64 d3_us = (u64)max_delay_us * 8 / 10;

	if (delay_us <= d2_us)
		return BETA_MIN;
	if (delay_us >= d3_us)
		return BETA_MAX;
	return BETA_MIN + (BETA_MAX - BETA_MIN) * (delay_us - d2_us) / (d3_us - d2_us);
}

SEC("struct_ops")
u32 illinois_ssthresh(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	u32 window = tp->snd_cwnd;

	return MAX(window - (u64)window * STATE(tp, struct illinois)->beta / 1000, 2);
}

SEC("struct_ops")
void illinois_set_state(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct illinois *illinois = STATE(tp, struct illinois);

	if (reduction_ends(tp, ARGUMENT(ctx)))
		begin_round(tp, illinois);
	if (ARGUMENT(ctx) != TCP_CA_Loss)
		return;
	illinois->alpha = ALPHA_RENO;
	illinois->beta = BETA_MAX;
	illinois->was_delayed = 0;
	illinois->undelayed_rounds = 0;
	begin_round(tp, illinois);
}

/* After an idle time the path may be another one. */
SEC("struct_ops")
void illinois_cwnd_event(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);

	if (ARGUMENT(ctx) == CA_EVENT_CWND_RESTART)
		path_anew(tp, STATE(tp, struct illinois));
}

SEC("struct_ops")
u32 illinois_undo_cwnd(u64 *ctx)
{
	return window_before_reduction(SOCKET(ctx));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops lb_illinois = {
	.init = illinois_init,
	.pkts_acked = illinois_pkts_acked,
	.cong_avoid = illinois_cong_avoid,
	.cwnd_event = illinois_cwnd_event,
	.set_state = illinois_set_state,
	.ssthresh = illinois_ssthresh,
	.undo_cwnd = illinois_undo_cwnd,
	.name = "lb_illinois",
};

SEC("license") const char terms[] = "Dual MIT/GPL";
