// LB104: closes with its tail still under way to a peer that has something to say. The peer's next byte finds
// nobody who could read it: the kernel answers by a reset and throws the tail away. There was nothing
// unread when close() was called. Mended: half-close, read to the peer's end, then close.
#include "patient.h"

int main(int argc, char **argv) {
  int fd = reach(argc, argv);
  long written = fill(fd, 1 << 20), got = 0;
  if (sick) {
    close(fd);
    say("{\"written\": %ld}", written);
    pause_ms(600); // the program goes on with other work
  } else {
    say("{\"written\": %ld}", written);
    got = finish(fd);
  }
  say("{\"read\": %ld}", got);
}
