// No disease: a child that has inherited the connection closes its copy, or ends, with input unread and bytes
// unacknowledged. Nothing goes out on the wire, because the parent still has its copy; it ends the
// connection as it should be. Both ways of calling it are healthy; "sick" has the child be killed.
#include "patient.h"
#include <signal.h>
#include <sys/wait.h>

int main(int argc, char **argv) {
  int fd = reach(argc, argv);
  long written = fill(fd, 1 << 20);
  say("{\"written\": %ld}", written);
  wait_readable(fd);
  pid_t child = fork();
  if (child == 0) {
    if (sick) raise(SIGKILL);
    close(fd);
    _exit(0);
  }
  waitpid(child, NULL, 0);
  say("{\"read\": %ld}", finish(fd));
}
