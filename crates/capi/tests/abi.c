/*
 * The promise of lastbyte.h: sizes, places and numbers that a program was built with. C and C++. A
 * line here may be added, never changed, as long as the library is called liblastbyte.so.0.
 */
#include <lastbyte.h>
#include <stdio.h>
#include <string.h>

/* Does not compile unless it holds. */
#define PROMISE(name, holds) typedef char promise_##name[(holds) ? 1 : -1]

PROMISE(receipt, sizeof(struct lb_receipt) == 112);
PROMISE(level, offsetof(struct lb_receipt, level) == 0);
PROMISE(peer, offsetof(struct lb_receipt, peer) == 4);
PROMISE(why, offsetof(struct lb_receipt, why) == 8);
PROMISE(error, offsetof(struct lb_receipt, error) == 12);
PROMISE(written, offsetof(struct lb_receipt, written) == 16);
PROMISE(sent, offsetof(struct lb_receipt, sent) == 24);
PROMISE(acked, offsetof(struct lb_receipt, acked) == 32);
PROMISE(unacked, offsetof(struct lb_receipt, unacked) == 40);
PROMISE(drained, offsetof(struct lb_receipt, drained) == 48);
PROMISE(took, offsetof(struct lb_receipt, took_us) == 56);

PROMISE(options, sizeof(struct lb_options) == 64);
PROMISE(want, offsetof(struct lb_options, want) == 0);
PROMISE(timeout, offsetof(struct lb_options, timeout_ms) == 4);
PROMISE(drain, offsetof(struct lb_options, drain_limit) == 8);
PROMISE(counted, offsetof(struct lb_options, written) == 16);
PROMISE(bytes_read, offsetof(struct lb_options, bytes_read) == 24);

PROMISE(info, sizeof(struct lb_info) == 200);
PROMISE(state, offsetof(struct lb_info, state) == 0);
PROMISE(mss, offsetof(struct lb_info, snd_mss) == 4);
PROMISE(rtt, offsetof(struct lb_info, rtt_us) == 8);
PROMISE(last, offsetof(struct lb_info, sndbuf_limited_us) == 128);

PROMISE(dial_options, sizeof(struct lb_dial_options) == 32 + 3 * sizeof(void *) + 40);
PROMISE(dial_timeout, offsetof(struct lb_dial_options, timeout_ms) == 0);
PROMISE(dial_family, offsetof(struct lb_dial_options, family) == 4);
PROMISE(dial_resolver, offsetof(struct lb_dial_options, resolver) == 8);
PROMISE(dial_delay, offsetof(struct lb_dial_options, attempt_delay_ms) == 12);
PROMISE(dial_send, offsetof(struct lb_dial_options, send_buffer) == 16);
PROMISE(dial_receive, offsetof(struct lb_dial_options, receive_buffer) == 20);
PROMISE(dial_mark, offsetof(struct lb_dial_options, mark) == 24);
PROMISE(dial_mptcp, offsetof(struct lb_dial_options, mptcp) == 28);
PROMISE(dial_congestion, offsetof(struct lb_dial_options, congestion) == 32);
PROMISE(dial_source, offsetof(struct lb_dial_options, source) == 32 + sizeof(void *));
PROMISE(dial_interface, offsetof(struct lb_dial_options, interface) == 32 + 2 * sizeof(void *));

PROMISE(dialed, sizeof(struct lb_dialed) == 712);
PROMISE(dialed_error, offsetof(struct lb_dialed, error) == 0);
PROMISE(dialed_why, offsetof(struct lb_dialed, why) == 4);
PROMISE(dialed_family, offsetof(struct lb_dialed, family) == 8);
PROMISE(dialed_attempts, offsetof(struct lb_dialed, attempts) == 12);
PROMISE(dialed_took, offsetof(struct lb_dialed, took_us) == 16);
PROMISE(dialed_peer, offsetof(struct lb_dialed, peer) == 24);
PROMISE(dialed_local, offsetof(struct lb_dialed, local) == 88);
PROMISE(dialed_text, offsetof(struct lb_dialed, text) == 152);

PROMISE(levels, LB_LEVEL_NONE == 0 && LB_LEVEL_WRITTEN == 1 && LB_LEVEL_SENT == 2);
PROMISE(proofs, LB_LEVEL_ACKED == 3 && LB_LEVEL_CLOSED == 4 && LB_LEVEL_CONFIRMED == 5);
PROMISE(peers, LB_PEER_UNKNOWN == 0 && LB_PEER_OPEN == 1 && LB_PEER_FIN == 2);
PROMISE(gone, LB_PEER_RESET == 3 && LB_PEER_SILENT == 4);
PROMISE(ends, LB_END_UNKNOWN == 0 && LB_END_FIN == 1 && LB_END_RESET == 2);
PROMISE(proven, LB_WHY_PROVEN == 0 && LB_WHY_BAD_OPTIONS == 11);
PROMISE(families, LB_FAMILY_BOTH == 0 && LB_FAMILY_IPV4 == 4 && LB_FAMILY_IPV6 == 6);
PROMISE(resolvers, LB_RESOLVER_DNS == 0 && LB_RESOLVER_SYSTEM == 1);
PROMISE(undialed, LB_UNDIALED_CONNECTED == 0 && LB_UNDIALED_BAD_HOST == 1);
PROMISE(asked, LB_UNDIALED_BAD_PORT == 2 && LB_UNDIALED_BAD_OPTIONS == 3);
PROMISE(means, LB_UNDIALED_NO_RESOLVER == 4 && LB_UNDIALED_NO_EVENTS == 5);
PROMISE(names, LB_UNDIALED_NO_ADDRESS == 6 && LB_UNDIALED_NO_ANSWER == 7);
PROMISE(tried, LB_UNDIALED_ALL_FAILED == 8 && LB_UNDIALED_TIMED_OUT == 9);
PROMISE(broken, LB_UNDIALED_BROKEN == 10);

int main(void)
{
    struct lb_dial_options how = LB_DIAL_OPTIONS_INIT;
    struct lb_dialed dialed;
    struct lb_options options = LB_OPTIONS_INIT;
    struct lb_receipt receipt;
    struct lb_info info;
    char name[16];

    /* Each function is there to be linked. */
    if (lb_finish(-1, 0, NULL) != -1 || lb_finish_options(-1, &options, &receipt) != -1) return 1;
    if (lb_info(-1, &info) != -1 || lb_prepare(-1) != -1 || lb_ended(-1, 0) != -1) return 2;
    if (lb_congestion(-1, name, sizeof name) != -1 || lb_set_congestion(-1, "reno") != -1) return 3;
    if (lb_receipt_text(&receipt, NULL, 0) != (int)strlen("the descriptor is not open")) return 4;
    if (strcmp(lb_why_name(receipt.why), "the descriptor is not open") != 0) return 5;
    if (strcmp(lb_level_name(receipt.level), "none") != 0) return 6;
    if (strcmp(lb_peer_name(receipt.peer), "unknown") != 0) return 7;
    if (strcmp(lb_end_name(LB_END_RESET), "RST") != 0) return 8;
    if (lb_dial("", 80, &how, &dialed) != -1) return 9;
    if (strcmp(lb_undialed_name(dialed.why), "this can be no host") != 0) return 10;
    puts(lb_version());
    return 0;
}
