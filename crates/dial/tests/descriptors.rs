//! What a dial leaves that nobody waits for any more. Alone in its process: descriptors are counted.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use lastbyte_dial::{DialOptions, Dialer, Resolver};

use crate::support::dns::{DnsServer, Zone};
use crate::support::ports::{Port, dialing, run};

fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_dial_that_is_dropped_at_any_point_leaves_nothing() {
    let port = Port::new(&[IpAddr::V4(Ipv4Addr::LOCALHOST)], &[IpAddr::V6(Ipv6Addr::LOCALHOST)]);
    let server =
        DnsServer::start(Zone::new().a("host.test", ["127.0.0.1"]).aaaa("host.test", ["::1"]));
    // What a runtime opens once and for all is not counted, and the server's has to be there.
    run(async {
        let resolver = Resolver::dns_from(&server.resolv_conf(), "").unwrap();
        let options = DialOptions::default();
        assert!(Dialer::new(resolver).dial(("host.test", port.number), &options).await.is_ok());
    });
    let before = open_descriptors();
    for polls in 0..12 {
        run(async {
            let dialer = Dialer::new(Resolver::dns_from(&server.resolv_conf(), "").unwrap());
            let options = DialOptions::default();
            let mut dial = pin!(dialer.dial(("host.test", port.number), &options).fuse());
            let mut left = polls;
            std::future::poll_fn(|cx| {
                if left == 0 {
                    return Poll::Ready(());
                }
                left -= 1;
                dial.as_mut().poll(cx).map(drop)
            })
            .await;
            // Polled once more by nobody in particular, as a task is that is woken too often.
            if left == 0 && polls % 2 == 1 {
                let _ = dial.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            }
        });
        assert_eq!(dialing(port.number), 0, "after {polls} polls");
    }
    // The questions go on for a second, for the cache.
    let deadline = Instant::now() + Duration::from_secs(10);
    while open_descriptors() > before && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(10));
    }
    assert!(open_descriptors() <= before);
}
