//! `lastbyte link record`: a real path, as a scenario.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use lastbyte_record::{
    CONNECTS_PER_S, Figure, Method, Outcome, PROBES_PER_S, Plan, RecordError, Recorded, Target,
};
use lastbyte_units::{Unit, UtcTime, grouped};
use serde_json::{Map, Value, json};

use crate::args::LinkRecordArgs;
use crate::output::{Align, Progress, Table, say, say_json, talk};
use crate::verdict::Verdict;

const SCHEMA: u32 = 1;

/// Records the path to a host.
pub(super) fn run(args: &LinkRecordArgs) -> Result<Verdict> {
    let file = args.output.as_deref();
    if let Some(file) = file {
        check_writable(file, args.force)?;
    }
    let target = target(args)?;
    target.check()?;
    let plan = Plan {
        probes_for: Duration::from_secs(args.seconds),
        train_budget: args.budget.unwrap_or(lastbyte_record::TRAIN_BUDGET),
    };
    announce(args, &target, &plan);
    let progress = Progress::new();
    let mut watch = |phase| progress.show(&format!("{}: sending {phase}", args.host));
    let recorded = match lastbyte_record::record(&target, &plan, &mut watch) {
        Ok(recorded) => recorded,
        Err(error @ RecordError::NoAnswer { .. }) => {
            progress.wipe();
            talk(&format!("lastbyte: {error}"));
            return Ok(Verdict::No);
        }
        Err(error) => return Err(error.into()),
    };
    progress.wipe();
    let toml = recorded.to_toml(&target, &args.host, &date(SystemTime::now()));
    if let Some(file) = file {
        write(file, &toml, args.force)?;
    }
    answer(args, &recorded, &toml)?;
    Ok(Verdict::Done)
}

/// Says before anything is sent how much it will be.
fn announce(args: &LinkRecordArgs, target: &Target, plan: &Plan) {
    let (probes, seconds) = (grouped(plan.probes(target.method).into()), args.seconds);
    let to = target.address.ip();
    talk(&match target.method {
        Method::Echo => format!(
            "record: to {to}, {probes} small echo requests in {seconds} s (at most {PROBES_PER_S} \
             each second), then trains of full ones, at most {} in all and a second each; as much \
             comes back",
            plan.train_budget
        ),
        Method::Connect => format!(
            "record: to {to} port {}, {probes} TCP connects in {seconds} s ({CONNECTS_PER_S} each \
             second at most), closed at once",
            target.address.port()
        ),
    });
}

/// The host's first address, of the family asked for.
fn target(args: &LinkRecordArgs) -> Result<Target> {
    let (host, port) = (args.host.trim(), args.tcp.unwrap_or(0));
    // As in an address of the web.
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let is_wanted = |address: &SocketAddr| match (args.ipv4, args.ipv6) {
        (true, _) => address.is_ipv4(),
        (_, true) => address.is_ipv6(),
        _ => true,
    };
    let found = (host, port).to_socket_addrs();
    let mut found = found.with_context(|| format!("finding the address of `{}`", args.host))?;
    let Some(address) = found.find(is_wanted) else {
        let family = if args.ipv4 { "IPv4" } else { "IPv6" };
        bail!("`{}` has no {family} address: leave -4 or -6 out", args.host);
    };
    let method = if args.tcp.is_some() { Method::Connect } else { Method::Echo };
    Ok(Target { address, method })
}

/// Says what is wrong with a file before anything is sent.
fn check_writable(file: &Path, force: bool) -> Result<()> {
    if !force && file.exists() {
        bail!("{} exists already: name another file, or overwrite it with --force", file.display());
    }
    // `link run` takes a name for a file's by this.
    if file.extension().is_none_or(|extension| extension != "toml") {
        bail!("{}: the name of a scenario file ends in .toml: name one that does", file.display());
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        bail!("{}: there is no folder {}: make it first", file.display(), folder.display());
    }
    Ok(())
}

/// Writes the scenario; a file that is there is overwritten only on demand.
fn write(file: &Path, toml: &str, force: bool) -> Result<()> {
    let opened = match force {
        true => File::create(file),
        false => File::create_new(file),
    };
    let written = opened.and_then(|mut opened| opened.write_all(toml.as_bytes()));
    match written {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!("{} was made meanwhile: overwrite it with --force", file.display())
        }
        written => written.with_context(|| format!("writing {}", file.display())),
    }
}

fn answer(args: &LinkRecordArgs, recorded: &Recorded, toml: &str) -> Result<()> {
    if args.json {
        for figure in &recorded.figures {
            say_json(&line(&args.host, figure))?;
        }
        return say_json(&json!({
            "type": "scenario",
            "schema": SCHEMA,
            "host": args.host,
            "spec": recorded.spec.to_string(),
            "assumes": recorded.assumes,
            "sent_packets": recorded.packets,
            "sent_bytes": recorded.bytes,
            "toml": toml,
        }));
    }
    let Some(file) = &args.output else {
        say(toml);
        return Ok(());
    };
    say(&format!("{}: {}", args.host, recorded.spec));
    say("");
    let mut table =
        Table::new(&[("what", Align::Left), ("recorded", Align::Left), ("from", Align::Left)]);
    for figure in &recorded.figures {
        table.row(vec![figure.subject.to_string(), figure.value(), figure.basis.clone()]);
    }
    table.say();
    say("");
    say(&format!("written to {0}: lastbyte link run {0} -- COMMAND", file.display()));
    Ok(())
}

/// A figure; its keys carry the unit.
fn line(host: &str, figure: &Figure) -> Value {
    let (unit, scale) = match figure.unit {
        Unit::Seconds => ("ms", 1e3),
        Unit::Share => ("share", 1.0),
        Unit::BitsPerS => ("bits_per_s", 1.0),
        Unit::Bytes => ("bytes", 1.0),
        Unit::Packets => ("packets", 1.0),
    };
    let (verdict, got, low, high) = match figure.outcome {
        Outcome::Known { got, low, high } => ("known", Some(got), Some(low), Some(high)),
        Outcome::Below(limit) => ("none seen", None, Some(0.0), Some(limit)),
        Outcome::Above(limit) => ("more than", None, Some(limit), None),
        Outcome::Unknown => ("not known", None, None, None),
    };
    let mut line = Map::new();
    line.insert("type".to_owned(), json!("figure"));
    line.insert("schema".to_owned(), json!(SCHEMA));
    line.insert("host".to_owned(), json!(host));
    line.insert("what".to_owned(), json!(figure.subject.to_string()));
    line.insert("verdict".to_owned(), json!(verdict));
    for (name, value) in [("got", got), ("low", low), ("high", high)] {
        line.insert(format!("{name}_{unit}"), json!(value.map(|value| value * scale)));
    }
    line.insert("from".to_owned(), json!(figure.basis));
    Value::Object(line)
}

fn date(time: SystemTime) -> String {
    UtcTime::of(time).map_or_else(|| "an unknown time".to_owned(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastbyte_record::Subject;

    #[test]
    fn keys_carry_their_units() {
        let figure = |unit, outcome| Figure {
            subject: Subject::Rate,
            unit,
            outcome,
            basis: "10 trains".to_owned(),
        };
        let known = Outcome::Known { got: 0.2, low: 0.1, high: 0.3 };
        let known = line("far", &figure(Unit::Seconds, known));
        assert_eq!((&known["got_ms"], &known["low_ms"]), (&json!(200.0), &json!(100.0)));
        let above = line("far", &figure(Unit::BitsPerS, Outcome::Above(1e9)));
        assert_eq!(
            (&above["low_bits_per_s"], &above["high_bits_per_s"]),
            (&json!(1e9), &Value::Null)
        );
        assert_eq!((&above["what"], &above["verdict"]), (&json!("rate"), &json!("more than")));
    }
}
