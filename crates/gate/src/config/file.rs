//! A configuration from a TOML file.
//!
//! ```toml
//! control = "/run/lastbyte/gate.sock"
//! metrics = "127.0.0.1:9464"
//! drain = "60s"
//! workers = 2
//! [limits]
//! flows = 8000
//! flows_per_client = 1000
//! dials = 256
//! [[route]]
//! name = "db"
//! listen = "127.0.0.1:3306"
//! forward = ["db.far.example:3306", "[2001:db8::1]:3306"]
//! choice = "first-healthy"
//! allow = ["127.0.0.0/8", "::1"]
//! request_timeout = "10s"
//! connect_timeout = "10s"
//! idle_timeout = "2h"
//! stall_timeout = "5min"
//! settle_timeout = "30s"
//! [route.client]
//! congestion = "bbr"
//! keepalive = "60s"
//! [route.upstream]
//! congestion = "bbr"
//! send_buffer = "4 MiB"
//! receive_buffer = "4 MiB"
//! notsent_lowat = "128 KiB"
//! pacing = "95mbit"
//! user_timeout = "30s"
//! keepalive = { idle = "60s", interval = "10s", probes = 6 }
//! mptcp = true
//! mark = 7
//! interface = "eth0"
//! nodelay = true
//! source = ["192.0.2.1", "2001:db8::2"]
//! [[route]]
//! listen = "1080"
//! socks5 = true
//! users = { alice = "secret" }
//! reach = ["10.0.0.0/8", "2001:db8::/32"]
//! [[route]]
//! listen = "[::1]:3128"
//! http_connect = true
//! ```

mod reader;
mod values;

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::check::{Findings, Machine};
use super::keys::Table;
use super::{
    Config, Forward, Kind, LegOptions, Limits, Place, Refused, Remark, Route, Subject, Times, User,
    Users,
};
use lastbyte_socket::{Keepalive, SocketOptions};
use reader::{Reader, Section};
use values::Wrong;

/// A configuration that was read from a file, with the position of each key.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    /// The configuration.
    pub config: Config,
    places: Places,
    /// What was noticed while it was read.
    advice: Vec<Remark>,
}

/// The positions of keys, by the index of their route and their name.
type Places = HashMap<(Option<usize>, String), Place>;

impl ConfigFile {
    /// Reads a file.
    ///
    /// # Errors
    /// All that is wrong with it, each with its line and key.
    pub fn read(path: &Path) -> Result<Self, Refused> {
        let name = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|cause| {
            Refused(vec![Remark::new(Subject::Gate, "", format!("{name}: {cause}"))])
        })?;
        let mut file = Self::parse(&name, &text, path.parent())?;
        let mode = fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode());
        if mode & FOR_OTHERS != 0 {
            let with_users =
                |(index, key): &&(Option<usize>, String)| index.is_some() && key == "users";
            let keys: Vec<_> = file.places.keys().filter(with_users).cloned().collect();
            for (index, key) in keys {
                let of = of(&file.config, index);
                let sentence = "every user of this machine can read these passwords: chmod 640, or \
                                put them into a users_file";
                file.advice.push(Remark::new(of, key, sentence));
            }
        }
        Ok(file)
    }

    /// Reads the text of a file of this name; paths in it are relative to `folder`.
    ///
    /// # Errors
    /// As [`ConfigFile::read`].
    pub fn parse(name: &str, text: &str, folder: Option<&Path>) -> Result<Self, Refused> {
        let document = reader::parse(name, text)?;
        let reader = Reader::new(name, text);
        let top = Section::top(&reader, document.get_ref());
        let config = gate(&top, folder);
        reader.done().map(|places| Self { config, places, advice: Vec::new() })
    }

    /// Its faults on this machine, and advice, each with its line.
    #[must_use]
    pub fn check(&self, machine: &Machine) -> Findings {
        let mut findings = self.config.check(machine);
        findings.advice.extend(self.advice.iter().cloned());
        for remark in findings.faults.iter_mut().chain(&mut findings.advice) {
            remark.place = self.place(remark.of.index(), &remark.key);
        }
        let line = |remark: &Remark| remark.place.as_ref().map(|place| (place.line, place.column));
        findings.faults.sort_by_key(line);
        findings.advice.sort_by_key(line);
        findings
    }

    /// The position of a key, or else of the table that it belongs to.
    fn place(&self, route: Option<usize>, key: &str) -> Option<Place> {
        let mut key = key;
        loop {
            if let Some(place) = self.places.get(&(route, key.to_owned())) {
                return Some(place.clone());
            }
            key = match key.rsplit_once('.') {
                Some((table, _)) => table,
                None if key.is_empty() => return None,
                None => "",
            };
        }
    }
}

fn of(config: &Config, index: Option<usize>) -> Subject {
    index.map_or(Subject::Gate, |index| {
        Subject::Route(index, config.routes.get(index).map(|route| Arc::clone(&route.name)))
    })
}

/// The bit of a file's mode that lets every user read it.
const FOR_OTHERS: u32 = 0o004;

fn gate(top: &Section<'_>, folder: Option<&Path>) -> Config {
    let mut config = Config::of(Vec::new());
    config.control = top.take("control", values::text).map(PathBuf::from);
    config.metrics = top.take("metrics", values::listen);
    config.drain = top.take("drain", values::time).unwrap_or(Config::DRAIN);
    config.workers = top.take("workers", values::at_least_one);
    if let Some(section) = top.table("limits", &[Table::Limits]) {
        config.limits = limits(&section);
    }
    let routes = top.tables("route", &[Table::Route]);
    config.routes = routes.iter().map(|section| Arc::new(route(section, folder))).collect();
    if routes.is_empty() && !top.has("route") {
        top.fault("there is no route: write [[route]] with a `listen` and a `forward`");
    }
    top.close();
    config
}

fn limits(section: &Section<'_>) -> Limits {
    let Limits { flows, flows_per_client, dials } = Limits::default();
    let at_most = |key, usual| section.take(key, values::at_least_one).map_or(usual, Into::into);
    let limits = Limits {
        flows: at_most("flows", flows),
        flows_per_client: at_most("flows_per_client", flows_per_client),
        dials: at_most("dials", dials),
    };
    section.close();
    limits
}

fn route(section: &Section<'_>, folder: Option<&Path>) -> Route {
    let listen = section.must("listen", values::listen, "listen = \"127.0.0.1:3306\"");
    let name = section.take("name", values::name);
    section.name(name.clone().or_else(|| listen.map(|listen| listen.to_string())));
    let kind = kind(section, folder);
    // Where something is missing a fault is noted: the placeholder is never used.
    let mut route = Route::new(listen.unwrap_or_else(|| ([127, 0, 0, 1], 0).into()), kind);
    if let Some(name) = name {
        route.name = Arc::from(name);
    }
    let one_or_more = |value| values::list(value, values::parsed);
    route.allow = section.take("allow", one_or_more).unwrap_or_default();
    route.reach = section.take("reach", one_or_more).unwrap_or_default();
    route.times = times(section);
    if let Some(leg) = section.table("client", &[Table::Leg]) {
        route.client = leg_options(&leg);
        leg.close();
    }
    if let Some(leg) = section.table("upstream", &[Table::Leg, Table::Upstream]) {
        route.upstream = leg_options(&leg);
        let one_or_more = |value| values::list(value, values::address);
        route.upstream.sources = leg.take("source", one_or_more).unwrap_or_default();
        leg.close();
    }
    section.close();
    route
}

fn kind(section: &Section<'_>, folder: Option<&Path>) -> Kind {
    let forward = section.take("forward", |value| values::list(value, values::parsed));
    let choice = section.take("choice", values::choice);
    let socks5 = section.take("socks5", values::flag).unwrap_or_default();
    let http_connect = section.take("http_connect", values::flag).unwrap_or_default();
    let users = users(section, folder);
    let given =
        [("forward", section.has("forward")), ("socks5", socks5), ("http_connect", http_connect)];
    let given: Vec<&str> = given.iter().filter(|(_, is)| *is).map(|(key, _)| *key).collect();
    match given.as_slice() {
        [] => section.fault(
            "it has no target: write forward = \"HOST:PORT\", socks5 = true or http_connect = true",
        ),
        [_] => {}
        [first, others @ ..] => {
            for other in others {
                section.fault_at(
                    other,
                    &format!("the route has `{first}` already: a route is of one kind"),
                );
            }
        }
    }
    if section.has("choice") && !section.has("forward") {
        section.fault_at("choice", "only a route with `forward` has targets to choose from");
    }
    for key in ["users", "users_file"] {
        if section.has(key) && !socks5 && !http_connect {
            section.fault_at(
                key,
                "only a route with `socks5` or `http_connect` authenticates clients",
            );
        }
    }
    if section.has("reach") && !socks5 && !http_connect {
        section.fault_at(
            "reach",
            "only a route with `socks5` or `http_connect` lets clients choose a destination",
        );
    }
    if socks5 {
        Kind::Socks5(users)
    } else if http_connect {
        Kind::HttpConnect(users)
    } else {
        Kind::Forward(Forward {
            targets: forward.unwrap_or_default(),
            choice: choice.unwrap_or_default(),
        })
    }
}

fn users(section: &Section<'_>, folder: Option<&Path>) -> Users {
    let mut all: Vec<User> = section.take("users", values::users).unwrap_or_default();
    let from_file = section.take("users_file", |value| {
        let path = PathBuf::from(values::text(value)?);
        let path = folder.map_or_else(|| path.clone(), |folder| folder.join(&path));
        read_users(&path).map(|Users(users)| users).map_err(Wrong::new)
    });
    for user in from_file.unwrap_or_default() {
        if all.iter().any(|other| other.name == user.name) {
            let sentence = format!("{:?} is among `users` already", user.name);
            section.fault_at("users_file", &sentence);
        }
        all.push(user);
    }
    Users(all)
}

/// Users from a file that others cannot read: lines of `name:password`. Empty lines, and those that
/// begin with `#`, are skipped.
///
/// # Errors
/// One sentence, with the file and the line; a password is never in it.
pub fn read_users(path: &Path) -> Result<Users, String> {
    let shown = path.display();
    let failed = |cause| format!("{shown}: {cause}");
    let mode = fs::metadata(path).map_err(failed)?.permissions().mode();
    if mode & FOR_OTHERS != 0 {
        return Err(format!("{shown} has passwords and every user can read it: chmod 640 {shown}"));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    let mut users: Vec<User> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let at = format!("{shown}:{}", index + 1);
        let (name, password) =
            line.split_once(':').ok_or_else(|| format!("{at}: write name:password"))?;
        let user = values::user(name, password).map_err(|sentence| format!("{at}: {sentence}"))?;
        if users.iter().any(|other| other.name == user.name) {
            return Err(format!("{at}: there is a line for {:?} already", user.name));
        }
        users.push(user);
    }
    if users.is_empty() {
        return Err(format!("{shown} has no user: write lines of name:password"));
    }
    Ok(Users(users))
}

fn times(section: &Section<'_>) -> Times {
    let usual = Times::default();
    let limit = |key| section.take(key, values::time);
    Times {
        request: limit("request_timeout").unwrap_or(usual.request),
        connect: limit("connect_timeout").unwrap_or(usual.connect),
        idle: limit("idle_timeout").or(usual.idle),
        stall: limit("stall_timeout").or(usual.stall),
        settle: limit("settle_timeout").unwrap_or(usual.settle),
    }
}

/// The keys that both legs have.
fn leg_options(section: &Section<'_>) -> LegOptions {
    let mut tune = SocketOptions::default();
    tune.congestion = section.take("congestion", values::text).map(str::to_owned);
    tune.send_buffer = section.take("send_buffer", values::buffer);
    tune.receive_buffer = section.take("receive_buffer", values::buffer);
    tune.notsent_lowat = section.take("notsent_lowat", values::buffer);
    tune.user_timeout = section.take("user_timeout", values::time);
    tune.max_pacing_rate = section.take("pacing", values::bytes_per_s);
    tune.keepalive = keepalive(section);
    tune.mark = section.take("mark", values::mark);
    tune.nodelay = section.take("nodelay", values::flag);
    tune.interface = section.take("interface", values::interface).map(str::to_owned);
    LegOptions {
        tune,
        mptcp: section.take("mptcp", values::flag).unwrap_or_default(),
        ..LegOptions::default()
    }
}

/// A time, or a table with all three values.
fn keepalive(section: &Section<'_>) -> Option<Keepalive> {
    if !section.is_table("keepalive") {
        let every = section.take("keepalive", values::probing)?;
        return Some(every_so_often(every));
    }
    let table = section.table("keepalive", &[Table::Keepalive])?;
    let idle = table.must("idle", values::probing, "idle = \"60s\"");
    let interval = table.take("interval", values::probing);
    let probes = table.take("probes", values::probes);
    table.close();
    let usual = every_so_often(idle?);
    Some(Keepalive {
        interval: interval.unwrap_or(usual.interval),
        probes: probes.unwrap_or(usual.probes),
        ..usual
    })
}

/// Probes after this silence and at this interval, with the kernel's number of probes.
fn every_so_often(every: std::time::Duration) -> Keepalive {
    Keepalive { idle: every, interval: every, probes: 9 }
}

#[cfg(test)]
mod tests;
