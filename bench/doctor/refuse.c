/*
 * refuse KIND[,KIND...] PROGRAM [ARGUMENT...]
 *
 * Runs a program on a kernel that refuses to load BPF programs of these kinds, with EPERM and no word from
 * the verifier, as some kernels do by policy:
 *
 *   iter/NAME   iterators over NAME, such as iter/bpf_sk_storage_map
 *   iter        all iterators
 *   tp_btf      programs at tracepoints with the kernel's types
 *   all         all
 *
 * Each load is stopped by a seccomp filter and looked at by this process (seccomp_unotify(2), Linux 5.5).
 * What is looked at may change before the kernel reads it: this is for tests, and guards nothing. Needs
 * root. Ends as the program does; 125 where it could not be run so.
 *
 * Build: cc -O2 -Wall -Wextra -o refuse refuse.c
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/btf.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_KINDS 16

struct kind {
	__u32 attach_type;
	__u32 type_id; /* of the kernel's function; 0: any */
	int is_any;
};

static struct kind kinds[MOST_KINDS];
static int kind_count;

static void fail(const char *what)
{
	fprintf(stderr, "refuse: %s: %s\n", what, errno ? strerror(errno) : "not known here");
	exit(125);
}

static char *whole_file(const char *path, size_t *length)
{
	size_t room = 1 << 20;
	char *bytes = malloc(room);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got;

	if (fd < 0 || !bytes)
		fail(path);
	*length = 0;
	while ((got = read(fd, bytes + *length, room - *length)) > 0) {
		*length += got;
		if (*length == room) {
			char *more = realloc(bytes, room *= 2);

			if (!more)
				fail(path);
			bytes = more;
		}
	}
	close(fd);
	return bytes;
}

/* What follows the head of a type in BTF (Documentation/bpf/btf.rst), bytes. */
static size_t rest_of(const struct btf_type *type)
{
	size_t parts = BTF_INFO_VLEN(type->info);

	switch (BTF_INFO_KIND(type->info)) {
	case BTF_KIND_INT:
	case BTF_KIND_VAR:
	case BTF_KIND_DECL_TAG:
		return 4;
	case BTF_KIND_ARRAY:
		return 12;
	case BTF_KIND_ENUM:
	case BTF_KIND_FUNC_PROTO:
		return parts * 8;
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
	case BTF_KIND_DATASEC:
	case BTF_KIND_ENUM64:
		return parts * 12;
	default:
		return 0;
	}
}

/* The number of a function in the kernel's types. */
static __u32 function(const char *name)
{
	size_t length;
	char *bytes = whole_file("/sys/kernel/btf/vmlinux", &length);
	const struct btf_header *header = (void *)bytes;
	const char *types = bytes + header->hdr_len + header->type_off;
	const char *names = bytes + header->hdr_len + header->str_off;
	size_t at = 0;
	__u32 found = 0;

	for (__u32 id = 1; at < header->type_len && !found; id++) {
		const struct btf_type *type = (void *)(types + at);

		if (BTF_INFO_KIND(type->info) == BTF_KIND_FUNC && !strcmp(names + type->name_off, name))
			found = id;
		at += sizeof(*type) + rest_of(type);
	}
	free(bytes);
	return found;
}

static void add(const char *word)
{
	struct kind kind = { .attach_type = BPF_TRACE_ITER };
	char name[128];

	if (kind_count == MOST_KINDS)
		fail("too many kinds");
	if (!strcmp(word, "all")) {
		kind.is_any = 1;
	} else if (!strcmp(word, "tp_btf")) {
		kind.attach_type = BPF_TRACE_RAW_TP;
	} else if (!strncmp(word, "iter/", 5)) {
		snprintf(name, sizeof(name), "bpf_iter_%s", word + 5);
		kind.type_id = function(name);
		errno = 0;
		if (!kind.type_id)
			fail(word);
	} else if (strcmp(word, "iter")) {
		errno = 0;
		fail(word);
	}
	kinds[kind_count++] = kind;
}

static int is_refused(const union bpf_attr *attr)
{
	for (int place = 0; place < kind_count; place++) {
		const struct kind *kind = &kinds[place];

		if (kind->is_any)
			return 1;
		if (attr->prog_type == BPF_PROG_TYPE_TRACING &&
		    attr->expected_attach_type == kind->attach_type &&
		    (!kind->type_id || attr->attach_btf_id == kind->type_id))
			return 1;
	}
	return 0;
}

/* Stops each load of a program; returns what tells of them. */
static int install(void)
{
	struct sock_filter steps[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_bpf, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, BPF_PROG_LOAD, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(steps) / sizeof(*steps), steps };
	int fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter);

	if (fd < 0)
		fail("seccomp");
	return fd;
}

static void pass(int to, int fd)
{
	char room[CMSG_SPACE(sizeof(int))] = {}, byte = 0;
	struct iovec part = { &byte, 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = room,
				  .msg_controllen = sizeof(room) };
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);

	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(head), &fd, sizeof(int));
	if (sendmsg(to, &message, 0) != 1)
		fail("sendmsg");
}

/* -1 where the other process ended instead. */
static int receive(int from)
{
	char room[CMSG_SPACE(sizeof(int))] = {}, byte = 0;
	struct iovec part = { &byte, 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = room,
				  .msg_controllen = sizeof(room) };
	struct cmsghdr *head;
	int fd = -1;

	if (recvmsg(from, &message, MSG_CMSG_CLOEXEC) == 1 && (head = CMSG_FIRSTHDR(&message)))
		memcpy(&fd, CMSG_DATA(head), sizeof(int));
	return fd;
}

/* Decides about loads until nobody is left who could ask. */
static void decide(int listener)
{
	struct pollfd asked = { listener, POLLIN, 0 };

	while (poll(&asked, 1, -1) > 0 || errno == EINTR) {
		struct seccomp_notif notice = {};
		struct seccomp_notif_resp answer = {};
		union bpf_attr attr = {};
		char path[64];
		int memory;

		if (!(asked.revents & POLLIN)) {
			if (asked.revents)
				return;
			continue;
		}
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &notice))
			continue;
		answer.id = notice.id;
		answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
		snprintf(path, sizeof(path), "/proc/%u/mem", notice.pid);
		memory = open(path, O_RDONLY | O_CLOEXEC);
		if (memory >= 0) {
			size_t length = notice.data.args[2] < sizeof(attr) ? notice.data.args[2] : sizeof(attr);

			if (pread(memory, &attr, length, notice.data.args[1]) == (ssize_t)length &&
			    is_refused(&attr)) {
				answer.flags = 0;
				answer.error = -EPERM;
			}
			close(memory);
		}
		ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
	}
}

int main(int count, char **words)
{
	int pair[2], status, listener;
	pid_t child;

	if (count < 3) {
		fprintf(stderr, "usage: refuse KIND[,KIND...] PROGRAM [ARGUMENT...]\n");
		return 125;
	}
	for (char *word = strtok(words[1], ","); word; word = strtok(NULL, ","))
		add(word);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		fail("socketpair");
	child = fork();
	if (child < 0)
		fail("fork");
	if (!child) {
		/* It does not outlive this process, which would have to answer it. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		listener = install();
		pass(pair[1], listener);
		close(listener);
		execvp(words[2], words + 2);
		fail(words[2]);
	}
	close(pair[1]);
	/* The program hears these itself, and ends as it does. */
	signal(SIGINT, SIG_IGN);
	listener = receive(pair[0]);
	if (listener >= 0)
		decide(listener);
	if (waitpid(child, &status, 0) != child)
		fail("waitpid");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
