// LB404: listen() with a backlog of 1, and a program that is busy when its clients come. The queue overflows, the
// kernel drops SYNs without a word, and the clients wait a second or more before they try again. Mended: a
// backlog of 128, and a program that accepts.
#include "patient.h"

enum { CLIENTS = 8, BUSY_MS = 400, PATIENCE_MS = 2500 };

int main(int argc, char **argv) {
  begin(argc, argv);
  int listener = listen_at(argv[3], sick ? 1 : 128);
  long got = 0;
  wait_readable(listener);
  if (sick) pause_ms(BUSY_MS);
  struct pollfd poll_for = {.fd = listener, .events = POLLIN};
  for (int i = 0; i < CLIENTS; i++) {
    // A client may have been given up by the kernel.
    if (poll(&poll_for, 1, PATIENCE_MS) != 1) break;
    int fd = accept(listener, NULL, NULL);
    if (fd < 0) fail("accept");
    got += finish(fd);
  }
  say("{\"written\": 0, \"read\": %ld}", got);
}
