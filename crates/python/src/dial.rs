//! Connects to a host by name and port.

use std::io;
use std::net::IpAddr;
use std::os::fd::IntoRawFd;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lastbyte::dial::{
    DialError, DialOptions, Dialed, Dialer, Families, Resolver, ResolverError, Undialed,
};
use lastbyte::{Stream, blocking};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tokio::runtime::{self, Runtime};
use tokio::time::timeout;

use crate::types::{
    EADDRNOTAVAIL, ECONNREFUSED, EINVAL, EIO, EOPNOTSUPP, ETIMEDOUT, UndialedFields,
};
use crate::{SLICE, goes_on};

/// How to dial: any object with these attributes.
#[derive(FromPyObject)]
pub(crate) struct DialFields {
    /// Seconds for all of it; `None` for as long as the kernel tries.
    timeout: Option<f64>,
    /// 4 or 6; 0 for both.
    family: u8,
    /// The resolver: `dns` or `system`.
    resolver: String,
    /// Addresses to connect from, at most one of each family.
    sources: Vec<String>,
    congestion: Option<String>,
    mptcp: bool,
}

/// Connects to a host. Returns a blocking descriptor, which the caller has to close, or `None` and
/// the reason.
///
/// Other threads run while it waits. It calls `stop` regularly, and ends when that returns true or
/// raises, or when a signal handler raises. Then no descriptor is left.
#[pyfunction]
pub(crate) fn dial(
    py: Python<'_>,
    host: &str,
    port: u16,
    how: DialFields,
    stop: Option<Py<PyAny>>,
) -> PyResult<(Option<i32>, Option<UndialedFields>)> {
    let options = options(&how)?;
    let failed = |failure| Ok((None, Some(failure)));
    let (runtime, dialer) = match dialer_for(&how.resolver) {
        Ok(both) => both,
        Err(failure) => return failed(failure),
    };
    let mut exception = None;
    let mut keep_going = || match goes_on(stop.as_ref()) {
        Ok(yes) => yes,
        Err(error) => {
            exception = Some(error);
            false
        }
    };
    let outcome = py.detach(|| {
        let dialed = dial_while(&runtime, dialer.dial((host, port), &options), &mut keep_going)?;
        Some(
            dialed.map_err(|error| undialed(&error)).and_then(|dialed| {
                dialed.stream.into_blocking().map_err(|error| no_events(&error))
            }),
        )
    });
    match (exception, outcome) {
        (Some(exception), _) => Err(exception),
        (None, None) => failed(UndialedFields::new("stopped", 0, String::new())),
        (None, Some(Err(failure))) => failed(failure),
        (None, Some(Ok(stream))) => Ok((Some(number_of(stream)), None)),
    }
}

fn number_of(stream: blocking::Stream) -> i32 {
    stream.into_inner().into_raw_fd()
}

/// Waits for a dial, and asks after each slice whether to go on: `None` if not. Python code runs
/// only outside the event loop, so a signal handler may dial too, and a thread that waits for the
/// interpreter does not block other dials.
fn dial_while(
    runtime: &Runtime,
    dial: impl Future<Output = Result<Dialed<Stream>, DialError>>,
    keep_going: &mut dyn FnMut() -> bool,
) -> Option<Result<Dialed<Stream>, DialError>> {
    let mut dial = pin!(dial);
    loop {
        let slice = runtime.block_on(async { timeout(SLICE, dial.as_mut()).await });
        match slice {
            Ok(outcome) => return Some(outcome),
            Err(_) if keep_going() => {}
            Err(_) => return None,
        }
    }
}

/// The dialers of a process, for all threads.
struct Dialers {
    process: u32,
    runtime: Arc<Runtime>,
    dns: Option<Dialer>,
    system: Dialer,
}

/// Only the thread that holds the interpreter locks it, and briefly: it is never locked during
/// `os.fork`.
static DIALERS: Mutex<Option<Dialers>> = Mutex::new(None);

fn dialer_for(resolver: &str) -> Result<(Arc<Runtime>, Dialer), UndialedFields> {
    let mut place = DIALERS.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some(parents) = place.take_if(|dialers| dialers.process != process) {
        // The parent shares its epoll descriptor, and would miss the events taken from it.
        std::mem::forget(parents);
    }
    let dialers = match &mut *place {
        Some(dialers) => dialers,
        none => none.insert(Dialers::new(process).map_err(|error| no_events(&error))?),
    };
    let dialer = if resolver == "system" {
        dialers.system.clone()
    } else {
        dialers
            .over_dns()
            .map_err(|error| UndialedFields::new("no resolver", EIO, error.to_string()))?
    };
    Ok((Arc::clone(&dialers.runtime), dialer))
}

impl Dialers {
    fn new(process: u32) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let system = Dialer::new(Resolver::system());
        Ok(Self { process, runtime: Arc::new(runtime), dns: None, system })
    }

    fn over_dns(&mut self) -> Result<Dialer, ResolverError> {
        if let Some(dialer) = &self.dns {
            return Ok(dialer.clone());
        }
        let dialer = Dialer::new(Resolver::dns()?);
        self.dns = Some(dialer.clone());
        Ok(dialer)
    }
}

/// The deadline if there is none: longer than any kernel tries.
const FOREVER: Duration = Duration::from_secs(30 * 24 * 3600);

fn options(how: &DialFields) -> PyResult<DialOptions> {
    // The Python half has already checked the arguments.
    let mut options = DialOptions::default();
    options.race.deadline = match how.timeout {
        None => FOREVER,
        Some(seconds) => Duration::try_from_secs_f64(seconds)
            .map_err(|error| PyValueError::new_err(error.to_string()))?
            .min(FOREVER),
    };
    options.families = match how.family {
        4 => Families::Ipv4,
        6 => Families::Ipv6,
        _ => Families::Both,
    };
    for source in &how.sources {
        let source = source.parse::<IpAddr>();
        options
            .connect
            .sources
            .push(source.map_err(|error| PyValueError::new_err(error.to_string()))?);
    }
    options.connect.socket.congestion.clone_from(&how.congestion);
    options.connect.mptcp = how.mptcp;
    Ok(options)
}

fn no_events(error: &io::Error) -> UndialedFields {
    let number = error.raw_os_error().unwrap_or(EIO);
    UndialedFields::new("no events", number, format!("event loop: {error}"))
}

fn undialed(error: &DialError) -> UndialedFields {
    let (why, number) = match error.why {
        Undialed::BadHost(_) => ("bad host", EINVAL),
        // The kernel's error for port 0.
        Undialed::BadPort => ("bad port", ECONNREFUSED),
        Undialed::NoAddress if error.may_resolve_later() => ("no answer", EIO),
        Undialed::NoAddress => ("no address", EIO),
        Undialed::TimedOut => ("timed out", ETIMEDOUT),
        _ => ("failed", error.first().map_or(EIO, |first| errno_of(&first.cause))),
    };
    let attempts = error.attempts.iter().map(|attempt| match &attempt.error {
        Some(error) => (errno_of(&error.cause), error.to_string()),
        None => (ETIMEDOUT, format!("connect -> {}: no answer", attempt.address)),
    });
    UndialedFields {
        attempts: attempts.collect(),
        ..UndialedFields::new(why, number, error.to_string())
    }
}

/// The kernel's `errno`, or the one closest to the kind of error.
fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or_else(|| match error.kind() {
        io::ErrorKind::ConnectionRefused => ECONNREFUSED,
        io::ErrorKind::TimedOut => ETIMEDOUT,
        io::ErrorKind::AddrNotAvailable => EADDRNOTAVAIL,
        io::ErrorKind::InvalidInput => EINVAL,
        io::ErrorKind::Unsupported => EOPNOTSUPP,
        _ => EIO,
    })
}
