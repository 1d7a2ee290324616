//! The suite judged: plain TCP must hold all of it, and a proxy that is wrong on purpose must be found
//! out, in the rows where it is wrong and in no others.

use lastbyte_torture::tally::{self, Row};
use lastbyte_torture::{Group, Testbed, cases};

use crate::support::{WrongProxy, free_address, setup};

/// Each group by itself, so that they are played side by side.
fn plain_tcp_holds(groups: &[Group]) {
    let address = free_address();
    let testbed = Testbed::open(setup(address, address)).unwrap();
    for row in rows(&testbed, |_, group| groups.contains(&group)) {
        assert!(row.is_good(), "{}: {}: {}", row.case, row.seen, row.note);
    }
}

#[test]
fn plain_tcp_holds_half_closes() {
    plain_tcp_holds(&[Group::HalfClose]);
}

#[test]
fn plain_tcp_holds_resets() {
    plain_tcp_holds(&[Group::Reset]);
}

#[test]
fn plain_tcp_holds_early_answers_and_small_transfers() {
    plain_tcp_holds(&[Group::Early, Group::Small]);
}

#[test]
fn plain_tcp_holds_urgent_bytes_and_slow_readers() {
    plain_tcp_holds(&[Group::Urgent, Group::Slow]);
}

#[test]
fn plain_tcp_holds_many_connections_and_a_lost_upstream() {
    plain_tcp_holds(&[Group::Many, Group::Upstream]);
}

/// It ends both directions at the first end of either, whichever that was, with a FIN.
#[test]
fn a_proxy_that_ends_both_directions_with_a_fin_is_found_out() {
    let (listen, upstream) = (free_address(), free_address());
    let _proxy = WrongProxy::start(listen, upstream);
    let testbed = Testbed::open(setup(listen, upstream)).unwrap();
    let wrong = [
        "half-close/then-answer",
        "half-close/server-first",
        "half-close/data-first/client",
        "half-close/data-first/server",
        "reset/before-data/client",
        "reset/before-data/server",
        "reset/after-data/client",
        "reset/after-data/server",
        "reset/right-after-data/server",
        "urgent/middle/client",
        "urgent/alone/server",
        "upstream/refused",
    ];
    let right =
        ["small/pieces/client", "small/pieces/server", "small/connections", "small/empty/client"];
    let expected = |name: &str| wrong.contains(&name) || right.contains(&name);
    let rows = rows(&testbed, |name, _| expected(name));
    assert_eq!(rows.len(), wrong.len() + right.len());
    for row in rows {
        let is_right = right.contains(&row.case.as_str());
        assert_eq!(row.is_good(), is_right, "{}: {}: {}", row.case, row.seen, row.note);
        assert_eq!(row.good, if is_right { row.of } else { 0 }, "{}", row.case);
    }
}

/// One run of each of these cases.
fn rows(testbed: &Testbed, wanted: impl Fn(&str, Group) -> bool) -> Vec<Row> {
    let wanted =
        cases::all().into_iter().filter(|case| !case.long && wanted(&case.name, case.group));
    wanted.map(|case| tally::row(testbed, &case, Some(1))).collect()
}
