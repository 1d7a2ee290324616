/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What lb_bbr knows of the path: its constants, its state, and how ACKs change it. What it does
 * about it, and where all this is from, is in bbr.bpf.c.
 */
#ifndef LASTBYTE_BBR_H
#define LASTBYTE_BBR_H

#include "tcp.h"

/* --- constants: the draft's where nothing else is said ---------------------------------------- */

/*
 * Bandwidth is in packets a microsecond times 2^BW_SHIFT: from 0.06 a second to 256 a microsecond.
 */
#define BW_SHIFT 24

/* Gains are in units of 1 / 256. */
#define GAIN_SHIFT 8
#define STARTUP_PACING_GAIN 709 /* 2.77 = 4 ln 2, the least that doubles the rate each round */
#define DRAIN_PACING_GAIN 128   /* 0.5: what Startup's window lets queue is gone within a round */
#define DOWN_PACING_GAIN 230    /* 0.9: an eighth of a flight that queued is gone in 1.25 rounds */
#define CRUISE_PACING_GAIN 256  /* 1, and 1 in REFILL and ProbeRTT */
#define UP_PACING_GAIN 320      /* 1.25 */
#define DEFAULT_CWND_GAIN 512   /* 2 */
#define UP_CWND_GAIN 576        /* 2.25 */
#define PROBE_RTT_CWND_GAIN 128 /* 0.5 */

/* It paces at so many percent less than the bandwidth, so that queues shrink rather than grow. */
#define PACING_MARGIN_PERCENT 1

/* The least window, packets: two in flight and two being acknowledged. */
#define MIN_PIPE_CWND 4

/* Shares of packets are in units of 1 / 4096. */
#define SHARE_SHIFT 12
#define LOSS_THRESH 82 /* 2 %: more than this of a flight lost means that it was too much */
#define BETA 2867      /* 0.7: what a round of congestion leaves at least, as of CUBIC */
#define HEADROOM 614   /* 0.15: what cruising leaves free of inflight_longterm */

/*
 * Without a queue, so many losses in a round are never too many: a burst is one event, and 2 % of a
 * small flight are less than a packet. With one, the draft's 2 % are all: beside CUBIC in a queue
 * of one flight this is the difference between 78 and 60 % of the link. (The draft asks for 6 gaps
 * to leave Startup, and for none elsewhere.)
 */
#define FEW_LOSSES 6

/*
 * 0.5 %: what cruising may lose over LOSS_PACKETS beside the path's own loss. Delivery rates are
 * measured up to 3 % too high on a policed path (bundles of two at 20 Mbit/s), and that would be
 * lost for ever.
 */
#define CRUISE_LOSS 20

/*
 * Losses are judged over at least so many packets, and a round: 2 % of them are more than
 * FEW_LOSSES.
 */
#define LOSS_PACKETS 512

/*
 * The most that is held for the path's own loss, lost for each delivered, 1 / 4096: 20 % of what is
 * sent. As BBRv1, which sends up to 1.25 times what is delivered.
 */
#define MOST_LOSS_FLOOR 1024

/* The loss floor is measured over at least so many packets: one of them is 0.8 %. */
#define FLOOR_PACKETS 128

#define MIN_RTT_FILTER_US 10000000     /* two intervals of ProbeRTT */
#define PROBE_RTT_INTERVAL_US 5000000  /* the same for all, to drain a queue together */
#define PROBE_RTT_DURATION_US 200000   /* so long that flows of other round trips join */

#define PROBE_WAIT_US 2000000        /* between two probes for bandwidth, and ... */
#define PROBE_WAIT_RANDOM_US 1000000 /* ... up to so much more, at random: not all at once; */
#define RENO_ROUNDS 63               /* or so many rounds, fewer for small flights: as Reno grows */

/* Rounds without growth that mean a full path: fewer could be the receiver's window that grows. */
#define FULL_BW_ROUNDS 3

#define EXTRA_ACKED_ROUNDS 5 /* half of the filter's 10 rounds: it has two slots */

/* The least window until the first flight is back, packets delivered: the initial one, twice. */
#define FIRST_PACKETS 20

#define NONE (~0U)
#define NO_SSTHRESH 0x7fffffff

/* --- state ------------------------------------------------------------------------------------ */

enum state {
	STARTUP,
	DRAIN,
	PROBE_BW_DOWN,
	PROBE_BW_CRUISE,
	PROBE_BW_REFILL,
	PROBE_BW_UP,
	PROBE_RTT,
};

enum ack_phase {
	ACKS_INIT,           /* not probing */
	ACKS_REFILLING,      /* filling the pipe */
	ACKS_PROBE_STARTING, /* probing, and nothing of it has come back */
	ACKS_PROBE_FEEDBACK, /* what the probe sent is being acknowledged */
	ACKS_PROBE_STOPPING, /* no longer probing, but still being acknowledged */
};

/* Names as in the draft where it has them. Times are microseconds of tcp_mstamp, and go round. */
struct bbr {
	u32 max_bw[2];            /* highest before the last probe and since, 2^-24 packets/us */
	u32 bw_shortterm;         /* the bandwidth that losses have left, the same; NONE: all */
	u32 bw_latest;            /* highest bandwidth in this round, the same */
	u32 full_bw;              /* what growth, or less, is measured against, the same */
	u32 inflight_longterm;    /* packets in flight without too many losses; NONE: not known */
	u32 inflight_shortterm;   /* packets in flight that losses have left; NONE: all */
	u32 inflight_latest;      /* most packets delivered in one flight in this round */
	u32 min_rtt_us;           /* shortest round trip of 10 s; NONE: not known */
	u32 min_rtt_stamp;        /* when that was */
	u32 probe_rtt_min_us;     /* shortest round trip of 5 s; NONE: not known */
	u32 probe_rtt_min_stamp;  /* when that was */
	u32 next_round_delivered; /* the round ends with a packet that was sent after so many */
	u32 window_lost;          /* tcp_sock.lost when the rounds to be judged began */
	u32 window_delivered;     /* tcp_sock.delivered at that time */
	u32 round_min_rtt_us;     /* shortest round trip of this round; NONE: not known */
	u32 probe_stamp;          /* when to probe for bandwidth next */
	u32 prior_cwnd;           /* the window before recovery or ProbeRTT, packets */
	union {
		u32 up_cap;               /* packets in flight in ProbeBW_UP at most */
		u32 probe_rtt_done_stamp; /* when ProbeRTT ends; 0: not begun, too much in flight */
	};
	u32 up_rtt_us;            /* the smoothed round trip when ProbeBW_UP began */
	u32 extra_acked_stamp;    /* when the time began that extra_acked_delivered counts */
	u32 extra_acked_delivered; /* packets delivered since */
	u16 extra_acked[2];       /* most packets beyond the expected: 5 rounds ago, and since */
	u16 loss_floor;           /* the path's own loss: lost for each delivered, 1 / 4096 */
	u8 floor_lost;            /* packets lost of those counted for the next loss_floor */
	u8 floor_delivered;       /* packets delivered of these */
	u8 rounds_since_probe_up; /* rounds */
	u8 phase_rounds;          /* rounds that ended in this state; stays at 255 */
	u8 state : 4;             /* enum state */
	u8 ack_phase : 4;         /* enum ack_phase */
	u8 prev_ca_state : 3;     /* enum tcp_ca_state at the ACK before */
	u8 full_bw_count : 2;     /* rounds without growth in Startup */
	u8 full_bw_reached : 1;   /* Startup found the bandwidth */
	u8 is_bw_probe_sample : 1; /* what comes back is of a probe that was not too much yet */
	u8 prev_probe_too_high : 1; /* the last probe lost too much */
	u8 up_shift : 3;          /* ProbeBW_UP adds 2^-up_shift to what is in flight */
	u8 is_floor_round : 1;    /* what comes back in this round was sent in ProbeBW_DOWN */
	u8 probe_rtt_round_done : 1; /* a round of ProbeRTT's small flight is over */
	u8 has_seen_rtt : 1;      /* the pace was made from a round trip */
	u8 is_bound : 1;          /* ProbeBW_DOWN began with a guess of bw_shortterm */
	u8 is_beside_others : 1;  /* there was a queue before the probe began */
	u8 idle_restart : 1;      /* nothing was in flight when the last data was sent */
};
FITS(struct bbr);

/* What one ACK says. */
struct ack {
	struct tcp_sock *tp;
	struct bbr *b;
	const struct rate_sample *rs;
	u32 now;          /* microseconds of tcp_mstamp */
	u32 bw;           /* its sample of the bandwidth, 2^-24 pkt/us; 0: none */
	s32 rtt_us;       /* its round trip; negative: none */
	u32 in_flight;    /* packets in flight after it */
	u32 lost;         /* packets found lost since losses were last judged */
	u32 packets;      /* packets delivered or lost since */
	bool round_start; /* a round ended with it; what the round counted is still there */
	bool is_queueing; /* the shortest round trip of the round says that there is a queue */
	bool is_loss_high; /* more was lost than the path's own loss and LOSS_THRESH */
};

/* --- the path --------------------------------------------------------------------------------- */

INLINE struct sock *sock_of(struct tcp_sock *tp)
{
	return &tp->inet_conn.icsk_inet.sk;
}

/* Whether a time has come. */
INLINE bool is_due(u32 now, u32 stamp)
{
	return (s32)(now - stamp) >= 0;
}

INLINE u32 max_bw(const struct bbr *b)
{
	return MAX(b->max_bw[0], b->max_bw[1]);
}

/* BBR.bw: what is sent by. */
INLINE u32 bw(const struct bbr *b)
{
	return MIN(max_bw(b), b->bw_shortterm);
}

/* So many times (1 / 4096) what is to be delivered has to be sent, for the path's own loss. */
INLINE u32 sent_for_delivered(const struct bbr *b)
{
	return (1 << SHARE_SHIFT) + b->loss_floor;
}

/* Packets in flight for a gain (1 / 256) at a bandwidth, without what bundling needs. */
INLINE u32 bdp_multiple(const struct ack *a, u32 bandwidth, u32 gain)
{
	u64 packets = (u64)bandwidth * a->b->min_rtt_us >> (BW_SHIFT - SHARE_SHIFT);

	if (a->b->min_rtt_us == NONE)
		return a->tp->snd_cwnd;
	packets = packets * sent_for_delivered(a->b) >> SHARE_SHIFT;
	return (packets * gain >> (GAIN_SHIFT + SHARE_SHIFT)) + 1;
}

/* C.send_quantum: what leaves in one piece, packets: 1 ms of the rate, up to 64 KiB. */
INLINE u32 send_quantum(const struct ack *a)
{
	u32 packets = (u64)bw(a->b) * 1000 >> BW_SHIFT;

	return MAX(MIN(packets, 44), 2);
}

INLINE u32 quantization_budget(const struct ack *a, u32 inflight_cap)
{
	inflight_cap = MAX(inflight_cap, 3 * send_quantum(a));
	inflight_cap = MAX(inflight_cap, MIN_PIPE_CWND);
	return a->b->state == PROBE_BW_UP ? inflight_cap + 2 : inflight_cap;
}

INLINE u32 inflight(const struct ack *a, u32 bandwidth, u32 gain)
{
	return quantization_budget(a, bdp_multiple(a, bandwidth, gain));
}

INLINE bool is_in_probe_bw(const struct bbr *b)
{
	return b->state >= PROBE_BW_DOWN && b->state <= PROBE_BW_UP;
}

INLINE bool is_probing_bw(const struct bbr *b)
{
	return b->state == STARTUP || b->state == PROBE_BW_REFILL || b->state == PROBE_BW_UP;
}

/* --- rounds ----------------------------------------------------------------------------------- */

INLINE void reset_loss_window(struct ack *a)
{
	a->b->window_delivered = a->tp->delivered;
	a->b->window_lost = a->tp->lost;
}

/* Begins a round: it ends when something is acknowledged that is sent from now on. */
INLINE void begin_round(struct ack *a)
{
	struct bbr *b = a->b;

	b->next_round_delivered = a->tp->delivered;
	b->round_min_rtt_us = NONE;
	b->bw_latest = a->bw;
	b->inflight_latest = a->rs->delivered > 0 ? a->rs->delivered : 0;
}

/* Begins one in the midst of another. What was lost until now is no longer looked at. */
INLINE void start_round(struct ack *a)
{
	reset_loss_window(a);
	begin_round(a);
	a->round_start = false;
}

/* Begins the next one. Of small flights several are needed to judge losses. */
INLINE void next_round(struct ack *a)
{
	if (a->packets >= LOSS_PACKETS || a->b->is_floor_round)
		reset_loss_window(a);
	begin_round(a);
}

/* Whether so many lost packets are more than the path loses by itself. */
INLINE bool is_loss_high(const struct bbr *b, bool is_queueing, u32 lost, u32 packets)
{
	u64 threshold = LOSS_THRESH + (is_queueing ? 1 : 2) * (u64)b->loss_floor;
	u32 few = (is_queueing ? 0 : FEW_LOSSES) + (b->loss_floor >> 4);

	return lost > few && (u64)(lost - few) << SHARE_SHIFT > threshold * packets;
}

/* A round trip that is longer by more than 2^-shift and by more than round trips vary. */
INLINE u32 beyond(const struct tcp_sock *tp, u32 rtt_us, u32 shift)
{
	return rtt_us + MAX(rtt_us >> shift, tp->mdev_us >> 1);
}

INLINE void update_round(struct ack *a)
{
	struct bbr *b = a->b;
	const struct tcp_sock *tp = a->tp;

	b->bw_latest = MAX(b->bw_latest, a->bw);
	if (a->rs->delivered > 0)
		b->inflight_latest = MAX(b->inflight_latest, (u32)a->rs->delivered);
	if (a->rtt_us >= 0)
		b->round_min_rtt_us = MIN(b->round_min_rtt_us, (u32)a->rtt_us);
	a->round_start = a->rs->delivered > 0 &&
			 !before(a->rs->prior_delivered, b->next_round_delivered);
	if (a->round_start) {
		b->rounds_since_probe_up = MIN(b->rounds_since_probe_up + 1, 255);
		b->phase_rounds = MIN(b->phase_rounds + 1, 255);
	}
	a->is_queueing = b->round_min_rtt_us != NONE &&
			 b->round_min_rtt_us > beyond(tp, b->min_rtt_us, 3);
	a->lost = tp->lost - b->window_lost;
	a->packets = tp->delivered - b->window_delivered + a->lost;
	if (a->lost)
		a->is_loss_high = is_loss_high(
			b, a->is_queueing, a->lost,
			a->round_start ? a->packets : MAX(a->packets, a->rs->prior_in_flight));
	/* The window goes down for an ECN echo: the queue itself says that it is too long. */
	if (tp->inet_conn.icsk_ca_state == TCP_CA_CWR) {
		a->is_queueing = true;
		a->is_loss_high = true;
	}
}

/* --- the model -------------------------------------------------------------------------------- */

INLINE void update_max_bw(struct ack *a)
{
	struct bbr *b = a->b;

	if (a->bw && (!a->rs->is_app_limited || a->bw >= max_bw(b)))
		b->max_bw[1] = MAX(b->max_bw[1], a->bw);
}

/* The cycle before the last one is forgotten. */
INLINE void advance_max_bw_filter(struct bbr *b)
{
	if (!b->max_bw[1])
		return;
	b->max_bw[0] = b->max_bw[1];
	b->max_bw[1] = 0;
}

INLINE void forget_bw_beyond(struct bbr *b, u32 bandwidth)
{
	b->max_bw[0] = MIN(b->max_bw[0], bandwidth);
	b->max_bw[1] = MIN(b->max_bw[1], bandwidth);
}

INLINE void reset_short_term_model(struct bbr *b)
{
	b->bw_shortterm = NONE;
	b->inflight_shortterm = NONE;
}

INLINE void update_ack_aggregation(struct ack *a)
{
	struct bbr *b = a->b;
	u32 expected, extra;

	if (a->round_start && b->rounds_since_probe_up % EXTRA_ACKED_ROUNDS == 0) {
		b->extra_acked[0] = b->extra_acked[1];
		b->extra_acked[1] = 0;
	}
	expected = (u64)bw(b) * (a->now - b->extra_acked_stamp) >> BW_SHIFT;
	if (b->extra_acked_delivered <= expected) {
		b->extra_acked_delivered = 0;
		b->extra_acked_stamp = a->now;
		expected = 0;
	}
	b->extra_acked_delivered += a->rs->acked_sacked;
	extra = b->extra_acked_delivered - expected;
	extra = MIN(extra, a->tp->snd_cwnd);
	b->extra_acked[1] = MAX(b->extra_acked[1], MIN(extra, 0xffff));
}

/* Once a round: what a round of losses, while not probing, leaves. */
INLINE void loss_lower_bounds(struct ack *a)
{
	struct bbr *b = a->b;
	u32 bandwidth = MIN(b->bw_shortterm, max_bw(b));
	u32 window = MIN(b->inflight_shortterm, a->tp->snd_cwnd);

	b->bw_shortterm = MAX(b->bw_latest, (u64)bandwidth * BETA >> SHARE_SHIFT);
	if (a->is_queueing)
		b->inflight_shortterm = MAX(b->inflight_latest, (u64)window * BETA >> SHARE_SHIFT);
}

/*
 * Judges a round whose packets were sent slower than the ones before: what is lost of them the path
 * loses by itself, if what arrives became less too. If as much arrives, it is the path that takes
 * no more.
 */
INLINE void update_loss_floor(struct ack *a)
{
	struct bbr *b = a->b;
	u32 delivered = a->packets - a->lost;
	u32 sample;

	b->is_floor_round = 0;
	if (a->is_queueing)
		return;
	if (a->lost << SHARE_SHIFT > b->loss_floor * delivered &&
	    a->bw > b->full_bw - b->full_bw / 20)
		return;
	/* Slowing down did not help: it was for nothing. Or it did: the bandwidth was too much. */
	if (b->bw_shortterm != NONE) {
		if (a->lost << SHARE_SHIFT > LOSS_THRESH * a->packets)
			reset_short_term_model(b);
		else
			forget_bw_beyond(b, b->bw_shortterm);
	}
	if (b->floor_delivered + a->packets < FLOOR_PACKETS) {
		b->floor_lost += a->lost;
		b->floor_delivered += delivered;
		return;
	}
	sample = (u64)(b->floor_lost + a->lost) << SHARE_SHIFT;
	sample /= MAX(b->floor_delivered + delivered, 1);
	b->loss_floor = (b->loss_floor + MIN(sample, MOST_LOSS_FLOOR)) / 2;
	b->floor_lost = 0;
	b->floor_delivered = 0;
}

/* Losses without a queue: a policer, or a queue too short to be seen. The rate is what passed. */
INLINE void bound_bw(struct ack *a)
{
	struct bbr *b = a->b;
	u32 now = bw(b);
	u64 passed = (u64)now * (a->packets - a->lost) / MAX(a->packets, 1);

	/* A probe goes back to what it came from. Only later what passes can be measured. */
	if (b->state == PROBE_BW_UP && b->max_bw[0])
		passed = MIN(b->max_bw[0], now);
	else if (a->bw)
		passed = MIN(passed, a->bw);
	b->bw_shortterm = MAX(passed, now / 2);
}

#endif
