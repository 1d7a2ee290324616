//! What these tests share: a gate before a server.

use std::fmt::Debug;
use std::ops::RangeBounds;

use serde_json::Value;

use crate::support::servers::Server;
use crate::support::{Scratch, code_of, lastbyte};

/// A gate on a port of its own, before a server of this host.
#[derive(Debug)]
pub(super) struct Gate {
    server: Server,
    pub(super) port: u16,
}

impl Gate {
    #[track_caller]
    pub(super) fn before(port: u16, scratch: &Scratch) -> Self {
        let route = format!("127.0.0.1:0=127.0.0.1:{port}");
        let mut gate = lastbyte(["gate", "--log", "json", &route]);
        let (server, port) = Server::that_says("listening on ", scratch, &mut gate);
        Self { server, port }
    }

    /// Where its clients find it.
    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Tells it to stop, which it does once its last flow has ended, and returns the account of each.
    /// None was ended by the gate, and those that ended well lost nothing.
    #[track_caller]
    fn accounts(mut self) -> Vec<Value> {
        let status = self.server.end("TERM");
        let said = self.server.said();
        assert_eq!(code_of(status), 0, "{said}");
        let lines = said.lines().filter_map(|line| serde_json::from_str(line).ok());
        let accounts: Vec<Value> = lines.filter(|line: &Value| line["type"] == "account").collect();
        for account in &accounts {
            assert_ne!(account["ended_by"], "gate", "{account:#}");
            assert_eq!(account["ended_how"] == "fin", account["complete"] == true, "{account:#}");
        }
        accounts
    }

    /// The same, where so many flows are expected, each ended as its programs like.
    #[track_caller]
    pub(super) fn assert_flows(self, expected: impl RangeBounds<usize> + Debug) -> Vec<Value> {
        let accounts = self.accounts();
        let count = accounts.len();
        assert!(expected.contains(&count), "{count} flows, expected {expected:?}: {accounts:#?}");
        accounts
    }

    /// The same, where the programs end none of their connections but by a FIN.
    #[track_caller]
    pub(super) fn assert_complete(self, expected: impl RangeBounds<usize> + Debug) {
        for account in self.assert_flows(expected) {
            assert_eq!(account["complete"], true, "{account:#}");
        }
    }
}
