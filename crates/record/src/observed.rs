//! What was observed of numbered requests: counted, not yet interpreted.

use std::time::Duration;

/// Requests that were sent one after the other, and their replies. Times are since the recording began.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Observed {
    /// The length of each request, with its IP header.
    pub(super) ip_bytes: u32,
    /// When each request was sent, by number.
    pub(super) sent: Vec<Duration>,
    /// In the order of arrival.
    pub(super) replies: Vec<Reply>,
    /// From this number on requests were far enough apart not to delay each other.
    pub(super) apart_from: usize,
    /// Replies for which the socket had no room.
    pub(super) overflowed: u64,
    /// The error that the network reported instead of a reply.
    pub(super) network_error: Option<String>,
}

/// A reply that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) number: u32,
    pub(super) at: Duration,
    pub(super) ip_bytes: u32,
}

impl Observed {
    /// Appends requests that were sent later.
    pub(super) fn append(&mut self, later: Self) {
        let sent = u32::try_from(self.sent.len()).unwrap_or(u32::MAX);
        self.sent.extend(later.sent);
        let number = |reply: Reply| Reply { number: reply.number.saturating_add(sent), ..reply };
        self.replies.extend(later.replies.into_iter().map(number));
        self.overflowed += later.overflowed;
        self.network_error = later.network_error.or_else(|| self.network_error.take());
    }

    /// The times from one request to the next, in seconds, sorted: of those that were far enough apart.
    pub(super) fn gaps(&self) -> Vec<f64> {
        let sent = self.sent.get(self.apart_from..).unwrap_or_default();
        let gaps = sent.windows(2).map(|pair| pair[1].saturating_sub(pair[0]).as_secs_f64());
        let mut gaps: Vec<f64> = gaps.collect();
        gaps.sort_by(f64::total_cmp);
        gaps
    }

    /// The first reply to each request, by number; `None` where none arrived.
    pub(super) fn first_replies(&self) -> Vec<Option<Reply>> {
        let mut first = vec![None; self.sent.len()];
        for reply in &self.replies {
            if let Some(place @ None) = first.get_mut(reply.number as usize) {
                *place = Some(*reply);
            }
        }
        first
    }

    /// The round trip of each request, by number, in seconds; `None` for one without a reply.
    pub(super) fn round_trips(&self) -> Vec<Option<f64>> {
        let first = self.first_replies().into_iter().zip(&self.sent);
        let took = |(reply, sent): (Option<Reply>, &Duration)| {
            Some(reply?.at.saturating_sub(*sent).as_secs_f64())
        };
        first.map(took).collect()
    }

    /// Which requests were lost, by number.
    pub(super) fn lost(&self) -> Vec<bool> {
        self.first_replies().iter().map(Option::is_none).collect()
    }

    /// Replies beyond the first to a request.
    pub(super) fn duplicates(&self) -> u64 {
        let answered = self.first_replies().iter().flatten().count();
        let ours = self.replies.iter().filter(|reply| (reply.number as usize) < self.sent.len());
        (ours.count() - answered) as u64
    }

    /// Replies that arrived after one to a later request.
    pub(super) fn overtaken(&self) -> u64 {
        let mut latest = None;
        let mut behind = 0;
        let mut arrived = vec![false; self.sent.len()];
        for reply in &self.replies {
            // A duplicate is not a late reply.
            let Some(place @ false) = arrived.get_mut(reply.number as usize) else { continue };
            *place = true;
            behind += u64::from(latest > Some(reply.number));
            latest = latest.max(Some(reply.number));
        }
        behind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn copies_strangers_and_late_ones_are_counted_as_what_they_are() {
        let reply = |number, ms| Reply { number, at: MS * ms, ip_bytes: 40 };
        let seen = Observed {
            sent: vec![MS, MS * 2, MS * 3, MS * 4],
            replies: vec![
                reply(0, 11),
                reply(2, 13),
                reply(1, 14),
                reply(0, 15),
                reply(2, 16),
                reply(9, 17),
            ],
            ..Observed::default()
        };
        let trips = seen.round_trips();
        assert_eq!(trips, [Some(0.010), Some(0.012), Some(0.010), None]);
        assert_eq!(seen.lost(), [false, false, false, true]);
        assert_eq!((seen.duplicates(), seen.overtaken()), (2, 1));
        assert_eq!((Observed::default().duplicates(), Observed::default().overtaken()), (0, 0));
    }
}
