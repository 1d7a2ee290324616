// LB103 by a program with a hostile name: it would colour a terminal, open an element of HTML and end a line.
// On the wire it is lb103_linger. Mended as that one; the name stays, and does no harm.
#include "patient.h"
#include <sys/prctl.h>

int main(int argc, char **argv) {
  prctl(PR_SET_NAME, "\x1b[31m<b>\"&\n'\\");
  int fd = reach(argc, argv);
  say("{\"written\": %ld}", fill(fd, 1 << 20));
  long got = take(fd, 1);
  if (sick) {
    struct linger abort = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
    close(fd);
  } else {
    got += finish(fd);
  }
  say("{\"read\": %ld}", got);
}
