//! Plain TCP over a link: waits follow the round trip, so that a slow path is no fault.

use lastbyte_link::{Host, Link, LinkError, Scenario};
use lastbyte_torture::{Setup, Testbed, cases, tally};

use crate::support::setup;

#[test]
#[ignore = "a minute over a link of 50 ms"]
fn plain_tcp_holds_every_case_over_a_link() {
    let scenario = Scenario::parse("far", "rtt = '50ms'").unwrap();
    let link = match Link::up(&scenario.spec, 1) {
        Ok(link) => link,
        Err(error @ LinkError::Rights { .. }) => return lastbyte_testing::not_tested!("{error}"),
        Err(error) => panic!("{error}"),
    };
    // A namespace of the link's own: its ports are free.
    let far = (Host::Far.address(), 7_000).into();
    let setup = Setup {
        proxy_namespace: Some(link.near().try_clone().unwrap()),
        upstream_namespace: Some(link.far().try_clone().unwrap()),
        ..setup(far, far)
    };
    let testbed = Testbed::open(setup).unwrap();
    assert!(testbed.waits().round_trip.as_millis() >= 50);
    for case in cases::all().into_iter().filter(|case| !case.long) {
        let row = tally::row(&testbed, &case, Some(1));
        assert!(row.is_good(), "{}: {}: {}", row.case, row.seen, row.note);
    }
}
