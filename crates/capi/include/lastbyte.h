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
    /// The local kernel accepted the bytes: `write` returned. They may still be thrown away.
    LB_LEVEL_WRITTEN = 1,
    /// They left the send queue for the device at least once. They may still be lost.
    LB_LEVEL_SENT = 2,
    /// The peer's kernel acknowledged them. Its program may not have read them.
    LB_LEVEL_ACKED = 3,
    /// Acked, and the peer's FIN came after ours was acknowledged. It does not say that its program
    /// read anything: it may have half-closed early, or be a proxy.
    LB_LEVEL_CLOSED = 4,
    /// The peer's program said so. TCP has no such answer: asking for it fails once everything else
    /// is proven.
    LB_LEVEL_CONFIRMED = 5,
};

/// How the other side stood at the end of a finish.
enum lb_peer {
    /// Its stream ended, and nothing can be said about how; or nothing was done.
    LB_PEER_UNKNOWN = 0,
    /// It was still connected and had not ended its direction.
    LB_PEER_OPEN = 1,
    /// It ended its direction with a FIN.
    LB_PEER_FIN = 2,
    /// It reset the connection, or our kernel gave it up.
    LB_PEER_RESET = 3,
    /// It did not answer until the deadline.
    LB_PEER_SILENT = 4,
};

/// Why a finish could not prove what was wanted. In brackets: `errno`.
enum lb_why {
    /// It was proven (0).
    LB_WHY_PROVEN = 0,
    /// The deadline passed first (ETIMEDOUT).
    LB_WHY_DEADLINE = 1,
    /// The peer reset the connection, or our kernel gave it up (ECONNRESET).
    LB_WHY_RESET = 2,
    /// The connection was gone, or never there, before a FIN could be queued (ENOTCONN).
    LB_WHY_NOT_CONNECTED = 3,
    /// `LB_LEVEL_CLOSED` was wanted, and the peer had ended its direction before our FIN was
    /// acknowledged: its FIN says nothing about our bytes (EPROTO).
    LB_WHY_EARLY_FIN = 4,
    /// It cannot be known (EOPNOTSUPP): MPTCP and vsock count nothing, no transport has
    /// `LB_LEVEL_CONFIRMED`, and `LB_LEVEL_CLOSED` needs `bytes_read`. What can be done was done.
    LB_WHY_UNKNOWABLE = 5,
    /// The kernel refused a call that it grants every connection (the kernel's own number).
    LB_WHY_REFUSED = 6,
    /// Nothing was done: no such descriptor is open (EBADF).
    LB_WHY_NOT_OPEN = 7,
    /// Nothing was done: a file, a pipe, or another descriptor that is no socket (ENOTSOCK).
    LB_WHY_NO_SOCKET = 8,
    /// Nothing was done: a socket of datagrams, which has no stream to end (EPROTOTYPE).
    LB_WHY_NO_STREAM = 9,
    /// Nothing was done: a listening socket, which has no peer (EINVAL).
    LB_WHY_LISTENING = 10,
    /// Nothing was done: the options make no sense (EINVAL).
    LB_WHY_BAD_OPTIONS = 11,
};

/// How a stream that was read to its end really ended.
enum lb_end {
    /// Nothing can be said.
    LB_END_UNKNOWN = 0,
    /// The peer ended its direction with a FIN after the last byte that was read.
    LB_END_FIN = 1,
    /// The connection was reset: bytes may be missing, however clean the end looked.
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

/// Who is asked for the addresses of a name.
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

/// What a finish could prove about a connection's outgoing bytes. `lb_finish` fills all of it; it
/// need not be initialised. A count that is not known is -1, never 0.
struct lb_receipt {
    /// The highest level that all written bytes reached: an `enum lb_level`.
    int32_t level;
    /// How the peer ended: an `enum lb_peer`.
    int32_t peer;
    /// Why less than the wanted level was proven: an `enum lb_why`, 0 if it was proven.
    int32_t why;
    /// The `errno` of this finish; 0 if it was proven.
    int32_t error;
    /// Bytes that the local kernel accepted over the life of the connection. -1: not told
    /// (`written` of `lb_options`).
    int64_t written;
    /// Of those, bytes that left the send queue at least once.
    int64_t sent;
    /// Of those, bytes that the peer's kernel acknowledged.
    int64_t acked;
    /// Bytes that the peer's kernel is not known to have. -1 where the kernel does not count them:
    /// Unix sockets, MPTCP. What you wrote less this is what arrived.
    int64_t unacked;
    /// Bytes of the peer that arrived while finishing and were thrown away.
    int64_t drained;
    /// From the start of the finish to this receipt, in microseconds.
    int64_t took_us;
    /// For counts to come: -1 each.
    int64_t reserved[6];
};

/// What is wanted of a finish. Begin with all of it by default, and change what you need:
///
///     struct lb_options options = LB_OPTIONS_INIT;
///     options.want = LB_LEVEL_CLOSED;
struct lb_options {
    /// The level to wait for: an `enum lb_level`, default `LB_LEVEL_ACKED`.
    int32_t want;
    /// How long to wait for proof, in milliseconds. Negative, the default: 30,000. 0: to look, and
    /// not to wait.
    int32_t timeout_ms;
    /// How many bytes that the peer still sends are read and thrown away at most; what comes past
    /// it stays unread. Negative, the default: 1,048,576. 0: nothing is read, and the bytes are kept
    /// for whoever reads this connection next.
    int64_t drain_limit;
    /// How many bytes you wrote over the life of the connection; negative, the default: not told.
    /// With it the receipt has all counts.
    int64_t written;
    /// How many bytes you read over the life of the connection; negative, the default: not told.
    /// It counts if you called `lb_prepare` before the first. Without it `LB_LEVEL_CLOSED` can
    /// seldom be proven: a FIN cannot be told from a reset.
    int64_t bytes_read;
    /// For options to come: 0 each.
    int64_t reserved[4];
};

/// How to dial. Begin with all of it by default, and change what you need:
///
///     struct lb_dial_options options = LB_DIAL_OPTIONS_INIT;
///     options.congestion = "bbr";
struct lb_dial_options {
    /// How long all of it may take, names included, in milliseconds. Negative, the default: 30,000.
    /// 0: it gives up at once.
    int32_t timeout_ms;
    /// Which addresses to use: an `enum lb_family`, default `LB_FAMILY_BOTH`.
    int32_t family;
    /// Who is asked for addresses: an `enum lb_resolver`, default `LB_RESOLVER_DNS`.
    int32_t resolver;
    /// How long an attempt runs alone before the next address is tried beside it, in milliseconds.
    /// 0, the default: 200, or what the round trip of an earlier connection suggests.
    int32_t attempt_delay_ms;
    /// The send buffer in bytes (`SO_SNDBUF`). 0, the default: the kernel sizes it.
    int32_t send_buffer;
    /// The receive buffer in bytes (`SO_RCVBUF`). 0, the default: the kernel sizes it.
    int32_t receive_buffer;
    /// The mark of its packets (`SO_MARK`, needs `CAP_NET_ADMIN`). 0, the default: none.
    uint32_t mark;
    /// 1: ask for multipath TCP. Where this kernel or the peer has none it is plain TCP. 0, the
    /// default: plain TCP.
    int32_t mptcp;
    /// The congestion control, such as "bbr". NULL, the default: the system's.
    const char *congestion;
    /// The address to connect from, as text; addresses of the other family are not connected to.
    /// NULL, the default: the kernel's choice.
    const char *source;
    /// The one interface that its packets may use, such as "eth0" (`SO_BINDTODEVICE`). NULL, the
    /// default: any.
    const char *interface;
    /// For options to come: 0 each.
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
    /// Our own end, likewise.
    char local[64];
    /// What went wrong, in one line: the first attempt's error leads, the others follow. It is cut
    /// where it is too long, and ends with NUL in any case. "" if it connected.
    char text[512];
    /// For what is to come: -1 each.
    int64_t reserved[6];
};

/// What the kernel tells of one TCP connection. `lb_info` fills all of it; it need not be
/// initialised. What this kernel does not tell is -1, never 0.
struct lb_info {
    /// The state, by the numbers of netinet/tcp.h: 1 is `TCP_ESTABLISHED`.
    int32_t state;
    /// The segment size for sending, in bytes.
    int32_t snd_mss;
    /// The smoothed round trip, in microseconds.
    int64_t rtt_us;
    /// The shortest round trip seen lately, in microseconds.
    int64_t min_rtt_us;
    /// Segments in flight. A reset sets it to 0: no proof of delivery.
    int64_t unacked_segments;
    /// The congestion window, in segments.
    int64_t cwnd_segments;
    /// Segments sent again, over the life of the connection.
    int64_t total_retrans_segments;
    /// Bytes per second at which segments are spaced out; `INT64_MAX` where they are not.
    int64_t pacing_rate;
    /// Bytes per second lately delivered.
    int64_t delivery_rate;
    /// Bytes acknowledged: our SYN (where we connected) and our FIN count one each.
    int64_t bytes_acked;
    /// Bytes received in order: the peer's FIN counts one.
    int64_t bytes_received;
    /// Bytes sent, those sent again included.
    int64_t bytes_sent;
    /// Bytes sent again.
    int64_t bytes_retrans;
    /// Bytes written that did not leave yet.
    int64_t notsent_bytes;
    /// The peer's window as last advertised, in bytes.
    int64_t snd_wnd;
    /// Microseconds with something to send or in flight.
    int64_t busy_us;
    /// Microseconds held back by the peer's window.
    int64_t rwnd_limited_us;
    /// Microseconds held back by our send buffer.
    int64_t sndbuf_limited_us;
    /// For figures to come: -1 each.
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

/// An `enum lb_why` in words, such as "the deadline passed"; "invalid" for any other number. Never
/// NULL; not to be freed.
const char *lb_why_name(int why);

/// The name of an `enum lb_end`, such as "RST"; "invalid" for any other number. Never NULL; not to
/// be freed.
const char *lb_end_name(int end);

/// An `enum lb_undialed` in words, such as "the name has no address"; "invalid" for any other number.
/// Never NULL; not to be freed.
const char *lb_undialed_name(int why);

/// Writes a receipt in words, such as
/// "acked: 0 bytes left unacked, peer still connected, 0.3 ms", and as `snprintf` does: at most
/// `room` bytes with the final NUL, and returns how long the whole text is without it. `buffer` may
/// be NULL where `room` is 0.
///
/// Returns -1 with `errno` EFAULT where `receipt` is NULL, or `buffer` is and `room` is not 0.
int lb_receipt_text(const struct lb_receipt *receipt, char *buffer, size_t room);

/// Ends the connection behind a connected stream socket so that nothing is lost: ends the sending
/// direction (as `shutdown` with `SHUT_WR`), waits until the peer's kernel has acknowledged
/// everything that was written, and reads and throws away what the peer still sends, at most 1 MiB,
/// so that closing cannot turn into a reset. The descriptor stays open: `close` it next.
///
/// It blocks for at most `timeout_ms` milliseconds, also where the descriptor is non-blocking. A
/// negative `timeout_ms` means 30,000; 0 means to look, and not to wait.
///
/// `receipt` may be NULL; otherwise all of it is filled, whatever is returned.
///
/// Returns 0 if everything is proven to be acknowledged. Otherwise -1, and `errno` is
///
/// - ETIMEDOUT: the time passed first; also for a connection that is not there yet.
/// - ECONNRESET: the peer reset the connection, or the kernel gave it up.
/// - ENOTCONN: it is not connected, or no longer.
/// - EBADF, ENOTSOCK: it is not open, or no socket.
/// - EPROTOTYPE: it is no stream socket (UDP).
/// - EINVAL: it is listening.
/// - EOPNOTSUPP: the kernel cannot know it for this kind of socket (MPTCP, vsock). Everything was
///   done to lose nothing.
/// - ENOTRECOVERABLE: a bug in this library; nothing is known.
/// - another: the kernel's own, where it refused a call that it grants every connection.
int lb_finish(int fd, int timeout_ms, struct lb_receipt *receipt);

/// As `lb_finish`, with options; `options` may be NULL.
///
/// Returns 0 if the wanted level is proven. Otherwise -1, and `errno` is one of those of
/// `lb_finish`, or
///
/// - EPROTO: `LB_LEVEL_CLOSED` was wanted, and the peer had ended its direction before it had
///   acknowledged our end.
/// - EOPNOTSUPP: also where `LB_LEVEL_CONFIRMED` was wanted, or `LB_LEVEL_CLOSED` without
///   `bytes_read`: the receipt says what is proven.
/// - EINVAL: the options make no sense, so nothing was done: `want` is no level, or a reserved
///   field is not 0.
int lb_finish_options(int fd, const struct lb_options *options, struct lb_receipt *receipt);

/// Connects to a host, a name or an address, by TCP. Names are resolved for both families at once,
/// and addresses tried one beside the other, as RFC 8305 says (Happy Eyeballs): a dead address
/// costs 200 milliseconds, not its time-out. What worked is remembered for the next dial.
///
/// `options` may be NULL: all by default. `dialed` may be NULL; otherwise all of it is filled,
/// whatever is returned.
///
/// Returns a descriptor: connected, blocking, closed on `exec`, as if `lb_prepare` had been called.
/// It is yours to close. Otherwise -1, no descriptor is left, and `errno` is
///
/// - ETIMEDOUT: `timeout_ms` passed, or the kernel's own time for the first address.
/// - ENOENT: the name has no address.
/// - EAGAIN: whether the name has one could not be learned: no server answered, or not well.
/// - ECONNREFUSED, ENETUNREACH, EHOSTUNREACH, EACCES, EADDRNOTAVAIL, ... : what the kernel said of
///   the first attempt that failed; also ENOENT, EPERM or ENODEV of an option that it refused,
///   which `text` names.
/// - EINVAL: `host` is no host, `port` is 0, or the options make no sense. Nothing was done.
/// - EFAULT: `host` is NULL.
/// - EMFILE, ENFILE, ENOMEM: nothing is left to dial with.
/// - EIO: the system's configuration of DNS cannot be read.
/// - ENOTRECOVERABLE: a bug in this library; nothing is known.
///
/// `why` tells those apart that share a number. Signals do not end it.
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
/// (`TCP_CONGESTION`). Only the sender's counts.
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

/// Lets `lb_ended` tell a FIN from a reset: call it before the first read. It keeps urgent bytes in
/// the stream (`SO_OOBINLINE`).
///
/// Returns 0, or -1 with `errno`: EBADF, ENOTSOCK.
int lb_prepare(int fd);

/// How the stream ended whose reader got 0 from its last `read`, having read `bytes_read` bytes
/// over the life of the connection: on Linux a reset that somebody else was told of (a failed
/// write, `SO_ERROR`) looks like a clean end to the reader.
///
/// Over TCP a connection whose own direction is still open tells by its state; otherwise the number
/// of bytes tells, if `lb_prepare` was called. Where neither does, and over anything else than TCP,
/// the answer is `LB_END_UNKNOWN`.
///
/// Returns an `enum lb_end`, or -1 with `errno`: EBADF, ENOTSOCK, EINVAL (it is listening).
int lb_ended(int fd, uint64_t bytes_read);

/// The version of the library that is in use, such as "0.1.0". Not to be freed.
const char *lb_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LASTBYTE_H */
