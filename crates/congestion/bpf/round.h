/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Rounds and round trips, for algorithms that look at the path once a round.
 *
 * A round begins at some moment and ends when all that was sent until then is acknowledged: one
 * round trip, and one window of data. The packets acknowledged in a round were sent in the one
 * before it.
 *
 * The smallest round trip of the connection stands for the path with empty queues, and the
 * smallest of a round for the queue that was there all the round: the bursts of a window, and an
 * ACK that was delayed, do not show in it.
 */
#ifndef LASTBYTE_ROUND_H
#define LASTBYTE_ROUND_H

#include "tcp.h"

struct round {
	u32 end;         /* the round ends when this byte is acknowledged, a sequence number */
	u32 base_rtt_us; /* the smallest round trip ever, microseconds; 0: none yet */
	u32 min_rtt_us;  /* the smallest of this round, microseconds; 0: none yet */
	u32 samples;     /* round trips measured in this round */
};

/* Begins a round. The state of the connection is zero before its first. */
INLINE void round_begin(struct round *round, const struct tcp_sock *tp)
{
	round->end = tp->snd_nxt;
	round->min_rtt_us = 0;
	round->samples = 0;
}

/* As round_begin, on a path that may be another one than before: after an idle time. */
INLINE void round_begin_anew(struct round *round, const struct tcp_sock *tp)
{
	round->base_rtt_us = 0;
	round_begin(round, tp);
}

/*
 * Takes what pkts_acked is told. Returns the round trip, microseconds, for those who want more of
 * it; 0 if the ACK has none: it acknowledged a retransmission.
 */
INLINE u32 round_sample(struct round *round, const struct ack_sample *sample)
{
	s32 measured = sample->rtt_us;
	u32 rtt_us;

	if (measured < 0)
		return 0;
	/* Zero stands for none. */
	rtt_us = MAX((u32)measured, 1);
	if (!round->base_rtt_us || rtt_us < round->base_rtt_us)
		round->base_rtt_us = rtt_us;
	if (!round->min_rtt_us || rtt_us < round->min_rtt_us)
		round->min_rtt_us = rtt_us;
	round->samples++;
	return rtt_us;
}

/* Whether the round is over; the caller then looks at it and begins the next. */
INLINE bool round_is_over(const struct round *round, const struct tcp_sock *tp)
{
	return !before(tp->snd_una, round->end);
}

/*
 * Whether the round has round trips enough to judge the path by. All of two may be those of
 * delayed ACKs; of three, one came at once (RFC 5681 section 4.2: an ACK at least every second
 * segment).
 */
INLINE bool round_says_enough(const struct round *round)
{
	return round->samples > 2;
}

/* How much longer the round trips of this round were than the path's own, microseconds. */
INLINE u32 round_queueing_us(const struct round *round)
{
	return round->min_rtt_us - round->base_rtt_us;
}

/*
 * Of a window, the packets that are not under way but wait in a queue: rate times queueing time,
 * with the rate that the window makes at this round trip (Little's law).
 */
INLINE u32 packets_queued(u32 window, u32 rtt_us, u32 base_rtt_us)
{
	if (!rtt_us)
		return 0;
	return (u64)window * (rtt_us - base_rtt_us) / rtt_us;
}

/*
 * Whether a set_state call ends a reduction of the window, for a loss, a timeout or an ECN echo.
 * The kernel notes the new state after the call. What was measured before holds for another
 * window, so that a round begins then.
 */
INLINE bool reduction_ends(const struct tcp_sock *tp, u32 new_state)
{
	return new_state == TCP_CA_Open &&
	       BIT_FIELD(&tp->inet_conn, icsk_ca_state) >= TCP_CA_CWR;
}

#endif
