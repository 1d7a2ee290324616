//! A link: two hosts and the path between them.

use std::io::{self, PipeWriter, Write};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use crate::device::Device;
use crate::error::LinkError;
use crate::host::{Host, Namespace};
use crate::model::Model;
use crate::port::{Kind, PortOptions};
use crate::report::Report;
use crate::spec::{Spec, SpecError, Way};
use crate::wire::{Request, Requests, Wire};

/// Two hosts and the path between them, carried by a thread of this process. Dropping it removes all of
/// it.
#[derive(Debug)]
pub struct Link {
    near: End,
    far: End,
    spec: Spec,
    carrier: Option<Carrier>,
}

/// One end of a path: a host, and its device there.
#[derive(Debug)]
pub struct End {
    /// The host.
    pub host: Namespace,
    /// The device that is made for the path.
    pub device: Device,
}

#[derive(Debug)]
struct Carrier {
    thread: JoinHandle<io::Result<Report>>,
    requests: mpsc::Sender<Request>,
    /// A byte announces a request; closing it stops the carrier.
    wakeup: PipeWriter,
}

impl Link {
    /// Makes both hosts and the path between them.
    ///
    /// `seed` decides which packets are lost: the same seed and the same arrivals give the same
    /// losses.
    ///
    /// # Errors
    /// [`LinkError::Rights`] says what is missing and how to get it, [`LinkError::Spec`] why the path
    /// is not possible.
    pub fn up(spec: &Spec, seed: u64) -> Result<Self, LinkError> {
        Self::over(Kind::ALL, Self::two_hosts()?, spec, seed)
    }

    /// Makes a path between two hosts that exist already.
    ///
    /// # Errors
    /// As [`Link::up`]; and the kernel's where a host has a device of that name already.
    pub fn between(near: End, far: End, spec: &Spec, seed: u64) -> Result<Self, LinkError> {
        Self::over(Kind::ALL, (near, far), spec, seed)
    }

    /// Two new hosts, each with the device that it is to have.
    fn two_hosts() -> Result<(End, End), LinkError> {
        let end = |host| -> Result<End, LinkError> {
            Ok(End { host: Namespace::create()?, device: Device::of(host) })
        };
        Ok((end(Host::Near)?, end(Host::Far)?))
    }

    /// As [`Link::between`], over devices of one of these kinds.
    pub(crate) fn over(
        kinds: &[Kind],
        (near, far): (End, End),
        spec: &Spec,
        seed: u64,
    ) -> Result<Self, LinkError> {
        spec.check().map_err(LinkError::Spec)?;
        let up = Model::new(spec, Way::Up, seed);
        // The two directions must not lose the same packets.
        let down = Model::new(spec, Way::Down, seed ^ 0x9E37_79B9_7F4A_7C15);
        let port = |end: &End, model: &Model| {
            let options = PortOptions { mtu: spec.largest_packet(), uncut: model.takes_batches() };
            end.device.create_on(&end.host, kinds, options)
        };
        let (up, down) = ((port(&near, &up)?, up), (port(&far, &down)?, down));
        let carrier = Wire::new(up, down).and_then(Carrier::start);
        let carrier = carrier.map_err(LinkError::at("starting the carrier"))?;
        Ok(Self { near, far, spec: spec.clone(), carrier: Some(carrier) })
    }

    /// The near host.
    #[must_use]
    pub fn near(&self) -> &Namespace {
        &self.near.host
    }

    /// The far host.
    #[must_use]
    pub fn far(&self) -> &Namespace {
        &self.far.host
    }

    /// One of the hosts.
    #[must_use]
    pub fn host(&self, host: Host) -> &Namespace {
        match host {
            Host::Near => self.near(),
            Host::Far => self.far(),
        }
    }

    /// The path as it was made; [`Link::become_path`] does not change this.
    #[must_use]
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The report so far.
    ///
    /// # Errors
    /// When the carrier has failed.
    pub fn report(&self) -> Result<Report, LinkError> {
        let report = self.ask(Request::Report)?.map_err(LinkError::at(CARRYING))?;
        self.with_device_drops(report)
    }

    /// Becomes another path, as if that had begun when this one did: scheduled cuts and changes count
    /// from then. Packets that were sent before keep their time of arrival, and packets that wait for
    /// their transmission leave at the new rate.
    ///
    /// # Errors
    /// When the path is not possible or has another MTU, or the carrier has failed.
    pub fn become_path(&self, spec: &Spec) -> Result<(), LinkError> {
        spec.check().map_err(LinkError::Spec)?;
        let mtu = self.spec.largest_packet();
        if spec.largest_packet() != mtu {
            return Err(LinkError::Spec(SpecError::OtherMtu(mtu)));
        }
        self.ask(|answer| Request::Become(Box::new(spec.clone()), answer))
    }

    /// Takes the link down and returns its report.
    ///
    /// # Errors
    /// When the carrier had failed before.
    pub fn down(mut self) -> Result<Report, LinkError> {
        // Read before the carrier stops, as the devices go with it; an error counts only after that.
        let drops = self.with_device_drops(Report::default());
        let mut report = self.stop()?;
        report.device_drops += drops?.device_drops;
        Ok(report)
    }

    /// Why the link no longer carries packets, if it failed since the last call.
    pub fn take_failure(&mut self) -> Option<LinkError> {
        self.carrier.as_ref().filter(|carrier| carrier.thread.is_finished())?;
        self.stop().err()
    }

    /// The report with the packets that the hosts' devices dropped.
    fn with_device_drops(&self, mut report: Report) -> Result<Report, LinkError> {
        for End { host, device } in [&self.near, &self.far] {
            report.device_drops += device.drops_on(host)?;
        }
        Ok(report)
    }

    fn ask<T>(&self, request: impl FnOnce(mpsc::Sender<T>) -> Request) -> Result<T, LinkError> {
        let (answer, answered) = mpsc::channel();
        let send = |carrier: &Carrier| {
            let gone = |_| io::Error::other(STOPPED);
            carrier.requests.send(request(answer)).map_err(gone)?;
            (&carrier.wakeup).write_all(&[1])?;
            answered.recv().map_err(|_| io::Error::other(STOPPED))
        };
        let carrier = self.carrier.as_ref().ok_or_else(|| io::Error::other(STOPPED));
        carrier.and_then(send).map_err(LinkError::at(CARRYING))
    }

    fn stop(&mut self) -> Result<Report, LinkError> {
        let doing = LinkError::at(CARRYING);
        let Some(Carrier { thread, requests: _, wakeup }) = self.carrier.take() else {
            return Err(doing(io::Error::other(STOPPED)));
        };
        drop(wakeup);
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(doing)
    }
}

const CARRYING: &str = "carrying packets";
const STOPPED: &str = "the carrier has stopped";

impl Carrier {
    fn start(wire: Wire) -> io::Result<Self> {
        let (wakeup_reader, wakeup) = io::pipe()?;
        let (requests, queue) = mpsc::channel();
        let thread = thread::Builder::new().name("carrier".to_owned());
        let thread =
            thread.spawn(move || wire.carry(&Requests { wakeup: wakeup_reader, queue }))?;
        Ok(Self { thread, requests, wakeup })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.carrier.is_some() {
            let _ = self.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::host::{FAR, FAR_V6, NEAR};
    use crate::scenario::Scenario;

    /// A link over devices of this kind, or the reason aloud why this machine cannot make one.
    fn link(kind: Kind, toml: &str) -> Option<Link> {
        let spec = Scenario::parse("test", toml).unwrap().spec;
        let up = || Link::over(&[kind], Link::two_hosts()?, &spec, 1);
        match up() {
            Ok(link) => Some(link),
            Err(error @ LinkError::Rights { .. }) => {
                lastbyte_testing::not_tested!("{error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn every_kind_of_device_keeps_the_time_and_sends_nothing_of_its_own() {
        for kind in Kind::ALL {
            let Some(link) = link(*kind, "rtt = '40ms'\nrate = '80mbit'") else { continue };
            let far = link.far().run(|| UdpSocket::bind((FAR, 0)).unwrap()).unwrap();
            let near = link.near().run(|| UdpSocket::bind((NEAR, 0)).unwrap()).unwrap();
            near.connect(far.local_addr().unwrap()).unwrap();
            far.connect(near.local_addr().unwrap()).unwrap();
            let mut best = Duration::MAX;
            for _ in 0..10 {
                let start = Instant::now();
                near.send(b"ping").unwrap();
                far.recv(&mut [0; 8]).unwrap();
                far.send(b"pong").unwrap();
                near.recv(&mut [0; 8]).unwrap();
                best = best.min(start.elapsed());
            }
            let ms = Duration::from_millis(1);
            assert!(best >= 40 * ms && best < 42 * ms, "{kind:?}: {best:?}");
            let report = link.down().unwrap();
            assert_eq!((report.up.packets, report.down.packets), (10, 10), "{kind:?}");
            assert_eq!((report.up.bytes, report.device_drops), (320, 0), "{kind:?}");
        }
    }

    /// With a rate the kernel cuts before the device; without one, packets come uncut and a loss is
    /// cut out of them.
    #[test]
    fn every_kind_of_device_carries_tcp_of_both_families() {
        for toml in ["rtt = '2ms'\nrate = '400mbit'\nqueue = '4MB'", "rtt = '2ms'\nloss = '0.5%'"] {
            for kind in Kind::ALL {
                let Some(link) = link(*kind, toml) else { continue };
                for far in [SocketAddr::from((FAR, 0)), SocketAddr::from((FAR_V6, 0))] {
                    carry(&link, far);
                }
                let report = link.down().unwrap();
                let up = report.up;
                let accounted = up.delivered + up.lost + up.dropped + up.in_flight;
                assert_eq!((up.packets, report.device_drops), (accounted, 0), "{kind:?}: {up:?}");
                assert!(up.packets > 6_000_000 / 1448, "{kind:?}: {up:?}");
                let mean = up.bytes / up.packets;
                assert!((1200..=1500).contains(&mean), "{kind:?}: {up:?}");
            }
        }
    }

    #[test]
    fn every_kind_of_device_carries_long_packets() {
        for toml in ["mtu = 9000\nrate = '400mbit'", "mtu = 9000"] {
            for kind in Kind::ALL {
                let Some(link) = link(*kind, toml) else { continue };
                let far = link.far().run(|| UdpSocket::bind((FAR, 0)).unwrap()).unwrap();
                let near = link.near().run(|| UdpSocket::bind((NEAR, 0)).unwrap()).unwrap();
                far.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
                near.send_to(&[7; 8972], far.local_addr().unwrap()).unwrap();
                let mut packet = [0; 9000];
                let got = far.recv(&mut packet).ok();
                assert_eq!((got, packet[8971]), (Some(8972), 7), "{kind:?}, {toml}");
                carry(&link, SocketAddr::from((FAR, 0)));
                let report = link.down().unwrap();
                assert_eq!(report.device_drops, 0, "{kind:?}, {toml}");
            }
        }
    }

    /// Sends 3 MB whose every byte tells its place, and compares.
    fn carry(link: &Link, far: SocketAddr) {
        let listener = link.far().run(|| TcpListener::bind(far).unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut near = link.near().run(|| TcpStream::connect(address).unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let place = |at: usize| at.to_le_bytes()[0] ^ at.to_le_bytes()[1] ^ at.to_le_bytes()[2];
        let all: Vec<u8> = (0..3_000_000).map(place).collect();
        let expected = all.clone();
        let writer = thread::spawn(move || near.write_all(&all).unwrap());
        let mut got = Vec::new();
        far.read_to_end(&mut got).unwrap();
        writer.join().unwrap();
        assert!(got == expected, "{} bytes, or not the same", got.len());
    }
}
