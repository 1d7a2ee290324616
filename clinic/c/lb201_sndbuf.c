// LB201: SO_SNDBUF fixed at 16 KiB. The kernel keeps to it, so that over a path of 50 ms only so many bytes are
// under way at a time: 8 Mbit/s, however wide the path is. Mended: the option is left alone, and the
// kernel lets the buffer grow.
#include "patient.h"

int main(int argc, char **argv) {
  int fd = reach(argc, argv);
  int size = 16384;
  if (sick) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  long written = put(fd, 6000000, 65536);
  say("{\"written\": %ld, \"read\": %ld}", written, finish(fd));
}
