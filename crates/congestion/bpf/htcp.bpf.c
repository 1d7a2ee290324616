// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * H-TCP: the longer the last loss is ago, the faster the window grows; and it shrinks no further
 * than the queue needs to drain.
 *
 * Leith, Shorten: H-TCP: TCP for high-speed and long-distance networks (PFLDnet 2004), and
 * draft-leith-tcp-htcp-06, H-TCP: TCP Congestion Control for High Bandwidth-Delay Product Paths
 * (2008), with adaptive backoff and RTT scaling. Ours, where they leave it open:
 *
 * - The throughput before a loss is the best of any round trip since the loss before.
 * - The largest round trip is that of the smoothed one, so that no single late ACK counts.
 * - A time without data to send does not count as time since the last loss.
 * - The scaled increase is at least one packet before it is multiplied by 2 * (1 - beta), as in the
 *   kernel's. The kernel's also backs off by half until the second loss, and on paths below 10 ms.
 *
 * Response: the paper draws it and gives no formula. With a loss every T seconds, growth and loss
 * are equal if (1 - beta) * W is the sum of the growth over T / RTT round trips, and the packets
 * in between are 1 / p. So at RTT 50 ms and beta = 0.8, W = 24, 42, 95, 212, 513 and 1130 packets
 * on average at p = 0.3, 0.1, 0.03, 0.01, 0.003 and 0.001 %.
 */
#include "tcp.h"

/* For so long after a loss this is Reno: Delta_L, microseconds. */
#define RENO_FOR_US 1000000

/* A time since the last loss that is counted at most, milliseconds: ten minutes. */
#define LONGEST_MS 600000

/* The round trip at which the increase is not scaled, microseconds: 100 ms. */
#define REFERENCE_RTT_US 100000

/* The increase is scaled by a tenth at least and by two at most; in 1024ths. */
#define LEAST_SCALE_1024 102
#define MOST_SCALE_1024 2048

/* What remains of the window after a loss: half at least and 0.8 at most, in 1024ths. */
#define LEAST_BETA_1024 512
#define MOST_BETA_1024 819

struct epoch {
	u64 begin_us;    /* the last loss, microseconds */
	u32 max_rtt_us;  /* the largest smoothed round trip since, microseconds */
	u32 best_rate;   /* the best throughput of a round trip since, packets a second */
	u32 before_rate; /* the same, before the last loss; 0: there was none */
	u32 beta_1024;   /* what the last loss left of the window; 0: there was none */
};

struct htcp {
	struct epoch now;
	struct epoch before;  /* as it was before the last loss, if that was none */
	u32 min_rtt_us;       /* the smallest round trip, microseconds; 0: none yet */
	u32 round_us;         /* the round trip now measured began, microseconds of 32 bits */
	u32 round_delivered;  /* packets delivered until then */
};
FITS(struct htcp);

SEC("struct_ops")
void htcp_init(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct htcp *ca = STATE(tp, struct htcp);

	ca->now.begin_us = tp->tcp_mstamp;
	ca->round_us = now_us(tp);
	ca->round_delivered = tp->delivered;
}

INLINE void measure_rate(const struct tcp_sock *tp, struct htcp *ca)
{
	u32 interval_us = now_us(tp) - ca->round_us;
	u32 rate;

	if (interval_us < MAX(tp->srtt_us / 8, 1))
		return;
	rate = (tp->delivered - ca->round_delivered) * 1000000ULL / interval_us;
	ca->now.best_rate = MAX(ca->now.best_rate, rate);
	ca->round_us = now_us(tp);
	ca->round_delivered = tp->delivered;
}

SEC("struct_ops")
void htcp_pkts_acked(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct htcp *ca = STATE(tp, struct htcp);
	s32 rtt_us = SAMPLE(ctx)->rtt_us;

	if (rtt_us > 0 && (!ca->min_rtt_us || (u32)rtt_us < ca->min_rtt_us))
		ca->min_rtt_us = rtt_us;
	ca->now.max_rtt_us = MAX(ca->now.max_rtt_us, tp->srtt_us / 8);
	measure_rate(tp, ca);
}

INLINE u32 scale_1024(const struct htcp *ca)
{
	u64 scale = ca->min_rtt_us * 1024ULL / REFERENCE_RTT_US;

	return MIN(MAX(scale, LEAST_SCALE_1024), MOST_SCALE_1024);
}

/* The growth a round trip, in 256ths of a packet: 1 + 10 * t + t^2 / 4, t seconds after Delta_L. */
INLINE u64 growth_256(const struct tcp_sock *tp, const struct htcp *ca)
{
	u64 since_us = tp->tcp_mstamp - ca->now.begin_us;
	u32 beta_1024 = ca->now.beta_1024 ? ca->now.beta_1024 : LEAST_BETA_1024;
	u64 growth = 256;

	if (since_us > RENO_FOR_US) {
		u64 ms = MIN((since_us - RENO_FOR_US) / 1000, LONGEST_MS);

		growth = 256 + 2560 * ms / 1000 + 64 * ms * ms / 1000000;
		growth = MAX(growth * scale_1024(ca) / 1024, 256);
	}
	return 2 * (1024 - beta_1024) * growth / 1024;
}

SEC("struct_ops")
void htcp_cong_avoid(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	u32 acked = left_by_slow_start(tp, ACKED(ctx));

	if (acked)
		grow_per_round_trip(tp, growth_256(tp, STATE(tp, struct htcp)), acked);
}

/*
 * Adaptive backoff: to where the queue has just drained, if the path carries what it carried at the
 * last loss; by half, if that changed by more than a fifth, so that flows converge.
 */
INLINE u32 beta_1024(const struct htcp *ca)
{
	u64 now = ca->now.best_rate;
	u64 before = ca->now.before_rate;
	u64 share;

	if (now * 5 < before * 4 || now * 5 > before * 6 || !ca->now.max_rtt_us)
		return LEAST_BETA_1024;
	share = ca->min_rtt_us * 1024ULL / ca->now.max_rtt_us;
	return MIN(MAX(share, LEAST_BETA_1024), MOST_BETA_1024);
}

SEC("struct_ops")
u32 htcp_ssthresh(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct htcp *ca = STATE(tp, struct htcp);
	u32 beta = beta_1024(ca);

	ca->before = ca->now;
	ca->now.begin_us = tp->tcp_mstamp;
	ca->now.max_rtt_us = 0;
	ca->now.before_rate = ca->before.best_rate;
	ca->now.best_rate = 0;
	ca->now.beta_1024 = beta;
	return MAX((u64)tp->snd_cwnd * beta / 1024, 2);
}

SEC("struct_ops")
u32 htcp_undo_cwnd(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct htcp *ca = STATE(tp, struct htcp);

	if (ca->before.begin_us) {
		ca->now = ca->before;
		ca->before.begin_us = 0;
	}
	return window_before_reduction(tp);
}

INLINE void leave_out_pause(struct tcp_sock *tp)
{
	struct htcp *ca = STATE(tp, struct htcp);

	ca->now.begin_us = MIN(ca->now.begin_us + idle_us(tp), tp->tcp_mstamp);
	ca->round_us = now_us(tp);
	ca->round_delivered = tp->delivered;
}

SEC("struct_ops")
void htcp_cwnd_event_tx_start(u64 *ctx)
{
	leave_out_pause(SOCKET(ctx));
}

SEC("struct_ops")
void htcp_cwnd_event(u64 *ctx)
{
	if (ARGUMENT(ctx) == CA_EVENT_TX_START)
		leave_out_pause(SOCKET(ctx));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops lb_htcp = {
	.init = htcp_init,
	.pkts_acked = htcp_pkts_acked,
	.cong_avoid = htcp_cong_avoid,
	.ssthresh = htcp_ssthresh,
	.undo_cwnd = htcp_undo_cwnd,
	.cwnd_event = htcp_cwnd_event,
	.cwnd_event_tx_start = htcp_cwnd_event_tx_start,
	.name = "lb_htcp",
};

SEC("license") const char terms[] = "Dual MIT/GPL";
