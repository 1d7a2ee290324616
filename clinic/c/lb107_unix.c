// LB107: closes a Unix stream socket with input unread. The peer reads what we had written and then sees
// "connection reset"; what it had sent to us is gone. Mended: half-close, read to the peer's end, close.
#include "patient.h"

int main(int argc, char **argv) {
  int fd = reach(argc, argv);
  long written = fill(fd, 50000), got = 0;
  say("{\"written\": %ld}", written);
  wait_readable(fd);
  if (sick) close(fd);
  else got = finish(fd);
  say("{\"read\": %ld}", got);
}
