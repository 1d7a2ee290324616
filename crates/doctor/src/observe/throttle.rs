//! How often work that costs processor time may be done.

use std::time::Duration;

use lastbyte_sys::process;

/// Limits work to a frequency and to a share of a processor.
#[derive(Debug)]
pub(super) struct Throttle {
    every_ns: u64,
    /// The share, one part in this many, even if the work is requested before it is due.
    share: u64,
    /// The share if nothing requests the work.
    background_share: u64,
    /// The cost of one run, nanoseconds of processor time: an average that favours the latest.
    cost_ns: u64,
    last_ns: Option<u64>,
    /// How much later than allowed the last run was: the next may be that much earlier.
    credit_ns: u64,
    /// The time of the first run, and the number of later ones.
    first_ns: u64,
    more: u64,
}

/// The processor time at the beginning of a run.
#[derive(Debug)]
pub(super) struct Cost(u64);

impl Throttle {
    pub(super) fn new(every: Duration, share: u64) -> Self {
        let every_ns = u64::try_from(every.as_nanos()).unwrap_or(u64::MAX);
        let (last_ns, first_ns) = (None, 0);
        let (credit_ns, more) = (0, 0);
        Self {
            every_ns,
            share,
            background_share: share,
            cost_ns: 0,
            last_ns,
            credit_ns,
            first_ns,
            more,
        }
    }

    /// Sets a smaller share, one part in this many, for runs that nothing requests.
    pub(super) fn background_share(self, share: u64) -> Self {
        Self { background_share: share, ..self }
    }

    /// Whether a run is due.
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        /// The caller comes a little early or late.
        const SLACK_NS: u64 = 5_000_000;
        let asked = |last: u64| now_ns + SLACK_NS >= last.saturating_add(self.every_ns);
        self.last_ns.is_none_or(asked) && self.is_within(self.background_share, now_ns)
    }

    /// Whether a run now would stay within the share.
    pub(super) fn is_allowed(&self, now_ns: u64) -> bool {
        self.is_within(self.share, now_ns)
    }

    fn is_within(&self, share: u64, now_ns: u64) -> bool {
        let wait_ns = (self.cost_ns * share).saturating_sub(self.credit_ns);
        self.last_ns.is_none_or(|last| now_ns >= last + wait_ns)
    }

    pub(super) fn begin() -> Cost {
        Cost(used_ns())
    }

    /// Ends a run. `apart_ns`: time within it that does not count. Returns its cost.
    pub(super) fn end(&mut self, begun: &Cost, apart_ns: u64, now_ns: u64) -> u64 {
        let cost_ns = used_ns().saturating_sub(begun.0);
        let own_ns = cost_ns.saturating_sub(apart_ns);
        match self.last_ns {
            // At the first run everything is new.
            None => (self.first_ns, self.cost_ns) = (now_ns, own_ns / 4),
            Some(last) => {
                /// The caller comes ten times a second.
                const MAX_CREDIT_NS: u64 = 100_000_000;
                let waited_ns = now_ns.saturating_sub(last) + self.credit_ns;
                let credit_ns = waited_ns.saturating_sub(self.cost_ns * self.share);
                self.credit_ns = credit_ns.min(MAX_CREDIT_NS);
                self.more += 1;
                self.cost_ns = self.cost_ns.midpoint(own_ns);
            }
        }
        self.last_ns = Some(now_ns);
        cost_ns
    }

    /// The mean time from one run to the next so far; `None` before the second.
    pub(super) fn interval(&self) -> Option<Duration> {
        let over_ns = self.last_ns? - self.first_ns;
        (self.more > 0).then(|| Duration::from_nanos(over_ns / self.more))
    }
}

fn used_ns() -> u64 {
    let used = process::thread_cpu_time().unwrap_or_default();
    u64::try_from(used.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_costs_much_is_done_seldom() {
        const MS: u64 = 1_000_000;
        let mut throttle = Throttle::new(Duration::from_millis(100), 100);
        assert!(throttle.is_due(0));
        throttle.end(&Throttle::begin(), 0, 0);
        throttle.cost_ns = MS / 2;
        assert!(!throttle.is_due(90 * MS) && throttle.is_allowed(90 * MS));
        assert!(throttle.is_due(100 * MS));
        throttle.cost_ns = 3 * MS;
        assert!(!throttle.is_due(299 * MS) && throttle.is_due(300 * MS));
        let mut throttle = throttle.background_share(200);
        assert!(!throttle.is_due(599 * MS) && throttle.is_due(600 * MS));
        assert!(!throttle.is_allowed(299 * MS) && throttle.is_allowed(300 * MS));
        assert_eq!(throttle.interval(), None);
        throttle.end(&Throttle::begin(), 0, 300 * MS);
        throttle.end(&Throttle::begin(), 0, 500 * MS);
        assert_eq!(throttle.interval(), Some(Duration::from_millis(250)));
        // Slightly too expensive for each tenth of a second: now and then a run is skipped, not
        // every second one.
        let mut throttle = Throttle::new(Duration::from_millis(100), 100);
        let mut looks = 0;
        for now_ns in (0..100).map(|tick| tick * 100 * MS) {
            if throttle.is_due(now_ns) {
                throttle.end(&Throttle::begin(), 0, now_ns);
                throttle.cost_ns = 11 * MS / 10;
                looks += 1;
            }
        }
        assert!((88..=93).contains(&looks), "{looks}");
    }
}
