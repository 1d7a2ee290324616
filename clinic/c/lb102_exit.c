// LB102: exits with bytes unacknowledged. The kernel goes on sending for the program that is gone. A peer that
// stays silent gets all of it. One that sends a byte meanwhile gets a reset instead of the tail; so
// does one behind a path that fails. Mended: half-close, read to the peer's end, then exit.
#include "patient.h"

int main(int argc, char **argv) {
  int fd = reach(argc, argv);
  long written = fill(fd, 1 << 20);
  say("{\"written\": %ld}", written);
  if (sick) _exit(0);
  say("{\"read\": %ld}", finish(fd));
}
