// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Hybla: on a path of any length, the rate that Reno would have on one of 25 ms.
 *
 * Caini, Firrincieli: TCP Hybla: a TCP enhancement for heterogeneous networks (International
 * Journal of Satellite Communications and Networking 22(5), 2004). With rho = RTT / 25 ms, and one
 * at least: slow start adds 2^rho - 1 packets for each delivered, congestion avoidance rho^2
 * packets a round trip. What differs:
 *
 * - rho is of the smallest round trip, so that the flow's own queue does not make it bolder.
 * - The paper's packet spacing is the kernel's pacing (from Linux 6.0 on: before, an algorithm in
 *   BPF cannot ask for it). The kernel's own Hybla does not pace.
 * - The paper's first ssthresh, an estimate of the bandwidth by pairs of packets, is not here, as
 *   it is not in the kernel's: packets leave in trains, and their ACKs come so. The first slow
 *   start ends with a loss, as Reno's, and overshoots more.
 * - The first window is the kernel's, or rho if that is more.
 * - 2^rho ends at rho = 16, as in the kernel's.
 *
 * Response: W = rho * sqrt(3 / 2) / sqrt(p) packets at a loss rate of p, rho times Reno's.
 */
#include "tcp.h"

/* RTT0, the round trip whose rate is wanted, microseconds. The paper's, for a wired connection. */
#define REFERENCE_RTT_US 25000

/* rho is no more than this: a round trip of 1.6 s, longer than by any satellite; in 1024ths. */
#define MOST_RHO_1024 (64 * 1024)

/* Slow start takes rho for no more than this, in 1024ths. */
#define MOST_SLOW_START_RHO_1024 (16 * 1024)

struct hybla {
	u32 min_rtt_us; /* the smallest round trip, microseconds; 0: none yet */
	u32 part_1024;  /* of a packet, by which slow start is to grow yet */
};
FITS(struct hybla);

INLINE u32 rho_1024(const struct hybla *ca)
{
	u64 rho = ca->min_rtt_us * 1024ULL / REFERENCE_RTT_US;

	return MIN(MAX(rho, 1024), MOST_RHO_1024);
}

/* Numbers of helpers: one that came with the right to ask for pacing, in Linux 6.0. */
enum bpf_func_id {
	BPF_FUNC_tcp_raw_gen_syncookie_ipv4 = 204,
};

INLINE void space_packets(struct tcp_sock *tp)
{
	struct sock *sk = &tp->inet_conn.icsk_inet.sk;

	if (!__builtin_preserve_enum_value(
		    *(enum bpf_func_id *)BPF_FUNC_tcp_raw_gen_syncookie_ipv4, 0))
		return;
	if (sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
}

SEC("struct_ops")
void hybla_init(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct hybla *ca = STATE(tp, struct hybla);

	space_packets(tp);
	ca->min_rtt_us = tp->srtt_us / 8;
	tp->snd_cwnd = MAX(tp->snd_cwnd, within_clamp(tp, rho_1024(ca) / 1024));
}

SEC("struct_ops")
void hybla_pkts_acked(u64 *ctx)
{
	struct hybla *ca = STATE(SOCKET(ctx), struct hybla);
	s32 rtt_us = SAMPLE(ctx)->rtt_us;

	if (rtt_us > 0 && (!ca->min_rtt_us || (u32)rtt_us < ca->min_rtt_us))
		ca->min_rtt_us = rtt_us;
}

INLINE void slow_start_by_rho(struct tcp_sock *tp, struct hybla *ca, u32 acked)
{
	u32 rho = MIN(rho_1024(ca), MOST_SLOW_START_RHO_1024);
	u64 growth_1024 = (exp2_1024(rho) - 1024) * acked + ca->part_1024;
	u64 window = tp->snd_cwnd + growth_1024 / 1024;

	ca->part_1024 = growth_1024 % 1024;
	tp->snd_cwnd = within_clamp(tp, MIN(window, tp->snd_ssthresh));
}

SEC("struct_ops")
void hybla_cong_avoid(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct hybla *ca = STATE(tp, struct hybla);
	u64 rho = rho_1024(ca);

	if (!is_cwnd_limited(tp))
		return;
	if (in_slow_start(tp))
		slow_start_by_rho(tp, ca, ACKED(ctx));
	else
		grow_per_round_trip(tp, rho * rho / 4096, ACKED(ctx));
}

SEC("struct_ops")
u32 hybla_ssthresh(u64 *ctx)
{
	return half_of_window(SOCKET(ctx));
}

SEC("struct_ops")
u32 hybla_undo_cwnd(u64 *ctx)
{
	return window_before_reduction(SOCKET(ctx));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops lb_hybla = {
	.init = hybla_init,
	.pkts_acked = hybla_pkts_acked,
	.cong_avoid = hybla_cong_avoid,
	.ssthresh = hybla_ssthresh,
	.undo_cwnd = hybla_undo_cwnd,
	.name = "lb_hybla",
};

SEC("license") const char terms[] = "Dual MIT/GPL";
