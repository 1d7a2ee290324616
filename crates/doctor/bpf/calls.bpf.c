// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * System calls: how often, for how long, on what, with what result; and waiting calls after which
 * nothing was done.
 *
 * While these are attached, every system call of the machine takes a longer way. So they are attached for
 * processes that are asked about, and for others in short windows alone. They count in maps, which
 * the loader empties twice a second; nothing is told one by one.
 *
 * A waiting call (epoll_wait, poll, select and their kin) that came back at once with something
 * ready, and after which its thread waits again without a read, a write or the like in between, is idle: a
 * loop of such calls burns processor time for nothing.
 */
#include "record.h"

/* --- the kernel's types: only what is used -------------------------------------------------------- */

/* Arguments of a system call on x86-64. */
struct pt_regs {
	unsigned long di;
	unsigned long si;
	unsigned long dx;
} FROM_KERNEL;

/* On arm64. */
struct pt_regs___arm64 {
	u64 regs[31];
} FROM_KERNEL;

struct inode {
	u16 i_mode;
} FROM_KERNEL;

struct file___inode {
	struct inode *f_inode;
} FROM_KERNEL;

struct sock_common {
	atomic64_t skc_cookie;
} FROM_KERNEL;

struct sock {
	struct sock_common __sk_common;
} FROM_KERNEL;

struct socket {
	u16 type; /* SOCK_STREAM and so on */
	struct sock *sk;
} FROM_KERNEL;

/* Of inode.i_mode. */
#define S_IFMT 0170000
#define S_IFSOCK 0140000

/* Of thread_info.status: a call by the way of 32 bits, which has other numbers. */
#define TS_COMPAT 2

/* As user space has it. */
struct pollfd {
	s32 fd;
	u16 events;
	u16 revents;
};

#define POLLIN 1
#define POLLOUT 4

/* --- what the loader says ----------------------------------------------------------------------- */

#define MOST_CALLS 1024

/* What is known of a call, by its number. The loader (observe/kernel/calls.rs) has the same bits. */
enum {
	IS_CONNECT = 1,
	WAITS = 2,  /* until something is ready */
	DOES = 4,   /* something to a descriptor */
	HAS_FD = 8, /* as its first argument */
	IS_IOCTL = 16,
	IS_EPOLL = 32,
	IS_POLL = 64,
	IS_SELECT = 128,
};

struct given {
	u32 everybody;  /* not the processes of the scope alone */
	u32 epoll_data; /* where epoll_event has its data, bytes */
	u8 kinds[MOST_CALLS];
};

SEC(".rodata.given") const volatile struct given given = {};

/* --- what is counted ------------------------------------------------------------------------------ */

struct call {
	u32 pid;
	u32 tid;
	u32 number;
	s32 fd;      /* -1: none */
	u32 command; /* of an ioctl on a socket that looks at its queues */
};

#define MOST_ERRORS 4

struct tally {
	u64 count;
	u64 returned;
	u64 zero;
	u64 in_call_ns;
	u64 highest;
	u64 socket; /* its cookie; 0: none, or it has none yet */
	u32 type; /* of socket: SOCK_STREAM and so on; 0: it is none */
	u32 reserved;
	struct {
		u32 errno;
		u32 count;
	} errors[MOST_ERRORS];
};

/* The least recent go where there are more: threads that have ended, descriptors that are closed. */
struct {
	NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	NUMBER(max_entries, 16384);
	TYPE(key, struct call);
	TYPE(value, struct tally);
} calls SEC(".maps");

/* Waiting calls of a thread that found something ready. The key's descriptor is that of an epoll. */
struct readiness {
	u64 count;
	u64 idle;
	u64 data;   /* of the epoll_event that was voted for */
	u64 socket; /* of the descriptor */
	u32 ready;  /* bits of poll(2), of idle calls */
	s32 fd;     /* that was ready most often in these; -1: not known */
	u32 votes;  /* for `fd` or `data`, less those against it */
	u32 type;   /* of socket */
};

struct {
	NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	NUMBER(max_entries, 8192);
	TYPE(key, struct call);
	TYPE(value, struct readiness);
} ready SEC(".maps");

/* A thread between entry and return, and between two waiting calls. */
struct thread {
	u64 entered_ns; /* 0: it is in no call that is counted */
	u64 arguments[3];
	u32 number;
	/* What the last waiting call found, if nothing was done since. */
	u32 is_pending;
	struct call pending;
	s32 fd;
	u32 ready;
	u64 data;
};

struct {
	NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	NUMBER(max_entries, 16384);
	TYPE(key, u32);
	TYPE(value, struct thread);
} threads SEC(".maps");

/* --- descriptors ---------------------------------------------------------------------------------- */

/* The cookie of the socket that a descriptor of the current process is, and its type; 0 if it is none. */
APART u64 socket_behind(s32 fd, u32 *type)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct files_struct *files = task->files;
	struct fdtable *table = NULL;
	struct file *file = NULL;
	struct file **place;
	struct inode *inode = NULL;
	struct socket *socket = NULL;
	struct sock *sk = NULL;
	u64 cookie = 0;
	u16 mode = 0;
	u16 kind = 0;
	u32 most = 0;

	*type = 0;
	if (fd < 0 || !files)
		return 0;
	READ(table, files->fdt);
	if (!table)
		return 0;
	READ(most, table->max_fds);
	if ((u32)fd >= most)
		return 0;
	READ(place, table->fd);
	READ(file, place[fd]);
	if (!file)
		return 0;
	READ(inode, ((struct file___inode *)file)->f_inode);
	if (!inode)
		return 0;
	READ(mode, inode->i_mode);
	if ((mode & S_IFMT) != S_IFSOCK)
		return 0;
	READ(socket, file->private_data);
	if (!socket)
		return 0;
	READ(kind, socket->type);
	*type = kind;
	READ(sk, socket->sk);
	if (!sk)
		return 0;
	READ(cookie, sk->__sk_common.skc_cookie.counter);
	return cookie;
}

/* --- entry ---------------------------------------------------------------------------------------- */

/* The last waiting call was for nothing. */
INLINE void note_idle(struct thread *thread)
{
	struct readiness *entry = bpf_map_lookup_elem(&ready, &thread->pending);
	bool is_same;

	if (!entry)
		return;
	entry->idle++;
	entry->ready |= thread->ready;
	/* The majority, if there is one (Boyer and Moore, 1981). */
	is_same = entry->fd == thread->fd && entry->data == thread->data;
	if (is_same) {
		entry->votes++;
	} else if (entry->votes) {
		entry->votes--;
	} else {
		entry->votes = 1;
		entry->fd = thread->fd;
		entry->data = thread->data;
		entry->socket = socket_behind(thread->fd, &entry->type);
	}
}

SEC("tp_btf/sys_enter")
int call_entered(u64 *ctx)
{
	struct pt_regs *regs = (struct pt_regs *)ctx[0];
	u64 number = ctx[1];
	/* Here it is a name that no other thread has. */
	u32 tid = (u32)bpf_get_current_pid_tgid();
	struct task_struct *task;
	struct thread *thread;
	u32 kind;
	u32 pid;

	if (number >= MOST_CALLS)
		return 0;
	kind = given.kinds[number];
	if (!kind)
		return 0;
	pid = current_process();
	if (!pid || !(given.everybody || is_watched_process(pid)))
		return 0;
	task = bpf_get_current_task_btf();
	if (EXISTS(struct thread_info, status) && task->thread_info.status & TS_COMPAT)
		return 0;
	thread = bpf_map_lookup_elem(&threads, &tid);
	if (!thread) {
		struct thread none = {};

		bpf_map_update_elem(&threads, &tid, &none, BPF_NOEXIST);
		thread = bpf_map_lookup_elem(&threads, &tid);
		if (!thread)
			return 0;
	}
	if (kind & WAITS && thread->is_pending)
		note_idle(thread);
	if (kind & (WAITS | DOES))
		thread->is_pending = 0;
	thread->number = number;
	if (EXISTS(struct pt_regs, di)) {
		thread->arguments[0] = regs->di;
		thread->arguments[1] = regs->si;
		thread->arguments[2] = regs->dx;
	} else {
		struct pt_regs___arm64 *arm = (struct pt_regs___arm64 *)regs;

		thread->arguments[0] = arm->regs[0];
		thread->arguments[1] = arm->regs[1];
		thread->arguments[2] = arm->regs[2];
	}
	thread->entered_ns = bpf_ktime_get_ns();
	return 0;
}

/* --- return --------------------------------------------------------------------------------------- */

/* The first descriptor of poll's that is ready. */
#define MOST_POLLED 64

INLINE void look_at_poll(struct thread *thread)
{
	const struct pollfd *all = (const struct pollfd *)thread->arguments[0];
	struct pollfd one;

	for (u32 i = 0; i < MOST_POLLED && i < thread->arguments[1]; i++) {
		if (bpf_probe_read_user(&one, sizeof(one), all + i))
			return;
		if (one.revents) {
			thread->fd = one.fd;
			thread->ready = one.revents;
			return;
		}
	}
}

/* The lowest bit that is set. */
INLINE u32 lowest(u64 word)
{
	u32 bit = 0;

	for (int step = 32; step; step /= 2) {
		if (!(word & ((1ULL << step) - 1))) {
			word >>= step;
			bit += step;
		}
	}
	return bit;
}

/* The first descriptor of a set of select's, as far as FD_SETSIZE goes. */
#define WORDS 16

INLINE bool look_at_set(struct thread *thread, u64 set, u32 bits)
{
	u64 word;

	if (!set)
		return false;
	for (u32 i = 0; i < WORDS && i * 64 < thread->arguments[0]; i++) {
		if (bpf_probe_read_user(&word, sizeof(word), (const u64 *)set + i))
			return false;
		if (word) {
			thread->fd = i * 64 + lowest(word);
			thread->ready = bits;
			return true;
		}
	}
	return false;
}

INLINE void look_at_epoll(struct thread *thread)
{
	const u8 *event = (const u8 *)thread->arguments[1];
	u32 bits = 0;

	bpf_probe_read_user(&bits, sizeof(bits), event);
	bpf_probe_read_user(&thread->data, sizeof(thread->data), event + given.epoll_data);
	thread->ready = bits & 0xffff;
}

/* A waiting call that waited for longer than this did not come back at once, nanoseconds. */
#define AT_ONCE_NS 1000000

/* A waiting call has found something. */
INLINE void note_ready(struct thread *thread, const struct call *key, u32 kind, u64 took_ns)
{
	struct readiness *entry = bpf_map_lookup_elem(&ready, key);

	if (!entry) {
		struct readiness first = { .fd = -1 };

		bpf_map_update_elem(&ready, key, &first, BPF_NOEXIST);
		entry = bpf_map_lookup_elem(&ready, key);
		if (!entry)
			return;
	}
	entry->count++;
	if (took_ns > AT_ONCE_NS)
		return;
	thread->is_pending = 1;
	thread->pending = *key;
	thread->fd = -1;
	thread->ready = 0;
	thread->data = 0;
	if (kind & IS_EPOLL)
		look_at_epoll(thread);
	else if (kind & IS_POLL)
		look_at_poll(thread);
	else if (!look_at_set(thread, thread->arguments[2], POLLOUT))
		look_at_set(thread, thread->arguments[1], POLLIN);
}

INLINE void note_error(struct tally *counts, u32 errno)
{
	for (u32 i = 0; i < MOST_ERRORS; i++) {
		if (!counts->errors[i].count)
			counts->errors[i].errno = errno;
		if (counts->errors[i].errno == errno) {
			counts->errors[i].count++;
			return;
		}
	}
}

/* What an ioctl asks of a socket's queues; anything else is 0. */
INLINE u32 command(u64 argument)
{
	u32 asked = (u32)argument;

	/* SIOCOUTQ, SIOCINQ, SIOCOUTQNSD */
	return asked == 0x5411 || asked == 0x541b || asked == 0x894b ? asked : 0;
}

#define SOCK_STREAM 1

/* Of errno: what connect() says before it sends anything. */
#define EPERM 1
#define EACCES 13
#define EADDRINUSE 98
#define ENETUNREACH 101

/* As user space has it, of both families. */
struct sockaddr {
	u16 family;
	u16 port;
	u32 address;
	u8 address6[16];
};

/* That a connection was refused by this machine itself. */
INLINE void tell_not_connected(const struct thread *thread, u32 errno)
{
	const void *place = (const void *)thread->arguments[1];
	struct sockaddr to = {};
	struct record *record;
	u32 type;

	if (errno != EPERM && errno != EACCES && errno != EADDRINUSE && errno != EADDRNOTAVAIL &&
	    errno != ENETUNREACH)
		return;
	/* What was counted for this descriptor may have been another socket. */
	socket_behind((s32)thread->arguments[0], &type);
	if (type != SOCK_STREAM)
		return;
	/* The longer one, or the shorter one at the end of a page. */
	if (bpf_probe_read_user(&to, sizeof(to), place) && bpf_probe_read_user(&to, 8, place))
		return;
	if (to.family != AF_INET && to.family != AF_INET6)
		return;
	record = begin(KIND_NOT_CONNECTED, bpf_ktime_get_ns(), 0, true);
	if (!record)
		return;
	record->family = to.family;
	record->peer_port = __builtin_bswap16(to.port);
	if (to.family == AF_INET6)
		__builtin_memcpy(record->peer, to.address6, sizeof(record->peer));
	else
		*(u32 *)record->peer = to.address;
	record->number = errno;
	record->by = caller();
	write_name(record->comm);
	end(record);
}

SEC("tp_btf/sys_exit")
int call_returned(u64 *ctx)
{
	s64 returned = (s64)ctx[1];
	u32 tid = (u32)bpf_get_current_pid_tgid();
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);
	struct call key = { .fd = -1 };
	struct tally *counts;
	u64 took_ns;
	u32 kind;

	if (!thread || !thread->entered_ns)
		return 0;
	took_ns = bpf_ktime_get_ns() - thread->entered_ns;
	thread->entered_ns = 0;
	key.pid = current_process();
	key.tid = current_thread();
	key.number = thread->number;
	if (key.number >= MOST_CALLS)
		return 0;
	kind = given.kinds[key.number];
	if (kind & HAS_FD)
		key.fd = (s32)thread->arguments[0];
	if (kind & IS_IOCTL)
		key.command = command(thread->arguments[1]);
	counts = bpf_map_lookup_elem(&calls, &key);
	if (!counts) {
		struct tally first = {};

		if (kind & HAS_FD)
			first.socket = socket_behind(key.fd, &first.type);
		bpf_map_update_elem(&calls, &key, &first, BPF_NOEXIST);
		counts = bpf_map_lookup_elem(&calls, &key);
		if (!counts)
			return 0;
	}
	counts->count++;
	counts->in_call_ns += took_ns;
	if (kind & IS_SELECT && (u32)thread->arguments[0] > counts->highest)
		counts->highest = (u32)thread->arguments[0];
	if (returned < 0) {
		note_error(counts, (u32)-returned);
		if (kind & IS_CONNECT)
			tell_not_connected(thread, (u32)-returned);
	} else if (returned == 0) {
		counts->zero++;
	} else {
		counts->returned += returned;
	}
	if (kind & WAITS && returned > 0)
		note_ready(thread, &key, kind, took_ns);
	return 0;
}

SEC("license") const char terms[] = "Dual MIT/GPL";
