// LB302: asks SIOCOUTQ again and again until it is 0, to know that all has arrived. It does know, at the price
// of a processor. Mended: half-close, and sleep in read() until the peer's end.
#include "patient.h"

int main(int argc, char **argv) {
  int fd = reach(argc, argv);
  long calls = 0;
  say("{\"written\": %ld}", fill(fd, 1 << 20));
  if (sick)
    while (unacked(fd) > 0) calls++;
  say("{\"read\": %ld, \"calls\": %ld}", finish(fd), calls);
}
