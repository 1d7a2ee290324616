// What all patients in C share: how they are called, how they reach their peer, how they say what they
// know. A patient's own file has its disease and nothing else.
//
//     PROGRAM sick|well HOST PORT      connects
//     PROGRAM sick|well unix PATH      connects to a Unix socket
//     PROGRAM sick|well serve PORT     listens, says which port it has, and takes one connection
//
// Each line on stdout is a JSON object. One with the key "written" tells the harness that all has been
// written that will be, before the connection is ended.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifndef SIOCOUTQ
#define SIOCOUTQ 0x5411
#endif

// Whether the fault is to be shown or mended.
static bool sick;

// A failure that is not part of the disease.
_Noreturn static inline void fail(const char *what) {
  perror(what);
  exit(3);
}

// Prints one line, at once.
static inline void say(const char *format, ...) {
  va_list values;
  va_start(values, format);
  vprintf(format, values);
  va_end(values);
  putchar('\n');
  fflush(stdout);
}

static inline int connect_unix(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strncpy(address.sun_path, path, sizeof address.sun_path - 1);
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) fail("connect");
  return fd;
}

// A socket of the address's family. An IPv4-mapped address makes one of IPv6.
static inline int socket_for(const char *host, const char *port, struct addrinfo **found) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
  if (getaddrinfo(host, port, &hints, found) != 0) fail("getaddrinfo");
  int fd = socket((*found)->ai_family, SOCK_STREAM, 0);
  if (fd < 0) fail("socket");
  return fd;
}

static inline int connect_tcp(const char *host, const char *port) {
  struct addrinfo *found;
  int fd = socket_for(host, port, &found);
  if (connect(fd, found->ai_addr, found->ai_addrlen) != 0) fail("connect");
  freeaddrinfo(found);
  return fd;
}

// Listens at a port, any one for "0", and says which.
static inline int listen_at(const char *port, int backlog) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0) fail("bind");
  if (listen(fd, backlog) != 0) fail("listen");
  socklen_t size = sizeof address;
  getsockname(fd, (struct sockaddr *)&address, &size);
  say("{\"port\": %d}", ntohs(address.sin_port));
  return fd;
}

static inline void begin(int argc, char **argv) {
  if (argc < 4 || (strcmp(argv[1], "sick") != 0 && strcmp(argv[1], "well") != 0)) {
    fprintf(stderr, "usage: %s sick|well HOST PORT | unix PATH | serve PORT\n", argv[0]);
    exit(2);
  }
  sick = strcmp(argv[1], "sick") == 0;
}

// The one connection to the peer, whichever way the arguments say.
static inline int reach(int argc, char **argv) {
  begin(argc, argv);
  if (strcmp(argv[2], "unix") == 0) return connect_unix(argv[3]);
  if (strcmp(argv[2], "serve") != 0) return connect_tcp(argv[2], argv[3]);
  int listener = listen_at(argv[3], 16);
  int fd = accept(listener, NULL, NULL);
  if (fd < 0) fail("accept");
  close(listener);
  return fd;
}

// Writes as much as the kernel takes, at most `most` bytes: until there has been no room for a moment.
static inline long fill(int fd, long most) {
  static char block[65536];
  long written = 0;
  while (written < most) {
    long size = most - written < (long)sizeof block ? most - written : (long)sizeof block;
    long count = send(fd, block, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count > 0) written += count;
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    if (count < 0 && (errno != EAGAIN || poll(&room, 1, 100) != 1)) break;
  }
  return written;
}

// Writes so many bytes, waiting for room, in writes of `each`.
static inline long put(int fd, long bytes, long each) {
  static char block[65536];
  long written = 0;
  while (written < bytes) {
    long count = send(fd, block, bytes - written < each ? bytes - written : each, MSG_NOSIGNAL);
    if (count < 0) break;
    written += count;
  }
  return written;
}

// Reads to the end, at most `most` bytes.
static inline long take(int fd, long most) {
  static char block[65536];
  long got = 0;
  while (got < most) {
    long count = read(fd, block, most - got < (long)sizeof block ? most - got : (long)sizeof block);
    if (count <= 0) break;
    got += count;
  }
  return got;
}

// Waits until there is something to read, without reading it.
static inline void wait_readable(int fd) {
  struct pollfd poll_for = {.fd = fd, .events = POLLIN};
  poll(&poll_for, 1, -1);
}

// Ends a connection so that nothing is lost: half-close, read to the peer's end, close.
static inline long finish(int fd) {
  shutdown(fd, SHUT_WR);
  long got = take(fd, 1L << 40);
  close(fd);
  return got;
}

// Bytes that the peer's kernel has not acknowledged.
static inline int unacked(int fd) {
  int count = -1;
  ioctl(fd, SIOCOUTQ, &count);
  return count;
}

static inline double now_s(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + time.tv_nsec / 1e9;
}

static inline void pause_ms(long milliseconds) {
  struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  nanosleep(&time, NULL);
}
