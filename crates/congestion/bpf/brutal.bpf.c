// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Brutal: a fixed rate that the user has chosen, whatever is lost.
 *
 * Unfair by design, and meant so: it gives way to nobody. On a link that is shared it takes its
 * rate from the others, and where it asks for more than the link has, it fills the queue and
 * resends what does not fit for as long as it has data. Only for links that are yours and whose
 * capacity you know.
 *
 * No paper. The idea is that of the congestion control of the same name in the Hysteria proxy
 * (2020): send faster by what is lost, so that what arrives is the rate. As there, the share that
 * arrives is measured over some seconds and no less than 0.8 of it is assumed, and the window is
 * twice the rate times the round trip. Written afresh.
 *
 * Whose rate, the first that there is:
 *
 *   1. the socket's own: SO_MAX_PACING_RATE (socket(7)). It stays what it is called, the highest
 *      rate at which the socket sends. The kernel itself does not see to that here (it leaves the
 *      pace to an algorithm that has cong_control), so this does: with such a rate, losses are not
 *      made up for, and 5 % loss brings 95 % of it. That is also what a link can carry whose
 *      capacity it is.
 *   2. the one given when this was loaded. It is what is to arrive: up to 1.25 times as much is
 *      sent.
 *   3. neither: FALLBACK_RATE.
 *
 * Rates are in bytes of payload, as the kernel's pacing counts: with 1448-byte segments, a link of
 * R bytes a second of IP packets carries 0.965 R.
 *
 * Response: none. The rate holds up to a loss of 20 % and is 1.25 (1 - p) of itself above.
 */
#include "tcp.h"

/*
 * Where nobody chose a rate, bytes a second: 1 Mbit/s. Little enough to harm no path of today, and
 * too little to be taken for a result.
 */
#define FALLBACK_RATE 125000ULL

/*
 * The highest rate, bytes a second: 10 TB/s, beyond every link, so that products with it fit into
 * 64 bits.
 */
#define MOST_RATE 10000000000000ULL

/*
 * How the share that arrives is measured: over so many intervals of so many microseconds, between 3
 * and 4 s. Long enough to have some packets at low rates, short enough to follow a change of the
 * weather.
 */
#define INTERVALS 4
#define INTERVAL_US 1000000

/* Fewer packets than this say nothing: one lost of 50 is 2 %. */
#define SAMPLE_PACKETS 50

/* The least share that is assumed, of 100: losses above are the rate's own doing more likely. */
#define LEAST_SHARE 80

/* The window holds so many round trips of the rate: what is lost is under way twice. */
#define ROUND_TRIPS 2

/*
 * The shortest round trip that the window is made for, microseconds. Segments leave in bundles of 1
 * ms (sk_pacing_shift); of these, one waits, one leaves, one arrives and one is being acknowledged.
 */
#define SHORTEST_RTT_US 2000

/* The least window, packets: the initial one (RFC 6928). */
#define LEAST_WINDOW 10

struct count {
	u32 delivered; /* packets, in all */
	u32 lost;      /* packets, in all */
};

struct brutal {
	struct count begin[INTERVALS]; /* as it was when each interval began, the oldest first */
	u32 began_us;                  /* when the last of them began, microseconds */
};
FITS(struct brutal);

INLINE struct sock *sock_of(struct tcp_sock *tp)
{
	return &tp->inet_conn.icsk_inet.sk;
}

INLINE bool is_rate(u64 rate)
{
	return rate && rate != ~0UL;
}

/* What is asked for, bytes a second. */
INLINE u64 wanted_rate(struct tcp_sock *tp)
{
	u64 own = sock_of(tp)->sk_max_pacing_rate;

	if (is_rate(own))
		return MIN(own, MOST_RATE);
	return given.rate ? MIN(given.rate, MOST_RATE) : FALLBACK_RATE;
}

INLINE struct count counts(const struct tcp_sock *tp)
{
	struct count now = { .delivered = tp->delivered, .lost = tp->lost };

	return now;
}

/* Forgets the oldest interval when the one at hand is over. */
INLINE void count(const struct tcp_sock *tp, struct brutal *b)
{
	if (now_us(tp) - b->began_us < INTERVAL_US)
		return;
	b->began_us = now_us(tp);
	/* All are moved: the verifier wants to know each place in the socket beforehand. */
	for (int i = 0; i < INTERVALS - 1; i++)
		b->begin[i] = b->begin[i + 1];
	b->begin[INTERVALS - 1] = counts(tp);
}

/* Of 100 packets of the last seconds, how many arrived. */
INLINE u32 share_delivered(const struct tcp_sock *tp, const struct brutal *b)
{
	u64 delivered = tp->delivered - b->begin[0].delivered;
	u64 lost = tp->lost - b->begin[0].lost;

	if (delivered + lost < SAMPLE_PACKETS)
		return 100;
	return MAX(delivered * 100 / (delivered + lost), LEAST_SHARE);
}

/* The rate at which segments leave, bytes a second. */
INLINE u64 pace(struct tcp_sock *tp, const struct brutal *b)
{
	u64 own = sock_of(tp)->sk_max_pacing_rate;
	u64 rate = wanted_rate(tp) * 100 / share_delivered(tp, b);

	return is_rate(own) ? MIN(rate, own) : rate;
}

INLINE u32 window(const struct tcp_sock *tp, u64 rate)
{
	u64 rtt_us = MAX(tp->srtt_us >> 3, SHORTEST_RTT_US);
	u64 mss = MAX(tp->mss_cache, 1);
	/* Of the rate in kilobytes a second: the product of all fits into 64 bits. */
	u64 packets = ROUND_TRIPS * (rate / 1000) * rtt_us / (1000 * mss);

	return within_clamp(tp, MAX(MIN(packets, 1U << 30), LEAST_WINDOW));
}

SEC("struct_ops")
void brutal_init(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct brutal *b = STATE(tp, struct brutal);

	for (int i = 0; i < INTERVALS; i++)
		b->begin[i] = counts(tp);
	b->began_us = now_us(tp);
	if (sock_of(tp)->sk_pacing_status == SK_PACING_NONE)
		sock_of(tp)->sk_pacing_status = SK_PACING_NEEDED;
	sock_of(tp)->sk_pacing_rate = pace(tp, b);
}

SEC("struct_ops")
void brutal_cong_control(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct brutal *b = STATE(tp, struct brutal);
	u64 rate;

	count(tp, b);
	rate = pace(tp, b);
	sock_of(tp)->sk_pacing_rate = rate;
	/* Without a round trip the initial window remains. */
	if (tp->srtt_us)
		tp->snd_cwnd = window(tp, rate);
}

/* A loss changes nothing. */
SEC("struct_ops")
u32 brutal_ssthresh(u64 *ctx)
{
	return SOCKET(ctx)->snd_ssthresh;
}

SEC("struct_ops")
u32 brutal_undo_cwnd(u64 *ctx)
{
	return SOCKET(ctx)->snd_cwnd;
}

SEC(".struct_ops.link")
struct tcp_congestion_ops lb_brutal = {
	.init = brutal_init,
	.cong_control = brutal_cong_control,
	.ssthresh = brutal_ssthresh,
	.undo_cwnd = brutal_undo_cwnd,
	.name = "lb_brutal",
};

SEC("license") const char terms[] = "Dual MIT/GPL";
