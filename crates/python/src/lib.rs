//! The Python interface of lastbyte: `_lastbyte`, the compiled half of the package `lastbyte`.
//!
//! This crate forbids decisions, classes and unsafe code: it passes numbers and strings, and the
//! Python half (`python/lastbyte`) makes records, enums and exceptions of them. The library
//! decides.
//!
//! Descriptors come as numbers. Each is duplicated first, so that another thread may close its
//! socket, and open another one that gets the same number, while a finish waits.

#![forbid(unsafe_code)]

mod dial;
mod types;

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use lastbyte::{Drain, FinishOptions, Operation, SocketError};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::types::{Failure, InfoFields, ReceiptFields};

/// How often a waiting call checks for signals and asks its caller. A tenth of a second seems
/// immediate; this is half of that.
const SLICE: Duration = Duration::from_millis(50);

/// The compiled half of `lastbyte`. Use that.
#[pymodule]
mod _lastbyte {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::dial::dial;
    #[pymodule_export]
    use super::{describe, finish, info, observed_end, prepare};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("DEFAULTS", super::defaults())
    }
}

/// Finishes a connection. Returns the receipt, and the failure if less than the wanted level was
/// proven.
///
/// Other threads run while it waits. It calls `stop` regularly, and ends when that returns true or
/// raises, or when a signal handler raises.
#[pyfunction]
fn finish(
    py: Python<'_>,
    number: i64,
    wanted: Wanted,
    stop: Option<Py<PyAny>>,
) -> PyResult<(ReceiptFields, Option<Failure>)> {
    let options = options(wanted)?;
    let fd = match duplicate(number) {
        Ok(fd) => fd,
        Err(error) if error.raw_os_error() == Some(types::EBADF) => {
            return Ok((ReceiptFields::of_nothing(), Some(Failure::not_open())));
        }
        Err(error) => return Err(raised(&Operation::Finish.to_string(), &error)),
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
        lastbyte::finish_fd_while(
            &fd,
            lastbyte::Counted::default(),
            options,
            SLICE,
            &mut keep_going,
        )
    });
    match (exception, outcome) {
        (Some(exception), _) => Err(exception),
        (None, Ok(receipt)) => Ok((receipt.into(), None)),
        (None, Err(error)) => Ok((error.receipt.into(), Some(Failure::of(&error)))),
    }
}

/// The time-out in seconds, the level, and how many bytes from the peer to discard at most.
type Wanted = (f64, u8, Option<u64>);

fn options((timeout, want, drain): Wanted) -> PyResult<FinishOptions> {
    // The Python half has already checked the arguments.
    let deadline = Duration::try_from_secs_f64(timeout)
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    let want =
        types::level_of(want).ok_or_else(|| PyValueError::new_err("want must be a Delivery"))?;
    let drain = drain.map_or(Drain::Keep, Drain::Discard);
    Ok(FinishOptions::default().within(deadline).want(want).drain(drain))
}

/// Whether a waiting call goes on: runs signal handlers, and asks the caller. Only the main thread
/// handles signals; an interpreter that is shutting down stops the call.
fn goes_on(stop: Option<&Py<PyAny>>) -> PyResult<bool> {
    let asked = Python::try_attach(|py| {
        py.check_signals()?;
        stop.map_or(Ok(true), |stop| Ok(!stop.bind(py).call0()?.is_truthy()?))
    });
    asked.unwrap_or(Ok(false))
}

/// The text of a receipt, as the library writes it.
#[pyfunction]
fn describe(receipt: ReceiptFields) -> PyResult<String> {
    let receipt = receipt.read().ok_or_else(|| PyValueError::new_err("this is no receipt"))?;
    Ok(receipt.to_string())
}

/// What the kernel knows of a TCP connection now, by the attributes of `TcpInfo`.
#[pyfunction]
fn info(number: i64) -> PyResult<InfoFields> {
    let fd = opened(number, Operation::Sample)?;
    Ok(lastbyte::info(&fd).map_err(|error| refused(&error))?.into())
}

/// Keeps urgent bytes in the stream, so that `observed_end` can tell a FIN from a reset.
#[pyfunction]
fn prepare(number: i64) -> PyResult<()> {
    let fd = opened(number, Operation::Set("SO_OOBINLINE"))?;
    lastbyte::prepare(&fd).map_err(|error| refused(&error))
}

/// How a stream ended, after this many bytes were read from it.
#[pyfunction]
fn observed_end(number: i64, bytes_read: u64) -> PyResult<String> {
    let fd = opened(number, Operation::Sample)?;
    let end = lastbyte::observed_end(&fd, bytes_read).map_err(|error| refused(&error))?;
    Ok(end.to_string())
}

/// The defaults of a finish, for a test to compare.
fn defaults() -> Wanted {
    let FinishOptions { deadline, want, drain, .. } = FinishOptions::default();
    let drain = match drain {
        Drain::Discard(limit) => Some(limit),
        Drain::Keep => None,
    };
    (deadline.as_secs_f64(), types::level(want), drain)
}

fn opened(number: i64, operation: Operation) -> PyResult<OwnedFd> {
    duplicate(number).map_err(|error| raised(&operation.to_string(), &error))
}

fn duplicate(number: i64) -> io::Result<OwnedFd> {
    lastbyte::duplicate(i32::try_from(number).unwrap_or(-1))
}

fn refused(error: &SocketError) -> PyErr {
    raised(&format!("{}{}", error.operation, error.endpoints), &error.cause)
}

/// An `OSError`, or the subclass of it that Python has for the number.
fn raised(doing: &str, cause: &io::Error) -> PyErr {
    let number = cause.raw_os_error().unwrap_or(types::EIO);
    PyOSError::new_err((number, format!("{doing}: {cause}")))
}
