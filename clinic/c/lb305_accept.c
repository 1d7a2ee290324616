// LB305: out of descriptors (RLIMIT_NOFILE), it goes on asking for the next connection: accept() fails with
// EMFILE, the listener stays readable, poll() returns at once, and clients wait for ever. Mended: a limit
// that is as high as the number of clients.
#include "patient.h"
#include <sys/resource.h>

enum { CLIENTS = 40, WORK_MS = 1200 };

int main(int argc, char **argv) {
  begin(argc, argv);
  int listener = listen_at(argv[3], 128);
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = sick ? 16 : 256;
  setrlimit(RLIMIT_NOFILE, &limit);
  long accepted = 0, refused = 0;
  struct pollfd poll_for = {.fd = listener, .events = POLLIN};
  // How soon the first client comes is not its matter.
  poll(&poll_for, 1, -1);
  double end = now_s() + WORK_MS / 1e3;
  for (double left = WORK_MS; left > 0; left = (end - now_s()) * 1e3) {
    if (poll(&poll_for, 1, (int)left + 1) != 1) continue;
    if (accept(listener, NULL, NULL) >= 0) accepted++;
    else if (errno == EMFILE) refused++;
  }
  say("{\"written\": 0, \"accepted\": %ld, \"refused\": %ld}", accepted, refused);
}
