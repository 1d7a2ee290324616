/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the programs that watch see of the kernel, and what they share.
 *
 * All of them are tracepoint programs that know the kernel's types (tp_btf): they look at what is given
 * to them and change nothing. Types have only the members that are used; their places are found as an
 * object is loaded (BTF; "compile once, run everywhere"). Names and numbers that may differ between
 * kernels are given by the loader (crates/doctor/src/observe/kernel.rs).
 */
#ifndef LASTBYTE_WATCH_H
#define LASTBYTE_WATCH_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
typedef long long s64;
typedef u8 bool;

#define true 1
#define false 0
#define NULL ((void *)0)

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
/* A function of its own, which keeps programs short. */
#define APART static __attribute__((noinline))
#define FROM_KERNEL __attribute__((preserve_access_index))

/* Of a map's definition. */
#define NUMBER(name, value) int(*name)[value]
#define TYPE(name, value) typeof(value) *name

#define MIN(a, b) ((a) < (b) ? (a) : (b))

/* --- helpers of the kernel (their numbers are part of its interface: bpf.h) ---------------------- */

struct sock;
struct tcp_sock;
struct task_struct;

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value,
					 u64 flags) = (void *)2;
static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static u64 (*const bpf_get_current_pid_tgid)(void) = (void *)14;
static u64 (*const bpf_get_current_uid_gid)(void) = (void *)15;
static long (*const bpf_get_current_comm)(void *name, u32 size) = (void *)16;
static u64 (*const bpf_get_socket_cookie)(void *sk) = (void *)46;
static void *(*const bpf_sk_storage_get)(void *map, void *sk, void *value, u64 flags) = (void *)107;
static long (*const bpf_probe_read_user)(void *to, u32 size, const void *from) = (void *)112;
static long (*const bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static long (*const bpf_probe_read_kernel_str)(void *to, u32 size, const void *from) = (void *)115;
static void *(*const bpf_ringbuf_reserve)(void *ring, u64 size, u64 flags) = (void *)131;
static void (*const bpf_ringbuf_submit)(void *data, u64 flags) = (void *)132;
static u64 (*const bpf_ringbuf_query)(void *ring, u64 what) = (void *)134;
static struct tcp_sock *(*const bpf_skc_to_tcp_sock)(void *sk) = (void *)137;
static struct task_struct *(*const bpf_get_current_task_btf)(void) = (void *)158;

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum {
	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1,     /* memory is taken as entries come */
	BPF_F_CLONE = 512,         /* what a listening socket has, its connections get */
	BPF_SK_STORAGE_CREATE = 1,
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_AVAIL_DATA = 0, /* bytes that are not taken yet */
};

/* --- the kernel's types: only what is used -------------------------------------------------------- */

typedef struct {
	int counter;
} FROM_KERNEL atomic_t;

typedef struct {
	s64 counter;
} FROM_KERNEL atomic64_t;

struct thread_info {
	u32 status; /* x86: TS_COMPAT */
} FROM_KERNEL;

struct mm_struct {
	unsigned long arg_start; /* the command line, words that end in 0 */
	unsigned long arg_end;
} FROM_KERNEL;

struct signal_struct {
	atomic_t live; /* threads */
	int group_exit_code;
	u32 flags;
} FROM_KERNEL;

/* Of signal_struct.flags: group_exit_code is how it ends. */
#define SIGNAL_GROUP_EXIT 4

struct ns_common {
	u32 inum;
} FROM_KERNEL;

struct pid_namespace {
	struct ns_common ns;
} FROM_KERNEL;

/* A process's number in one namespace. */
struct upid {
	int nr;
	struct pid_namespace *ns;
} FROM_KERNEL;

/* The numbers of one process: from that of the first namespace up to that of its own. */
struct pid {
	u32 level;
	struct upid numbers[1];
} FROM_KERNEL;

typedef struct {
	atomic64_t refcnt;
} FROM_KERNEL file_ref_t;

struct file {
	file_ref_t f_ref;     /* since Linux 6.13: negative once nobody has it open */
	atomic64_t f_count;   /* before that: 0 then */
	void *private_data;
} FROM_KERNEL;

struct fdtable {
	u32 max_fds;
	struct file **fd;
} FROM_KERNEL;

struct files_struct {
	struct fdtable *fdt;
} FROM_KERNEL;

struct kernfs_node {
	const char *name;
} FROM_KERNEL;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
} FROM_KERNEL;

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
} FROM_KERNEL;

/* The control groups of a task. */
struct css_set {
	struct cgroup *dfl_cgrp; /* of version 2 */
} FROM_KERNEL;

struct task_struct {
	struct thread_info thread_info;
	u32 flags;
	int exit_code; /* as wait(2) gives it */
	int pid;
	int tgid;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	struct signal_struct *signal;
	struct mm_struct *mm;
	struct files_struct *files;
	struct css_set *cgroups;
	char comm[16];
} FROM_KERNEL;

/* Of task_struct.flags. */
enum {
	PF_EXITING = 0x4,
	PF_KTHREAD = 0x200000,
};

#define EXISTS(type, member) __builtin_preserve_field_info(((type *)0)->member, 2)

/*
 * What a pointer of the kernel's leads to. A plain load does the same and runs faster, but for each the
 * verifier looks through the names of all types of the kernel, on each of the ways to it.
 */
#define READ(to, from) bpf_probe_read_kernel(&(to), sizeof(to), &(from))

/* --- numbers of processes ------------------------------------------------------------------------ */

/* Constant once the object is loaded. */
struct numbering {
	u32 namespace; /* whose numbers are told, an inode number; 0: the first one, which has all */
};

SEC(".rodata.numbering") const volatile struct numbering numbering = {};

/* PID namespaces are nested no deeper than this (MAX_PID_NS_LEVEL). */
#define DEEPEST 32

/* A process's or thread's number; 0: it is not in the namespace whose numbers are told. */
APART u32 number_of(struct pid *pid)
{
	const u64 size = __builtin_preserve_field_info(((struct pid *)0)->numbers[0], 1);
	u32 level = 0;
	int number = 0;

	if (!pid)
		return 0;
	if (!numbering.namespace) {
		READ(number, pid->numbers[0].nr);
		return number;
	}
	READ(level, pid->level);
	/* Most are in that namespace itself, or have none but the first. */
	for (u32 i = 0; i <= DEEPEST && i <= level; i++) {
		const void *place = (const void *)&pid->numbers[0] + (level - i) * size;
		struct pid_namespace *namespace = NULL;
		u32 inum = 0;

		READ(namespace, ((const struct upid *)place)->ns);
		READ(inum, namespace->ns.inum);
		if (inum == numbering.namespace) {
			READ(number, ((const struct upid *)place)->nr);
			return number;
		}
	}
	return 0;
}

/* The number of the process that a thread is of; 0: it has none that is told. */
INLINE u32 process_of(struct task_struct *task)
{
	struct task_struct *leader = NULL;
	struct pid *pid = NULL;

	if (!numbering.namespace)
		return task->tgid;
	READ(leader, task->group_leader);
	READ(pid, leader->thread_pid);
	return number_of(pid);
}

INLINE u32 current_process(void)
{
	return numbering.namespace ? process_of(bpf_get_current_task_btf()) :
				     bpf_get_current_pid_tgid() >> 32;
}

INLINE u32 current_thread(void)
{
	struct pid *pid = NULL;

	if (!numbering.namespace)
		return (u32)bpf_get_current_pid_tgid();
	READ(pid, bpf_get_current_task_btf()->thread_pid);
	return number_of(pid);
}

/* --- who is at work ------------------------------------------------------------------------------ */

/* Whether a thread of the kernel's own is at work, which has no program. */
INLINE bool is_kernels_own(void)
{
	return bpf_get_current_task_btf()->flags & PF_KTHREAD;
}

/* The name of the process at work: that of its first thread, for each may have one of its own. */
INLINE void write_name(u8 name[16])
{
	struct task_struct *leader = NULL;

	READ(leader, bpf_get_current_task_btf()->group_leader);
	bpf_probe_read_kernel(name, 16, &leader->comm);
}

/* The processes of the scope, by number. The loader begins with one, forks add to it. */
struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, 65536);
	NUMBER(map_flags, BPF_F_NO_PREALLOC);
	TYPE(key, u32);
	TYPE(value, u8);
} watched SEC(".maps");

INLINE bool is_watched_process(u32 pid)
{
	return bpf_map_lookup_elem(&watched, &pid) != NULL;
}

#endif
