/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Lines to user space, through a ring that all programs write to.
 */
#ifndef LASTBYTE_RECORD_H
#define LASTBYTE_RECORD_H

#include "watch.h"

enum {
	AF_UNIX = 1,
	AF_INET = 2,
	AF_INET6 = 10,
};


/* --- what is told -------------------------------------------------------------------------------- */

enum kind {
	KIND_SOCKET = 1,
	KIND_HOLDS = 2,
	KIND_CHANGED = 3,
	KIND_RESET_SENT = 4,
	KIND_RESET_RECEIVED = 5,
	KIND_AGAIN = 6,
	KIND_FAILED = 7,
	KIND_NOT_CONNECTED = 8,
	KIND_GONE = 9,
	KIND_IO = 10,
	KIND_UNIX = 11,
	KIND_FORK = 12,
	KIND_EXEC = 13,
	KIND_EXIT = 14,
};

/* As Counts of event.rs has it. */
struct counts {
	u32 write_seq;
	u32 snd_nxt;
	u32 snd_una;
	u32 rcv_nxt;
	u32 copied_seq;
	u32 rtt_us;
	u32 send_buffer;
	u32 receive_buffer;
	u64 bytes_acked;
	u64 bytes_received;
};

/* As Io of event.rs has it. */
struct io {
	u64 over_ns;
	u64 writes;
	u64 written_bytes;
	u64 tiny_writes;
	u64 reads;
	u64 read_bytes;
	u64 not_now;
	u64 held_back;
	u64 held_back_ns;
	u64 turns;
};

struct actor {
	u32 pid; /* 0: not a process's doing */
	u32 tid;
	u32 ending; /* BY_ENDING and how wait(2) will tell it; 0: it goes on */
};

#define BY_ENDING 0x80000000

/* Of record.flags. */
enum {
	HAS_COUNTS = 1,
	IS_HELD = 2,   /* a program has the socket open */
	IS_ACTIVE = 4, /* a reset that answers no packet */
	HAS_HELD = 8,  /* whether IS_HELD was looked at */
	IS_SUBFLOW = 16, /* of an MPTCP connection */
	AT_MOST = 32,    /* of what is unread: some of it may have been read */
};

enum role {
	ROLE_UNKNOWN = 0,
	ROLE_CONNECTED = 1,
	ROLE_ACCEPTED = 2,
	ROLE_LISTENS = 3,
};

/* One line to user space. The loader reads it by these places. */
struct record {
	u64 at_ns;  /* CLOCK_MONOTONIC */
	u64 socket; /* its cookie */
	u32 kind;
	u32 network; /* its namespace, an inode number */
	struct actor by;
	s32 number; /* errno, reason, segments, parent */
	u8 from;
	u8 to;
	u8 role; /* or why it was sent again: enum again */
	u8 family;
	u8 flags;
	u8 locks;
	u16 local_port;
	u16 peer_port;
	u16 reserved;
	u8 comm[16];
	u32 reserved_too;
	union {
		struct {
			u8 local[16];
			u8 peer[16];
			struct counts counts;
		};
		struct io io;
		struct {
			u32 bytes;
			u32 sender;
			u32 path_length;
			u8 path[108];
		} unread;
	};
};

_Static_assert(__builtin_offsetof(struct record, local) == 72, "observe/kernel/record.rs has it so");
_Static_assert(__builtin_offsetof(struct record, counts) == 104, "observe/kernel/record.rs has it so");
_Static_assert(sizeof(struct record) == 192, "observe/kernel/record.rs has it so");

#define RING_BYTES (8 * 1024 * 1024)

struct {
	NUMBER(type, BPF_MAP_TYPE_RINGBUF);
	NUMBER(max_entries, RING_BYTES);
} records SEC(".maps");

/* Lines about those who are asked about that found no room. */
struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u64);
} dropped SEC(".maps");

/*
 * What others do, who are not asked about, gets no more of the ring than this: however much it is, there is
 * room for those who are.
 */
#define MOST_OF_OTHERS (RING_BYTES / 8)

/* A line with nothing in it, or NULL where there is no room for it. Only those asked about are missed. */
INLINE struct record *begin(u32 kind, u64 at_ns, u64 socket, bool is_asked)
{
	struct record *record;

	if (!is_asked && bpf_ringbuf_query(&records, BPF_RB_AVAIL_DATA) > MOST_OF_OTHERS)
		return NULL;
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		if (!is_asked)
			return NULL;
		u32 first = 0;
		u64 *count = bpf_map_lookup_elem(&dropped, &first);

		if (count)
			*count += 1;
		return NULL;
	}
	__builtin_memset(record, 0, sizeof(*record));
	record->kind = kind;
	record->at_ns = at_ns;
	record->socket = socket;
	return record;
}

/* Who reads looks ten times a second and is not woken. */
INLINE void end(struct record *record)
{
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

/* The current process and thread; nobody, where they have no numbers that are told. */
INLINE struct actor caller(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct actor by = { .pid = current_process(), .tid = current_thread() };

	if (task->flags & PF_EXITING) {
		struct signal_struct *signal = NULL;
		u32 flags = 0;
		int code = task->exit_code;

		READ(signal, task->signal);
		READ(flags, signal->flags);
		if (flags & SIGNAL_GROUP_EXIT)
			READ(code, signal->group_exit_code);
		by.ending = BY_ENDING | (u32)code;
	}
	return by;
}

/* No local port is free: nothing was sent. */
#define EADDRNOTAVAIL 99

#endif
