// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * An algorithm, built for the host, on a random walk through what a kernel may ask of it.
 *
 * walk SEED STEPS ABOVE. Every step is one that the kernel could make: ACKs of any size with any
 * round trip, losses, timeouts, undone reductions, idle times, and another algorithm before this one.
 * Looked at is what holds for all: windows stay within sense, and nothing divides by zero (which ends
 * a program of the host; in the kernel it is 0). It prints a sum of all windows: the same, whatever
 * ABOVE is. If it is not 0, a pause ends as it does since Linux 7.1.
 *
 * ALGORITHM is the file to be included, TABLE its structure of functions.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What BPF has and the host has not. */
#define __builtin_preserve_enum_value(value, kind) 1
#define BIT_FIELD(object, field) ((object)->field)
#include "tcp.h"
#undef SEC
#define SEC(name) __attribute__((used))

static u64 seed;

static u32 chance(void)
{
	/* xorshift64*, Marsaglia 2003. */
	seed ^= seed >> 12;
	seed ^= seed << 25;
	seed ^= seed >> 27;
	return seed * 2685821657736338717ULL >> 32;
}

static u32 below(u32 limit)
{
	return limit ? chance() % limit : 0;
}

static long no_ack(struct tcp_sock *tp, u32 rcv_nxt)
{
	return (void)tp, (void)rcv_nxt, 0;
}

#define bpf_get_prandom_u32 chance
#define bpf_tcp_send_ack no_ack
#include ALGORITHM

/* --- the kernel's side ----------------------------------------------------------------------- */

#define MSS 1448
#define LARGEST_WINDOW 100000

static struct tcp_sock tp;
static u32 repaired_at; /* losses are repaired when this byte is acknowledged */
static u64 step;
/* Of an argument of 8 bits, what is above them: on x86 before Linux 6.6, anything. */
static u64 above;
/* Whether no round trip is known, which is what every second seed says. */
static bool is_blind;

static void fail(const char *what, u32 was, u32 is)
{
	printf("step %llu: %s: %u, then %u\n", step, what, was, is);
	exit(1);
}

#define CALL(function, ...)                                                                      \
	({                                                                                       \
		u64 arguments[] = { (u64)&tp, __VA_ARGS__ };                                     \
		if (TABLE.function)                                                              \
			TABLE.function(arguments);                                               \
	})
#define ASK(function)                                                                            \
	({                                                                                       \
		u64 arguments[] = { (u64)&tp };                                                  \
		TABLE.function(arguments);                                                       \
	})

static void enter(u32 state)
{
	CALL(set_state, state | above << 8);
	tp.inet_conn.icsk_ca_state = state;
}

static void begin(void)
{
	struct sock *sk = &tp.inet_conn.icsk_inet.sk;

	sk->sk_max_pacing_rate = below(2) ? ~0UL : 1UL << below(64);
	memset(tp.inet_conn.icsk_ca_priv, 0, sizeof tp.inet_conn.icsk_ca_priv);
	CALL(init, 0);
}

static u32 reduce(void)
{
	u32 window = tp.snd_cwnd;
	u32 threshold;

	tp.prior_cwnd = window;
	tp.prior_ssthresh = tp.snd_ssthresh;
	threshold = ASK(ssthresh);
	if (!TABLE.cong_control && (threshold < 2 || threshold > MAX(window, 2)))
		fail("ssthresh", window, threshold);
	/* Nothing but a round trip tells of more than RFC 5681 takes. */
	if (!TABLE.cong_control && is_blind && threshold < window / 2)
		fail("ssthresh without a round trip", window, threshold);
	repaired_at = tp.snd_nxt;
	return threshold;
}

static void lose(void)
{
	if (tp.inet_conn.icsk_ca_state >= TCP_CA_CWR)
		return;
	tp.lost += 1 + below(3);
	tp.snd_ssthresh = reduce();
	enter(below(4) ? TCP_CA_Recovery : TCP_CA_CWR);
}

static void time_out(void)
{
	if (tp.inet_conn.icsk_ca_state != TCP_CA_Loss) {
		tp.snd_ssthresh = reduce();
		CALL(cwnd_event, CA_EVENT_LOSS);
	}
	tp.lost += tp.packets_out;
	tp.snd_cwnd = 1;
	tp.snd_cwnd_cnt = 0;
	tp.tcp_mstamp += 200000 + below(1000000);
	enter(TCP_CA_Loss);
}

static void undo(void)
{
	u32 before = MAX(tp.snd_cwnd, tp.prior_cwnd);
	u32 window;

	if (tp.inet_conn.icsk_ca_state < TCP_CA_CWR)
		return;
	window = ASK(undo_cwnd);
	if (!TABLE.cong_control && window > before)
		fail("undo_cwnd", before, window);
	tp.snd_cwnd = window;
	tp.snd_ssthresh = MAX(tp.snd_ssthresh, tp.prior_ssthresh);
	enter(TCP_CA_Open);
}

static void pause_sending(void)
{
	tp.tcp_mstamp += below(20) ? below(1000000) : chance();
	tp.snd_una = tp.snd_nxt;
	tp.packets_out = 0;
	if (tp.inet_conn.icsk_ca_state != TCP_CA_Open)
		enter(TCP_CA_Open);
	if (below(2)) {
		u32 left = tp.snd_cwnd >> below(8);

		tp.snd_cwnd = MAX(left, MIN(tp.snd_cwnd, 10));
		CALL(cwnd_event, CA_EVENT_CWND_RESTART);
	}
	if (above)
		CALL(cwnd_event_tx_start, 0);
	else
		CALL(cwnd_event, CA_EVENT_TX_START);
}

static s32 round_trip(void)
{
	switch (is_blind ? 0 : below(16)) {
	case 0: return -1;
	case 1: return below(2);
	case 2: return below(10000000);
	}
	return 20000 + below(5000);
}

/* How much more than it had an ACK may give: for those that have a bound, a few packets each. */
static u32 most_of(u32 window, u32 acked)
{
	return BOUNDED ? window + 12 * acked + 2 : LARGEST_WINDOW;
}

static void avoid_congestion(u32 acked)
{
	u32 window = tp.snd_cwnd;

	CALL(cong_avoid, tp.snd_una, acked);
	if (tp.snd_cwnd > most_of(window, acked))
		fail("an ACK grew the window", window, tp.snd_cwnd);
}

static void acknowledge(void)
{
	u32 most = below(16) ? 4 : 1000;
	u32 acked = 1 + below(MIN(tp.packets_out, most));
	struct ack_sample sample = { .pkts_acked = acked, .rtt_us = round_trip() };
	bool repairs;

	tp.tcp_mstamp += below(30000);
	tp.delivered_mstamp = tp.tcp_mstamp;
	CALL(in_ack_event, below(8));
	tp.snd_una += acked * MSS;
	tp.packets_out -= acked;
	tp.delivered += acked;
	if (!below(4))
		tp.delivered_ce += acked;
	tp.rx_opt.saw_tstamp = below(1000) != 0;
	tp.rx_opt.rcv_tsval = tp.rx_opt.rcv_tsecr = tp.tcp_mstamp / 1000;
	if (sample.rtt_us > 0)
		tp.srtt_us += tp.srtt_us ? sample.rtt_us - tp.srtt_us / 8 : sample.rtt_us * 8u;
	sample.in_flight = below(8) ? tp.packets_out * MSS : 0;
	CALL(pkts_acked, (u64)&sample);
	if (tp.inet_conn.icsk_ca_state >= TCP_CA_CWR && !before(tp.snd_una, repaired_at)) {
		if (tp.inet_conn.icsk_ca_state != TCP_CA_Loss && !TABLE.cong_control) {
			tp.snd_cwnd = MIN(tp.snd_ssthresh, LARGEST_WINDOW);
			CALL(cwnd_event, CA_EVENT_COMPLETE_CWR);
		}
		enter(below(8) ? TCP_CA_Open : TCP_CA_Disorder);
	}
	repairs = tp.inet_conn.icsk_ca_state == TCP_CA_CWR ||
		  tp.inet_conn.icsk_ca_state == TCP_CA_Recovery;
	if (TABLE.cong_control) {
		u64 nothing[8] = {};

		CALL(cong_control, (u64)nothing, 0, (u64)nothing);
	} else if (!repairs) {
		avoid_congestion(acked);
	}
}

static void send_on(void)
{
	u32 free = tp.snd_cwnd > tp.packets_out ? tp.snd_cwnd - tp.packets_out : 0;
	u32 sent = below(8) ? free : below(free + 1);

	tp.packets_out += sent;
	tp.snd_nxt += sent * MSS;
	tp.write_seq = tp.snd_nxt;
	tp.is_cwnd_limited = sent == free;
	tp.max_packets_out = MAX(tp.packets_out, 1);
}

static bool is_paced_at_nothing(void)
{
	const struct sock *sk = &tp.inet_conn.icsk_inet.sk;

	return TABLE.cong_control && sk->sk_pacing_status != SK_PACING_NONE && !sk->sk_pacing_rate;
}

static void walk(void)
{
	u32 way = below(1000);

	send_on();
	if (!tp.packets_out)
		pause_sending();
	else if (way < 970)
		acknowledge();
	else if (way < 982)
		lose();
	else if (way < 986)
		time_out();
	else if (way < 992)
		undo();
	else if (way < 999)
		pause_sending();
	else
		begin();
	if (tp.snd_cwnd < 1 || tp.snd_cwnd > tp.snd_cwnd_clamp)
		fail("window", tp.snd_cwnd_clamp, tp.snd_cwnd);
	if (is_paced_at_nothing())
		fail("pace", 0, 0);
}

int main(int count, char **words)
{
	u64 steps, sum = 0;

	if (count != 4)
		return 2;
	seed = strtoull(words[1], 0, 10) * 2 + 1;
	is_blind = seed & 2;
	steps = strtoull(words[2], 0, 10);
	above = strtoull(words[3], 0, 10);
	tp.mss_cache = MSS;
	tp.snd_cwnd = 10;
	tp.snd_cwnd_clamp = LARGEST_WINDOW;
	tp.snd_ssthresh = 0x7fffffff;
	tp.tcp_mstamp = chance();
	/* Sequence numbers go round early. */
	tp.snd_una = tp.snd_nxt = -10000000;
	tp.rx_opt.tstamp_ok = 1;
	begin();
	for (step = 0; step < steps; step++) {
		walk();
		sum = sum * 31 + tp.snd_cwnd;
	}
	printf("%llu\n", sum);
	return 0;
}
