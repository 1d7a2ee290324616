// LB103: SO_LINGER with a time of zero. close() then means: reset, and throw away what is not acknowledged.
// Mended: the option is left alone; half-close, read to the peer's end, then close.
#include "patient.h"

int main(int argc, char **argv) {
  int fd = reach(argc, argv);
  say("{\"written\": %ld}", fill(fd, 1 << 20));
  long got = take(fd, 1);
  int left = unacked(fd);
  if (sick) {
    struct linger abort = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
    close(fd);
  } else {
    got += finish(fd);
  }
  say("{\"read\": %ld, \"unacked\": %d}", got, left);
}
