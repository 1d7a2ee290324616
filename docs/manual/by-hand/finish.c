/* Ends a connection by hand and says how far the bytes came.
 *
 *   cc -Wall -Wextra -O2 -o finish finish.c
 *   ./finish HOST PORT BYTES SECONDS [closed | read]
 *
 * Writes BYTES bytes to a server whose greeting it never reads, and finishes within SECONDS. With
 * `read` it reads to the end instead, and says what that end was. Linux 4.1 or later.
 * Exit code 0: acked, closed where that was asked for, or read to a FIN. 1: less. 2: misuse.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sockios.h> /* SIOCOUTQ */
#include <linux/tcp.h>     /* the kernel's struct tcp_info: that of netinet/tcp.h is too short */
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* --- on the page --- */
enum end { OPEN, FIN, RESET, UNKNOWN };
enum state { ESTABLISHED = 1, SYN_SENT = 2, SYN_RECV = 3, CLOSED = 7 }; /* of tcpi_state */

struct finished {
    int64_t unacked; /* of the bytes written; -1: it cannot be known */
    bool closed;     /* all acked, and the peer's FIN came after ours was acked */
    enum end peer;
};

static struct tcp_info info(int fd) {
    struct tcp_info info = {0};
    socklen_t length = sizeof info;
    getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length);
    return info;
}

static bool is_plain_tcp(int fd) {
    int protocol = 0;
    socklen_t length = sizeof protocol;
    getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length);
    return protocol == IPPROTO_TCP; /* and not MPTCP, which counts otherwise */
}

/* How the peer ended, once recv has returned 0. Ask before close. `bytes_read` counts all that was
 * ever read from this socket, which has had SO_OOBINLINE since before the first read. */
enum end ended(int fd, uint64_t bytes_read) {
    uint64_t received = info(fd).tcpi_bytes_received; /* a FIN counts as one byte */
    if (!is_plain_tcp(fd)) return UNKNOWN;
    if (received == bytes_read + 1) return FIN;
    return received == bytes_read ? RESET : UNKNOWN;
}

/* Reads and throws away what is there, up to the limit. */
static enum end drain(int fd, uint64_t *bytes_read, uint64_t *limit) {
    while (*limit > 0) {
        ssize_t n = recv(fd, NULL, *limit, MSG_DONTWAIT | MSG_TRUNC); /* TCP: nothing is copied */
        if (n == 0) return ended(fd, *bytes_read);
        if (n < 0) return errno == EAGAIN || errno == EINTR ? OPEN : RESET;
        *bytes_read += (uint64_t)n;
        *limit -= (uint64_t)n;
    }
    return OPEN; /* what is unread now turns close into a reset */
}

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Ends our direction and waits until the peer's kernel has it all; with `wait_for_fin` until the
 * peer has ended its own too. The caller closes `fd` afterwards, never before. */
struct finished finish(int fd, uint64_t bytes_read, int64_t deadline_ms, bool wait_for_fin) {
    struct finished f = {.unacked = -1, .peer = OPEN};
    const int64_t until = now_ms() + deadline_ms;
    uint64_t limit = 1 << 20;

    int state = info(fd).tcpi_state;
    if (state == SYN_SENT || state == SYN_RECV) return f; /* shutdown would throw all away */
    bool early_fin = state != ESTABLISHED;
    bool fin = shutdown(fd, SHUT_WR) == 0; /* ENOTCONN: reset before, so no FIN is queued */
    if (!is_plain_tcp(fd)) return f;

    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e); /* the ACK of our FIN is an edge of EPOLLOUT */

    int queue = 0; /* bytes not acked, our FIN included */
    for (;;) {
        state = info(fd).tcpi_state;
        bool was_open = f.peer == OPEN;
        if (was_open) f.peer = drain(fd, &bytes_read, &limit);
        ioctl(fd, SIOCOUTQ, &queue);
        if (was_open && f.peer == FIN && queue > 0) early_fin = true;

        int64_t left = until - now_ms();
        if (state == CLOSED || left <= 0) break;
        if (queue == 0 && (f.peer != OPEN || !wait_for_fin)) break;
        epoll_wait(epoll, &e, 1, left < 1000 ? (int)left : 1000); /* an edge may be missed */
    }
    close(epoll);

    if (f.peer == OPEN && state == CLOSED) f.peer = UNKNOWN; /* the limit kept us from its end */
    f.unacked = fin && queue > 0 ? queue - 1 : queue;        /* without our FIN */
    f.closed = queue == 0 && f.peer == FIN && !early_fin;
    return f;
}
/* --- off the page --- */

static const char *const names[] = {"open", "FIN", "RST", "unknown"};

static int misuse(const char *what) {
    fprintf(stderr, "finish: %s\n", what);
    return 2;
}

static int connected_to(const char *host, const char *port) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
    if (getaddrinfo(host, port, &hints, &list) != 0) return -1;
    int fd = -1;
    for (struct addrinfo *a = list; a != NULL; a = a->ai_next) {
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0) break;
        if (fd >= 0) close(fd);
        fd = -1;
    }
    freeaddrinfo(list);
    return fd;
}

/* Writes until all is written, the connection fails, or nothing can be written for SO_SNDTIMEO. */
static uint64_t write_all(int fd, uint64_t bytes) {
    static unsigned char block[251 * 256]; /* byte number n of the stream is n modulo 251 */
    for (size_t i = 0; i < sizeof block; i++) block[i] = (unsigned char)(i % 251);
    uint64_t written = 0;
    while (written < bytes) {
        size_t at = written % 251, size = sizeof block - at;
        if (size > bytes - written) size = bytes - written;
        ssize_t n = send(fd, block + at, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            fprintf(stderr, "finish: writing ended after %ju bytes: %s\n", (uintmax_t)written,
                    strerror(errno));
            break;
        }
        written += (uint64_t)n;
    }
    return written;
}

static int read_to_the_end(int fd) {
    static char block[65536];
    uint64_t bytes_read = 0;
    ssize_t n;
    while ((n = recv(fd, block, sizeof block, 0)) > 0) bytes_read += (uint64_t)n;
    enum end peer = n == 0 ? ended(fd, bytes_read) : errno == EAGAIN ? OPEN : RESET;
    printf("read: %ju bytes, peer %s\n", (uintmax_t)bytes_read, names[peer]);
    return peer == FIN ? 0 : 1;
}

int main(int argc, char **argv) {
    const char *level = argc == 6 ? argv[5] : "acked";
    bool wait_for_fin = strcmp(level, "closed") == 0, reading = strcmp(level, "read") == 0;
    if (argc < 5 || argc > 6 || (argc == 6 && !wait_for_fin && !reading)) {
        return misuse("HOST PORT BYTES SECONDS [closed | read]");
    }
    double seconds = atof(argv[4]);
    int fd = connected_to(argv[1], argv[2]);
    if (fd < 0) return misuse("cannot connect");

    struct timeval patience = {.tv_sec = (time_t)seconds + 1};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on);

    uint64_t bytes = strtoull(argv[3], NULL, 10), written = write_all(fd, bytes);
    fprintf(stderr, "finish: written %ju\n", (uintmax_t)written);
    if (reading) return read_to_the_end(fd);
    struct finished f = finish(fd, 0, (int64_t)(seconds * 1000), wait_for_fin);
    close(fd);

    bool complete = f.unacked == 0 && written == bytes;
    printf("%s: ", !complete ? "written" : f.closed ? "closed" : "acked");
    if (f.unacked < 0) {
        printf("?");
    } else {
        printf("%ju", (uintmax_t)written - (uintmax_t)f.unacked);
    }
    printf(" of %ju bytes acked, peer %s\n", (uintmax_t)written, names[f.peer]);
    return complete && (f.closed || !wait_for_fin) ? 0 : 1;
}
