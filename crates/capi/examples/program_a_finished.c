/*
 * Program A, finished: program_a.c with one line more (and the #include that it needs).
 *
 *     cc program_a_finished.c -o program_a_finished $(pkg-config --cflags --libs lastbyte)
 *     ./program_a_finished HOST PORT
 *
 * lb_finish() ends the sending direction, waits until the peer's kernel has acknowledged all bytes,
 * and takes the greeting out of the way, so that close() has nothing left to throw away. If it
 * cannot be proven within 10 seconds the program says why, and ends with 1.
 */
#define _POSIX_C_SOURCE 200112L

#include <lastbyte.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int connect_to(const char *host, const char *port);
static int write_all(int fd, const char *bytes, size_t length);
static int failed(const char *what);

static char bytes[1000000];

int main(int argc, char **argv)
{
    int fd;

    if (argc != 3) {
        fprintf(stderr, "usage: %s HOST PORT\n", argv[0]);
        return 2;
    }
    memset(bytes, 'x', sizeof bytes);

    fd = connect_to(argv[1], argv[2]);
    if (fd < 0) return failed("connect");
    if (write_all(fd, bytes, sizeof bytes) != 0) return failed("write");
    if (lb_finish(fd, 10000, NULL) != 0) return failed("lb_finish");
    if (close(fd) != 0) return failed("close");

    puts("1000000 bytes written");
    return 0;
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

/* write() may take a part. */
static int write_all(int fd, const char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t taken = write(fd, bytes, length);
        if (taken < 0) return -1;
        bytes += taken;
        length -= (size_t)taken;
    }
    return 0;
}

static int failed(const char *what)
{
    perror(what);
    return 1;
}
