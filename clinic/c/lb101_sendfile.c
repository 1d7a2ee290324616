// LB101: a server of files that hands them to the kernel, one with sendfile and one with splice, and closes with
// input unread. No byte passes through the program, and no call that moves them can tell what became of them: the
// close resets the connection, and what the peer had not taken is thrown away. Mended: half-close, read to the
// peer's end, then close.
#include "patient.h"

#include <sys/mman.h>
#include <sys/sendfile.h>

static int file_of(long bytes) {
  int file = memfd_create("patient", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, bytes) != 0) fail("memfd_create");
  return file;
}

static int has_room(int fd) {
  struct pollfd room = {.fd = fd, .events = POLLOUT};
  return poll(&room, 1, 100) == 1;
}

// As much of the file as the kernel takes, until there has been no room for a moment.
static long send_file(int fd, int file, long most) {
  long sent = 0;
  while (sent < most) {
    long count = sendfile(fd, file, NULL, most - sent);
    if (count > 0) sent += count;
    if (count == 0 || (count < 0 && (errno != EAGAIN || !has_room(fd)))) break;
  }
  return sent;
}

// The same by a pipe between the two. What stays in the pipe was never written.
static long splice_file(int fd, int file, long most) {
  int ends[2];
  if (pipe2(ends, O_NONBLOCK | O_CLOEXEC) != 0) fail("pipe2");
  long sent = 0, held = 0;
  while (sent < most) {
    if (held == 0) held = splice(file, NULL, ends[1], NULL, 65536, 0);
    if (held <= 0) break;
    long count = splice(ends[0], NULL, fd, NULL, held, SPLICE_F_NONBLOCK);
    if (count > 0) sent += count, held -= count;
    if (count == 0 || (count < 0 && (errno != EAGAIN || !has_room(fd)))) break;
  }
  return sent;
}

int main(int argc, char **argv) {
  int fd = reach(argc, argv);
  fcntl(fd, F_SETFL, O_NONBLOCK);
  long half = 1 << 16;
  long written = send_file(fd, file_of(half), half);
  written += splice_file(fd, file_of(1 << 20), 1 << 20);
  say("{\"written\": %ld}", written);
  wait_readable(fd);
  int left = unacked(fd);
  long got = 0;
  if (sick) {
    close(fd);
  } else {
    fcntl(fd, F_SETFL, 0);
    got = finish(fd);
  }
  say("{\"read\": %ld, \"unacked\": %d}", got, left);
}
