// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* HEADING */
#include "tcp.h"

/* --- constants ---------------------------------------------------------------------------------- */

/* Bandwidth is in packets a microsecond, times 2^BW_SHIFT: from 0.06 a second to 256 a microsecond. */
#define BW_SHIFT 24

/* Gains are in units of 1 / 256. */
#define GAIN_SHIFT 8
#define STARTUP_PACING_GAIN 709 /* 2.77 = 4 ln 2, the least that doubles the rate each round */
#define DRAIN_PACING_GAIN 128   /* 0.5: what Startup's window lets queue is gone within a round */
#define DOWN_PACING_GAIN 230    /* 0.9 */
#define CRUISE_PACING_GAIN 256  /* 1 */
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
 * So many losses in a round are never too many: a burst of three is one event, and of a small flight 2 %
 * are less than a packet. (The draft leaves Startup after 6 gaps and has no such bound elsewhere.)
 */
#define FEW_LOSSES 6

/* 0.5 %: what cruising may lose over LOSS_PACKETS beside the path's own loss. */
#define CRUISE_LOSS 20

/* Losses are judged over at least so many packets, and a round. */
#define LOSS_PACKETS 512

/* The most that is held for the path's own loss: lost for each delivered, 1 / 4096. 20 % of what is sent. */
#define MOST_LOSS_FLOOR 1024

/* The loss floor is measured over at least so many packets: one of them is 0.8 %. */
#define FLOOR_PACKETS 128

#define MIN_RTT_FILTER_US 10000000
#define PROBE_RTT_INTERVAL_US 5000000
#define PROBE_RTT_DURATION_US 200000

#define PROBE_WAIT_US 2000000        /* between two probes for bandwidth at least ... */
#define PROBE_WAIT_RANDOM_US 1000000 /* ... and up to so much more, ... */
#define RENO_ROUNDS 63               /* ... or so many rounds: what Reno needs for a 4K video */

#define FULL_BW_ROUNDS 3 /* Startup ends after so many rounds without growth ... */

#define EXTRA_ACKED_ROUNDS 5 /* half of the filter's 10 rounds: it has two slots */

#define NONE (~0U)

/* --- state -------------------------------------------------------------------------------------- */

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

/* Names as in the draft where it has them. A time is in microseconds of tcp_mstamp, and goes round. */
struct bbr {
	u32 max_bw[2];            /* highest bandwidth of the cycle before and of this one, 2^-24 packets/us */
	u32 bw_shortterm;         /* the bandwidth that losses have left, the same; NONE: all */
	u32 bw_latest;            /* highest bandwidth in this round, the same */
	u32 full_bw;              /* what growth is measured against, the same */
	u32 inflight_longterm;    /* packets in flight without too many losses; NONE: not known */
	u32 inflight_shortterm;   /* packets in flight that losses have left; NONE: all */
	u32 inflight_latest;      /* most packets delivered in one flight in this round */
	u32 min_rtt_us;           /* shortest round trip of 10 s; NONE: not known */
	u32 min_rtt_stamp;        /* when that was */
	u32 probe_rtt_min_us;     /* shortest round trip of 5 s; NONE: not known */
	u32 probe_rtt_min_stamp;  /* when that was */
	u32 next_round_delivered; /* the round ends when a packet is acknowledged that was sent after these */
	u32 window_lost;          /* tcp_sock.lost when the rounds began over which losses are judged */
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
	u16 extra_acked[2];       /* most packets beyond the expected; 5 to 10 rounds ago, and since */
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
	u8 is_bw_probe_sample : 1; /* what comes back was sent by a probe, and no loss of it was judged yet */
	u8 prev_probe_too_high : 1; /* the last probe lost too much */
	u8 up_shift : 3;          /* ProbeBW_UP adds 2^-up_shift to what is in flight in this round */
	u8 is_floor_round : 1;    /* what comes back in this round was sent in ProbeBW_DOWN */
	u8 probe_rtt_round_done : 1; /* a round of ProbeRTT's small flight is over */
	u8 has_seen_rtt : 1;      /* the pace was made from a round trip */
	u8 is_bound : 1;          /* ProbeBW_DOWN began with bw_shortterm, from a flight half before it */
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
	u32 bw;           /* its sample of the bandwidth, 2^-24 packets/us; 0: none */
	s32 rtt_us;       /* its round trip; negative: none */
	u32 in_flight;    /* packets in flight after it */
	u32 lost;         /* packets found lost since losses were last judged */
	u32 packets;      /* packets delivered or lost since */
	bool round_start; /* a round ended with it; what the round counted is still there */
	bool is_queueing; /* the shortest round trip of the round says that there is a queue */
	bool is_loss_high; /* more of the round was lost than LOSS_THRESH and the path's own loss explain */
};

/* --- the path ----------------------------------------------------------------------------------- */

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

/* --- rounds ------------------------------------------------------------------------------------- */

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
	u32 few = FEW_LOSSES + (b->loss_floor >> 4);

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
}

/* --- the model ---------------------------------------------------------------------------------- */

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
 * Judges a round whose packets were sent slower than the ones before: what is lost of them the path loses
 * by itself, if what arrives became less too. If as much arrives, it is the path that takes no more.
 */
INLINE void update_loss_floor(struct ack *a)
{
	struct bbr *b = a->b;
	u32 delivered = a->packets - a->lost;
	u32 sample;

	b->is_floor_round = 0;
	if (a->is_queueing)
		return;
	if (a->lost << SHARE_SHIFT > b->loss_floor * delivered && a->bw > b->full_bw - b->full_bw / 20)
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

/* Losses without a queue: a policer, or a queue too short to be seen. The rate is what got through. */
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

/* --- the states of ProbeBW ---------------------------------------------------------------------- */

INLINE void enter(struct ack *a, u32 state)
{
	a->b->state = state;
	a->b->phase_rounds = 0;
}

INLINE void start_probe_bw_down(struct ack *a)
{
	struct bbr *b = a->b;
	u32 random = bpf_get_prandom_u32();

	b->rounds_since_probe_up = random & 1;
	b->probe_stamp = a->now + PROBE_WAIT_US + random % PROBE_WAIT_RANDOM_US;
	b->ack_phase = ACKS_PROBE_STOPPING;
	b->is_floor_round = 0;
	b->is_bound = 0;
	enter(a, PROBE_BW_DOWN);
	start_round(a);
}

INLINE void start_probe_bw_cruise(struct ack *a)
{
	enter(a, PROBE_BW_CRUISE);
}

INLINE void start_probe_bw_refill(struct ack *a)
{
	reset_short_term_model(a->b);
	a->b->ack_phase = ACKS_REFILLING;
	enter(a, PROBE_BW_REFILL);
	start_round(a);
}

/* How much the next round of ProbeBW_UP may have in flight. */
INLINE void raise_up_cap(struct ack *a)
{
	struct bbr *b = a->b;
	u32 base = MAX(inflight(a, max_bw(b), 1 << GAIN_SHIFT), a->in_flight);

	b->up_cap = base + MAX(base >> b->up_shift, 1);
	if (b->inflight_longterm != NONE)
		b->inflight_longterm = MAX(b->inflight_longterm, b->up_cap);
}

INLINE void start_probe_bw_up(struct ack *a)
{
	struct bbr *b = a->b;

	b->ack_phase = ACKS_PROBE_STARTING;
	b->is_bw_probe_sample = 1;
	if (!a->rs->is_app_limited)
		advance_max_bw_filter(b);
	b->full_bw = b->bw_latest;
	b->up_rtt_us = a->tp->srtt_us >> 3;
	b->full_bw_count = 0;
	b->is_beside_others = b->up_rtt_us > beyond(a->tp, b->min_rtt_us, 2);
	b->up_shift = b->prev_probe_too_high ? 5 : b->is_beside_others ? 2 : 3;
	b->prev_probe_too_high = 0;
	enter(a, PROBE_BW_UP);
	raise_up_cap(a);
	start_round(a);
}

INLINE bool is_time_to_probe_bw(const struct ack *a)
{
	const struct bbr *b = a->b;
	u32 target = MIN(bdp_multiple(a, bw(b), 1 << GAIN_SHIFT), a->tp->snd_cwnd);

	return is_due(a->now, b->probe_stamp) ||
	       b->rounds_since_probe_up >= MIN(target, RENO_ROUNDS);
}

INLINE u32 inflight_with_headroom(const struct bbr *b)
{
	u32 limit = b->inflight_longterm;
	u32 headroom = MAX((u64)limit * HEADROOM >> SHARE_SHIFT, 1);

	if (limit == NONE)
		return NONE;
	return limit > headroom + MIN_PIPE_CWND ? limit - headroom : MIN_PIPE_CWND;
}

INLINE bool is_time_to_cruise(const struct ack *a)
{
	return a->b->phase_rounds >= 1 && a->in_flight <= inflight_with_headroom(a->b) &&
	       a->in_flight <= inflight(a, max_bw(a->b), 1 << GAIN_SHIFT);
}

/* Whether the probe's feedback says more bandwidth: 3 % of the 12.5 % that were added. */
INLINE bool has_grown(const struct bbr *b)
{
	return b->bw_latest >= b->full_bw + (b->full_bw >> 5);
}

INLINE bool is_time_to_go_down(struct ack *a)
{
	struct bbr *b = a->b;
	bool has_more = has_grown(b);

	if (b->ack_phase != ACKS_PROBE_FEEDBACK)
		return false;
	if (!has_more && !b->is_beside_others &&
	    a->tp->srtt_us >> 3 > beyond(a->tp, b->up_rtt_us, 4))
		return true;
	if (!a->round_start || b->phase_rounds < 2 || a->rs->is_app_limited)
		return false;
	if (b->up_shift <= 3 && !has_more) {
		b->full_bw_count++;
		if (!b->is_beside_others || b->full_bw_count == FULL_BW_ROUNDS)
			return true;
	}
	b->full_bw = MAX(b->bw_latest, b->full_bw);
	b->up_shift = MAX(b->up_shift - 1, b->is_beside_others ? 2 : 1);
	raise_up_cap(a);
	return false;
}

/*
 * What the bandwidth was bounded to was a guess: the flight was half from before. A round later all of it
 * was sent too fast, and what arrived of it is what the path delivers. Returns whether that is much less:
 * then it slows down anew.
 */
INLINE bool is_still_too_fast(struct ack *a)
{
	struct bbr *b = a->b;
	u32 guess = b->bw_shortterm;

	if (!b->is_bound || !a->is_loss_high || a->is_queueing || !a->bw)
		return false;
	b->is_bound = 0;
	b->bw_shortterm = MAX(a->bw, guess / 2);
	if (b->bw_shortterm > guess - guess / 20)
		return false;
	enter(a, PROBE_BW_DOWN);
	return true;
}

INLINE void update_probe_bw_cycle_phase(struct ack *a)
{
	struct bbr *b = a->b;

	if (a->round_start && b->is_floor_round)
		update_loss_floor(a);
	if (a->round_start && b->ack_phase == ACKS_PROBE_STARTING) {
		b->ack_phase = ACKS_PROBE_FEEDBACK;
	} else if (a->round_start && b->ack_phase == ACKS_PROBE_STOPPING && !is_still_too_fast(a)) {
		b->is_bw_probe_sample = 0;
		b->ack_phase = ACKS_INIT;
		b->is_floor_round = b->state == PROBE_BW_DOWN;
		b->full_bw = a->bw;
	}

	switch (b->state) {
	case PROBE_BW_DOWN:
		if (is_time_to_probe_bw(a))
			start_probe_bw_refill(a);
		else if (is_time_to_cruise(a))
			start_probe_bw_cruise(a);
		break;
	case PROBE_BW_CRUISE:
		if (is_time_to_probe_bw(a))
			start_probe_bw_refill(a);
		break;
	case PROBE_BW_REFILL:
		if (a->round_start)
			start_probe_bw_up(a);
		break;
	case PROBE_BW_UP:
		if (is_time_to_go_down(a))
			start_probe_bw_down(a);
		break;
	}
}

/* --- losses ------------------------------------------------------------------------------------- */

/* Cruising loses a little all the time: it is a little too fast. */
INLINE void trim_bw(struct ack *a)
{
	struct bbr *b = a->b;
	u64 usual = CRUISE_LOSS + 2 * (u64)b->loss_floor;

	if (b->state == PROBE_BW_CRUISE && (u64)a->lost << SHARE_SHIFT > usual * a->packets)
		b->bw_shortterm = (u64)bw(b) * (a->packets - a->lost) / a->packets;
}

/* Goes down to what got through, to see whether that helps. */
INLINE void slow_down(struct ack *a)
{
	bound_bw(a);
	start_probe_bw_down(a);
	a->b->is_bound = 1;
}

/* A probe lost too much. */
INLINE void handle_inflight_too_high(struct ack *a)
{
	struct bbr *b = a->b;
	u32 target = MIN(bdp_multiple(a, bw(b), 1 << GAIN_SHIFT), a->tp->snd_cwnd);

	b->prev_probe_too_high = 1;
	b->is_bw_probe_sample = 0;
	if (!a->is_queueing) {
		slow_down(a);
		return;
	}
	if (!a->rs->is_app_limited)
		b->inflight_longterm = MAX(b->inflight_latest, (u64)target * BETA >> SHARE_SHIFT);
	if (b->state == PROBE_BW_UP || b->state == PROBE_BW_REFILL)
		start_probe_bw_down(a);
}

INLINE void adapt_to_loss(struct ack *a)
{
	struct bbr *b = a->b;
	bool has_ce = a->tp->inet_conn.icsk_ca_state == TCP_CA_CWR;

	if (b->is_bw_probe_sample) {
		if (a->is_loss_high)
			handle_inflight_too_high(a);
		return;
	}
	/* What was sent before it slowed down, and what it learns the path's own loss from. */
	if (is_probing_bw(b) || b->ack_phase == ACKS_PROBE_STOPPING || b->is_floor_round)
		return;
	if (a->is_loss_high && !a->is_queueing) {
		if (b->state == PROBE_BW_CRUISE)
			slow_down(a);
		else if (a->round_start)
			bound_bw(a);
	} else if (a->round_start && (has_ce || a->is_loss_high || (a->lost && a->is_queueing))) {
		loss_lower_bounds(a);
	} else if (a->round_start && a->packets >= LOSS_PACKETS) {
		trim_bw(a);
	}
}

/* --- Startup and Drain -------------------------------------------------------------------------- */

INLINE void check_startup_done(struct ack *a)
{
	struct bbr *b = a->b;

	if (b->state != STARTUP || !a->round_start || a->rs->is_app_limited)
		return;
	if (max_bw(b) >= b->full_bw + (b->full_bw >> 2)) {
		b->full_bw = max_bw(b);
		b->full_bw_count = 0;
		return;
	}
	b->full_bw_count++;
	if (b->full_bw_count + a->is_loss_high < FULL_BW_ROUNDS && 4 * a->lost < a->packets &&
	    !a->is_queueing)
		return;
	if (a->is_loss_high && a->is_queueing)
		b->inflight_longterm = MAX(bdp_multiple(a, bw(b), 1 << GAIN_SHIFT), b->inflight_latest);
	else if (a->is_loss_high)
		bound_bw(a);
	b->full_bw_reached = 1;
	enter(a, DRAIN);
}

INLINE void check_drain_done(struct ack *a)
{
	if (a->b->state == DRAIN && (a->in_flight <= inflight(a, bw(a->b), 1 << GAIN_SHIFT) ||
				     a->b->phase_rounds > 3))
		start_probe_bw_down(a);
}

/* --- the round trip, and ProbeRTT --------------------------------------------------------------- */

INLINE bool update_min_rtt(struct ack *a)
{
	struct bbr *b = a->b;
	bool expired = is_due(a->now, b->probe_rtt_min_stamp + PROBE_RTT_INTERVAL_US);
	u32 rtt = a->rtt_us;

	if (a->rtt_us < 0)
		return expired;
	if (rtt < b->probe_rtt_min_us || (expired && !a->rs->is_ack_delayed)) {
		b->probe_rtt_min_us = rtt;
		b->probe_rtt_min_stamp = a->now;
	} else if (rtt - b->probe_rtt_min_us <= b->probe_rtt_min_us >> 5) {
		b->probe_rtt_min_stamp = a->now;
	}
	if (b->probe_rtt_min_us <= b->min_rtt_us + (b->min_rtt_us >> 5) ||
	    is_due(a->now, b->min_rtt_stamp + MIN_RTT_FILTER_US)) {
		if (b->probe_rtt_min_us < b->min_rtt_us ||
		    is_due(a->now, b->min_rtt_stamp + MIN_RTT_FILTER_US))
			b->min_rtt_us = MAX(b->probe_rtt_min_us, 1);
		b->min_rtt_stamp = b->probe_rtt_min_stamp;
	}
	return expired;
}

INLINE u32 probe_rtt_cwnd(const struct ack *a)
{
	return MAX(bdp_multiple(a, bw(a->b), PROBE_RTT_CWND_GAIN), MIN_PIPE_CWND);
}

INLINE void save_cwnd(struct tcp_sock *tp, struct bbr *b)
{
	if (b->prev_ca_state < TCP_CA_Recovery && b->state != PROBE_RTT)
		b->prior_cwnd = tp->snd_cwnd;
	else
		b->prior_cwnd = MAX(b->prior_cwnd, tp->snd_cwnd);
}

INLINE void exit_probe_rtt(struct ack *a)
{
	struct bbr *b = a->b;

	reset_short_term_model(b);
	a->tp->snd_cwnd = MAX(a->tp->snd_cwnd, b->prior_cwnd);
	b->probe_rtt_min_stamp = a->now;
	if (b->full_bw_reached) {
		start_probe_bw_down(a);
		start_probe_bw_cruise(a);
	} else {
		enter(a, STARTUP);
	}
}

INLINE void check_probe_rtt(struct ack *a, bool expired)
{
	struct bbr *b = a->b;

	if (b->state != PROBE_RTT && expired && !b->idle_restart) {
		save_cwnd(a->tp, b);
		enter(a, PROBE_RTT);
		b->probe_rtt_done_stamp = 0;
		b->ack_phase = ACKS_PROBE_STOPPING;
		start_round(a);
	}
	if (a->rs->delivered > 0)
		b->idle_restart = 0;
	if (b->state != PROBE_RTT)
		return;
	if (!b->probe_rtt_done_stamp) {
		if (a->in_flight > probe_rtt_cwnd(a))
			return;
		b->probe_rtt_done_stamp = (a->now + PROBE_RTT_DURATION_US) | 1;
		b->probe_rtt_round_done = 0;
		start_round(a);
		return;
	}
	if (a->round_start)
		b->probe_rtt_round_done = 1;
	if (b->probe_rtt_round_done && is_due(a->now, b->probe_rtt_done_stamp))
		exit_probe_rtt(a);
}

/* --- what it does about it ---------------------------------------------------------------------- */

INLINE u32 pacing_gain(const struct bbr *b)
{
	switch (b->state) {
	case STARTUP: return STARTUP_PACING_GAIN;
	case DRAIN: return DRAIN_PACING_GAIN;
	case PROBE_BW_DOWN: return DOWN_PACING_GAIN;
	case PROBE_BW_UP: return UP_PACING_GAIN;
	}
	return CRUISE_PACING_GAIN;
}

INLINE u32 cwnd_gain(const struct bbr *b)
{
	switch (b->state) {
	case PROBE_BW_UP: return UP_CWND_GAIN;
	case PROBE_RTT: return PROBE_RTT_CWND_GAIN;
	}
	return DEFAULT_CWND_GAIN;
}

INLINE void set_rate(struct tcp_sock *tp, struct bbr *b, u64 rate)
{
	struct sock *sk = sock_of(tp);

	rate = MIN(rate, sk->sk_max_pacing_rate);
	if (b->full_bw_reached || rate > sk->sk_pacing_rate)
		sk->sk_pacing_rate = rate;
}

INLINE void set_pacing_rate_with_gain(struct tcp_sock *tp, struct bbr *b, u32 gain)
{
	u64 rate = (u64)bw(b) * tp->mss_cache;

	rate = rate * gain >> GAIN_SHIFT;
	rate = rate * (1000000 / 100 * (100 - PACING_MARGIN_PERCENT)) >> BW_SHIFT;
	set_rate(tp, b, rate);
}

INLINE void init_pacing_rate(struct tcp_sock *tp, struct bbr *b)
{
	u64 rtt_us = tp->srtt_us ? MAX(tp->srtt_us >> 3, 1) : 1000;
	u64 rate = (u64)tp->snd_cwnd * tp->mss_cache * 1000000 / rtt_us;

	b->has_seen_rtt = tp->srtt_us != 0;
	sock_of(tp)->sk_pacing_rate = MIN(rate * STARTUP_PACING_GAIN >> GAIN_SHIFT,
					  sock_of(tp)->sk_max_pacing_rate);
}

INLINE void set_pacing_rate(struct ack *a)
{
	struct bbr *b = a->b;
	u32 gain = pacing_gain(b);

	if (!b->has_seen_rtt && a->tp->srtt_us)
		init_pacing_rate(a->tp, b);
	if (gain >= CRUISE_PACING_GAIN)
		gain = gain * sent_for_delivered(b) >> SHARE_SHIFT;
	if (bw(b))
		set_pacing_rate_with_gain(a->tp, b, gain);
}

INLINE u32 bound_for_model(const struct ack *a)
{
	const struct bbr *b = a->b;
	u32 cap = NONE;

	if (b->state == PROBE_BW_UP)
		cap = b->up_cap;
	else if (b->state == PROBE_RTT || b->state == PROBE_BW_CRUISE)
		cap = inflight_with_headroom(b);
	else if (is_in_probe_bw(b))
		cap = b->inflight_longterm;
	cap = MIN(cap, b->inflight_shortterm);
	if (b->state == PROBE_RTT)
		cap = MIN(cap, probe_rtt_cwnd(a));
	return MAX(cap, MIN_PIPE_CWND);
}

INLINE void set_cwnd(struct ack *a)
{
	struct tcp_sock *tp = a->tp;
	struct bbr *b = a->b;
	u32 acked = a->rs->acked_sacked;
	u32 window = tp->snd_cwnd;
	u32 max_inflight;

	if (!acked)
		return;
	max_inflight = bdp_multiple(a, bw(b), cwnd_gain(b));
	if (b->full_bw_reached)
		max_inflight += MAX(b->extra_acked[0], b->extra_acked[1]);
	max_inflight = quantization_budget(a, max_inflight);
	if (b->full_bw_reached)
		window = MIN(window + acked, max_inflight);
	else if (window < max_inflight || tp->delivered < 2 * 10)
		window += acked;
	window = MAX(window, MIN_PIPE_CWND);
	tp->snd_cwnd = within_clamp(tp, MIN(window, bound_for_model(a)));
}

/* --- what the kernel calls ---------------------------------------------------------------------- */

INLINE void leave_recovery(struct ack *a)
{
	struct bbr *b = a->b;
	u8 state = a->tp->inet_conn.icsk_ca_state;

	if (b->prev_ca_state >= TCP_CA_Recovery && state < TCP_CA_Recovery)
		a->tp->snd_cwnd = MAX(a->tp->snd_cwnd, b->prior_cwnd);
	b->prev_ca_state = state;
}

SEC("struct_ops")
void bbr_cong_control(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	const struct rate_sample *rs = RATE_SAMPLE(ctx);
	struct ack a = {
		.tp = tp,
		.b = STATE(tp, struct bbr),
		.rs = rs,
		.now = now_us(tp),
		.rtt_us = rs->rtt_us,
		.in_flight = packets_in_flight(tp),
	};
	bool expired;

	if (rs->delivered > 0 && rs->interval_us > 0)
		a.bw = ((u64)rs->delivered << BW_SHIFT) / (u64)rs->interval_us;
	update_round(&a);
	update_max_bw(&a);
	update_ack_aggregation(&a);
	leave_recovery(&a);
	if (a.round_start || a.rs->losses > 0)
		adapt_to_loss(&a);
	check_startup_done(&a);
	check_drain_done(&a);
	update_probe_bw_cycle_phase(&a);
	expired = update_min_rtt(&a);
	check_probe_rtt(&a, expired);
#ifdef TRACE
	if (a.round_start) {
		static const char f1[] = "B st %d ph %d bw %d";
		static const char f2[] = "B  max %d latest %d short %d";
		static const char f3[] = "B  lost %d of %d floor %d";
		static const char f4[] = "B  infl %d cwnd %d rtt %d";
		#define K(x) ((u64)(x) * 12000 >> 24) /* kbit/s-ish: pkt/us*12000 bit*1000 */
		static int (*const pr)(const char *, u32, ...) = (void *)6;
		pr(f1, sizeof(f1), a.b->state, a.b->ack_phase, K((u64)a.bw*1000));
		pr(f2, sizeof(f2), K((u64)max_bw(a.b)*1000), K((u64)a.b->bw_latest*1000), a.b->bw_shortterm == NONE ? -1 : K((u64)a.b->bw_shortterm*1000));
		pr(f3, sizeof(f3), a.lost, a.packets, a.b->loss_floor);
		pr(f4, sizeof(f4), a.in_flight, tp->snd_cwnd, a.b->round_min_rtt_us);
	}
#endif
	if (a.round_start)
		next_round(&a);
	set_pacing_rate(&a);
	set_cwnd(&a);
}

SEC("struct_ops")
void bbr_init(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct bbr *b = STATE(tp, struct bbr);
	u32 now = now_us(tp);

	b->max_bw[0] = 0;
	b->max_bw[1] = 0;
	reset_short_term_model(b);
	b->inflight_longterm = NONE;
	b->min_rtt_us = tp->srtt_us ? MAX(tp->srtt_us >> 3, 1) : NONE;
	b->min_rtt_stamp = now;
	b->probe_rtt_min_us = b->min_rtt_us;
	b->probe_rtt_min_stamp = now;
	b->next_round_delivered = tp->delivered;
	b->window_delivered = tp->delivered;
	b->window_lost = tp->lost;
	b->round_min_rtt_us = NONE;
	b->extra_acked_stamp = now;
	b->state = STARTUP;
	b->prev_ca_state = tp->inet_conn.icsk_ca_state;
	tp->snd_ssthresh = 0x7fffffff;
	if (sock_of(tp)->sk_pacing_status == SK_PACING_NONE)
		sock_of(tp)->sk_pacing_status = SK_PACING_NEEDED;
	init_pacing_rate(tp, b);
}

SEC("struct_ops")
void bbr_cwnd_event(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct bbr *b = STATE(tp, struct bbr);

	if (ARGUMENT(ctx) != CA_EVENT_TX_START || !tp->app_limited)
		return;
	b->idle_restart = 1;
	b->extra_acked_stamp = now_us(tp);
	b->extra_acked_delivered = 0;
	if (is_in_probe_bw(b))
		set_pacing_rate_with_gain(tp, b, CRUISE_PACING_GAIN);
}

/* Recovery begins, or a timeout, or an ECN echo: the window is to be remembered. */
SEC("struct_ops")
u32 bbr_ssthresh(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);

	save_cwnd(tp, STATE(tp, struct bbr));
	return tp->snd_ssthresh;
}

/* The losses were none. */
SEC("struct_ops")
u32 bbr_undo_cwnd(u64 *ctx)
{
	struct tcp_sock *tp = SOCKET(ctx);
	struct bbr *b = STATE(tp, struct bbr);

	b->window_lost = tp->lost;
	b->full_bw_count = 0;
	reset_short_term_model(b);
	return MAX(tp->snd_cwnd, b->prior_cwnd);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops lb_bbr = {
	.init = bbr_init,
	.cong_control = bbr_cong_control,
	.cwnd_event = bbr_cwnd_event,
	.ssthresh = bbr_ssthresh,
	.undo_cwnd = bbr_undo_cwnd,
	.name = "lb_bbr",
};

SEC("license") const char terms[] = "Dual MIT/GPL";
