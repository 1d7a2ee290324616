//! Asking gates that run: `lastbyte gate stat`, `flows`, `reload` and `drain`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use lastbyte_gate::control::{self, Answer, Description, Flow, Identity, Statistic};
use lastbyte_sys::process;
use lastbyte_units::{Span, grouped};

use super::words::{FlowsArgs, StatArgs, TellArgs};
use crate::output::{Align, Table, say, say_json};
use crate::verdict::Verdict;

/// `lastbyte gate stat`.
pub(super) fn stat(args: &StatArgs) -> Result<Verdict> {
    let at = find(args.control.as_deref())?;
    if args.list {
        let Answer::List(all) = ask(&at, "list")? else { bail!(STRANGE) };
        return list(&all, args.json);
    }
    if args.openmetrics {
        let Answer::Openmetrics(text) = ask(&at, "openmetrics")? else { bail!(STRANGE) };
        say(&text);
        return Ok(Verdict::Done);
    }
    let words = match &args.name {
        // It would be several words, or none.
        Some(name) if name.split_whitespace().count() != 1 => {
            bail!("there is no statistic {name:?}: `lastbyte gate stat --list` lists all")
        }
        Some(name) => format!("stat {name}"),
        None => "stat".to_owned(),
    };
    let Answer::Statistics(all) = ask(&at, &words)? else { bail!(STRANGE) };
    if args.json {
        all.iter().try_for_each(say_json)?;
    } else if args.by_route {
        by_route(&all);
    } else if let (Some(_), [one]) = (&args.name, all.as_slice()) {
        // Alone, as a script wants it.
        say(&one.total.to_string());
    } else {
        let mut table = Table::new(&[("statistic", Align::Left), ("total", Align::Left)]);
        for one in &all {
            table.row(vec![one.description.name.clone(), one.total.to_string()]);
        }
        table.say();
    }
    Ok(Verdict::Done)
}

/// What a gate of another version may answer.
const STRANGE: &str = "the gate answered something else: it is of another version";

fn list(all: &[Description], json: bool) -> Result<Verdict> {
    if json {
        all.iter().try_for_each(say_json)?;
        return Ok(Verdict::Done);
    }
    for one in all {
        say(&format!("{:<32}  {}", one.name, one.description));
    }
    Ok(Verdict::Done)
}

fn by_route(all: &[Statistic]) {
    let columns = [("statistic", Align::Left), ("route", Align::Left), ("value", Align::Left)];
    let mut table = Table::new(&columns);
    for one in all {
        let name = &one.description.name;
        if !one.description.by_route {
            table.row(vec![name.clone(), "(all)".to_owned(), one.total.to_string()]);
        }
        for of in &one.routes {
            let route = if of.route.is_empty() { "(gone)" } else { &of.route };
            table.row(vec![name.clone(), route.to_owned(), of.value.to_string()]);
        }
    }
    table.say();
}

/// `lastbyte gate flows`.
pub(super) fn flows(args: &FlowsArgs) -> Result<Verdict> {
    let at = find(args.control.as_deref())?;
    let Answer::Flows(all) = ask(&at, "flows")? else { bail!(STRANGE) };
    if args.json {
        all.iter().try_for_each(say_json)?;
        return Ok(Verdict::Done);
    }
    if all.is_empty() {
        say("no flow is open");
        return Ok(Verdict::Done);
    }
    let mut table = Table::new(&[
        ("flow", Align::Right),
        ("route", Align::Left),
        ("client", Align::Left),
        ("to", Align::Left),
        ("age", Align::Right),
        ("bytes up", Align::Right),
        ("bytes down", Align::Right),
    ]);
    all.iter().for_each(|flow| table.row(row(flow)));
    table.say();
    Ok(Verdict::Done)
}

fn row(flow: &Flow) -> Vec<String> {
    let to = match (&flow.wanted, flow.upstream) {
        (Some(wanted), Some(upstream)) if *wanted == upstream.to_string() => wanted.clone(),
        (Some(wanted), Some(upstream)) => format!("{wanted} ({upstream})"),
        (Some(wanted), None) => format!("{wanted} (not connected)"),
        (None, _) => "(not asked for)".to_owned(),
    };
    let age = Duration::from_millis(flow.age_ms);
    // To the millisecond: the rest is the time that the question took.
    let age = Span::from(Duration::from_millis(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)));
    vec![
        flow.flow.to_string(),
        flow.route.clone(),
        flow.client.to_string(),
        to,
        age.to_string(),
        grouped(flow.up_written_bytes),
        grouped(flow.down_written_bytes),
    ]
}

/// `lastbyte gate reload`, `lastbyte gate drain`.
pub(super) fn tell(order: &str, args: &TellArgs) -> Result<Verdict> {
    let Answer::Done(sentence) = ask(&find(args.control.as_deref())?, order)? else {
        bail!(STRANGE)
    };
    say(&sentence);
    Ok(Verdict::Done)
}

fn ask(at: &Path, words: &str) -> Result<Answer> {
    match control::ask(at, words).with_context(|| format!("gate at {}", at.display()))? {
        Answer::Error(sentence) => bail!("{sentence}"),
        answer => Ok(answer),
    }
}

/// The control socket that is meant: the one that is named, or that of the only gate of this user.
fn find(named: Option<&Path>) -> Result<PathBuf> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    let folder = own_folder().ok_or_else(|| {
        anyhow!(
            "which gate? XDG_RUNTIME_DIR is not set, so there is no place to look: --control PATH"
        )
    })?;
    let mut all = control::running(&folder);
    ensure!(
        !all.is_empty(),
        "no gate of this user runs with a control socket in {}; one that has it elsewhere is asked \
         with --control PATH",
        folder.display()
    );
    if all.len() > 1 {
        let named: Vec<String> = all.iter().map(|path| told(path)).collect();
        bail!("{} gates run here, name one by --control:\n{}", all.len(), named.join("\n"));
    }
    Ok(all.remove(0))
}

/// A line about a gate.
fn told(path: &Path) -> String {
    let routes = match control::ask(path, "version") {
        Ok(Answer::Version(Identity { routes, .. })) => {
            let routes = routes.iter().map(|(route, address)| format!("{route} on {address}"));
            routes.collect::<Vec<_>>().join(", ")
        }
        Ok(_) => STRANGE.to_owned(),
        Err(error) => error.to_string(),
    };
    format!("  {}  {routes}", path.display())
}

/// Where this user's gates have their control sockets, unless they are told; `None` where there is no
/// such place.
pub(super) fn own_folder() -> Option<PathBuf> {
    folder(|name| std::env::var_os(name), process::effective_user() == 0)
}

/// A variable that is empty counts as not set, and so does a relative `XDG_RUNTIME_DIR`: both after
/// the XDG Base Directory Specification.
fn folder(variable: impl Fn(&str) -> Option<OsString>, root: bool) -> Option<PathBuf> {
    let path = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(told) = path("LASTBYTE_RUN_DIR") {
        return Some(told);
    }
    if root {
        return Some(PathBuf::from("/run/lastbyte"));
    }
    let runtime = path("XDG_RUNTIME_DIR").filter(|runtime| runtime.is_absolute())?;
    Some(runtime.join("lastbyte"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_a_place() {
        let told = ("LASTBYTE_RUN_DIR", "/told");
        let user = ("XDG_RUNTIME_DIR", "/run/user/7");
        for (set, root, expected) in [
            (&[told, user][..], true, Some("/told")),
            (&[user], true, Some("/run/lastbyte")),
            (&[user], false, Some("/run/user/7/lastbyte")),
            (&[("LASTBYTE_RUN_DIR", ""), user], false, Some("/run/user/7/lastbyte")),
            (&[("XDG_RUNTIME_DIR", "here")], false, None),
            (&[], false, None),
        ] {
            let variable = |name: &str| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
            };
            assert_eq!(folder(variable, root), expected.map(PathBuf::from), "{set:?}");
        }
    }
}
