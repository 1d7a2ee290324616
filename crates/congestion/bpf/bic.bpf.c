// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * BIC: a binary search for the window of the last loss, and faster and faster beyond it.
 *
 * Xu, Harfoush, Rhee: Binary Increase Congestion Control (BIC) for Fast Long-Distance Networks
 * (IEEE INFOCOM 2004), with the paper's constants: a loss takes an eighth of the window, and a
 * round trip adds 32 packets at most. The kernel's takes a fifth and adds 16, goes
 * a quarter of the distance and not half of it, and lingers at the old maximum in its own way.
 *
 * Slow start after a timeout, which the paper leaves open, goes to ssthresh, and the search is then
 * for the window that timed out.
 *
 * Response (section IV of the paper, a loss every 1 / p packets): with W the window at the loss,
 *
 *   N1 = max(ceil(W / 8 / 32) - 2, 0)         round trips of 32 packets more each,
 *   N2 = log2((W / 8 - 32 * N1) / 0.01) + 2   round trips of binary search, and
 *   Y  = (7 / 4 * W + 32 * (N1 - 1)) * N1 / 2 + W * N2 - 2 * (W / 8 - 32 * N1) + 0.01
 *
 * packets between losses: p = 1 / Y, and the mean window is Y / (N1 + N2). That is 83, 653 and 3640
 * packets at p = 0.1, 0.01 and 0.001 %, and sqrt(16 * 15 / p) for much larger windows. Independent
 * losses, whose distances vary, leave up to twice that: growth beyond the old maximum is exponential.
 */
#include "tcp.h"

/* Up to this window, Reno: low_window, packets. */
#define LOW_WINDOW 14

/* The window grows by no more a round trip: S_max, 32 packets. */
#define FASTEST_256 (32 * 256)

/* And by no less, until the old maximum is reached: S_min, 0.01 packets. */
#define SLOWEST_256 3

/* What is given up at a loss: the paper's beta = 0.125. */
#define GIVEN_UP_PER_WINDOW 8

struct bic {
	u32 max_window; /* window at the last loss, or lower (fast convergence), packets; 0: none yet */
};
FITS(struct bic);

/* From the window, with its fraction, to one of whole packets above it; in 256ths of a packet. */
INLINE u64 distance_256(const struct tcp_sock *tp, u32 target)
{
	u32 window = MAX(tp->snd_cwnd, 1);
	u64 distance = (u64)(target - window) * 256;

	return distance - MIN(tp->snd_cwnd_cnt / window, distance);
}

/* Beyond the old maximum: a packet a round trip, then two, four and so on, up to the fastest. */
INLINE u32 probing_256(u32 beyond)
{
	u32 growth = 256;

	for (int doubled = 0; doubled < 5; doubled++) {
		if (beyond + 1 >= 2U << doubled)
			growth = 512U << doubled;
	}
	return growth;
}

INLINE u32 growth_256(const struct tcp_sock *tp, const struct bic *ca)
{
	u32 window = tp->snd_cwnd;
	u64 half;

	if (window < LOW_WINDOW)
		return 256;
	if (window >= ca->max_window)
		return probing_256(window - ca->max_window);
	half = distance_256(tp, ca->max_window) / 2;
	return MIN(MAX(half, SLOWEST_256), FASTEST_256);
}

SEC("struct_ops")
void bic_cong_avoid(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	u32 acked = left_by_slow_start(tp, ACKED(ctx));

	if (acked)
		grow_per_round_trip(tp, growth_256(tp, STATE(tp, struct bic)), acked);
}

/* A loss: remembers where, and the middle of what is left if the window was falling already. */
SEC("struct_ops")
u32 bic_ssthresh(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct bic *ca = STATE(tp, struct bic);
	u32 window = tp->snd_cwnd;
	u32 reduced = window - window / GIVEN_UP_PER_WINDOW;

	if (window < LOW_WINDOW)
		return half_of_window(tp);
	ca->max_window = window < ca->max_window ? (window + reduced) / 2 : window;
	return reduced;
}

SEC("struct_ops")
u32 bic_undo_cwnd(u64 *ctx)
{
	return window_before_reduction(SOCKET(ctx));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops lb_bic = {
	.cong_avoid = bic_cong_avoid,
	.ssthresh = bic_ssthresh,
	.undo_cwnd = bic_undo_cwnd,
	.name = "lb_bic",
};

SEC("license") const char terms[] = "Dual MIT/GPL";
