// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Veno: Reno that takes a loss without a queue for a random one, and gives way less.
 *
 * Fu and Liew: TCP Veno: TCP enhancement for transmission over wireless access networks (IEEE JSAC
 * 21(2), 2003), section III. From the round trips it knows, as Vegas does, how many packets of its
 * own wait in the queue. With fewer than beta, a loss is held for random and the window goes down
 * to four fifths; with beta or more it is congestion, and the window is halved. With beta or more,
 * too, the window grows by a packet every second round only, so that it stays longer where it is
 * best. All else is Reno, what a timeout does as well.
 *
 * Differs from the paper and from the kernel's module:
 * - The round trip is the smallest of the round so far, or of the one before while this one has
 *   too few; there it is the one measured last. Round trips that jitter, as those of radio links
 *   do, would make most losses congestion, and a window that grows at half of Reno's pace.
 * - Without any round trips it is Reno; the module asks for three in every round.
 * - A timeout halves the threshold, as in the paper; the module takes one fifth there as well.
 *
 * Response: increase by 1 and decrease by 1/5 (Floyd, Handley, Padhye: A comparison of
 * equation-based and AIMD congestion control, 2000): W = sqrt(4.5) / sqrt(p) packets at a loss
 * rate of p, where the losses are random; 1.7 times Reno's. Where a full queue makes them it is
 * between Reno's and that of an increase by 1/2.
 */
#include "round.h"

struct veno {
	struct round round;
	u32 rtt_us; /* the smallest of this round or, too soon in it, of the last; 0: none yet */
};
FITS(struct veno);

SEC("struct_ops")
void veno_init(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);

	round_begin_anew(&STATE(tp, struct veno)->round, tp);
}

SEC("struct_ops")
void veno_pkts_acked(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct veno *veno = STATE(tp, struct veno);

	round_sample(&veno->round, SAMPLE(ctx));
	if (round_says_enough(&veno->round))
		veno->rtt_us = veno->round.min_rtt_us;
	if (round_is_over(&veno->round, tp))
		round_begin(&veno->round, tp);
}

INLINE bool is_congested(const struct tcp_sock *tp, const struct veno *veno);

SEC("struct_ops")
void veno_cong_avoid(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	u32 acked = ACKED(ctx);
	u32 per;

	if (!is_cwnd_limited(tp))
		return;
	if (in_slow_start(tp)) {
		acked = slow_start(tp, acked);
		if (!acked)
			return;
	}
	per = tp->snd_cwnd;
	if (is_congested(tp, STATE(tp, struct veno)))
		per *= 2;
	grow_by_one_per(tp, per, acked);
}

SEC("struct_ops")
u32 veno_ssthresh(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);

	if (is_congested(tp, STATE(tp, struct veno)))
		return half_of_window(tp);
	return MAX(tp->snd_cwnd * 4 / 5, 2);
}

INLINE bool is_congested(const struct tcp_sock *tp, const struct veno *veno)
{
	/* Packets in the queue from which on the path is congested (section III of the paper). */
	const u32 beta = 3;

	if (!veno->rtt_us)
		return true;
	return packets_queued(tp->snd_cwnd, veno->rtt_us, veno->round.base_rtt_us) >= beta;
}

SEC("struct_ops")
void veno_cwnd_event(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);

	switch (ARGUMENT(ctx)) {
	case CA_EVENT_LOSS:
		/* A timeout. The kernel has asked for the threshold, but not yet cut the window. */
		tp->snd_ssthresh = half_of_window(tp);
		break;
	case CA_EVENT_CWND_RESTART:
		/* After an idle time the path may be another one. */
		round_begin_anew(&STATE(tp, struct veno)->round, tp);
		STATE(tp, struct veno)->rtt_us = 0;
		break;
	}
}

SEC("struct_ops")
u32 veno_undo_cwnd(u64 *ctx)
{
	return window_before_reduction(SOCKET(ctx));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops lb_veno = {
	.init = veno_init,
	.pkts_acked = veno_pkts_acked,
	.cong_avoid = veno_cong_avoid,
	.cwnd_event = veno_cwnd_event,
	.ssthresh = veno_ssthresh,
	.undo_cwnd = veno_undo_cwnd,
	.name = "lb_veno",
};

SEC("license") const char terms[] = "Dual MIT/GPL";
