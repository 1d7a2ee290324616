//! A dial to one address: without resolution, choice or history, and so without a race.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use lastbyte_core::race::Because;
use lastbyte_socket::{SocketError, Stream};
use tokio::time;

use crate::error::{DialError, FailedAttempt, Undialed};
use crate::options::{DialOptions, Dialed, Veto};
use crate::timeline::{Event, Timeline, What};

/// Connects to `address`, which `host` is the text of.
pub(crate) async fn dial(
    host: &str,
    address: SocketAddr,
    options: &DialOptions,
) -> Result<Dialed<Stream>, DialError> {
    let began = Instant::now();
    let failed = |why, attempts, timeline| DialError {
        host: host.to_owned(),
        port: address.port(),
        why,
        attempts,
        unanswered: Vec::new(),
        open: Vec::new(),
        timeline,
    };
    if options.veto.as_ref().is_some_and(|Veto(forbids)| forbids(address)) {
        let why = Undialed::Vetoed(vec![address]);
        return Err(failed(why, Vec::new(), Timeline::default()));
    }
    let connect = Stream::connect_with(address, &options.connect);
    let result = time::timeout(options.race.deadline, connect).await;
    let took = began.elapsed();
    let timeline = timeline_of(address, &result, took);
    let (why, error) = match result {
        Ok(Ok(stream)) => return Ok(Dialed { stream, timeline }),
        Ok(Err(error)) => (Undialed::AllFailed, Some(error)),
        Err(_) => (Undialed::TimedOut, None),
    };
    Err(failed(why, vec![FailedAttempt { address, started: Duration::ZERO, error }], timeline))
}

fn timeline_of(
    address: SocketAddr,
    result: &Result<Result<Stream, SocketError>, time::error::Elapsed>,
    took: Duration,
) -> Timeline {
    let attempt = 0;
    let last = match result {
        Ok(Ok(stream)) => What::Connected { attempt, local: stream.local_addr().ok() },
        Ok(Err(error)) => What::Failed { attempt, error: error.to_string() },
        Err(_) => What::Cancelled { attempt, connected: false },
    };
    let first = What::Started { attempt, address, because: Because::Answered };
    let events = vec![Event { at: Duration::ZERO, what: first }, Event { at: took, what: last }];
    Timeline { events, took }
}
