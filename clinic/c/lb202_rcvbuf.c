// LB202: SO_RCVBUF fixed at 64 KiB by the receiver. The window that it offers never grows, so that the sender
// has to wait for it once a round trip. Mended: the option is left alone.
#include "patient.h"

int main(int argc, char **argv) {
  begin(argc, argv);
  struct addrinfo *found;
  int fd = socket_for(argv[2], argv[3], &found);
  int size = 65536;
  if (sick) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
  if (connect(fd, found->ai_addr, found->ai_addrlen) != 0) fail("connect");
  double start = now_s();
  long got = take(fd, 1L << 40);
  say("{\"written\": 0, \"read\": %ld, \"seconds\": %.3f}", got, now_s() - start);
  finish(fd);
}
