/*
 * What lastbyte.h promises for descriptors that cannot be finished, peers that do not answer, and
 * pointers to nowhere: the errno by name, the receipt filled, the deadline kept, no descriptor left.
 *
 *     bad_input TOLERANCE_MS
 *
 * Prints a line for each case that failed; exit code 1 if there is one.
 */
#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <lastbyte.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* A deadline is missed only if it is missed this many times: the machine may be busy. */
#define TRIES 3

static int checks, failures;
static long tolerance_us;

/* --- saying what is expected ------------------------------------------------------------------ */

static void expect(int holds, const char *what, const char *detail)
{
    checks++;
    if (holds) return;
    failures++;
    printf("FAILED: %s: %s (errno %d, %s)\n", what, detail, errno, strerror(errno));
}

/* -1 and this errno. */
static void refused(const char *what, int returned, int expected)
{
    int named = errno;
    char detail[80];

    snprintf(detail, sizeof detail, "returned %d, expected -1 and %s", returned,
             strerror(expected));
    errno = named;
    expect(returned == -1 && errno == expected, what, detail);
}

static struct lb_receipt poisoned(void)
{
    struct lb_receipt receipt;
    memset(&receipt, 0x5a, sizeof receipt);
    return receipt;
}

/* Every field was filled, with numbers that the header has. */
static void filled(const char *what, const struct lb_receipt *receipt)
{
    size_t field;

    expect(strcmp(lb_level_name(receipt->level), "invalid") != 0, what, "level is filled");
    expect(strcmp(lb_peer_name(receipt->peer), "invalid") != 0, what, "peer is filled");
    expect(strcmp(lb_why_name(receipt->why), "invalid") != 0, what, "why is filled");
    expect(receipt->written == -1 || receipt->written == 5, what, "written is filled");
    expect(receipt->sent >= -1 && receipt->sent <= 5, what, "sent is filled");
    expect(receipt->acked >= -1 && receipt->acked <= 5, what, "acked is filled");
    expect(receipt->unacked >= -1 && receipt->unacked < 1 << 30, what, "unacked is filled");
    expect(receipt->drained >= 0 && receipt->drained < 1 << 30, what, "drained is filled");
    expect(receipt->took_us >= 0 && receipt->took_us < 60000000, what, "took_us is filled");
    for (field = 0; field < sizeof receipt->reserved / sizeof *receipt->reserved; field++)
        expect(receipt->reserved[field] == -1, what, "reserved is unknown");
}

/* lb_finish of what cannot be finished. */
static void no_finish(const char *what, int fd, int expected, int why)
{
    struct lb_receipt receipt = poisoned();
    int returned = lb_finish(fd, 5000, &receipt);

    refused(what, returned, expected);
    expect(receipt.error == expected, what, "the receipt has the errno");
    expect(receipt.why == why, what, lb_why_name(receipt.why));
    filled(what, &receipt);
    if (why >= LB_WHY_NOT_OPEN) expect(receipt.level == LB_LEVEL_NONE, what, "no level");
    refused(what, lb_finish(fd, 0, NULL), expected);
    refused(what, lb_finish_options(fd, NULL, NULL), expected);
}

static long now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000L + now.tv_nsec / 1000;
}

/* The deadline passes, at its time. Each try finds the connection as it was: what is not proven
 * cannot become so while nobody reads. */
static void late(const char *what, int fd, int timeout_ms, struct lb_receipt *receipt)
{
    char detail[120];
    long over = 0;
    int try;

    for (try = 0; try < TRIES; try++) {
        long begun = now_us();
        int returned;
        *receipt = poisoned();
        returned = lb_finish(fd, timeout_ms, receipt);
        over = now_us() - begun - timeout_ms * 1000L;
        refused(what, returned, ETIMEDOUT);
        filled(what, receipt);
        expect(over >= 0, what, "not before its time");
        if (over <= tolerance_us) break;
    }
    snprintf(detail, sizeof detail, "%ld us over %d ms, %d times", over, timeout_ms, try);
    expect(try < TRIES, what, detail);
    printf("%s: deadline of %d ms exceeded by %ld us (try %d)\n", what, timeout_ms, over, try + 1);
}

/* --- sockets to try it on --------------------------------------------------------------------- */

static int fatal(const char *what)
{
    perror(what);
    exit(2);
}

static int listener(struct sockaddr_in *address, int backlog)
{
    socklen_t length = sizeof *address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    memset(address, 0, sizeof *address);
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)address, length) != 0) return fatal("bind");
    if (listen(fd, backlog) != 0) return fatal("listen");
    if (getsockname(fd, (struct sockaddr *)address, &length) != 0) return fatal("getsockname");
    return fd;
}

/* Ours and the peer's end of a connection. */
static void connected(int *ours, int *peers)
{
    struct sockaddr_in address;
    int listening = listener(&address, 8);

    *ours = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(*ours, (struct sockaddr *)&address, sizeof address) != 0) fatal("connect");
    *peers = accept(listening, NULL, NULL);
    if (*peers < 0) fatal("accept");
    close(listening);
}

/* Writes until nothing more is taken, and some after it has settled. */
static void fill(int fd)
{
    static char bytes[65536];
    struct pollfd room = {fd, POLLOUT, 0};

    do {
        while (send(fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) continue;
    } while (poll(&room, 1, 100) > 0);
}

/* Closing it resets the connection. */
static void reset(int fd)
{
    struct linger at_once = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
}

static void await_state(int fd, int state)
{
    struct timespec moment = {0, 1000000};
    struct lb_info info;
    int look;

    for (look = 0; look < 10000; look++) {
        if (lb_info(fd, &info) == 0 && info.state == state) return;
        nanosleep(&moment, NULL);
    }
    printf("FAILED: the state never became %d\n", state);
    exit(1);
}

enum { ESTABLISHED = 1, SYN_SENT = 2, FIN_WAIT1 = 4, CLOSED = 7, CLOSE_WAIT = 8 };

/* --- the cases -------------------------------------------------------------------------------- */

static void what_is_no_connection(const char *file)
{
    struct sockaddr_in address;
    int pipes[2], fd;

    no_finish("-1", -1, EBADF, LB_WHY_NOT_OPEN);
    no_finish("INT_MIN", INT_MIN, EBADF, LB_WHY_NOT_OPEN);
    no_finish("INT_MAX", INT_MAX, EBADF, LB_WHY_NOT_OPEN);
    fd = dup(1);
    close(fd);
    no_finish("a closed descriptor", fd, EBADF, LB_WHY_NOT_OPEN);

    fd = open(file, O_RDONLY);
    no_finish("a file", fd, ENOTSOCK, LB_WHY_NO_SOCKET);
    close(fd);
    if (pipe(pipes) != 0) fatal("pipe");
    no_finish("a pipe", pipes[1], ENOTSOCK, LB_WHY_NO_SOCKET);
    close(pipes[0]);
    close(pipes[1]);

    fd = socket(AF_INET, SOCK_DGRAM, 0);
    no_finish("UDP", fd, EPROTOTYPE, LB_WHY_NO_STREAM);
    close(fd);
    fd = listener(&address, 8);
    no_finish("listening", fd, EINVAL, LB_WHY_LISTENING);
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    no_finish("TCP, not connected", fd, ENOTCONN, LB_WHY_NOT_CONNECTED);
    close(fd);
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    no_finish("Unix, not connected", fd, ENOTCONN, LB_WHY_NOT_CONNECTED);
    close(fd);
}

/* A listener whose queue is full answers no SYN. */
static void still_connecting(void)
{
    struct sockaddr_in address;
    struct lb_receipt receipt;
    struct lb_info info;
    int fds[16], count = 0, listening = listener(&address, 0);

    do {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        struct pollfd done = {fd, POLLOUT, 0};
        connect(fd, (struct sockaddr *)&address, sizeof address);
        poll(&done, 1, 200);
        fds[count++] = fd;
        if (lb_info(fd, &info) != 0) fatal("lb_info");
    } while (info.state != SYN_SENT && count < 16);

    if (info.state != SYN_SENT) {
        printf("NOT TESTED: no connection stayed in SYN_SENT\n");
    } else {
        late("SYN_SENT, 0 ms", fds[count - 1], 0, &receipt);
        expect(receipt.level == LB_LEVEL_WRITTEN, "SYN_SENT", "level");
        late("SYN_SENT, 200 ms", fds[count - 1], 200, &receipt);
        expect(receipt.why == LB_WHY_DEADLINE, "SYN_SENT", lb_why_name(receipt.why));
        expect(lb_info(fds[count - 1], &info) == 0 && info.state == SYN_SENT, "SYN_SENT",
               "it was not half-closed: that would throw pending bytes away");
    }
    while (count > 0) close(fds[--count]);
    close(listening);
}

static void ignore(int signal)
{
    (void)signal;
}

static void a_peer_that_never_reads(void)
{
    struct itimerval often = {{0, 3000}, {0, 3000}}, never = {{0, 0}, {0, 0}};
    struct sigaction interrupt;
    struct lb_receipt receipt;
    char text[200];
    int ours, peers;

    connected(&ours, &peers);
    fill(ours);
    late("never reads, 0 ms", ours, 0, &receipt);
    late("never reads, 200 ms", ours, 200, &receipt);
    expect(receipt.level == LB_LEVEL_WRITTEN, "never reads", lb_level_name(receipt.level));
    expect(receipt.unacked > 0, "never reads", "some bytes are left");
    expect(receipt.peer == LB_PEER_SILENT, "never reads", lb_peer_name(receipt.peer));
    lb_receipt_text(&receipt, text, sizeof text);
    expect(strncmp(text, "the deadline passed; written: ", 30) == 0, "never reads", text);

    /* Signals neither end the wait nor make it longer. */
    memset(&interrupt, 0, sizeof interrupt);
    interrupt.sa_handler = ignore;
    sigaction(SIGALRM, &interrupt, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    late("never reads, signals", ours, 200, &receipt);
    setitimer(ITIMER_REAL, &never, NULL);
    close(ours);
    close(peers);
}

static void a_peer_that_never_closes(void)
{
    struct lb_options options = LB_OPTIONS_INIT;
    struct lb_receipt receipt = poisoned();
    const char *what = "never closes";
    int ours, peers;

    connected(&ours, &peers);
    if (send(ours, "hello", 5, 0) != 5) fatal("send");
    expect(lb_finish(ours, 5000, &receipt) == 0, what, "its kernel has acknowledged all");
    expect(receipt.level == LB_LEVEL_ACKED && receipt.unacked == 0, what, "acked");
    expect(receipt.why == LB_WHY_PROVEN && receipt.error == 0, what, "proven");
    expect(receipt.peer == LB_PEER_OPEN, what, lb_peer_name(receipt.peer));
    filled(what, &receipt);
    expect(lb_finish(ours, 5000, NULL) == 0, what, "again, and without a receipt");

    options.want = LB_LEVEL_CLOSED;
    options.timeout_ms = 200;
    receipt = poisoned();
    refused("never closes, closed wanted", lb_finish_options(ours, &options, &receipt), ETIMEDOUT);
    expect(receipt.level == LB_LEVEL_ACKED, what, "acked all the same");
    close(ours);
    close(peers);
}

/* The peer resets once our FIN is queued behind bytes that it did not take. */
static void *reset_when_half_closed(void *both)
{
    int *ours_and_peers = both;
    await_state(ours_and_peers[0], FIN_WAIT1);
    reset(ours_and_peers[1]);
    return NULL;
}

static void a_peer_that_resets(void)
{
    struct lb_receipt receipt = poisoned();
    int both[2];
    pthread_t thread;

    connected(&both[0], &both[1]);
    fill(both[0]);
    if (pthread_create(&thread, NULL, reset_when_half_closed, both) != 0) fatal("thread");
    refused("a reset", lb_finish(both[0], 20000, &receipt), ECONNRESET);
    pthread_join(thread, NULL);
    expect(receipt.why == LB_WHY_RESET, "a reset", lb_why_name(receipt.why));
    expect(receipt.peer == LB_PEER_RESET, "a reset", lb_peer_name(receipt.peer));
    expect(receipt.level < LB_LEVEL_ACKED, "a reset", "not acked");
    filled("a reset", &receipt);
    close(both[0]);

    connected(&both[0], &both[1]);
    reset(both[1]);
    await_state(both[0], CLOSED);
    no_finish("reset before", both[0], ENOTCONN, LB_WHY_NOT_CONNECTED);
    close(both[0]);
}

static void options_are_looked_at(void)
{
    struct lb_options options = LB_OPTIONS_INIT;
    struct lb_receipt receipt = poisoned();
    char kept[16];
    int ours, peers;

    connected(&ours, &peers);
    options.want = LB_LEVEL_NONE;
    refused("no level wanted", lb_finish_options(ours, &options, &receipt), EINVAL);
    expect(receipt.why == LB_WHY_BAD_OPTIONS, "no level wanted", lb_why_name(receipt.why));
    filled("no level wanted", &receipt);
    options.want = 99;
    refused("level 99 wanted", lb_finish_options(ours, &options, NULL), EINVAL);
    options.want = LB_LEVEL_ACKED;
    options.reserved[3] = 1;
    refused("reserved is 1", lb_finish_options(ours, &options, NULL), EINVAL);
    expect(send(ours, "still open", 10, MSG_NOSIGNAL) == 10, "bad options", "nothing was done");

    options.reserved[3] = 0;
    options.drain_limit = 0;
    if (send(peers, "greeting", 8, 0) != 8) fatal("send");
    expect(lb_finish_options(ours, &options, &receipt) == 0, "keep", "proven");
    expect(receipt.drained == 0, "keep", "nothing was read");
    expect(recv(ours, kept, sizeof kept, 0) == 8, "keep", "the bytes are still there");
    if (send(peers, "greeting", 8, 0) != 8) fatal("send");
    expect(lb_finish(ours, 5000, &receipt) == 0, "drain", "proven");
    expect(receipt.drained == 8, "drain", "the bytes were read");

    close(ours);
    close(peers);
}

static void *close_when_half_closed(void *peers)
{
    await_state(*(int *)peers, CLOSE_WAIT);
    close(*(int *)peers);
    return NULL;
}

static void more_than_acked(void)
{
    struct lb_options options = LB_OPTIONS_INIT;
    struct lb_receipt receipt;
    int ours, peers, want;
    char bytes[5];
    pthread_t thread;

    for (want = LB_LEVEL_CLOSED; want <= LB_LEVEL_CONFIRMED; want++) {
        connected(&ours, &peers);
        lb_prepare(ours);
        if (send(ours, "hello", 5, 0) != 5) fatal("send");
        if (recv(peers, bytes, 5, MSG_WAITALL) != 5) fatal("recv");
        if (pthread_create(&thread, NULL, close_when_half_closed, &peers) != 0) fatal("thread");
        options.want = want;
        options.written = 5;
        options.bytes_read = 0;
        receipt = poisoned();
        if (want == LB_LEVEL_CLOSED)
            expect(lb_finish_options(ours, &options, &receipt) == 0, "closed wanted", "proven");
        else
            refused("confirmed wanted", lb_finish_options(ours, &options, &receipt), EOPNOTSUPP);
        expect(receipt.level == LB_LEVEL_CLOSED, "closed", lb_level_name(receipt.level));
        expect(receipt.peer == LB_PEER_FIN, "closed", lb_peer_name(receipt.peer));
        expect(receipt.written == 5 && receipt.sent == 5, "closed", "written, sent");
        expect(receipt.acked == 5 && receipt.unacked == 0, "closed", "acked");
        filled("closed", &receipt);
        pthread_join(thread, NULL);
        close(ours);
    }

    /* Without the count a FIN cannot be told from a reset, and without lb_prepare neither. */
    for (want = 0; want < 2; want++) {
        const char *what = want == 0 ? "closed wanted, not counted" : "closed wanted, not prepared";
        connected(&ours, &peers);
        if (pthread_create(&thread, NULL, close_when_half_closed, &peers) != 0) fatal("thread");
        options.want = LB_LEVEL_CLOSED;
        options.bytes_read = want == 0 ? -1 : 0;
        options.written = 0;
        refused(what, lb_finish_options(ours, &options, &receipt), EOPNOTSUPP);
        expect(receipt.level == LB_LEVEL_ACKED, what, lb_level_name(receipt.level));
        expect(receipt.peer == LB_PEER_UNKNOWN, what, lb_peer_name(receipt.peer));
        pthread_join(thread, NULL);
        close(ours);
    }

    connected(&ours, &peers);
    close(peers);
    await_state(ours, CLOSE_WAIT);
    options.want = LB_LEVEL_CLOSED;
    refused("an early FIN", lb_finish_options(ours, &options, &receipt), EPROTO);
    expect(receipt.why == LB_WHY_EARLY_FIN, "an early FIN", lb_why_name(receipt.why));
    expect(receipt.level == LB_LEVEL_ACKED, "an early FIN", lb_level_name(receipt.level));
    close(ours);
}

static void a_unix_socket(void)
{
    struct lb_receipt receipt;
    char bytes[16];
    int both[2];

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, both) != 0) fatal("socketpair");
    if (send(both[0], "hello", 5, 0) != 5) fatal("send");
    late("Unix, never reads", both[0], 200, &receipt);
    if (recv(both[1], bytes, sizeof bytes, 0) != 5) fatal("recv");
    expect(lb_finish(both[0], 5000, &receipt) == 0, "Unix", "read by the peer");
    expect(receipt.unacked == 0, "Unix", "all of it");
    close(both[0]);
    close(both[1]);
}

static void questions(const char *file)
{
    struct sockaddr_in address;
    struct lb_info info;
    char name[16];
    int ours, peers, fd, listening = listener(&address, 8);

    connected(&ours, &peers);
    refused("info, closed", lb_info(-1, &info), EBADF);
    refused("info, NULL", lb_info(ours, NULL), EFAULT);
    memset(&info, 0x5a, sizeof info);
    expect(lb_info(ours, &info) == 0 && info.state == ESTABLISHED, "info", "established");
    expect(info.snd_mss > 0 && info.rtt_us >= 0 && info.cwnd_segments > 0, "info", "figures");
    expect(info.bytes_acked == 1, "info", "the SYN counts");
    expect(info.reserved[0] == -1 && info.reserved[7] == -1, "info", "reserved is unknown");

    expect(lb_set_congestion(ours, "reno") == 0, "congestion", "reno is everywhere");
    expect(lb_congestion(ours, name, 5) == 0 && strcmp(name, "reno") == 0, "congestion", name);
    strcpy(name, "untouched");
    refused("congestion, no room", lb_congestion(ours, name, 4), ERANGE);
    expect(strcmp(name, "untouched") == 0, "congestion, no room", name);
    refused("congestion, room 0", lb_congestion(ours, name, 0), ERANGE);
    refused("congestion, NULL", lb_congestion(ours, NULL, 0), EFAULT);
    refused("congestion, unknown", lb_set_congestion(ours, "no such one"), ENOENT);
    refused("congestion, no text", lb_set_congestion(ours, "\xff\xfe"), ENOENT);
    refused("congestion, empty", lb_set_congestion(ours, ""), EINVAL);
    refused("congestion, to NULL", lb_set_congestion(ours, NULL), EFAULT);
    refused("congestion, closed", lb_set_congestion(-1, "reno"), EBADF);
    refused("congestion, of closed", lb_congestion(-1, name, sizeof name), EBADF);

    refused("prepare, closed", lb_prepare(-1), EBADF);
    refused("ended, closed", lb_ended(-1, 0), EBADF);
    refused("ended, listening", lb_ended(listening, 0), EINVAL);
    expect(lb_prepare(ours) == 0 && lb_prepare(peers) == 0, "prepare", "done");
    expect(lb_ended(ours, 0) == LB_END_UNKNOWN, "ended", "it has not");

    fd = open(file, O_RDONLY);
    refused("info, a file", lb_info(fd, &info), ENOTSOCK);
    refused("prepare, a file", lb_prepare(fd), ENOTSOCK);
    refused("ended, a file", lb_ended(fd, 0), ENOTSOCK);
    refused("congestion, a file", lb_congestion(fd, name, sizeof name), ENOTSOCK);
    close(fd);
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    expect(lb_info(fd, &info) == -1 && (errno == EOPNOTSUPP || errno == ENOPROTOOPT), "info, UDP",
           "no TCP");
    expect(lb_ended(fd, 0) == LB_END_UNKNOWN, "ended, UDP", "unknown");
    close(fd);
    close(listening);
    close(ours);
    close(peers);
}

static void ends(void)
{
    char bytes[16];
    int ours, peers;

    connected(&ours, &peers);
    lb_prepare(ours);
    if (send(peers, "hello", 5, 0) != 5) fatal("send");
    close(peers);
    expect(recv(ours, bytes, 5, MSG_WAITALL) == 5, "FIN", "5 bytes");
    expect(recv(ours, bytes, sizeof bytes, 0) == 0, "FIN", "0 at the end");
    expect(lb_ended(ours, 5) == LB_END_FIN, "FIN", "told as one");
    close(ours);

    /* Somebody takes the reset, and the reader meets what looks like a clean end. */
    connected(&ours, &peers);
    lb_prepare(ours);
    if (send(peers, "hello", 5, 0) != 5) fatal("send");
    expect(recv(ours, bytes, 5, MSG_WAITALL) == 5, "RST", "5 bytes");
    reset(peers);
    await_state(ours, CLOSED);
    expect(send(ours, "x", 1, MSG_NOSIGNAL) == -1, "RST", "the writer is told");
    expect(recv(ours, bytes, sizeof bytes, 0) == 0, "RST", "0 at the end");
    expect(lb_ended(ours, 5) == LB_END_RESET, "RST", "told as one");
    close(ours);
}

static void texts(void)
{
    struct lb_receipt receipt;
    char text[8] = "#######";

    lb_finish(-1, 0, &receipt);
    refused("text, NULL", lb_receipt_text(NULL, text, sizeof text), EFAULT);
    refused("text, to NULL", lb_receipt_text(&receipt, NULL, 1), EFAULT);
    expect(lb_receipt_text(&receipt, NULL, 0) == 26, "text", "its length");
    expect(lb_receipt_text(&receipt, text, 4) == 26, "text, 4 bytes", "its length");
    expect(memcmp(text, "the\0###", 8) == 0, "text, 4 bytes", "cut, and no more written");
    memset(&receipt, 0x5a, sizeof receipt);
    expect(lb_receipt_text(&receipt, NULL, 0) > 0, "text of nonsense", "has one");
}

int main(int argc, char **argv)
{
    int before, after;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc != 2) {
        fprintf(stderr, "usage: %s TOLERANCE_MS\n", argv[0]);
        return 2;
    }
    tolerance_us = atol(argv[1]) * 1000;
    before = dup(1); /* the lowest free number */
    close(before);

    what_is_no_connection(argv[0]);
    still_connecting();
    a_peer_that_never_reads();
    a_peer_that_never_closes();
    a_peer_that_resets();
    options_are_looked_at();
    more_than_acked();
    a_unix_socket();
    questions(argv[0]);
    ends();
    texts();

    after = dup(1);
    close(after);
    expect(before == after, "descriptors", "none is left open");
    printf("%d of %d checks failed\n", failures, checks);
    return failures > 0;
}
