//! A path in the arguments of several commands.

use std::path::Path;

use anyhow::{Result, bail};
use clap::Args;
use lastbyte_link::{Queue, Scenario, Setting, Spec, Topology};
use lastbyte_units::{BitRate, Share, Span};

/// A path: a scenario by name or file, or described by options, which also override a scenario.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PathArgs {
    /// A scenario's name (see `lastbyte link scenarios`), or a file ending in .toml
    pub(crate) scenario: Option<String>,
    /// Round trip with empty queues, half of it each way, such as 217ms
    #[arg(long, allow_hyphen_values = true, value_name = "TIME")]
    pub(crate) rtt: Option<Span>,
    /// Share of packets lost each way, independently, such as 0.034%
    #[arg(long, allow_hyphen_values = true, value_name = "SHARE")]
    pub(crate) loss: Option<Share>,
    /// IP bytes per second each way, such as 95mbit
    #[arg(long, allow_hyphen_values = true, value_name = "RATE")]
    pub(crate) rate: Option<BitRate>,
    /// What may wait where the rate is too low: bytes, or multiples of the bandwidth-delay product
    /// [default: 1bdp]
    #[arg(long, allow_hyphen_values = true, value_name = "QUEUE")]
    pub(crate) queue: Option<Queue>,
    /// Any key of a scenario file, such as jitter=5ms or burst_loss='{ share = "1%", packets = 8.0 }';
    /// none takes away what the scenario asks for. May be given more than once
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
    pub(crate) set: Vec<(String, String)>,
    /// Decides which packets are lost
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

fn key_and_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE, such as jitter=5ms")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

impl PathArgs {
    /// The path described; `None` when nothing was said.
    pub(crate) fn scenario(&self) -> Result<Option<Scenario>> {
        let mut scenario = match &self.scenario {
            Some(name) if Topology::is_named(name) => bail!(
                "{name} is a network of several links: `lastbyte link up NAME {name}` makes it, and \
                 `link exec` runs programs in it"
            ),
            Some(name) => Scenario::find(name)?,
            None if self.is_empty() => return Ok(None),
            None => Scenario {
                name: "path".to_owned(),
                title: "a path of your own".to_owned(),
                spec: Spec::default(),
            },
        };
        let Spec { up, down, mtu: _, changes } = &mut scenario.spec;
        let later = changes.iter_mut().flat_map(|change| [&mut change.up, &mut change.down]);
        for direction in [up, down].into_iter().chain(later) {
            if let Some(rtt) = self.rtt {
                direction.delay = rtt.as_duration() / 2;
            }
            direction.loss = self.loss.or(direction.loss);
            if self.rate.is_some() {
                (direction.rate, direction.trace) = (self.rate, None);
            }
            direction.queue = self.queue.or(direction.queue);
        }
        let words = self.set.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        scenario.spec = Setting::from_pairs(words, None)?.of(&scenario.spec, Path::new(""))?;
        Ok(Some(scenario))
    }

    /// The path described.
    pub(crate) fn must_have_scenario(&self) -> Result<Scenario> {
        match self.scenario()? {
            Some(scenario) => Ok(scenario),
            None => bail!(
                "which path? Name a scenario (lastbyte link scenarios lists them), or describe it, \
                 such as --rtt 217ms --loss 0.034% --rate 95mbit"
            ),
        }
    }

    /// The network described: a topology by its name or file, or a path between two hosts.
    pub(crate) fn must_have_topology(&self) -> Result<Topology> {
        let Some(name) = self.scenario.as_ref().filter(|name| Topology::is_named(name)) else {
            return Ok(Topology::of_two(&self.must_have_scenario()?.spec));
        };
        let alone = Self { scenario: None, ..self.clone() };
        if !alone.is_empty() {
            bail!("{name} is a network of several links: their paths are described in its file");
        }
        Ok(Topology::find(name)?)
    }

    /// Whether nothing was said of a path.
    pub(crate) fn is_empty(&self) -> bool {
        self.scenario.is_none()
            && self.rtt.is_none()
            && self.loss.is_none()
            && self.rate.is_none()
            && self.queue.is_none()
            && self.set.is_empty()
    }
}
