/*
 * Sends what it reads from standard input, and shows what can be said about it afterwards.
 *
 *     cc example.c -o example $(pkg-config --cflags --libs lastbyte)
 *     ./example HOST PORT < FILE
 *
 * Exit code: 0 if everything arrived in the peer's kernel, 1 if that could not be proven, 2 for
 * another failure.
 */
#define _POSIX_C_SOURCE 200112L

#include <lastbyte.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int connect_to(const char *host, const char *port);
static long long send_input(int fd);
static void show_connection(int fd);
static void show_receipt(const struct lb_receipt *receipt);
static void show_bytes(const char *what, int64_t bytes);
static int failed(const char *what);

int main(int argc, char **argv)
{
    struct lb_options options = LB_OPTIONS_INIT;
    struct lb_receipt receipt;
    long long written;
    int fd, proven;

    if (argc != 3) {
        fprintf(stderr, "usage: %s HOST PORT\n", argv[0]);
        return 2;
    }
    fd = connect_to(argv[1], argv[2]);
    if (fd < 0) return failed("connect");
    lb_prepare(fd); /* before anything is read: lets a FIN be told from a reset */
    written = send_input(fd);
    if (written < 0) return failed("send");
    show_connection(fd);

    /* Want the peer's FIN too, wait 10 s at most, and read nothing of what it still sends past
     * 64 KiB. The library did not see our writes and reads: telling it their bytes makes the receipt
     * complete. With defaults alone it is: lb_finish(fd, -1, &receipt). */
    options.want = LB_LEVEL_CLOSED;
    options.timeout_ms = 10000;
    options.drain_limit = 65536;
    options.written = written;
    options.bytes_read = 0;
    proven = lb_finish_options(fd, &options, &receipt) == 0;
    if (!proven) perror("lb_finish_options");
    show_receipt(&receipt);
    close(fd);

    /* Whether all bytes arrived does not depend on how the peer ended. */
    return proven || receipt.level >= LB_LEVEL_ACKED ? 0 : 1;
}

/* All that can be known of the end. */
static void show_receipt(const struct lb_receipt *receipt)
{
    char text[200];

    lb_receipt_text(receipt, text, sizeof text);
    printf("receipt    %s\n", text);
    printf("level      %s\n", lb_level_name(receipt->level));
    printf("peer       %s\n", lb_peer_name(receipt->peer));
    printf("why        %s\n", lb_why_name(receipt->why));
    show_bytes("written", receipt->written);
    show_bytes("sent", receipt->sent);
    show_bytes("acked", receipt->acked);
    show_bytes("unacked", receipt->unacked);
    show_bytes("drained", receipt->drained);
    printf("took       %lld us\n", (long long)receipt->took_us);
}

/* What is not known is -1, and never shown as a number. */
static void show_bytes(const char *what, int64_t bytes)
{
    if (bytes < 0)
        printf("%-10s unknown\n", what);
    else
        printf("%-10s %lld bytes\n", what, (long long)bytes);
}

/* What the kernel knows while the connection is there. */
static void show_connection(int fd)
{
    struct lb_info info;
    char congestion[16];

    printf("library    %s\n", lb_version());
    if (lb_congestion(fd, congestion, sizeof congestion) == 0)
        printf("congestion %s\n", congestion);
    if (lb_info(fd, &info) == 0)
        printf("round trip %lld us\n", (long long)info.rtt_us);
}

/* Bytes written, or -1. */
static long long send_input(int fd)
{
    static char buffer[65536];
    long long written = 0;
    ssize_t length;

    while ((length = read(STDIN_FILENO, buffer, sizeof buffer)) > 0) {
        ssize_t sent = 0;
        while (sent < length) {
            ssize_t taken = send(fd, buffer + sent, (size_t)(length - sent), MSG_NOSIGNAL);
            if (taken < 0) return -1;
            sent += taken;
        }
        written += length;
    }
    return length < 0 ? -1 : written;
}

/* The first address that answers; -1 if none does. */
static int connect_to(const char *host, const char *port)
{
    struct addrinfo wanted, *list, *address;
    int fd = -1;

    memset(&wanted, 0, sizeof wanted);
    wanted.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(host, port, &wanted, &list) != 0) return -1;
    for (address = list; address != NULL && fd < 0; address = address->ai_next) {
        fd = socket(address->ai_family, address->ai_socktype, address->ai_protocol);
        if (fd >= 0 && connect(fd, address->ai_addr, address->ai_addrlen) != 0) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(list);
    return fd;
}

static int failed(const char *what)
{
    perror(what);
    return 2;
}
