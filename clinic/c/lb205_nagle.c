// LB205: writes a request in two pieces and reads the answer. The second piece waits for the first one's
// acknowledgement (Nagle), which waits for data to go with (delayed ACK): 40 ms a request, on any path.
// Mended: one write for each request.
#include "patient.h"

enum { ROUNDS = 40 };

int main(int argc, char **argv) {
  int fd = reach(argc, argv);
  double start = now_s();
  long written = 0, got = 0;
  for (int i = 0; i < ROUNDS; i++) {
    written += put(fd, 200, sick ? 100 : 200);
    got += take(fd, 100);
  }
  say("{\"written\": %ld, \"read\": %ld, \"seconds\": %.3f}", written, got, now_s() - start);
  finish(fd);
}
