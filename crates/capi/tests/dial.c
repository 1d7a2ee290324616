/*
 * What lastbyte.h promises of lb_dial: the errno by name, all of lb_dialed filled, time-outs kept, no
 * descriptor left; many threads at once, and processes that fork.
 *
 *     dial TOLERANCE_MS [alone]
 *
 * "alone" leaves out what forks: a child of many threads holds memory that only its parent uses.
 * Prints a line for each case that failed; exit code 1 if there is one.
 */
#define _GNU_SOURCE

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <lastbyte.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS 8
/* How often a name is dialed to see that no descriptor is left. */
#define ROUNDS 50

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

static struct lb_dialed poisoned(void)
{
    struct lb_dialed dialed;
    memset(&dialed, 0x5a, sizeof dialed);
    return dialed;
}

static int ends_within(const char *text, size_t room)
{
    return memchr(text, 0, room) != NULL;
}

/* Every field was filled, with numbers that the header has. */
static void filled(const char *what, const struct lb_dialed *dialed)
{
    size_t field;

    expect(strcmp(lb_undialed_name(dialed->why), "invalid") != 0, what, "why is filled");
    expect(dialed->family == 0 || dialed->family == 4 || dialed->family == 6, what, "family");
    expect(dialed->attempts >= 0 && dialed->attempts < 100, what, "attempts is filled");
    expect(dialed->took_us >= 0 && dialed->took_us < 60000000, what, "took_us is filled");
    expect(ends_within(dialed->peer, sizeof dialed->peer), what, "peer ends");
    expect(ends_within(dialed->local, sizeof dialed->local), what, "local ends");
    expect(ends_within(dialed->text, sizeof dialed->text), what, "text ends");
    expect((dialed->error == 0) == (dialed->why == LB_UNDIALED_CONNECTED), what, "error and why");
    expect((dialed->error == 0) == (dialed->text[0] == 0), what, dialed->text);
    expect((dialed->error == 0) == (dialed->peer[0] != 0), what, "peer is filled");
    for (field = 0; field < sizeof dialed->reserved / sizeof *dialed->reserved; field++)
        expect(dialed->reserved[field] == -1, what, "reserved is unknown");
}

/* A dial that fails, with and without room for how. */
static void no_dial(const char *what, const char *host, uint16_t port,
                    const struct lb_dial_options *options, int expected, int why)
{
    struct lb_dialed dialed = poisoned();
    int fd = lb_dial(host, port, options, &dialed);

    expect(fd == -1 && errno == expected, what, strerror(expected));
    expect(dialed.error == expected, what, "error is the errno");
    expect(dialed.why == why, what, lb_undialed_name(dialed.why));
    filled(what, &dialed);
    fd = lb_dial(host, port, options, NULL);
    expect(fd == -1 && errno == expected, what, "without room for how it went");
}

static long now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000L + now.tv_nsec / 1000;
}

static int descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int count = 0;

    while (readdir(directory) != NULL) count++;
    closedir(directory);
    return count;
}

/* --- peers ------------------------------------------------------------------------------------ */

static int fatal(const char *what)
{
    perror(what);
    exit(2);
}

static int listener(uint16_t *port, int backlog)
{
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) != 0) return fatal("bind");
    if (listen(fd, backlog) != 0) return fatal("listen");
    if (getsockname(fd, (struct sockaddr *)&address, &length) != 0) return fatal("getsockname");
    *port = ntohs(address.sin_port);
    return fd;
}

/* A port that nobody listens on. */
static uint16_t refusing(void)
{
    uint16_t port;
    close(listener(&port, 1));
    return port;
}

/* A port that does not answer: its queue is full. `full` are the descriptors to close. */
static uint16_t silent(int full[3])
{
    struct lb_dial_options options = LB_DIAL_OPTIONS_INIT;
    uint16_t port;
    int filling;

    full[0] = listener(&port, 0);
    options.timeout_ms = 300;
    for (filling = 1; filling < 3; filling++) full[filling] = lb_dial("127.0.0.1", port, &options, NULL);
    return port;
}

static void close_all(const int full[3])
{
    int each;
    for (each = 0; each < 3; each++)
        if (full[each] >= 0) close(full[each]);
}

/* --- cases ------------------------------------------------------------------------------------ */

static void connects(void)
{
    static const int resolvers[] = { LB_RESOLVER_DNS, LB_RESOLVER_SYSTEM };
    static const char *const hosts[] = { "127.0.0.1", "localhost" };
    struct lb_dial_options options = LB_DIAL_OPTIONS_INIT;
    uint16_t port;
    int listening = listener(&port, 8);
    size_t by, host;

    for (by = 0; by < 2; by++) {
        for (host = 0; host < 2; host++) {
            struct lb_dialed dialed = poisoned();
            char peer[64];
            int fd;

            options.resolver = resolvers[by];
            fd = lb_dial(hosts[host], port, &options, &dialed);
            expect(fd >= 0, hosts[host], dialed.text);
            filled(hosts[host], &dialed);
            snprintf(peer, sizeof peer, "127.0.0.1:%d", port);
            expect(strcmp(dialed.peer, peer) == 0, hosts[host], dialed.peer);
            expect(dialed.family == LB_FAMILY_IPV4, hosts[host], "the family");
            expect(dialed.attempts >= 1, hosts[host], "attempts");
            expect((fcntl(fd, F_GETFL) & O_NONBLOCK) == 0, hosts[host], "it blocks");
            expect((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0, hosts[host], "it is closed on exec");
            close(fd);
        }
    }
    close(listening);
}

static void options_are_granted(void)
{
    struct lb_dial_options options = LB_DIAL_OPTIONS_INIT;
    uint16_t port;
    int listening = listener(&port, 8), fd, bytes = 0;
    socklen_t length = sizeof bytes;
    char name[16];

    options.congestion = "reno";
    options.send_buffer = 20000;
    options.family = LB_FAMILY_IPV4;
    fd = lb_dial("127.0.0.1", port, &options, NULL);
    expect(fd >= 0, "options", "it connects");
    expect(lb_congestion(fd, name, sizeof name) == 0 && strcmp(name, "reno") == 0, "options", name);
    getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &length);
    expect(bytes == 40000, "options", "the kernel doubles the buffer");
    close(fd);
    options.congestion = "no such";
    no_dial("no such congestion control", "127.0.0.1", port, &options, ENOENT,
            LB_UNDIALED_ALL_FAILED);
    close(listening);
}

static void bad_input(void)
{
    struct lb_dial_options options = LB_DIAL_OPTIONS_INIT;
    static char name[301];

    memset(name, 'x', sizeof name - 1);
    no_dial("NULL", NULL, 80, NULL, EFAULT, LB_UNDIALED_BAD_HOST);
    no_dial("empty", "", 80, NULL, EINVAL, LB_UNDIALED_BAD_HOST);
    no_dial("not UTF-8", "\xff", 80, NULL, EINVAL, LB_UNDIALED_BAD_HOST);
    no_dial("port 0", "localhost", 0, NULL, EINVAL, LB_UNDIALED_BAD_PORT);
    no_dial("refused", "127.0.0.1", refusing(), NULL, ECONNREFUSED, LB_UNDIALED_ALL_FAILED);
    options.family = 7;
    no_dial("family", "localhost", 80, &options, EINVAL, LB_UNDIALED_BAD_OPTIONS);
    options.family = LB_FAMILY_BOTH;
    options.resolver = LB_RESOLVER_SYSTEM;
    options.source = "nonsense";
    no_dial("source", "localhost", 80, &options, EINVAL, LB_UNDIALED_BAD_OPTIONS);
    options.source = NULL;
    options.reserved[4] = 1;
    no_dial("reserved", "localhost", 80, &options, EINVAL, LB_UNDIALED_BAD_OPTIONS);
}

/* Which of three it is, depends on whom this machine asks. */
static void a_name_without_address(void)
{
    struct lb_dial_options options = LB_DIAL_OPTIONS_INIT;
    struct lb_dialed dialed = poisoned();
    int fd;

    options.timeout_ms = 3000;
    fd = lb_dial("nobody.invalid", 80, &options, &dialed);
    expect(fd == -1, "no address", "it fails");
    filled("no address", &dialed);
    expect(errno == ENOENT || errno == EAGAIN || errno == ETIMEDOUT, "no address", dialed.text);
    expect(dialed.attempts == 0, "no address", "nothing was tried");
    expect(strstr(dialed.text, "nobody.invalid") != NULL, "no address", dialed.text);
    printf("no address: %s\n", dialed.text);
}

static void time_outs_are_kept(void)
{
    static const int timeouts_ms[] = { 0, 200 };
    struct lb_dial_options options = LB_DIAL_OPTIONS_INIT;
    int full[3];
    uint16_t port = silent(full);
    size_t each;

    for (each = 0; each < 2; each++) {
        struct lb_dialed dialed = poisoned();
        long begun = now_us(), over;
        int fd;

        options.timeout_ms = timeouts_ms[each];
        fd = lb_dial("127.0.0.1", port, &options, &dialed);
        over = now_us() - begun - timeouts_ms[each] * 1000L;
        expect(fd == -1 && errno == ETIMEDOUT, "silent", dialed.text);
        expect(dialed.why == LB_UNDIALED_TIMED_OUT, "silent", "why");
        filled("silent", &dialed);
        expect(over >= 0 && over <= tolerance_us, "silent", "the time-out is kept");
        printf("silent: time-out of %d ms exceeded by %ld us\n", timeouts_ms[each], over);
    }
    close_all(full);
}

struct dial {
    uint16_t port;
    int timeout_ms;
    long took_us;
    int fd;
};

static void *dial(void *argument)
{
    struct lb_dial_options options = LB_DIAL_OPTIONS_INIT;
    struct dial *dial = argument;
    long begun = now_us();

    options.timeout_ms = dial->timeout_ms;
    dial->fd = lb_dial("127.0.0.1", dial->port, &options, NULL);
    dial->took_us = now_us() - begun;
    return NULL;
}

/* One of the threads dials what does not answer, and holds up nobody. */
static void threads_do_not_wait_for_each_other(void)
{
    struct dial dials[THREADS];
    pthread_t threads[THREADS];
    int full[3], each, listening;
    uint16_t dead = silent(full), port;

    listening = listener(&port, THREADS);
    for (each = 0; each < THREADS; each++) {
        dials[each].port = each == 0 ? dead : port;
        dials[each].timeout_ms = 2000;
        if (pthread_create(&threads[each], NULL, dial, &dials[each]) != 0) fatal("pthread_create");
    }
    for (each = THREADS - 1; each >= 0; each--) pthread_join(threads[each], NULL);
    expect(dials[0].fd == -1, "threads", "the dead one fails");
    for (each = 1; each < THREADS; each++) {
        expect(dials[each].fd >= 0, "threads", "the others connect");
        expect(dials[each].took_us < 1000000, "threads", "at once");
        close(dials[each].fd);
    }
    close_all(full);
    close(listening);
}

/* A child of a process that has dialed, and is dialing, dials too. */
static void forks(void)
{
    struct dial dead = { 0, 2000, 0, -1 };
    pthread_t thread;
    int full[3], listening, status = -1, fd;
    uint16_t port;
    pid_t child;

    dead.port = silent(full);
    listening = listener(&port, 8);
    if (pthread_create(&thread, NULL, dial, &dead) != 0) fatal("pthread_create");
    usleep(50000); /* Should it not have begun, this is a lesser test, and still right. */
    child = fork();
    if (child == 0) {
        struct lb_dial_options options = LB_DIAL_OPTIONS_INIT;
        struct lb_dialed dialed;
        for (options.resolver = LB_RESOLVER_DNS; options.resolver <= LB_RESOLVER_SYSTEM;
             options.resolver++) {
            fd = lb_dial("localhost", port, &options, &dialed);
            if (fd < 0) fprintf(stderr, "%s\n", dialed.text);
            if (fd < 0) _exit(1);
        }
        _exit(0);
    }
    fd = lb_dial("127.0.0.1", port, NULL, NULL);
    expect(fd >= 0, "fork", "the parent connects");
    close(fd);
    expect(waitpid(child, &status, 0) == child && status == 0, "fork", "the child connects");
    pthread_join(thread, NULL);
    expect(dead.fd == -1 && dead.took_us >= 2000000, "fork", "the dead one waits as before");
    close_all(full);
    close(listening);
}

static void leaves_no_descriptor(void)
{
    static const char *const hosts[] = { "localhost", "127.0.0.1" };
    int listening, round, before = descriptors();
    uint16_t port, gone = refusing();

    listening = listener(&port, ROUNDS);
    for (round = 0; round < ROUNDS; round++) {
        int fd = lb_dial(hosts[round % 2], port, NULL, NULL);
        expect(fd >= 0, "descriptors", "it connects");
        close(fd);
        lb_dial(hosts[round % 2], gone, NULL, NULL);
    }
    close(listening);
    expect(descriptors() == before, "descriptors", "none is left");
}

int main(int argc, char **argv)
{
    if (argc != 2 && argc != 3) return 2;
    tolerance_us = atol(argv[1]) * 1000;
    connects();
    options_are_granted();
    bad_input();
    a_name_without_address();
    time_outs_are_kept();
    threads_do_not_wait_for_each_other();
    if (argc == 2) forks();
    leaves_no_descriptor();
    printf("%d checks, %d failed\n", checks, failures);
    return failures == 0 ? 0 : 1;
}
