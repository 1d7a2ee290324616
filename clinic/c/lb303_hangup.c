// LB303: the peer has half-closed, and the program goes on waiting for that descriptor, level-triggered, without
// doing anything about the hang-up: epoll_wait() returns at once, every time. Mended: the descriptor is
// taken out of the set when the hang-up is seen.
#include "patient.h"
#include <sys/epoll.h>

enum { WORK_MS = 1200 };

int main(int argc, char **argv) {
  int fd = reach(argc, argv);
  long written = put(fd, 100, 100), calls = 0;
  say("{\"written\": %ld}", written);
  int poller = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLRDHUP};
  epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
  double end = now_s() + WORK_MS / 1e3;
  for (double left = WORK_MS; left > 0; left = (end - now_s()) * 1e3) {
    int count = epoll_wait(poller, &event, 1, (int)left + 1);
    calls++;
    if (count == 1 && !sick) epoll_ctl(poller, EPOLL_CTL_DEL, fd, NULL);
  }
  say("{\"read\": %ld, \"calls\": %ld}", finish(fd), calls);
}
