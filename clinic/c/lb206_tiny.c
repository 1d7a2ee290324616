// LB206: writes sixteen bytes at a time for four seconds, with TCP_NODELAY: a system call and a packet for each.
// Mended: collects them and writes 64 KiB at a time.
#include "patient.h"

int main(int argc, char **argv) {
  int fd = reach(argc, argv);
  int on = 1, each = sick ? 16 : 65536;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  long written = 0;
  double end = now_s() + 4;
  do written += put(fd, 2 << 20, each);
  while (sick && now_s() < end);
  say("{\"written\": %ld, \"writes\": %ld, \"read\": %ld}", written, written / each, finish(fd));
}
