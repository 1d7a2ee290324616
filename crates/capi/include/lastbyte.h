/*
 * lastbyte.h: get every byte of a TCP connection to the other side, and know it.
 *
 *     if (lb_finish(fd, 10000, NULL) != 0)
 *         perror("not everything arrived");
 *     close(fd);
 *
 * write() returning means that the local kernel took the bytes. close() may throw them away: with
 * unread input it resets the connection, and nobody is told.
 *
 * Every function may be called from any thread, at any time, on descriptors that the program keeps
 * open meanwhile; none touches a signal. None but lb_dial keeps anything between calls or starts a
 * thread: that one keeps what it learned of hosts, and a few descriptors for each enum lb_resolver
 * that was asked for, which a child process makes anew. After success errno says nothing.
 *
 * The promise to programs that are linked to liblastbyte.so.0: no function goes away or changes
 * what it takes, no number changes its meaning, no struct changes its size or order. What is new
 * takes the place of reserved fields. In what the library fills these are -1, which means unknown
 * in every field; in what the program fills they have to be 0, which means the default. New numbers
 * may come to lb_why, lb_peer, lb_end and lb_undialed.
 *
 * Made by cbindgen from the sources in Rust: do not edit. MIT OR Apache-2.0.
 */

#ifndef LASTBYTE_H
#define LASTBYTE_H

#include <stddef.h>
#include <stdint.h>

/* All of it by default: struct lb_options options = LB_OPTIONS_INIT; */
#define LB_OPTIONS_INIT { LB_LEVEL_ACKED, -1, -1, -1, -1, { 0, 0, 0, 0 } }

/* All of it by default: struct lb_dial_options options = LB_DIAL_OPTIONS_INIT; */
#define LB_DIAL_OPTIONS_INIT \
    { -1, LB_FAMILY_BOTH, LB_RESOLVER_DNS, 0, 0, 0, 0, 0, NULL, NULL, NULL, { 0, 0, 0, 0, 0 } }

/// How far all bytes of a connection are known to have come. A greater number is stronger.
enum lb_level {
    /// Nothing was done: the descriptor is no connected stream socket, or the options are wrong.
    LB_LEVEL_NONE = 0,
    /// The local kernel accepted the bytes: `write` returned. They may still be discarded.
    LB_LEVEL_WRITTEN = 1,
    /// They left the send queue for the device at least once. They may still be lost.
    LB_LEVEL_SENT = 2,
    /// The peer's kernel acknowledged them. Its program may not have read them.
    LB_LEVEL_ACKED = 3,
    /// Acked, and the peer's FIN came after ours was acknowledged. It does not prove that the
    /// peer's program read anything: the program may have half-closed early, or be a proxy.
    LB_LEVEL_CLOSED = 4,
    /// The peer's program confirmed them. TCP cannot prove that: a finish that wants it fails once
    /// everything else is proven.
    LB_LEVEL_CONFIRMED = 5,
};

/// How the peer's direction had ended when a finish ended.
enum lb_peer {
    /// Its stream ended, and how is not known; or nothing was done.
    LB_PEER_UNKNOWN = 0,
    /// It was still connected and had not ended its direction.
    LB_PEER_OPEN = 1,
    /// It ended its direction with a FIN.
    LB_PEER_FIN = 2,
    /// It reset the connection, or our kernel gave it up.
    LB_PEER_RESET = 3,
    /// It did not end its direction before the deadline.
    LB_PEER_SILENT = 4,
};

/// Why a finish could not prove the wanted level. In brackets: `errno`.
enum lb_why {
    /// It was proven (0).
    LB_WHY_PROVEN = 0,
    /// The deadline passed first (ETIMEDOUT).
    LB_WHY_DEADLINE = 1,
    /// The peer reset the connection, or our kernel gave it up (ECONNRESET).
    LB_WHY_RESET = 2,
    /// The connection was closed or never established, so no FIN could be queued (ENOTCONN).
    LB_WHY_NOT_CONNECTED = 3,
    /// `LB_LEVEL_CLOSED` was wanted, and the peer ended its direction before it acknowledged our
    /// FIN: its FIN proves nothing about our bytes (EPROTO).
    LB_WHY_EARLY_FIN = 4,
    /// The kernel cannot prove the level (EOPNOTSUPP): MPTCP and vsock count nothing, no transport
    /// has `LB_LEVEL_CONFIRMED`, and `LB_LEVEL_CLOSED` needs `bytes_read`. All steps were taken
    /// that prevent a loss.
    LB_WHY_UNKNOWABLE = 5,
    /// The kernel refused a system call that should succeed on every connection (the kernel's
    /// `errno`).
    LB_WHY_REFUSED = 6,
    /// Nothing was done: no such descriptor is open (EBADF).
    LB_WHY_NOT_OPEN = 7,
    /// Nothing was done: the descriptor is a file, a pipe or something else, not a socket
    /// (ENOTSOCK).
    LB_WHY_NO_SOCKET = 8,
    /// Nothing was done: a datagram socket has no stream to end (EPROTOTYPE).
    LB_WHY_NO_STREAM = 9,
    /// Nothing was done: a listening socket, which has no peer (EINVAL).
    LB_WHY_LISTENING = 10,
    /// Nothing was done: the options are invalid (EINVAL).
    LB_WHY_BAD_OPTIONS = 11,
};

/// How a stream ended that was read to its end.
enum lb_end {
    /// Not known.
    LB_END_UNKNOWN = 0,
    /// The peer ended its direction with a FIN after the last byte that was read.
    LB_END_FIN = 1,
    /// The connection was reset: bytes may be missing, even if the end looked clean.
    LB_END_RESET = 2,
};

/// Which addresses to dial, or which one was.
enum lb_family {
    /// Both, as the network has them; of a connection: there is none.
    LB_FAMILY_BOTH = 0,
    /// IPv4 alone.
    LB_FAMILY_IPV4 = 4,
    /// IPv6 alone.
    LB_FAMILY_IPV6 = 6,
};

/// What resolves the addresses of a name.
enum lb_resolver {
    /// The DNS servers of `/etc/resolv.conf`, for both families at once, by this library; names of
    /// `/etc/hosts` come first.
    LB_RESOLVER_DNS = 0,
    /// `getaddrinfo`, in a thread: for names that only `/etc/nsswitch.conf` leads to.
    LB_RESOLVER_SYSTEM = 1,
};

/// Why a dial did not connect. In brackets: `errno`.
enum lb_undialed {
    /// It did (0).
    LB_UNDIALED_CONNECTED = 0,
    /// Nothing was done: the host can be none (EINVAL), or is NULL (EFAULT).
    LB_UNDIALED_BAD_HOST = 1,
    /// Nothing was done: port 0 (EINVAL).
    LB_UNDIALED_BAD_PORT = 2,
    /// Nothing was done: the options make no sense (EINVAL).
    LB_UNDIALED_BAD_OPTIONS = 3,
    /// Nothing was done: the system's configuration of DNS cannot be used (EIO).
    LB_UNDIALED_NO_RESOLVER = 4,
    /// Nothing was done: no descriptor or memory is left to wait with (the kernel's own number).
    LB_UNDIALED_NO_EVENTS = 5,
    /// The name has no address (ENOENT).
    LB_UNDIALED_NO_ADDRESS = 6,
    /// Nobody could say whether the name has an address: later somebody may (EAGAIN).
    LB_UNDIALED_NO_ANSWER = 7,
    /// Every attempt failed (the kernel's own number for the first of them).
    LB_UNDIALED_ALL_FAILED = 8,
    /// The time passed first (ETIMEDOUT).
    LB_UNDIALED_TIMED_OUT = 9,
    /// A bug in this library (ENOTRECOVERABLE).
    LB_UNDIALED_BROKEN = 10,
};

/// What a finish proved about a connection's outgoing bytes. `lb_finish` fills all of it; it need
/// not be initialised. An unknown count is -1, never 0.
struct lb_receipt {
    /// The highest level that all written bytes reached: an `enum lb_level`.
    int32_t level;
    /// How the peer ended: an `enum lb_peer`.
    int32_t peer;
    /// Why less than the wanted level was proven: an `enum lb_why`, 0 if it was proven.
    int32_t why;
    /// The `errno` of this finish; 0 if it was proven.
    int32_t error;
    /// Bytes that the local kernel accepted over the life of the connection. -1: not known
    /// (`written` of `lb_options`).
    int64_t written;
    /// Of those, bytes that left the send queue at least once.
    int64_t sent;
    /// Of those, bytes that the peer's kernel acknowledged.
    int64_t acked;
    /// Bytes written and not acknowledged. -1 if the kernel does not count them: Unix sockets,
    /// MPTCP. What you wrote minus this has arrived.
    int64_t unacked;
    /// Bytes from the peer that arrived while finishing and were discarded.
    int64_t drained;
    /// From the start of the finish to this receipt, in microseconds.
    int64_t took_us;
    /// For future counts: -1 each.
    int64_t reserved[6];
};

/// The options of a finish. Begin with the defaults, and change what you need:
///
///     struct lb_options options = LB_OPTIONS_INIT;
///     options.want = LB_LEVEL_CLOSED;
struct lb_options {
    /// The level to wait for: an `enum lb_level`, default `LB_LEVEL_ACKED`.
    int32_t want;
    /// How long to wait for proof, in milliseconds. Negative, the default: 30,000. 0: check without
    /// waiting.
    int32_t timeout_ms;
    /// How many bytes from the peer to read and discard at most; further bytes stay unread.
    /// Negative, the default: 1,048,576. 0: read nothing, and leave the bytes for a later read.
    int64_t drain_limit;
    /// How many bytes you wrote over the life of the connection; negative, the default: not known.
    /// With it the receipt has all counts.
    int64_t written;
    /// How many bytes you read over the life of the connection; negative, the default: not known.
    /// It is used only if you called `lb_prepare` before the first read. Without it
    /// `LB_LEVEL_CLOSED` can seldom be proven, because a FIN looks like a reset.
    int64_t bytes_read;
    /// For future options: 0 each.
    int64_t reserved[4];
};

/// How to dial. Begin with the defaults, and change what you need:
///
///     struct lb_dial_options options = LB_DIAL_OPTIONS_INIT;
///     options.congestion = "bbr";
struct lb_dial_options {
    /// How long the dial may take, name resolution included, in milliseconds. Negative, the
    /// default: 30,000. 0: it gives up at once.
    int32_t timeout_ms;
    /// Which addresses to use: an `enum lb_family`, default `LB_FAMILY_BOTH`.
    int32_t family;
    /// What resolves names: an `enum lb_resolver`, default `LB_RESOLVER_DNS`.
    int32_t resolver;
    /// How long an attempt runs alone before the next address is tried beside it, in milliseconds.
    /// 0, the default: 200, or a delay derived from the round-trip time of an earlier connection.
    int32_t attempt_delay_ms;
    /// The send buffer in bytes (`SO_SNDBUF`). 0, the default: the kernel sizes it.
    int32_t send_buffer;
    /// The receive buffer in bytes (`SO_RCVBUF`). 0, the default: the kernel sizes it.
    int32_t receive_buffer;
    /// The mark of its packets (`SO_MARK`, needs `CAP_NET_ADMIN`). 0, the default: none.
    uint32_t mark;
    /// 1: request Multipath TCP. If this kernel or the peer does not support it, the connection is
    /// plain TCP. 0, the default: plain TCP.
    int32_t mptcp;
    /// The congestion control, such as "bbr". NULL, the default: the system's.
    const char *congestion;
    /// The source address, as text; addresses of the other family are not tried. NULL, the default:
    /// the kernel's choice.
    const char *source;
    /// The only interface that its packets may use, such as "eth0" (`SO_BINDTODEVICE`). NULL, the
    /// default: any.
    const char *interface;
    /// For future options: 0 each.
    int64_t reserved[5];
};

/// How a dial went. `lb_dial` fills all of it; it need not be initialised.
struct lb_dialed {
    /// The `errno` of this dial; 0 if it connected.
    int32_t error;
    /// Why there is no connection: an `enum lb_undialed`, 0 if there is one.
    int32_t why;
    /// The family of the connection: `LB_FAMILY_IPV4` or `LB_FAMILY_IPV6`; 0 if there is none.
    int32_t family;
    /// How many attempts were begun.
    int32_t attempts;
    /// How long it took, in microseconds.
    int64_t took_us;
    /// The peer, such as `192.0.2.1:443` or `[2001:db8::1]:443`; empty if there is no connection.
    char peer[64];
    /// Our address, likewise.
    char local[64];
    /// The error in one line: that of the first attempt, then the others. It is truncated if too
    /// long, and always ends with NUL. "" if it connected.
    char text[512];
    /// For future fields: -1 each.
    int64_t reserved[6];
};

/// What the kernel reports about one TCP connection. `lb_info` fills all of it; it need not be
/// initialised. What this kernel does not report is -1, never 0.
struct lb_info {
    /// The state, by the numbers of netinet/tcp.h: 1 is `TCP_ESTABLISHED`.
    int32_t state;
    /// The segment size for sending, in bytes.
    int32_t snd_mss;
    /// The smoothed round-trip time, in microseconds.
    int64_t rtt_us;
    /// The shortest recent round-trip time, in microseconds.
    int64_t min_rtt_us;
    /// Segments in flight. A reset sets it to 0: no proof of delivery.
    int64_t unacked_segments;
    /// The congestion window, in segments.
    int64_t cwnd_segments;
    /// Retransmitted segments, over the life of the connection.
    int64_t total_retrans_segments;
    /// The pacing rate in bytes per second; `INT64_MAX` without pacing.
    int64_t pacing_rate;
    /// The recent delivery rate, in bytes per second.
    int64_t delivery_rate;
    /// Bytes acknowledged: our SYN (where we connected) and our FIN count one each.
    int64_t bytes_acked;
    /// Bytes received in order: the peer's FIN counts one.
    int64_t bytes_received;
    /// Bytes sent, retransmissions included.
    int64_t bytes_sent;
    /// Bytes retransmitted.
    int64_t bytes_retrans;
    /// Bytes written and not sent yet.
    int64_t notsent_bytes;
    /// The peer's window as last advertised, in bytes.
    int64_t snd_wnd;
    /// Microseconds with bytes to send or in flight.
    int64_t busy_us;
    /// Microseconds limited by the peer's receive window.
    int64_t rwnd_limited_us;
    /// Microseconds limited by our send buffer.
    int64_t sndbuf_limited_us;
    /// For future figures: -1 each.
    int64_t reserved[8];
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/// The name of an `enum lb_level`, such as "acked"; "invalid" for any other number. Never NULL; not
/// to be freed.
const char *lb_level_name(int level);

/// The name of an `enum lb_peer`, such as "FIN"; "invalid" for any other number. Never NULL; not to
/// be freed.
const char *lb_peer_name(int peer);

/// The text of an `enum lb_why`, such as "the deadline passed"; "invalid" for any other number.
/// Never NULL; not to be freed.
const char *lb_why_name(int why);

/// The name of an `enum lb_end`, such as "RST"; "invalid" for any other number. Never NULL; not to
/// be freed.
const char *lb_end_name(int end);

/// The text of an `enum lb_undialed`, such as "the name has no address"; "invalid" for any other
/// number. Never NULL; not to be freed.
const char *lb_undialed_name(int why);

/// Writes a receipt as text, such as "acked: 0 bytes left unacked, peer still connected, 0.3 ms",
/// and as `snprintf` does: at most `room` bytes with the final NUL, and returns the length of the
/// whole text without it. `buffer` may be NULL if `room` is 0.
///
/// Returns -1 with `errno` EFAULT if `receipt` is NULL, or if `buffer` is NULL and `room` is not 0.
int lb_receipt_text(const struct lb_receipt *receipt, char *buffer, size_t room);

/// Ends the connection of a stream socket without losing bytes: ends the sending direction (as
/// `shutdown` with `SHUT_WR`), waits until the peer's kernel has acknowledged all written bytes,
/// and reads and discards what the peer still sends, at most 1 MiB, so that closing does not become
/// a reset. The descriptor stays open: `close` it next.
///
/// It blocks for at most `timeout_ms` milliseconds, even if the descriptor is non-blocking. A
/// negative `timeout_ms` means 30,000; 0 means to check without waiting.
///
/// `receipt` may be NULL; otherwise all of it is filled, whatever is returned.
///
/// Returns 0 if everything is proven to be acknowledged. Otherwise -1, and `errno` is
///
/// - ETIMEDOUT: the time passed first; also for a connection that is not established yet.
/// - ECONNRESET: the peer reset the connection, or the kernel gave it up.
/// - ENOTCONN: it is not connected, or no longer connected.
/// - EBADF, ENOTSOCK: it is not open, or not a socket.
/// - EPROTOTYPE: it is not a stream socket (UDP).
/// - EINVAL: it is listening.
/// - EOPNOTSUPP: the kernel cannot prove it for this kind of socket (MPTCP, vsock). All steps were
///   taken that prevent a loss.
/// - ENOTRECOVERABLE: a bug in this library; nothing is known.
/// - another: the kernel's, if it refused a system call that should succeed on every connection.
int lb_finish(int fd, int timeout_ms, struct lb_receipt *receipt);

/// As `lb_finish`, with options; `options` may be NULL.
///
/// Returns 0 if the wanted level is proven. Otherwise -1, and `errno` is one of those of
/// `lb_finish`, or
///
/// - EPROTO: `LB_LEVEL_CLOSED` was wanted, and the peer ended its direction before it acknowledged
///   our FIN.
/// - EOPNOTSUPP: also if `LB_LEVEL_CONFIRMED` was wanted, or `LB_LEVEL_CLOSED` without
///   `bytes_read`: the receipt says what is proven.
/// - EINVAL: the options are invalid, and nothing was done: `want` is not a level, or a reserved
///   field is not 0.
int lb_finish_options(int fd, const struct lb_options *options, struct lb_receipt *receipt);

/// Connects to a host, a name or an address, by TCP. It resolves both address families at once and
/// tries addresses in parallel (RFC 8305, Happy Eyeballs): a dead address costs 200 milliseconds,
/// not its time-out. It remembers what worked for the next dial.
///
/// `options` may be NULL for the defaults. `dialed` may be NULL; otherwise all of it is filled,
/// whatever is returned.
///
/// Returns a descriptor: connected, blocking, closed on `exec`, as if `lb_prepare` had been called.
/// You have to close it. Otherwise it returns -1, leaves no descriptor open, and `errno` is
///
/// - ETIMEDOUT: `timeout_ms` passed, or the kernel's own time for the first address.
/// - ENOENT: the name has no address.
/// - EAGAIN: it is not known whether the name has one: no server answered, or a server failed.
/// - ECONNREFUSED, ENETUNREACH, EHOSTUNREACH, EACCES, EADDRNOTAVAIL, ... : the kernel's error for
///   the first failed attempt; also ENOENT, EPERM or ENODEV for an option that it refused, which
///   `text` names.
/// - EINVAL: `host` is not a valid host, `port` is 0, or the options are invalid. Nothing was done.
/// - EFAULT: `host` is NULL.
/// - EMFILE, ENFILE, ENOMEM: no descriptor or memory is left.
/// - EIO: the system's configuration of DNS cannot be read.
/// - ENOTRECOVERABLE: a bug in this library; nothing is known.
///
/// `why` distinguishes reasons that share a number. Signals do not end the call.
int lb_dial(const char *host,
            uint16_t port,
            const struct lb_dial_options *options,
            struct lb_dialed *dialed);

/// Asks the kernel about a TCP connection (`TCP_INFO`) and fills all of `info`.
///
/// Returns 0, or -1 with `errno`: EBADF, ENOTSOCK, EOPNOTSUPP or ENOPROTOOPT (no TCP socket),
/// EFAULT (`info` is NULL).
int lb_info(int fd, struct lb_info *info);

/// Selects the congestion control of a TCP socket by its name, such as "bbr", at any time
/// (`TCP_CONGESTION`). It governs what this side sends.
///
/// Returns 0, or -1 with `errno`: ENOENT (this kernel does not have it), EPERM (only
/// `CAP_NET_ADMIN` may use it), EBADF, ENOTSOCK, EOPNOTSUPP or ENOPROTOOPT (no TCP socket), EINVAL
/// (the name is empty), EFAULT (`name` is NULL).
int lb_set_congestion(int fd, const char *name);

/// Writes the name of the congestion control that a TCP socket uses, with its final NUL. 16 bytes
/// of `room` are always enough.
///
/// Returns 0, or -1 with `errno`: ERANGE (not enough room; nothing was written), EBADF, ENOTSOCK,
/// EOPNOTSUPP or ENOPROTOOPT (no TCP socket), EFAULT (`name` is NULL).
int lb_congestion(int fd, char *name, size_t room);

/// Lets `lb_ended` distinguish a FIN from a reset: call it before the first read. It keeps urgent
/// bytes in the stream (`SO_OOBINLINE`).
///
/// Returns 0, or -1 with `errno`: EBADF, ENOTSOCK.
int lb_prepare(int fd);

/// How the stream ended after a `read` returned 0; `bytes_read` is how many bytes were read over
/// the life of the connection. Linux reports a reset once: if a failed write or `SO_ERROR` took the
/// report, the end looks clean to the reader.
///
/// If our own direction of a TCP connection is still open, the connection's state shows it.
/// Otherwise the count shows it, if `lb_prepare` was called. In all other cases, and for other
/// sockets than TCP, the result is `LB_END_UNKNOWN`.
///
/// Returns an `enum lb_end`, or -1 with `errno`: EBADF, ENOTSOCK, EINVAL (it is listening).
int lb_ended(int fd, uint64_t bytes_read);

/// The version of the library that is in use, such as "0.1.0". Not to be freed.
const char *lb_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LASTBYTE_H */
