// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * DCTCP: goes down by as much as was marked, so that a queue stays at the mark and never runs
 * empty.
 *
 * RFC 8257, Data Center TCP (DCTCP): TCP congestion control for data centers, 2017; Alizadeh and
 * others: Data center TCP (DCTCP), SIGCOMM 2010. Needs switches that mark packets (RFC 3168) as
 * soon as a queue is longer than a threshold, and this algorithm at both ends: the receiver tells
 * exactly which packets were marked (section 3.2), and the sender reduces its window by half of
 * the share of them, alpha, no more than once a window (section 3.3). A loss halves the window
 * (section 3.5). Where the peer or the path does no ECN, it is Reno; so it is with a Linux peer that
 * listens with an algorithm that does not need ECN, because the first packet is marked as capable.
 *
 * Differs from the RFC:
 * - It counts packets, not bytes: the kernel's counts of delivered and of marked ones are packets.
 * - A loss while the window already goes down for marks takes it to half of what it was before
 *   both.
 * The kernel's tcp_dctcp becomes Reno where there is no ECN, which here is the same by itself:
 * without marks alpha goes towards 0, and losses do not look at it.
 *
 * Response to a share of p of marked packets: W = 2 / p packets where each packet is marked by
 * chance (a reduction of p / 2 each round trip against a growth of 1), and W = 2 / p^2 where a
 * queue's threshold marks all packets of some round trips (Alizadeh, Javanmard, Prabhakar:
 * Analysis of DCTCP, SIGMETRICS 2011: alpha = sqrt(2 / W)). To losses: Reno's.
 */
#include "tcp.h"

/* alpha = 1, which stands for all packets. */
#define ALL 1024
/* The weight of a window in alpha, the RFC's g: 1/16, as a shift. */
#define WEIGHT_SHIFT 4

struct dctcp {
	u32 alpha;             /* share of packets marked, smoothed, in 1024ths */
	u32 window_ends;       /* the RFC's WindowEnd: the byte whose ACK ends a window */
	u32 prior_delivered;   /* packets delivered when it began */
	u32 prior_marked;      /* of these, marked */
	u32 prior_rcv_nxt;     /* the receiver's next byte when the last data packet came */
	bool is_marked;        /* the RFC's CE: the last data packet came with a mark */
};
FITS(struct dctcp);

INLINE void begin_window(const struct tcp_sock *tp, struct dctcp *dctcp)
{
	dctcp->window_ends = tp->snd_nxt;
	dctcp->prior_delivered = tp->delivered;
	dctcp->prior_marked = tp->delivered_ce;
}

SEC("struct_ops")
void dctcp_init(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct dctcp *dctcp = STATE(tp, struct dctcp);

	/* Section 3.3 advises 1: the first marks halve the window, as ECN's do elsewhere. */
	dctcp->alpha = ALL;
	dctcp->prior_rcv_nxt = tp->rcv_nxt;
	dctcp->is_marked = false;
	begin_window(tp, dctcp);
}

/* --- sender ---------------------------------------------------------------------------------- */

/* Once a window: alpha = (1 - g) alpha + g M (section 3.3). */
SEC("struct_ops")
void dctcp_in_ack_event(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct dctcp *dctcp = STATE(tp, struct dctcp);
	u32 delivered = tp->delivered - dctcp->prior_delivered;
	u32 marked = tp->delivered_ce - dctcp->prior_marked;
	u32 alpha = dctcp->alpha;

	if (before(tp->snd_una, dctcp->window_ends))
		return;
	/* What rounding would keep above 0 for ever goes too. */
	alpha -= MIN(MAX(alpha >> WEIGHT_SHIFT, 1), alpha);
	if (marked)
		alpha += ((u64)marked * ALL >> WEIGHT_SHIFT) / MAX(delivered, 1);
	dctcp->alpha = MIN(alpha, ALL);
	begin_window(tp, dctcp);
}

/* An ECN echo: cwnd = cwnd (1 - alpha / 2). The kernel asks once a window. */
SEC("struct_ops")
u32 dctcp_ssthresh(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	u64 reduction = (u64)tp->snd_cwnd * STATE(tp, struct dctcp)->alpha / (2 * ALL);

	return MAX(tp->snd_cwnd - (u32)reduction, 2);
}

/* A loss, of which ssthresh is not told that it is one. */
INLINE void halve(struct tcp_sock *tp)
{
	tp->snd_ssthresh = MIN(tp->snd_ssthresh, MAX(tp->prior_cwnd / 2, 2));
}

SEC("struct_ops")
void dctcp_set_state(u64 *ctx)
{
	if (ARGUMENT(ctx) == TCP_CA_Recovery)
		halve(SOCKET(ctx));
}

SEC("struct_ops")
void dctcp_cong_avoid(u64 *ctx)
{
	grow_as_reno(SOCKET(ctx), ACKED(ctx));
}

SEC("struct_ops")
u32 dctcp_undo_cwnd(u64 *ctx)
{
	return window_before_reduction(SOCKET(ctx));
}

/* --- receiver -------------------------------------------------------------------------------- */

INLINE void echo(struct tcp_sock *tp, bool is_marked)
{
	if (is_marked)
		tp->ecn_flags |= TCP_ECN_DEMAND_CWR;
	else
		tp->ecn_flags &= ~TCP_ECN_DEMAND_CWR;
}

/*
 * A data packet came, marked or not. An ACK tells of all packets that it acknowledges, so that a
 * change first sends one for those before it, and another at once (section 3.2, figure 1).
 */
INLINE void packet_came(struct tcp_sock *tp, bool is_marked)
{
	struct dctcp *dctcp = STATE(tp, struct dctcp);

	if (dctcp->is_marked != is_marked) {
		if (tp->inet_conn.icsk_ack.pending & ICSK_ACK_TIMER) {
			echo(tp, dctcp->is_marked);
			bpf_tcp_send_ack(tp, dctcp->prior_rcv_nxt);
		}
		tp->inet_conn.icsk_ack.pending |= ICSK_ACK_NOW;
	}
	dctcp->prior_rcv_nxt = tp->rcv_nxt;
	dctcp->is_marked = is_marked;
	echo(tp, is_marked);
}

SEC("struct_ops")
void dctcp_cwnd_event(u64 *ctx)
{
	u32 event = ARGUMENT(ctx);

	if (event == CA_EVENT_ECN_IS_CE)
		packet_came(SOCKET(ctx), true);
	else if (event == CA_EVENT_ECN_NO_CE)
		packet_came(SOCKET(ctx), false);
	else if (event == CA_EVENT_LOSS)
		halve(SOCKET(ctx));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops lb_dctcp = {
	.init = dctcp_init,
	.in_ack_event = dctcp_in_ack_event,
	.cong_avoid = dctcp_cong_avoid,
	.ssthresh = dctcp_ssthresh,
	.set_state = dctcp_set_state,
	.cwnd_event = dctcp_cwnd_event,
	.undo_cwnd = dctcp_undo_cwnd,
	.name = "lb_dctcp",
	.flags = TCP_CONG_NEEDS_ECN,
};

SEC("license") const char terms[] = "Dual MIT/GPL";
