// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * BBR with bounded queues: sends at the bandwidth that it measures, probes for more every few
 * seconds, and tells what the path loses by itself from what its own sending loses.
 *
 * After "BBR Congestion Control", draft-ietf-ccwg-bbr (the text of August 2026, which describes
 * BBRv3); names are the draft's. It is not BBRv3: what differs is below, and why. Nor is it the
 * kernel's own bbr, which is version 1 (2016) and answers no loss.
 *
 * The states are the draft's. What each sends:
 *
 *   Startup   2.77 x bw, until a round brings less than 25 % more three times, or once with a queue
 *             or more than a quarter lost
 *   Drain     0.5 x bw, until no more is in flight than the path holds
 *   DOWN      0.9 x bw, for a round at least, and until the queue is gone
 *   CRUISE    1.0 x bw, for 2 to 3 s or 63 rounds
 *   REFILL    1.0 x bw, for a round, without the bounds that losses have set
 *   UP        1.25 x bw, as long as that brings more
 *   ProbeRTT  half a flight for 200 ms, after 5 s in which no round trip was near the shortest
 *
 * bw is the highest delivery rate of this cycle and the one before (max_bw), bounded by what losses
 * have left (bw_shortterm); the pace is 1 % less. In flight is at most 2 x bw x min_rtt, and
 * inflight_longterm once a probe has overrun a queue.
 *
 * What is lost is one of three things, and they ask for different answers:
 *
 *   A queue runs over. The shortest round trip of the round has grown by an eighth. The draft's
 *   answer: a probe that lost more than 2 % sets inflight_longterm; outside of probes each round
 *   with a loss bounds bw and what is in flight by what was delivered, and by no less than 0.7 of
 *   what they were.
 *
 *   The path loses at random (radio, long routes): as much when less is sent, and then less
 *   arrives. To slow down is for nothing. The share that is lost is measured in DOWN (loss_floor),
 *   where what is sent is less than what was delivered. It is no reason to slow down, and what is
 *   sent is more by as much, so that what arrives is bw: where the loss is before the bottleneck
 *   this fills it, and where it is behind, bw is less by the same share.
 *
 *   A policer, or a queue too short to be seen: when more is sent, as much arrives and the rest is
 *   lost. It is slowed down to what was delivered, and if that ends the losses, max_bw is
 *   forgotten.
 *
 * The last two look alike as long as the rate stays, so that losses without a queue beyond 2 % and
 * twice loss_floor begin DOWN (slow_down). The round after it tells: fewer losses, or the same
 * share and less delivered. If nothing less was delivered, it says nothing and loss_floor does not
 * rise; else losses would raise the rate, and the rate the losses.
 *
 * Other differences from the draft:
 *
 *   - UP puts an eighth of a flight more on the path in its first round, then a quarter, and so on.
 *     It ends when the round trip grows and the bandwidth does not (3 %), and not after three
 *     rounds of 1.25: the queue that a probe makes is a tenth of the path instead of three
 *     quarters. Where others keep a queue, it probes as the draft does, or it would get nothing
 *     beside CUBIC. This replaces the draft's precautionary probing: after an overrun, UP begins
 *     with 1/32.
 *   - ProbeRTT is put off not only by a shorter round trip but also by one within 1/32 of the
 *     shortest: alone on a path, DOWN empties the queue in each cycle, and ProbeRTT would cost 4 %
 *     at 200 ms.
 *   - The bandwidth filter advances when UP begins, not a round after its end: what was there
 *     before a probe is known then, for a probe that has to be taken back.
 *   - A loss counts for the round in which it was found. The draft keeps for each packet what was
 *     in flight and lost when it left (tx_in_flight), and the kernel has no such fields without
 *     patches; instead of its estimate at which packet it became too much, what was delivered in
 *     the last flight is taken (inflight_latest).
 *   - Losses that turn out to be none (undo) clear the short-term bounds. A state that was left for
 *     them is not entered again: the next probe is 3 s away at most.
 *   - ECN: a window reduction that the kernel has begun for an echo counts as an overrun queue. The
 *     draft leaves open how to answer. There is no finer answer here: rate_sample's count of marks
 *     is newer than the kernels this is for.
 *
 * What the interface (BPF struct_ops) does not allow, beside tx_in_flight: the mark that samples of
 * ProbeRTT are the application's limit (they cannot be the highest of a cycle, so that it is not
 * missed); and the size of bundles, which are the kernel's 1 ms of the pace, as the draft has it.
 *
 * The state takes 102 of the 104 bytes that a socket has for it: storage of its own (a map) would
 * cost a look-up with each ACK.
 *
 * Response: none to random losses up to 20 %. Elsewhere the delivered rate.
 */
#include "bbr.h"

/* --- the states of ProbeBW -------------------------------------------------------------------- */

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
 * What the bandwidth was bounded to was a guess: the flight was half from before. A round later all
 * of it was sent too fast, and what arrived of it is what the path delivers. Returns whether that
 * is much less: then it slows down anew.
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

/* --- losses ----------------------------------------------------------------------------------- */

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
	} else if (a->round_start && (a->is_loss_high || (a->lost && a->is_queueing))) {
		loss_lower_bounds(a);
	} else if (a->round_start && a->packets >= LOSS_PACKETS) {
		trim_bw(a);
	}
}

/* --- Startup and Drain ------------------------------------------------------------------------ */

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
		b->inflight_longterm =
			MAX(bdp_multiple(a, bw(b), 1 << GAIN_SHIFT), b->inflight_latest);
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

/* --- the round trip, and ProbeRTT ------------------------------------------------------------- */

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

/* --- what it does about it -------------------------------------------------------------------- */

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
	else if (window < max_inflight || tp->delivered < FIRST_PACKETS)
		window += acked;
	window = MAX(window, MIN_PIPE_CWND);
	tp->snd_cwnd = within_clamp(tp, MIN(window, bound_for_model(a)));
}

/* --- what the kernel calls -------------------------------------------------------------------- */

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
	tp->snd_ssthresh = NO_SSTHRESH;
	if (sock_of(tp)->sk_pacing_status == SK_PACING_NONE)
		sock_of(tp)->sk_pacing_status = SK_PACING_NEEDED;
	init_pacing_rate(tp, b);
}

INLINE void restart_from_idle(struct tcp_sock *tp)
{
	struct bbr *b = STATE(tp, struct bbr);

	if (!tp->app_limited)
		return;
	b->idle_restart = 1;
	b->extra_acked_stamp = now_us(tp);
	b->extra_acked_delivered = 0;
	if (is_in_probe_bw(b))
		set_pacing_rate_with_gain(tp, b, CRUISE_PACING_GAIN);
}

SEC("struct_ops")
void bbr_cwnd_event_tx_start(u64 *ctx)
{
	restart_from_idle(SOCKET(ctx));
}

SEC("struct_ops")
void bbr_cwnd_event(u64 *ctx)
{
	if (ARGUMENT(ctx) == CA_EVENT_TX_START)
		restart_from_idle(SOCKET(ctx));
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
	.cwnd_event_tx_start = bbr_cwnd_event_tx_start,
	.ssthresh = bbr_ssthresh,
	.undo_cwnd = bbr_undo_cwnd,
	.name = "lb_bbr",
};

SEC("license") const char terms[] = "Dual MIT/GPL";
