// LB101 in a thread: one of several threads closes with input unread, while the others have nothing to do
// with it. The reset goes out at once and takes along what was not acknowledged. Mended: that thread
// half-closes and reads to the end.
#include "patient.h"
#include <pthread.h>

static int fd;
static long got;

static void *serve(void *unused) {
  (void)unused;
  wait_readable(fd);
  if (sick) close(fd);
  else got = finish(fd);
  return NULL;
}

static void *idle(void *unused) {
  pause_ms(100);
  return unused;
}

int main(int argc, char **argv) {
  fd = reach(argc, argv);
  say("{\"written\": %ld}", fill(fd, 1 << 20));
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, i == 0 ? serve : idle, NULL);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  say("{\"read\": %ld}", got);
}
