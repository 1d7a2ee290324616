// LB203: a congestion control that takes each loss for a full queue (cubic), over a path that loses packets by
// chance. It halves its window again and again while the path is nearly empty. Mended: one that measures
// the path instead (bbr).
#include "patient.h"

int main(int argc, char **argv) {
  int fd = reach(argc, argv);
  const char *name = sick ? "cubic" : "bbr";
  if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, strlen(name)) != 0) fail(name);
  long written = put(fd, 3000000, 65536);
  say("{\"written\": %ld, \"read\": %ld}", written, finish(fd));
}
