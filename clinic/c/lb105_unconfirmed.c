// LB105: the peer resets while bytes of ours are unacknowledged, because everything was written before the
// peer had said that it wants it. Mended: writes what was agreed on, and waits for the peer's word before
// more; the same reset then costs nothing.
#include "patient.h"

int main(int argc, char **argv) {
  int fd = reach(argc, argv);
  long written = sick ? fill(fd, 1 << 20) : put(fd, 1000, 1000);
  say("{\"written\": %ld}", written);
  long got = take(fd, 1 << 20); // the peer's word, then its reset
  say("{\"read\": %ld, \"unacked\": %d}", got, unacked(fd));
}
