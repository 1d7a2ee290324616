// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Reno: one packet more a round trip, half the window at a loss.
 *
 * RFC 5681, with NewReno's recovery (RFC 6582) and SACK (RFC 6675), which are the kernel's. Here to
 * validate the method: it has to behave as the kernel's own.
 *
 * Response: W = sqrt(3 / 2) / sqrt(p) packets at a loss rate of p (Mathis, Semke, Mahdavi, Ott: The
 * macroscopic behavior of the TCP congestion avoidance algorithm, 1997; without delayed ACKs, which
 * the kernel's counting of delivered packets makes good).
 */
#include "tcp.h"

SEC("struct_ops")
void reno_cong_avoid(u64 *ctx)
{
	grow_as_reno(SOCKET(ctx), ACKED(ctx));
}

SEC("struct_ops")
u32 reno_ssthresh(u64 *ctx)
{
	return half_of_window(SOCKET(ctx));
}

SEC("struct_ops")
u32 reno_undo_cwnd(u64 *ctx)
{
	return window_before_reduction(SOCKET(ctx));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops lb_reno = {
	.cong_avoid = reno_cong_avoid,
	.ssthresh = reno_ssthresh,
	.undo_cwnd = reno_undo_cwnd,
	.name = "lb_reno",
};

SEC("license") const char terms[] = "Dual MIT/GPL";
