// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Westwood+: Reno that goes down to what the path was measured to carry, and not by half.
 *
 * Grieco, Mascolo: Performance evaluation and comparison of Westwood+, New Reno, and Vegas TCP
 * congestion control (ACM SIGCOMM Computer Communication Review 34(2), 2004), after Mascolo,
 * Casetti, Gerla, Sanadidi, Wang: TCP Westwood: Bandwidth Estimation for Enhanced Transport over
 * Wireless Links (MobiCom 2001). What differs:
 *
 * - A loss never raises the window (the paper of 2001 says so, that of 2004 does not).
 * - A time without data to send is not measured; the papers let the estimate fall then.
 * - The kernel's filters twice, with 7 / 8, and measures over 50 ms at least.
 *
 * Response (Grieco, Mascolo: Mathematical Analysis of the Westwood+ TCP Congestion Control, 2005):
 * sqrt((1 - p) / p) / sqrt(RTT * Tq) packets a second at a loss rate of p, where Tq is the mean
 * time in the queue. On a path without a queue there is no such limit: the window grows, as
 * Reno's, by one a round trip, and a loss takes no more than what grew in the time of the filter,
 * ten round trips.
 */
#include "tcp.h"

/* So much of the estimate remains with each sample: the paper's alpha = 0.9, as a quotient. */
#define REMAINS 9
#define REMAINS_OF 10

struct westwood {
	u64 rate_1024;       /* estimate, 1024ths of a packet a second; 0: none yet */
	u32 min_rtt_us;      /* the smallest round trip, microseconds; 0: none yet */
	u32 round_us;        /* the sample began, microseconds of 32 bits */
	u32 round_delivered; /* packets delivered until then */
};
FITS(struct westwood);

INLINE void begin_sample(const struct tcp_sock *tp, struct westwood *ca)
{
	ca->round_us = now_us(tp);
	ca->round_delivered = tp->delivered;
}

SEC("struct_ops")
void westwood_init(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);

	begin_sample(tp, STATE(tp, struct westwood));
}

SEC("struct_ops")
void westwood_cwnd_event_tx_start(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);

	begin_sample(tp, STATE(tp, struct westwood));
}

SEC("struct_ops")
void westwood_cwnd_event(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);

	if (ARGUMENT(ctx) == CA_EVENT_TX_START)
		begin_sample(tp, STATE(tp, struct westwood));
}

SEC("struct_ops")
void westwood_cong_avoid(u64 *ctx)
{
	grow_as_reno(SOCKET(ctx), ACKED(ctx));
}

/* Once a round trip: what was delivered in it goes into the estimate. */
INLINE void measure_rate(const struct tcp_sock *tp, struct westwood *ca)
{
	u32 interval_us = now_us(tp) - ca->round_us;
	u64 sample_1024;

	if (interval_us < MAX(tp->srtt_us / 8, 1))
		return;
	sample_1024 = (tp->delivered - ca->round_delivered) * (1000000ULL * 1024) / interval_us;
	if (ca->rate_1024)
		sample_1024 = (REMAINS * ca->rate_1024 + sample_1024) / REMAINS_OF;
	ca->rate_1024 = sample_1024;
	begin_sample(tp, ca);
}

SEC("struct_ops")
void westwood_pkts_acked(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct westwood *ca = STATE(tp, struct westwood);
	s32 rtt_us = SAMPLE(ctx)->rtt_us;

	if (rtt_us > 0 && (!ca->min_rtt_us || (u32)rtt_us < ca->min_rtt_us))
		ca->min_rtt_us = rtt_us;
	measure_rate(tp, ca);
}

/* What the path carries in its smallest round trip: then the queue is empty and the path full. */
SEC("struct_ops")
u32 westwood_ssthresh(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	const struct westwood *ca = STATE(tp, struct westwood);
	u64 carried = ca->rate_1024 * ca->min_rtt_us / (1000000ULL * 1024);

	if (!ca->rate_1024 || !ca->min_rtt_us)
		return half_of_window(tp);
	return MAX(MIN(carried, tp->snd_cwnd), 2);
}

SEC("struct_ops")
u32 westwood_undo_cwnd(u64 *ctx)
{
	return window_before_reduction(SOCKET(ctx));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops lb_westwood = {
	.init = westwood_init,
	.cwnd_event = westwood_cwnd_event,
	.cwnd_event_tx_start = westwood_cwnd_event_tx_start,
	.cong_avoid = westwood_cong_avoid,
	.pkts_acked = westwood_pkts_acked,
	.ssthresh = westwood_ssthresh,
	.undo_cwnd = westwood_undo_cwnd,
	.name = "lb_westwood",
};

SEC("license") const char terms[] = "Dual MIT/GPL";
