// LB304: select() with a descriptor of 1500. An fd_set of the C library has room for 1024: FD_SET would write
// beyond its end. This one brings a set that is large enough, and so is itself safe; the kernel does not
// care. Mended: poll(), which has no such limit.
#include "patient.h"
#include <sys/resource.h>
#include <sys/syscall.h>

enum { HIGH = 1500, ROUNDS = 50, BITS = 8 * sizeof(long) };

static void wait_by_select(int fd) {
  static unsigned long set[4096 / BITS];
  memset(set, 0, sizeof set);
  set[fd / BITS] |= 1UL << (fd % BITS);
#ifdef SYS_select
  syscall(SYS_select, fd + 1, set, NULL, NULL, NULL);
#else
  syscall(SYS_pselect6, fd + 1, set, NULL, NULL, NULL, NULL);
#endif
}

int main(int argc, char **argv) {
  int low = reach(argc, argv);
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  int fd = fcntl(low, F_DUPFD, HIGH);
  if (fd < 0) fail("F_DUPFD");
  close(low);
  long written = 0, got = 0;
  for (int i = 0; i < ROUNDS; i++) {
    written += put(fd, 100, 100);
    if (sick) wait_by_select(fd);
    else wait_readable(fd);
    got += take(fd, 100);
  }
  say("{\"written\": %ld, \"read\": %ld, \"descriptor\": %d}", written, got, fd);
  finish(fd);
}
