// LB103 in an instant: connects, writes, aborts and is gone within milliseconds, before anything that looks
// at the machine now and then has seen it. Mended: half-close, read to the peer's end, then exit.
#include "patient.h"

int main(int argc, char **argv) {
  int fd = reach(argc, argv);
  long written = fill(fd, 1 << 20), got = 0;
  if (sick) {
    struct linger abort = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
    close(fd);
  }
  say("{\"written\": %ld}", written);
  if (!sick) got = finish(fd);
  say("{\"read\": %ld}", got);
}
