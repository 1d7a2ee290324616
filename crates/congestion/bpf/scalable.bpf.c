// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Scalable TCP: the window grows and shrinks in proportion to itself.
 *
 * Kelly: Scalable TCP: Improving Performance in Highspeed Wide Area Networks (ACM SIGCOMM Computer
 * Communication Review 33(2), 2003). As the paper has it, below 16 packets this is Reno. The
 * kernel's never grows slower than Reno and always gives up an eighth, and has no such window.
 *
 * Response: W = 0.075 / p packets at a loss rate of p, above 16 packets: a hundredth more each
 * round trip, ln(8 / 7) less at each loss. (The paper's 0.08 / p takes 1 / 8 for this logarithm.)
 */
#include "tcp.h"

/* Up to this window, Reno: the paper's lwnd, where its response crosses Reno's; packets. */
#define LEGACY_WINDOW 16

/* One packet more for so many delivered: the paper's a = 0.01. */
#define DELIVERED_PER_PACKET 100

/* What is given up at a loss: the paper's b = 1 / 8. */
#define GIVEN_UP_PER_WINDOW 8

SEC("struct_ops")
void scalable_cong_avoid(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	u32 acked = left_by_slow_start(tp, ACKED(ctx));
	bool legacy = tp->snd_cwnd <= LEGACY_WINDOW;

	if (acked)
		grow_by_one_per(tp, legacy ? tp->snd_cwnd : DELIVERED_PER_PACKET, acked);
}

SEC("struct_ops")
u32 scalable_ssthresh(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);

	if (tp->snd_cwnd <= LEGACY_WINDOW)
		return half_of_window(tp);
	return tp->snd_cwnd - tp->snd_cwnd / GIVEN_UP_PER_WINDOW;
}

SEC("struct_ops")
u32 scalable_undo_cwnd(u64 *ctx)
{
	return window_before_reduction(SOCKET(ctx));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops lb_scalable = {
	.cong_avoid = scalable_cong_avoid,
	.ssthresh = scalable_ssthresh,
	.undo_cwnd = scalable_undo_cwnd,
	.name = "lb_scalable",
};

SEC("license") const char terms[] = "Dual MIT/GPL";
