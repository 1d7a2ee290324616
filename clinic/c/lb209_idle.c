// LB209: bursts with pauses between them, over a long fat path. After each pause the kernel begins again with ten
// packets (tcp_slow_start_after_idle), so that no burst ever goes at the speed of the path. Mended: the
// sysctl is off, and the window that was learned is kept.
#include "patient.h"

enum { BURSTS = 4, BURST_BYTES = 1000000, PAUSE_MS = 1200 };

static void keep_window(void) {
  int fd = open("/proc/sys/net/ipv4/tcp_slow_start_after_idle", O_WRONLY);
  if (fd < 0 || write(fd, "0", 1) != 1) fail("tcp_slow_start_after_idle");
  close(fd);
}

int main(int argc, char **argv) {
  begin(argc, argv);
  if (!sick) keep_window();
  int fd = reach(argc, argv);
  setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
  long written = 0, got = 0;
  double burst = 0;
  for (int i = 0; i < BURSTS; i++) {
    if (i > 0) pause_ms(PAUSE_MS);
    double start = now_s();
    written += put(fd, BURST_BYTES, 65536);
    got += take(fd, 1);
    burst = now_s() - start;
  }
  say("{\"written\": %ld, \"read\": %ld, \"last_burst_ms\": %.0f}", written, got, burst * 1e3);
  finish(fd);
}
