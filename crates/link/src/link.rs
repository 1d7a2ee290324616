//! The path itself.

use std::io::{self, PipeWriter};
use std::thread::{self, JoinHandle};

use lastbyte_sys::tun::Offload;

use crate::error::LinkError;
use crate::host::{Host, Namespace};
use crate::model::Model;
use crate::report::Report;
use crate::spec::Spec;
use crate::wire::Wire;

/// Two hosts and the path between them, carried by a thread of this process. Dropping it takes all
/// of it away.
#[derive(Debug)]
pub struct Link {
    near: Namespace,
    far: Namespace,
    carrier: Option<Carrier>,
}

#[derive(Debug)]
struct Carrier {
    thread: JoinHandle<io::Result<Report>>,
    /// Closing it stops the carrier.
    stop: PipeWriter,
}

impl Link {
    /// Makes both hosts and the path between them.
    ///
    /// `seed` decides which packets are lost: the same seed and the same arrivals give the same
    /// losses.
    ///
    /// # Errors
    /// [`LinkError::Rights`] says what is missing and how to get it.
    pub fn up(spec: &Spec, seed: u64) -> Result<Self, LinkError> {
        Self::between(Namespace::create()?, Namespace::create()?, spec, seed)
    }

    /// Makes a path between two hosts that exist already.
    ///
    /// # Errors
    /// As [`Link::up`].
    pub fn between(
        near: Namespace,
        far: Namespace,
        spec: &Spec,
        seed: u64,
    ) -> Result<Self, LinkError> {
        let up = Model::new(spec, &spec.up, seed);
        // The two directions must not lose the same packets.
        let down = Model::new(spec, &spec.down, seed ^ 0x9E37_79B9_7F4A_7C15);
        let up = (near.add_device(Host::Near, offload(&up))?, up);
        let down = (far.add_device(Host::Far, offload(&down))?, down);
        let doing = LinkError::at("starting the carrier");
        let carrier = Wire::new(up, down).and_then(|wire| {
            let (stopped, stop) = io::pipe()?;
            let thread = thread::Builder::new().name("carrier".to_owned());
            let thread = thread.spawn(move || wire.carry(&stopped))?;
            Ok(Carrier { thread, stop })
        });
        Ok(Self { near, far, carrier: Some(carrier.map_err(doing)?) })
    }

    /// The near host.
    #[must_use]
    pub fn near(&self) -> &Namespace {
        &self.near
    }

    /// The far host.
    #[must_use]
    pub fn far(&self) -> &Namespace {
        &self.far
    }

    /// One of the hosts.
    #[must_use]
    pub fn host(&self, host: Host) -> &Namespace {
        match host {
            Host::Near => &self.near,
            Host::Far => &self.far,
        }
    }

    /// Ends the path and says what it did.
    ///
    /// # Errors
    /// When the carrier had failed on the way.
    pub fn down(mut self) -> Result<Report, LinkError> {
        let drops = self.near.device_drops()? + self.far.device_drops()?;
        let mut report = self.stop()?;
        report.device_drops += drops;
        Ok(report)
    }

    /// Lets the path be there until this process ends. Returns only if the carrier fails.
    ///
    /// # Errors
    /// Why it failed.
    pub fn wait(mut self) -> Result<(), LinkError> {
        let Some(Carrier { thread, stop: _stop }) = self.carrier.take() else { return Ok(()) };
        let ended = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        ended.map(drop).map_err(LinkError::at("carrying packets"))
    }

    fn stop(&mut self) -> Result<Report, LinkError> {
        let doing = LinkError::at("carrying packets");
        let Some(Carrier { thread, stop }) = self.carrier.take() else {
            return Err(doing(io::Error::other("the carrier was stopped before")));
        };
        drop(stop);
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(doing)
    }
}

/// A direction with a rate must send packet by packet: there the kernel cuts.
fn offload(model: &Model) -> Offload {
    if model.takes_trains() { Offload::Segments } else { Offload::Checksums }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.carrier.is_some() {
            let _ = self.stop();
        }
    }
}
