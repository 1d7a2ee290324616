// LB101: closes with input unread. The kernel sends a reset at once, and what the peer had not taken yet
// is thrown away, though every write had succeeded. The peer gets what was in its own kernel, and then
// "connection reset". Mended: half-close, read to the peer's end, then close.
#include "patient.h"

int main(int argc, char **argv) {
  int fd = reach(argc, argv);
  long written = fill(fd, 1 << 20);
  say("{\"written\": %ld}", written);
  wait_readable(fd);
  int left = unacked(fd);
  long got = 0;
  if (sick) {
    got = take(fd, 1);
    close(fd);
  } else {
    got = finish(fd);
  }
  say("{\"read\": %ld, \"unacked\": %d}", got, left);
}
