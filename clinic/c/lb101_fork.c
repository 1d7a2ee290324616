// LB101 by a child: the parent hands its connection to a child and closes its own copy, which ends nothing.
// The child's close is the last one, with input unread: a reset, and the tail is gone. Mended: the child
// half-closes and reads to the end.
#include "patient.h"
#include <sys/wait.h>

int main(int argc, char **argv) {
  int fd = reach(argc, argv);
  say("{\"written\": %ld}", fill(fd, 1 << 20));
  pid_t child = fork();
  if (child == 0) {
    wait_readable(fd);
    long got = 0;
    if (sick) close(fd);
    else got = finish(fd);
    say("{\"read\": %ld, \"pid\": %d}", got, getpid());
    _exit(0);
  }
  close(fd);
  waitpid(child, NULL, 0);
}
