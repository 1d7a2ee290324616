//! What all flows of a gate share.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use lastbyte_dial::Dialer;
use lastbyte_metrics::{Snapshot, Source};
use lastbyte_socket::SocketError;

use crate::config::{Limits, Route};
use crate::limits::Admission;
use crate::lock::lock;
use crate::loops::OwnAddresses;
use crate::reports::{Accounts, Notice, Notices};
use crate::statistics::AllStatistics;
use crate::stop::Stop;

/// What all flows of a gate share.
pub(crate) struct Context {
    pub(crate) dialer: Dialer,
    pub(crate) stop: Stop,
    pub(crate) statistics: AllStatistics,
    pub(crate) accounts: Arc<dyn Accounts>,
    /// The functions of statistics that are read.
    _sources: [Source; 2],
    notices: Arc<dyn Notices>,
    /// How many flows may be open, and how many are.
    pub(crate) admission: Arc<Admission>,
    /// Where the gate listens: connecting there would be a loop.
    pub(crate) own: Arc<OwnAddresses>,
    /// For how many flows there are descriptors: see [`crate::limits::flows_by_descriptors`].
    pub(crate) most_flows: AtomicUsize,
    /// The number of the last flow.
    last_flow: AtomicU64,
    pauses: Mutex<Pauses>,
    /// What became of flows since the gate was told to stop.
    pub(crate) finished: AtomicU64,
    pub(crate) reset: AtomicU64,
    /// Workers that have not ended.
    pub(crate) workers: Arc<Mutex<u64>>,
    pub(crate) worker_ended: Condvar,
}

/// Pauses of accepting since the last notice.
#[derive(Debug, Default)]
struct Pauses {
    times: u64,
    noticed: Option<Instant>,
}

impl Context {
    pub(crate) fn new(
        dialer: Dialer,
        accounts: Arc<dyn Accounts>,
        notices: Arc<dyn Notices>,
    ) -> Self {
        let statistics = AllStatistics::new();
        let workers = Arc::new(Mutex::new(0));
        let (log, running) = (Arc::clone(&accounts), Arc::clone(&workers));
        let sources = [
            statistics.gate.log_lines_lost.read_with(move || log.lost()),
            statistics.gate.workers.read_with(move || *lock(&running)),
        ];
        Self {
            dialer,
            stop: Stop::new(),
            statistics,
            accounts,
            _sources: sources,
            notices,
            admission: Admission::new(Limits::default()),
            own: Arc::default(),
            most_flows: AtomicUsize::new(usize::MAX),
            last_flow: AtomicU64::new(0),
            pauses: Mutex::default(),
            finished: AtomicU64::new(0),
            reset: AtomicU64::new(0),
            workers,
            worker_ended: Condvar::new(),
        }
    }

    /// All that was counted until now.
    pub(crate) fn counted(&self) -> Snapshot {
        self.statistics.snapshot()
    }

    /// The number of the next flow.
    pub(crate) fn next_flow(&self) -> u64 {
        self.last_flow.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Reports a pause, once in a while and with how often there were some.
    pub(crate) fn on_pause(&self, route: &Route, cause: SocketError) {
        /// Time between two such notices.
        const QUIET: Duration = Duration::from_secs(10);
        self.statistics.gate.accept_pauses.add(1);
        let mut pauses = lock(&self.pauses);
        pauses.times += 1;
        if pauses.noticed.is_some_and(|noticed| noticed.elapsed() < QUIET) {
            return;
        }
        pauses.noticed = Some(Instant::now());
        let times = std::mem::take(&mut pauses.times);
        drop(pauses);
        let route = Arc::clone(&route.name);
        self.notices.notice(Notice::AcceptPaused { route, cause, times });
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("stop", &self.stop).finish_non_exhaustive()
    }
}
