// LB106: half-closes and waits for an end that the peer never makes: it has read our FIN and keeps its
// side open. Nothing is lost, and nothing ends. Mended: the peer's word is the end of the exchange; then
// it closes, without waiting for a FIN.
#include "patient.h"

enum { PATIENCE_MS = 6000 };

int main(int argc, char **argv) {
  int fd = reach(argc, argv);
  long written = put(fd, 1000, 1000), got = 0;
  say("{\"written\": %ld}", written);
  double begin = now_s();
  if (sick) shutdown(fd, SHUT_WR);
  struct pollfd poll_for = {.fd = fd, .events = POLLIN};
  while (poll(&poll_for, 1, PATIENCE_MS) == 1) {
    long count = take(fd, 1);
    got += count;
    if (count == 0 || !sick) break;
  }
  close(fd);
  say("{\"read\": %ld, \"waited_ms\": %.0f}", got, (now_s() - begin) * 1e3);
}
