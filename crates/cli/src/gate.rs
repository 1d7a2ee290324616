//! `lastbyte gate`.

mod asking;
mod describe;
mod memory;
mod orders;
mod running;
mod words;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use lastbyte_gate::config::check::{Findings, Machine};
use lastbyte_gate::config::file::{ConfigFile, read_users};
use lastbyte_gate::config::{Config, Kind, Refused, Route, Users};
use lastbyte_units::Span;

use crate::verdict::Verdict;
pub(crate) use words::GateArgs;
use words::{GateCommand, WhatArgs};

/// Runs a gate until it is told to stop, or does what else was asked for.
pub(crate) fn run(args: &GateArgs) -> Result<Verdict> {
    match &args.command {
        Some(GateCommand::Check(args)) => describe::check(&args.what),
        Some(GateCommand::Stat(args)) => asking::stat(args),
        Some(GateCommand::Flows(args)) => asking::flows(args),
        Some(GateCommand::Reload(args)) => asking::tell("reload", args),
        Some(GateCommand::Drain(args)) => asking::tell("drain", args),
        None => running::run(args),
    }
}

/// What a gate is told, and where it stands.
#[derive(Debug)]
enum Told {
    File(PathBuf, Box<ConfigFile>),
    Words(Config),
}

impl Told {
    /// What the words say, or the file that they name.
    fn by(what: &WhatArgs) -> Result<Self> {
        let is_file = |word: &&String| Path::new(word).extension().is_some_and(|end| end == "toml");
        match (what.words.as_slice(), what.words.iter().find(is_file)) {
            ([], _) => bail!(
                "which routes? Write LISTEN=TARGET, such as 127.0.0.1:3306=db.example:3306, or name \
                 a file that ends in .toml"
            ),
            ([file], Some(_)) => {
                if let Some(option) = what.option() {
                    bail!(
                        "{option}: with a file that stands there (docs/manual/gate.md has its keys)"
                    );
                }
                Self::read(Path::new(file))
            }
            (_, Some(file)) => bail!("{file}: either a file or routes, not both"),
            (routes, None) => Ok(Self::Words(what.config(routes)?)),
        }
    }

    fn read(file: &Path) -> Result<Self> {
        Ok(Self::File(file.to_owned(), Box::new(ConfigFile::read(file)?)))
    }

    fn config(&self) -> &Config {
        match self {
            Self::File(_, file) => &file.config,
            Self::Words(config) => config,
        }
    }

    fn check(&self) -> Findings {
        let machine = Machine::read();
        match self {
            Self::File(_, file) => file.check(&machine),
            Self::Words(config) => config.check(&machine),
        }
    }

    /// Itself, if a gate can start so.
    fn checked(self) -> Result<Self> {
        let faults = self.check().faults;
        if faults.is_empty() { Ok(self) } else { Err(Refused(faults).into()) }
    }
}

impl WhatArgs {
    /// The first option that says what stands in a file.
    fn option(&self) -> Option<&'static str> {
        let given = [
            ("--allow", !self.allow.is_empty()),
            ("--reach", !self.reach.is_empty()),
            ("--users-file", self.users_file.is_some()),
            ("--congestion", self.congestion.is_some()),
            ("--client-congestion", self.client_congestion.is_some()),
            ("--upstream-congestion", self.upstream_congestion.is_some()),
            ("--mptcp", self.mptcp),
            ("--idle", self.idle.is_some()),
            ("--stall", self.stall.is_some()),
            ("--connect-timeout", self.connect_timeout.is_some()),
            ("--control", self.control.is_some()),
            ("--metrics", self.metrics.is_some()),
            ("--drain", self.drain.is_some()),
            ("--workers", self.workers.is_some()),
        ];
        given.iter().find(|(_, is)| *is).map(|(option, _)| *option)
    }

    fn config(&self, routes: &[String]) -> Result<Config> {
        let users = self
            .users_file
            .as_deref()
            .map(read_users)
            .transpose()
            .map_err(|sentence| anyhow::anyhow!("--users-file: {sentence}"))?;
        let mut all = Vec::new();
        for word in routes {
            let mut route: Route = word.parse()?;
            self.set(&mut route)?;
            if let Some(users) = &users {
                route.kind = asking(route.kind, users.clone());
            }
            all.push(Arc::new(route));
        }
        let asks = |route: &Arc<Route>| !matches!(route.kind, Kind::Forward(_));
        ensure!(
            users.is_none() || all.iter().any(asks),
            "--users-file: no route here authenticates clients"
        );
        ensure!(
            self.reach.is_empty() || all.iter().any(asks),
            "--reach: no route here is told by its client where to"
        );
        let mut config = Config::of(all);
        config.control.clone_from(&self.control);
        config.metrics = self.metrics;
        config.workers = self.workers;
        if let Some(drain) = self.drain {
            config.drain = drain.as_duration();
        }
        Ok(config)
    }

    /// What was said of all routes.
    fn set(&self, route: &mut Route) -> Result<()> {
        route.allow.clone_from(&self.allow);
        route.reach.clone_from(&self.reach);
        let or_both = |own: &Option<String>| own.clone().or_else(|| self.congestion.clone());
        route.client.tune.congestion = or_both(&self.client_congestion);
        route.upstream.tune.congestion = or_both(&self.upstream_congestion);
        (route.client.mptcp, route.upstream.mptcp) = (self.mptcp, self.mptcp);
        let positive = |option, time: Option<Span>| match time {
            Some(Span::ZERO) => bail!("{option}: more than no time; for no limit leave it out"),
            time => Ok(time.map(Span::as_duration)),
        };
        route.times.idle = positive("--idle", self.idle)?;
        route.times.stall = positive("--stall", self.stall)?;
        let connect = positive("--connect-timeout", self.connect_timeout)?;
        route.times.connect = connect.unwrap_or(route.times.connect);
        Ok(())
    }
}

fn asking(kind: Kind, users: Users) -> Kind {
    match kind {
        Kind::Socks5(_) => Kind::Socks5(users),
        Kind::HttpConnect(_) => Kind::HttpConnect(users),
        other => other,
    }
}
