// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * CUBIC: the window follows a cubic curve of the time since the last loss.
 *
 * RFC 9438, CUBIC for Fast and Long-Distance Networks (2023); its slow start ends by HyStart (Ha,
 * Rhee: Hybrid Slow Start for High-Bandwidth and Long-Distance Networks, 2008). Here to validate
 * the method: it has to behave as the kernel's own. Where the kernel differs from the RFC, this
 * does too:
 *
 * - The estimate of Reno's window grows by alpha for good (section 4.3 lets it grow by one packet
 *   once it has reached the window before the reduction).
 * - An undone reduction gives the window back, but not the curve that was followed (section 4.9).
 * - A timeout forgets the whole curve, the window of the last loss too (section 4.8 keeps it).
 * - Until the first loss the window grows by 5 % a round trip at most.
 * - HyStart is the original one, which ends slow start for good (RFC 9406, HyStart++, does it in
 *   stages and leaves the train of ACKs out). A round trip is too long when it is an eighth above
 *   the smallest, as RFC 9406 has it. A train of ACKs may be as long as half a round trip, or a
 *   whole one if packets are paced.
 *
 * Times are in milliseconds: the kernel's ticks are coarser.
 *
 * Response (RFC 9438, section 5.1): W = 1.054 * (RTT / p)^(3/4) packets at a loss rate of p, with
 * RTT in seconds, where that is more than Reno's W = 1.22 / sqrt(p).
 */
#include "tcp.h"

/* Of the window, what remains after a loss: 0.7 (section 4.6), in 1024ths. */
#define BETA_1024 717

/* alpha, Reno's growth with this beta: 3 * (1 - 0.7) / (1 + 0.7) packets a round trip (4.3). */
#define ALPHA_256 136

/*
 * C = 0.4 packets per cubic second (section 5) as a quotient, for times in milliseconds:
 * 0.4 / 1000^3 = 1 / 2,500,000,000.
 */
#define CUBIC_MS_PER_PACKET 2500000000ULL

/* The curve ends so far from its middle, so that the cube fits into 64 bits; milliseconds. */
#define LONGEST_MS 2100000

/* A window grows by half of itself a round trip at most (section 4.2), ACKed packets per packet. */
#define FASTEST 2

/* Until the first loss: by a twentieth, the same. The kernel's. */
#define FASTEST_BEFORE_LOSS 20

/* Where the curve is no higher than the window: by a hundredth. The kernel's, to keep probing. */
#define SLOWEST_PER_WINDOW 100

/*
 * Growth decided for a window holds while the window is the same, but only for the smallest round trip
 * and no longer than this, microseconds: 1 / 32 s. The kernel's.
 */
#define AIM_LASTS_US 31250

/* HyStart ends slow start at no smaller window, packets. Ha and Rhee, section 4. */
#define HYSTART_FROM 16

/* ACKs no further apart than this belong to one train, microseconds. Ha and Rhee, section 4. */
#define TRAIN_GAP_US 2000

/* So many round trips of a round are looked at, the smallest counts (RFC 9406, N_RTT_SAMPLE). */
#define ROUND_SAMPLES 8

/* By an eighth of the smallest a round trip is too long, within these, microseconds (RFC 9406). */
#define LEAST_INCREASE_US 4000
#define MOST_INCREASE_US 16000

/* What a receiver or a link may hold ACKs back, to send them as one, microseconds. The kernel's. */
#define MOST_HELD_BACK_US 1000

struct cubic {
	u64 epoch_us;     /* the curve began, microseconds; 0: it begins with the next ACK */
	u32 w_max;        /* window at the last loss, packets; 0: none yet */
	u32 origin;       /* window in the middle of the curve, packets */
	u32 k_ms;         /* from the beginning of the curve to its middle, milliseconds */
	u32 w_est;        /* Reno's window in this epoch, packets */
	u32 w_est_acked;  /* packets delivered that are not in w_est yet */
	u32 per;          /* packets to be delivered for one packet more */
	u32 aimed_from;   /* the window for which that was decided, packets */
	u32 aimed_us;     /* when, microseconds of 32 bits */
	u32 min_rtt_us;   /* the smallest round trip, microseconds; 0: none yet */
	u32 train_us;     /* the round began, microseconds of 32 bits */
	u32 train_end_us; /* the last ACK of the train came, the same */
	u32 round_end;    /* the round ends when this byte is acknowledged */
	u32 round_rtt_us; /* the smallest round trip of the round, microseconds */
	u8 round_samples; /* round trips seen in it, up to ROUND_SAMPLES */
	bool found;       /* HyStart has ended slow start */
};
FITS(struct cubic);

INLINE void begin_round(struct tcp_sock *tp, struct cubic *ca)
{
	ca->train_us = ca->train_end_us = now_us(tp);
	ca->round_end = tp->snd_nxt;
	ca->round_rtt_us = ~0U;
	ca->round_samples = 0;
}

SEC("struct_ops")
void cubic_init(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);

	begin_round(tp, STATE(tp, struct cubic));
}

INLINE void begin_epoch(struct tcp_sock *tp, struct cubic *ca)
{
	u32 window = tp->snd_cwnd;

	ca->epoch_us = tp->tcp_mstamp;
	ca->w_est = window;
	ca->w_est_acked = 0;
	if (window < ca->w_max) {
		ca->k_ms = cube_root((ca->w_max - window) * CUBIC_MS_PER_PACKET);
		ca->origin = ca->w_max;
	} else {
		ca->k_ms = 0;
		ca->origin = window;
	}
}

/* The window that the curve has one round trip from now, packets (figure 1). */
INLINE u32 window_of_curve(const struct tcp_sock *tp, const struct cubic *ca)
{
	u64 elapsed_ms = (tp->tcp_mstamp - ca->epoch_us + ca->min_rtt_us) / 1000;
	u64 distance_ms = elapsed_ms < ca->k_ms ? ca->k_ms - elapsed_ms : elapsed_ms - ca->k_ms;
	u64 packets;

	distance_ms = MIN(distance_ms, LONGEST_MS);
	packets = distance_ms * distance_ms * distance_ms / CUBIC_MS_PER_PACKET;
	if (elapsed_ms >= ca->k_ms)
		return MIN(ca->origin + packets, ~0U);
	return ca->origin - MIN(packets, ca->origin);
}

/* How many packets are to be delivered for one packet more, so that the window reaches a target. */
INLINE u32 packets_to(u32 window, u32 target)
{
	return target > window ? window / (target - window) : SLOWEST_PER_WINDOW * window;
}

/* Lets Reno's estimated window grow with the packets delivered (figure 4). */
INLINE void grow_estimate(struct cubic *ca, u32 window)
{
	u32 per = MAX(window * 256ULL / ALPHA_256, 1);

	ca->w_est += ca->w_est_acked / per;
	ca->w_est_acked %= per;
}

/* Decides how fast the window grows: as the curve does, or as Reno's if that is faster. */
INLINE void aim(struct tcp_sock *tp, struct cubic *ca)
{
	u32 window = tp->snd_cwnd;
	u32 per = packets_to(window, window_of_curve(tp, ca));

	if (!ca->w_max)
		per = MIN(per, FASTEST_BEFORE_LOSS);
	grow_estimate(ca, window);
	if (ca->w_est > window)
		per = MIN(per, packets_to(window, ca->w_est));
	ca->per = MAX(per, FASTEST);
	ca->aimed_from = window;
	ca->aimed_us = now_us(tp);
}

SEC("struct_ops")
void cubic_cong_avoid(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct cubic *ca = STATE(tp, struct cubic);
	u32 acked = left_by_slow_start(tp, ACKED(ctx));
	u32 window = tp->snd_cwnd;

	if (!acked)
		return;
	if (!ca->epoch_us)
		begin_epoch(tp, ca);
	ca->w_est_acked += acked;
	if (window != ca->aimed_from || now_us(tp) - ca->aimed_us > MIN(ca->min_rtt_us, AIM_LASTS_US))
		aim(tp, ca);
	grow_by_one_per(tp, ca->per, acked);
}

/* A loss: remembers where, and a lower place if the window was falling already (section 4.7). */
SEC("struct_ops")
u32 cubic_ssthresh(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct cubic *ca = STATE(tp, struct cubic);
	u32 window = tp->snd_cwnd;

	ca->epoch_us = 0;
	ca->w_max = window < ca->w_max ? (u64)window * (1024 + BETA_1024) / 2048 : window;
	return MAX((u64)window * BETA_1024 / 1024, 2);
}

/* A time without data to send is no time on the curve (section 5.8). */
INLINE void leave_out_pause(struct tcp_sock *tp)
{
	struct cubic *ca = STATE(tp, struct cubic);

	if (ca->epoch_us)
		ca->epoch_us = MIN(ca->epoch_us + idle_us(tp), tp->tcp_mstamp);
}

SEC("struct_ops")
void cubic_cwnd_event_tx_start(u64 *ctx)
{
	leave_out_pause(SOCKET(ctx));
}

SEC("struct_ops")
void cubic_cwnd_event(u64 *ctx)
{
	if (ARGUMENT(ctx) == CA_EVENT_TX_START)
		leave_out_pause(SOCKET(ctx));
}

SEC("struct_ops")
void cubic_set_state(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);

	if (ARGUMENT(ctx) != TCP_CA_Loss)
		return;
	*STATE(tp, struct cubic) = (struct cubic){};
	begin_round(tp, STATE(tp, struct cubic));
}

INLINE u32 held_back_us(u64 pace)
{
	/* Four segments as large as the kernel builds them: 64 KiB each. */
	return pace ? MIN(4 * 65536 * 1000000ULL / pace, MOST_HELD_BACK_US) : MOST_HELD_BACK_US;
}

/* A train of ACKs as long as the path one way: what the path holds is under way. */
INLINE bool train_is_long(struct tcp_sock *tp, struct cubic *ca)
{
	struct sock *sk = &tp->inet_conn.icsk_inet.sk;
	u32 now = now_us(tp);
	u32 longest = ca->min_rtt_us + held_back_us(sk->sk_pacing_rate);

	if (now - ca->train_end_us > TRAIN_GAP_US)
		return false;
	ca->train_end_us = now;
	if (sk->sk_pacing_status == SK_PACING_NONE)
		longest /= 2;
	return now - ca->train_us > longest;
}

/* The smallest round trip of this round is well above that of an empty path: a queue grows. */
INLINE bool rtt_is_long(struct cubic *ca, u32 rtt_us)
{
	u32 increase = MAX(ca->min_rtt_us / 8, LEAST_INCREASE_US);

	ca->round_rtt_us = MIN(ca->round_rtt_us, rtt_us);
	if (ca->round_samples < ROUND_SAMPLES) {
		ca->round_samples++;
		return false;
	}
	return ca->round_rtt_us > ca->min_rtt_us + MIN(increase, MOST_INCREASE_US);
}

INLINE void hystart(struct tcp_sock *tp, struct cubic *ca, u32 rtt_us)
{
	bool train;

	if (before(ca->round_end, tp->snd_una))
		begin_round(tp, ca);
	if (tp->snd_cwnd < HYSTART_FROM)
		return;
	train = train_is_long(tp, ca);
	if (rtt_is_long(ca, rtt_us) || train) {
		ca->found = true;
		tp->snd_ssthresh = tp->snd_cwnd;
	}
}

SEC("struct_ops")
void cubic_pkts_acked(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct cubic *ca = STATE(tp, struct cubic);
	s32 sample_us = SAMPLE(ctx)->rtt_us;
	u32 rtt_us = MAX(sample_us, 1);

	if (sample_us < 0)
		return;
	/* Just after a recovery a round trip may be that of a packet that waited for it. */
	if (ca->epoch_us && tp->tcp_mstamp - ca->epoch_us < 1000000)
		return;
	if (!ca->min_rtt_us || rtt_us < ca->min_rtt_us)
		ca->min_rtt_us = rtt_us;
	if (!ca->found && in_slow_start(tp))
		hystart(tp, ca, rtt_us);
}

SEC("struct_ops")
u32 cubic_undo_cwnd(u64 *ctx)
{
	return window_before_reduction(SOCKET(ctx));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops lb_cubic = {
	.init = cubic_init,
	.cong_avoid = cubic_cong_avoid,
	.ssthresh = cubic_ssthresh,
	.cwnd_event = cubic_cwnd_event,
	.cwnd_event_tx_start = cubic_cwnd_event_tx_start,
	.set_state = cubic_set_state,
	.pkts_acked = cubic_pkts_acked,
	.undo_cwnd = cubic_undo_cwnd,
	.name = "lb_cubic",
};

SEC("license") const char terms[] = "Dual MIT/GPL";
