/*
 * Reaches a host by the address that works first, sends it what comes in, and ends with proof.
 *
 *     cc dial.c -o dial $(pkg-config --cflags --libs lastbyte)
 *     echo hello | ./dial HOST PORT
 *
 * lb_dial() takes the place of the loop around getaddrinfo(), socket() and connect(): a dead address
 * costs 200 milliseconds, and not a minute.
 */
#include <lastbyte.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int send_input(int fd);
static int failed(const char *what);

int main(int argc, char **argv)
{
    struct lb_dial_options options = LB_DIAL_OPTIONS_INIT;
    struct lb_dialed dialed;
    long port;
    int fd;

    port = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    if (port < 1 || port > 65535) {
        fprintf(stderr, "usage: %s HOST PORT\n", argv[0]);
        return 2;
    }
    options.timeout_ms = 10000;

    fd = lb_dial(argv[1], (uint16_t)port, &options, &dialed);
    if (fd < 0) {
        fprintf(stderr, "%s\n", dialed.text);
        return 1;
    }
    printf("connected to %s from %s in %.1f ms, attempt %d\n", dialed.peer, dialed.local,
           (double)dialed.took_us / 1000, dialed.attempts);

    if (send_input(fd) != 0) return failed("write");
    if (lb_finish(fd, 10000, NULL) != 0) return failed("lb_finish");
    if (close(fd) != 0) return failed("close");
    puts("everything arrived");
    return 0;
}

/* write() may take a part. */
static int send_input(int fd)
{
    char bytes[65536];
    size_t length, sent;

    while ((length = fread(bytes, 1, sizeof bytes, stdin)) > 0) {
        for (sent = 0; sent < length;) {
            ssize_t taken = write(fd, bytes + sent, length - sent);
            if (taken < 0) return -1;
            sent += (size_t)taken;
        }
    }
    return 0;
}

static int failed(const char *what)
{
    perror(what);
    return 1;
}
