//! The account of a flow: the one place where it is put together.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lastbyte_core::account::{Account, Ended, How, Leg, Party};
use lastbyte_core::finish::Unproven;
use lastbyte_relay::{RelayEnd, Relayed, Side};

use crate::granted::Granted;
use crate::progress::{Moved, Progress};
use crate::route::ActiveRoute;
use crate::steps::{Step, Steps};

/// What is known of a flow, from its accept on: each step notes here what the account is to have of it.
/// It is small, as a flow keeps it while it is open: most of an account is about its end.
#[derive(Debug)]
pub(crate) struct Notes {
    pub(crate) route: Arc<ActiveRoute>,
    /// [`Account::flow`].
    pub(crate) number: u64,
    /// When the connection was accepted, since 1970 (UTC).
    pub(crate) began: Duration,
    /// The same, for [`Account::took`].
    pub(crate) at: Instant,
    pub(crate) client: SocketAddr,
    /// How far it is, for other threads too.
    pub(crate) progress: Arc<Progress>,
    /// How long connecting took, also where that failed.
    pub(crate) connect: Option<Duration>,
    /// The settings of both legs, read back.
    pub(crate) granted: Granted,
    pub(crate) steps: Steps,
}

impl Notes {
    /// The account, of what the relay has relayed, or why there was none.
    pub(crate) fn account(&mut self, ended: Result<Relayed, Ended>) -> Account {
        self.steps.enter(Step::Account);
        let name = Arc::clone(&self.route.route.name);
        let mut account = Account::begin(self.number, name, self.began, Leg::default());
        account.wanted = self.progress.wanted();
        account.connect = self.connect;
        match ended {
            Ok(relayed) => {
                account.ended = ended_by(relayed.end, relayed.unacked);
                (account.up, account.down) = (relayed.up, relayed.down);
                (account.client, account.upstream) = (relayed.client, Some(relayed.upstream));
            }
            Err(ended) => {
                account.ended = ended;
                // What a task that was dropped had counted.
                let Moved { up, down } = self.progress.moved();
                (account.up.received, account.up.written) = (up.received, up.written);
                (account.down.received, account.down.written) = (down.received, down.written);
            }
        }
        account.client.peer.get_or_insert(self.client);
        if let Some(upstream) = self.progress.upstream() {
            account.upstream.get_or_insert_default().peer.get_or_insert(upstream);
        }
        if let Some(granted) = self.granted.take() {
            let [client, upstream] = *granted;
            account.client.granted = client;
            account.upstream.get_or_insert_default().granted = upstream;
        }
        account.took = self.at.elapsed();
        account
    }
}

/// Who ended a flow that was relayed, and how.
fn ended_by(end: RelayEnd, unacked: Option<(Side, Unproven)>) -> Ended {
    match (end, unacked) {
        (RelayEnd::Fin(_), Some((side, Unproven::Reset))) => Ended::because(
            party(side),
            How::Reset,
            "after both FINs were passed on, before everything was acknowledged",
        ),
        (RelayEnd::Fin(_), Some((side, why))) => Ended::because(party(side), How::Unacked, why),
        (RelayEnd::Fin(side), None) => Ended::new(party(side), How::Fin),
        (RelayEnd::Reset(side), Some((other, why))) if other != side => {
            let detail = format!("not all bytes from before it reached the {other}: {why}");
            Ended::because(party(side), How::Reset, detail)
        }
        (RelayEnd::Reset(side), _) => Ended::new(party(side), How::Reset),
        (RelayEnd::Idle, _) => Ended::new(Party::Gate, How::Idle),
        (RelayEnd::Stalled { side, reset_by: Some(by) }, _) => {
            let detail = format!("the {side} stopped reading the bytes from before it");
            Ended::because(party(by), How::Reset, detail)
        }
        (RelayEnd::Stalled { side, .. }, _) => {
            Ended::because(Party::Gate, How::Stalled, format!("the {side} stopped reading"))
        }
        (_, _) => Ended::new(Party::Gate, How::Stopped),
    }
}

fn party(side: Side) -> Party {
    match side {
        Side::Client => Party::Client,
        Side::Upstream => Party::Upstream,
    }
}
