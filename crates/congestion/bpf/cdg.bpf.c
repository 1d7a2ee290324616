// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * CDG: backs off by chance, the more likely the faster the round trips become longer.
 *
 * Hayes, Armitage: Revisiting TCP congestion control using delay gradients, IFIP Networking 2011.
 * Once a round trip it compares the least and the largest round trip with those of the round
 * before. Their gradients, averaged over 8 rounds, let the window go down to 70 % with the
 * probability 1 - exp(-gradient / G): no threshold has to fit the path, and flows of all round
 * trips back off equally often. What lets it live beside flows that fill queues:
 * - back-offs that have no effect: after 5 in a row without a gradient below zero, the next 5 are
 *   let pass;
 * - the shadow window, which is the window as it would be without back-offs for delay: a loss
 *   takes half of that, so that what was given away for nothing comes back;
 * - losses that are none of a full queue, told by its state, leave the window alone
 *   (LOSS_TOLERANCE).
 *
 * Slow start ends by its gradients, not averaged, or by HyStart (Ha, Rhee: Taming the elephants:
 * new TCP slow start, Computer Networks 55(9), 2011), as in the second published form (Jonassen:
 * Implementing CAIA Delay-Gradient in Linux, University of Oslo, 2015).
 *
 * Differs from the paper, with that second form:
 * - LOSS_TOLERANCE is off: a queue that is wrongly thought not to be full would be kept full.
 * - The shadow window is twice the window at most, so that after a long time of back-offs a loss
 *   lets no burst of a window from long ago loose; and a loss does not make the window larger.
 * The average over 8 gradients is a difference of two round trips over 8, and that is how it is
 * kept.
 *
 * G is per round and growth is a packet per round, while noise has the same chance in each: where the
 * round trips vary by some milliseconds, be it by bursts of its own, the window settles at some tens
 * of packets, which on a path of hundreds of milliseconds is little.
 *
 * Response: none against loss that is given; with the tolerance off, at most Reno's.
 */
#include "tcp.h"

/* The paper's G, microseconds of gradient: as much of it means a back-off with 63 %. */
#define G_US 3000
/* Rounds that a gradient is averaged over. */
#define SMOOTHED_OVER 8
/* What stays of the window after a back-off, percent. */
#define AFTER_BACKOFF 70
/* Back-offs without effect in a row until the next are let pass, and how many are. */
#define WITHOUT_EFFECT 5
#define LET_PASS 5
/* Whether losses leave the window alone while the queue is not thought to be full. */
#define LOSS_TOLERANCE false
/* A gradient this small is none when the queue's state is told, microseconds: the timers' noise. */
#define NO_GRADIENT 64
/* HyStart: the window it begins at, packets; ACKs this close are a train, microseconds. */
#define HYSTART_LEAST_WINDOW 16
#define HYSTART_CLOSE 2000
/* HyStart: samples at a round's beginning, and how much later is too late, microseconds. */
#define HYSTART_SAMPLES 8
#define HYSTART_LEAST_ETA 4000
#define HYSTART_MOST_ETA 16000

enum queue {
	QUEUE_NOT_FULL = 0,
	QUEUE_FULL = 1,
};

/* The least and the largest round trip of a round, microseconds. */
struct extremes {
	u32 least;
	u32 most;
};

struct cdg {
	struct extremes rounds[SMOOTHED_OVER]; /* the last ones, the latest first */
	struct extremes now;                   /* of this round; least 0: nothing yet */
	u32 round_ends;                        /* the round is over when this byte is acknowledged */
	u32 shadow;                            /* shadow window, packets */
	u32 base_rtt;                          /* the least round trip of all, microseconds; 0: none */
	u32 train_from;                        /* when the first ACK of a train came, microseconds */
	u32 last_ack;                          /* when the last one came, microseconds */
	u8 known;                              /* so many of `rounds` are known */
	u8 without_effect;                     /* back-offs in a row, those let pass too */
	u8 samples;                            /* round trips seen in this round, at most 255 */
	u8 queue : 1;                          /* enum queue */
	u8 in_train : 1;                       /* all ACKs of this round were close to each other */
	u8 backed_off : 1;                     /* in the last round: its effect is not seen yet */
};
FITS(struct cdg);

/* How fast the two round trips grow, microseconds a round. */
struct gradients {
	s32 least;
	s32 most;
};

SEC("struct_ops")
void cdg_init(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct cdg *cdg = STATE(tp, struct cdg);

	cdg->round_ends = tp->snd_nxt;
	cdg->now.least = 0;
	cdg->known = 0;
	cdg->shadow = 0;
	cdg->base_rtt = 0;
	cdg->without_effect = 0;
	cdg->samples = 0;
	cdg->backed_off = 0;
	cdg->queue = QUEUE_NOT_FULL;
}

/* A signed number over a small positive one: BPF divides only what has no sign. */
INLINE s32 over(s32 number, u32 by)
{
	return number < 0 ? -(s32)((u32)-number / by) : (s32)((u32)number / by);
}

/* Since the round before, or on average since the oldest one that is kept. */
INLINE struct gradients gradients_of(const struct cdg *cdg, bool smoothed)
{
	struct extremes then = cdg->rounds[0];
	struct gradients found;
	u32 ago = 1;

	if (smoothed) {
		ago = MIN(cdg->known, SMOOTHED_OVER);
#pragma unroll
		for (u32 round = 1; round < SMOOTHED_OVER; round++)
			if (round < ago)
				then = cdg->rounds[round];
	}
	found.least = over(cdg->now.least - then.least, MAX(ago, 1));
	found.most = over(cdg->now.most - then.most, MAX(ago, 1));
	return found;
}

INLINE void keep_round(struct cdg *cdg)
{
#pragma unroll
	for (u32 round = SMOOTHED_OVER - 1; round > 0; round--)
		cdg->rounds[round] = cdg->rounds[round - 1];
	cdg->rounds[0] = cdg->now;
	cdg->known = MIN(cdg->known + 1, SMOOTHED_OVER);
}

/*
 * The largest round trips stop growing first when a queue is full: it cannot become longer, while
 * its shortest still does.
 */
INLINE void tell_queue(struct cdg *cdg, struct gradients smoothed)
{
	if (smoothed.least > NO_GRADIENT && smoothed.most <= NO_GRADIENT)
		cdg->queue = QUEUE_FULL;
	else if (smoothed.most < -NO_GRADIENT || smoothed.most > NO_GRADIENT)
		cdg->queue = QUEUE_NOT_FULL;
}

/*
 * exp(-gradient / G), 2^32 for 1. As 2^-x: the whole part of x shifts, and each bit of its fraction
 * multiplies.
 */
INLINE u32 chance_to_stay(u32 gradient_us)
{
	/* 2^(-1/2), 2^(-1/4), ... times 2^32. */
	static const u32 roots[] = { 3037000500u, 3611622603u, 3938502376u, 4112874773u,
				     4202935003u, 4248701965u, 4271771996u, 4283353945u };
	/* log2(e) times 2^8 is 369.33. */
	u64 x = (u64)gradient_us * 36933 / 100 / G_US;
	u64 chance = 0xffffffff;

	if (x >= 32 << 8)
		return 0;
#pragma unroll
	for (int bit = 0; bit < 8; bit++)
		if (x & (128 >> bit))
			chance = chance * roots[bit] >> 32;
	return chance >> (x >> 8);
}

INLINE bool backs_off(struct gradients gradients)
{
	s32 steepest = MAX(gradients.least, gradients.most);

	return steepest > 0 && bpf_get_prandom_u32() > chance_to_stay(steepest);
}

/* Says whether a back-off that was drawn is made, or one of those that are let pass. */
INLINE bool has_effect(struct cdg *cdg)
{
	cdg->without_effect++;
	if (cdg->without_effect > WITHOUT_EFFECT + LET_PASS)
		cdg->without_effect = 1;
	return cdg->without_effect <= WITHOUT_EFFECT;
}

INLINE void back_off(struct tcp_sock *tp, struct cdg *cdg)
{
	u32 window = (u64)tp->snd_cwnd * AFTER_BACKOFF / 100;

	cdg->shadow = MAX(cdg->shadow, tp->snd_cwnd);
	tp->snd_cwnd = MAX(window, 2);
	tp->snd_cwnd_cnt = 0;
	tp->snd_ssthresh = tp->snd_cwnd;
	cdg->backed_off = 1;
}

/* Once a round trip. */
INLINE void look(struct tcp_sock *tp, struct cdg *cdg)
{
	struct gradients smoothed = gradients_of(cdg, true);
	struct gradients used = gradients_of(cdg, !in_slow_start(tp));

	tell_queue(cdg, smoothed);
	if (smoothed.least < 0 || smoothed.most < 0)
		cdg->without_effect = 0;
	if (cdg->backed_off) {
		/* These round trips began before it. */
		cdg->backed_off = 0;
		return;
	}
	if (backs_off(used) && has_effect(cdg))
		back_off(tp, cdg);
}

INLINE void note_rtt(struct cdg *cdg, u32 rtt)
{
	if (!cdg->now.least) {
		cdg->now.least = rtt;
		cdg->now.most = rtt;
	}
	cdg->now.least = MIN(cdg->now.least, rtt);
	cdg->now.most = MAX(cdg->now.most, rtt);
	cdg->samples = MIN(cdg->samples + 1, 255);
	if (!cdg->base_rtt || rtt < cdg->base_rtt)
		cdg->base_rtt = rtt;
}

/*
 * Slow start is over when a train of ACKs lasts as long as half of a round trip (what was sent
 * fills the path then), or when the first packets of a round come later than those of others did.
 */
INLINE void hystart(struct tcp_sock *tp, struct cdg *cdg)
{
	u32 now = now_us(tp);
	u32 eta = MAX(MIN(cdg->base_rtt / 8, HYSTART_MOST_ETA), HYSTART_LEAST_ETA);
	bool is_over = false;

	if (cdg->in_train && now - cdg->last_ack <= HYSTART_CLOSE)
		is_over = now - cdg->train_from > cdg->base_rtt / 2;
	else
		cdg->in_train = 0;
	cdg->last_ack = now;
	if (cdg->samples == HYSTART_SAMPLES && cdg->now.least > cdg->base_rtt + eta)
		is_over = true;
	if (is_over && tp->snd_cwnd >= HYSTART_LEAST_WINDOW)
		tp->snd_ssthresh = tp->snd_cwnd;
}

INLINE void begin_round(struct tcp_sock *tp, struct cdg *cdg)
{
	cdg->round_ends = tp->snd_nxt;
	cdg->now.least = 0;
	cdg->samples = 0;
	cdg->train_from = now_us(tp);
	cdg->last_ack = cdg->train_from;
	cdg->in_train = 1;
}

SEC("struct_ops")
void cdg_pkts_acked(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct cdg *cdg = STATE(tp, struct cdg);
	s32 rtt = SAMPLE(ctx)->rtt_us;

	if (rtt <= 0)
		return;
	if (!before(tp->snd_una, cdg->round_ends)) {
		/* While losses are repaired the window is the kernel's. */
		bool may = BIT_FIELD(tp, inet_conn.icsk_ca_state) <= TCP_CA_Disorder;

		if (cdg->now.least) {
			if (cdg->known && may)
				look(tp, cdg);
			keep_round(cdg);
		}
		begin_round(tp, cdg);
	}
	note_rtt(cdg, rtt);
	if (in_slow_start(tp))
		hystart(tp, cdg);
}

SEC("struct_ops")
void cdg_cong_avoid(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct cdg *cdg = STATE(tp, struct cdg);
	u32 window = tp->snd_cwnd;

	grow_as_reno(tp, ACKED(ctx));
	/* The shadow window grows as much as the window does. */
	if (cdg->shadow)
		cdg->shadow = MIN(cdg->shadow + tp->snd_cwnd - window, 2 * tp->snd_cwnd);
}

SEC("struct_ops")
u32 cdg_ssthresh(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct cdg *cdg = STATE(tp, struct cdg);
	u32 window = MAX(tp->snd_cwnd, 2);

	if (LOSS_TOLERANCE && cdg->queue != QUEUE_FULL)
		return window;
	cdg->shadow = MIN(cdg->shadow / 2, window);
	return MAX(MAX(cdg->shadow, window / 2), 2);
}

SEC("struct_ops")
void cdg_set_state(u64 *ctx)
{
	struct cdg *cdg = STATE(SOCKET(ctx), struct cdg);

	/* A timeout: nothing of before holds. */
	if (ARGUMENT(ctx) == TCP_CA_Loss) {
		cdg->known = 0;
		cdg->shadow = 0;
		cdg->without_effect = 0;
		cdg->now.least = 0;
	}
}

SEC("struct_ops")
u32 cdg_undo_cwnd(u64 *ctx)
{
	return window_before_reduction(SOCKET(ctx));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops lb_cdg = {
	.init = cdg_init,
	.pkts_acked = cdg_pkts_acked,
	.cong_avoid = cdg_cong_avoid,
	.set_state = cdg_set_state,
	.ssthresh = cdg_ssthresh,
	.undo_cwnd = cdg_undo_cwnd,
	.name = "lb_cdg",
};

SEC("license") const char terms[] = "Dual MIT/GPL";
