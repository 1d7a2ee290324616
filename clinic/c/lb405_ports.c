// LB405: a new connection for each request, none of them closed. Local ports towards one destination are few
// (net.ipv4.ip_local_port_range), and connect() fails with EADDRNOTAVAIL. Mended: one connection for all
// requests.
#include "patient.h"

enum { REQUESTS = 40 };

int main(int argc, char **argv) {
  int fds[REQUESTS], count = 0;
  long refused = 0, written = 0, got = 0;
  fds[count++] = reach(argc, argv);
  for (int i = 0; i < REQUESTS; i++) {
    if (sick && i > 0) {
      struct addrinfo *found;
      int fd = socket_for(argv[2], argv[3], &found);
      if (connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
        refused += errno == EADDRNOTAVAIL;
        close(fd);
        continue;
      }
      fds[count++] = fd;
    }
    written += put(fds[count - 1], 10, 10);
  }
  for (int i = 0; i < count; i++) got += finish(fds[i]);
  say("{\"written\": %ld, \"read\": %ld, \"refused\": %ld}", written, got, refused);
}
