// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * HighSpeed TCP: Reno whose increase grows, and whose decrease shrinks, with the window.
 *
 * RFC 3649, HighSpeed TCP for Large Congestion Windows (2003). The RFC lists increase and decrease
 * in a table for implementations (appendix B, as the kernel has it); here they are computed from
 * the formulas that the table is made of (sections 5 and 7), with logarithms to 0.7 %. So the
 * increase goes up in 256ths of a packet and not in whole ones. The RFC's limited slow start (RFC
 * 3742) is a mechanism of its own and not here.
 *
 * Response (RFC 3649, section 5): W = 0.12 / p^0.835 packets at a loss rate of p, for p below
 * 0.0015 (above 38 packets); below that window, Reno's W = 1.22 / sqrt(p).
 */
#include "tcp.h"

/* Up to this window, Reno: Low_Window, packets (section 5). */
#define LOW_WINDOW 38

/* log2(38) and log2(83000 / 38), times 1024: Low_Window and High_Window (section 5). */
#define LOG2_LOW_1024 5374
#define LOG2_HIGH_PER_LOW_1024 11359

/* What is given up at Low_Window and at High_Window: half and High_Decrease = 0.1, in 1024ths. */
#define MOST_GIVEN_UP_1024 512
#define LEAST_GIVEN_UP_1024 102

/* b(w), the share of the window that a loss takes, in 1024ths (section 5). */
INLINE u32 given_up_1024(u32 window)
{
	u32 log2 = log2_1024(window);
	u32 above;

	if (window <= LOW_WINDOW)
		return MOST_GIVEN_UP_1024;
	above = log2 > LOG2_LOW_1024 ? log2 - LOG2_LOW_1024 : 0;
	above = MIN(above, LOG2_HIGH_PER_LOW_1024);
	return MOST_GIVEN_UP_1024 -
	       above * (MOST_GIVEN_UP_1024 - LEAST_GIVEN_UP_1024) / LOG2_HIGH_PER_LOW_1024;
}

/*
 * a(w), the growth in 256ths of a packet a round trip (section 5): w^2 * p(w) * 2 * b / (2 - b),
 * with p(w) = 0.078 / w^1.2. So that is 0.156 * w^0.8 * b / (2 - b), and 0.156 * 256
 * is nearly 40.
 */
INLINE u32 growth_256(u32 window)
{
	u64 power_1024 = exp2_1024(log2_1024(window) * 4 / 5);
	u32 b_1024 = given_up_1024(window);

	if (window <= LOW_WINDOW)
		return 256;
	return MAX(40 * power_1024 * b_1024 / (2048 - b_1024) / 1024, 256);
}

SEC("struct_ops")
void highspeed_cong_avoid(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	u32 acked = left_by_slow_start(tp, ACKED(ctx));

	if (acked)
		grow_per_round_trip(tp, growth_256(tp->snd_cwnd), acked);
}

SEC("struct_ops")
u32 highspeed_ssthresh(u64 *ctx)
{
	u32 window = SOCKET(ctx)->snd_cwnd;

	return MAX(window - (u64)window * given_up_1024(window) / 1024, 2);
}

SEC("struct_ops")
u32 highspeed_undo_cwnd(u64 *ctx)
{
	return window_before_reduction(SOCKET(ctx));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops lb_highspeed = {
	.cong_avoid = highspeed_cong_avoid,
	.ssthresh = highspeed_ssthresh,
	.undo_cwnd = highspeed_undo_cwnd,
	.name = "lb_highspeed",
};

SEC("license") const char terms[] = "Dual MIT/GPL";
