//! TCP connects instead of echo requests: one at a time, aborted at once.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_sys::{process, socket};

use super::observed::{Observed, Reply};
use super::{Load, RecordError};

/// How long to wait for a connect: less than the second after which the kernel would retransmit its SYN
/// (RFC 6298 section 2.1), so that a lost SYN is seen as lost.
pub(super) const CONNECT_WITHIN: Duration = Duration::from_millis(900);
/// A SYN with the options of Linux, as an IPv4 packet.
pub(super) const SYN_BYTES: u32 = 60;

/// Connects repeatedly. An answer is a SYN/ACK or a RST: both come from the host's kernel.
pub(super) fn exchange(to: SocketAddr, load: &Load) -> Result<Observed, RecordError> {
    let attempt = || -> io::Result<Observed> {
        process::exact_timers()?;
        let mut seen = Observed { ip_bytes: load.ip_bytes, ..Observed::default() };
        let start = Instant::now();
        let mut due = start;
        for number in 0..load.packets {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let elapsed = start.elapsed();
            let silent = seen.replies.is_empty() && elapsed > load.give_up;
            if silent || elapsed > load.every * load.packets {
                break;
            }
            due = Instant::now() + load.every;
            let (sent, answered) = connect(to, start, &mut seen)?;
            seen.sent.push(sent);
            if let Some(at) = answered {
                seen.replies.push(Reply { number, at, ip_bytes: load.ip_bytes });
            }
        }
        Ok(seen)
    };
    attempt().map_err(RecordError::at("connecting"))
}

/// When a connect began, and when it was answered.
fn connect(
    to: SocketAddr,
    start: Instant,
    seen: &mut Observed,
) -> io::Result<(Duration, Option<Duration>)> {
    use io::ErrorKind as Kind;
    let socket = socket::open_tcp(to)?;
    // Closing aborts, so that no connection is left in TIME-WAIT or half-closed on either host.
    socket::set_linger(&socket, Some(Duration::ZERO))?;
    let sent = start.elapsed();
    let connected = socket::connect(&socket, to, CONNECT_WITHIN);
    let at = start.elapsed();
    match connected {
        Ok(()) => Ok((sent, Some(at))),
        Err(error) => match error.kind() {
            Kind::ConnectionRefused | Kind::ConnectionReset => Ok((sent, Some(at))),
            Kind::TimedOut => Ok((sent, None)),
            Kind::HostUnreachable | Kind::NetworkUnreachable => {
                seen.network_error = Some(error.to_string());
                Ok((sent, None))
            }
            _ => Err(error),
        },
    }
}
