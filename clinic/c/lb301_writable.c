// LB301: asks to be told when it may write, though it has nothing to write. It always may: epoll_wait() returns
// at once, every time, and the loop burns a processor. Mended: asks for input alone.
#include "patient.h"
#include <sys/epoll.h>

int main(int argc, char **argv) {
  int fd = reach(argc, argv);
  long written = put(fd, 100, 100), calls = 0;
  say("{\"written\": %ld}", written);
  int poller = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN | (sick ? EPOLLOUT : 0)};
  epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
  do {
    epoll_wait(poller, &event, 1, -1);
    calls++;
  } while (!(event.events & EPOLLIN));
  say("{\"read\": %ld, \"calls\": %ld}", finish(fd), calls);
}
