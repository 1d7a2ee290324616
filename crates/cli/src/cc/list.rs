//! `lastbyte cc list`.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use anyhow::Result;
use lastbyte_congestion::{
    Algorithm, Holder, ability, all, allowed, available, default_algorithm, find, holder_of,
    is_of_catalogue,
};
use serde::Serialize;
use terminal_size::{Width, terminal_size_of};

use super::words::ListArgs;
use crate::output::{Align, Table, say_json, talk};
use crate::verdict::Verdict;

/// Lists what there is, the kernel's first.
pub(super) fn list(args: &ListArgs) -> Result<Verdict> {
    let rows = rows()?;
    if args.json {
        rows.iter().try_for_each(say_json)?;
    } else {
        table(&rows).say();
    }
    if let Err(why) = ability() {
        talk(&format!("cc: none can be loaded here: {why}"));
    }
    Ok(Verdict::Done)
}

/// An algorithm, of the kernel or of the catalogue.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Row {
    name: String,
    /// `kernel`, `catalogue` or `other`.
    origin: &'static str,
    /// What the catalogue has it under.
    #[serde(skip_serializing_if = "Option::is_none")]
    plain_name: Option<&'static str>,
    /// Whether sockets can choose it.
    loaded: bool,
    /// `kernel`, `file`, `process`, `nobody` or `unknown`; of what is loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_by: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    /// What new sockets of this network namespace have.
    default: bool,
    /// Whether programs may choose it that have no rights.
    allowed_to_all: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    good_for: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bad_for: Option<&'static str>,
    takes_rate: bool,
}

/// The kernel's by name, then the catalogue's.
fn rows() -> Result<Vec<Row>> {
    let available = available()?;
    let machine = Machine {
        holders: available.iter().map(|name| (name.clone(), holder_of(name))).collect(),
        available,
        allowed: allowed()?,
        default: default_algorithm()?,
    };
    Ok(machine.rows())
}

/// What this machine says.
struct Machine {
    available: Vec<String>,
    allowed: Vec<String>,
    default: String,
    /// Of those that are available.
    holders: BTreeMap<String, Holder>,
}

impl Machine {
    fn rows(&self) -> Vec<Row> {
        let kernels = self.available.iter().filter(|name| !is_of_catalogue(name));
        let mut kernels: Vec<&String> = kernels.collect();
        kernels.sort();
        let kernels = kernels.into_iter().map(|name| self.of_kernel(name));
        kernels.chain(all().iter().map(|one| self.of_catalogue(one))).collect()
    }

    /// One that is not of the catalogue: the kernel's own, or loaded by others.
    fn of_kernel(&self, name: &str) -> Row {
        let known = find(name).filter(|one| one.plain == name);
        let told = known.map(|one| (one.good_for, one.bad_for));
        // The catalogue's is a later one.
        let told = if name == "bbr" { Some(BBR_V1) } else { told };
        let row = self.bare(name);
        let is_kernels = row.held_by == Some("kernel");
        let told = told.filter(|_| is_kernels);
        Row {
            origin: if is_kernels { "kernel" } else { "other" },
            good_for: told.map(|told| told.0),
            bad_for: told.map(|told| told.1),
            ..row
        }
    }

    fn of_catalogue(&self, one: &Algorithm) -> Row {
        Row {
            plain_name: Some(one.plain),
            source: Some(one.source),
            good_for: Some(one.good_for),
            bad_for: Some(one.bad_for),
            takes_rate: one.wants_rate,
            ..self.bare(one.name)
        }
    }

    /// What is known of any name.
    fn bare(&self, name: &str) -> Row {
        let holder = self.holders.get(name);
        let (mut file, mut process) = (None, None);
        let held_by = holder.map(|holder| match holder {
            Holder::Kernel => "kernel",
            Holder::File(path) => {
                file = Some(path.clone());
                "file"
            }
            Holder::Process { pid, command } => {
                process = Some((*pid, command.clone()));
                "process"
            }
            Holder::Nobody => "nobody",
            _ => "unknown",
        });
        Row {
            name: name.to_owned(),
            origin: "catalogue",
            plain_name: None,
            loaded: holder.is_some(),
            held_by,
            file,
            pid: process.as_ref().map(|(pid, _)| *pid),
            command: process.map(|(_, command)| command),
            default: name == self.default,
            allowed_to_all: self.allowed.iter().any(|one| one == name),
            source: None,
            good_for: None,
            bad_for: None,
            takes_rate: false,
        }
    }
}

/// What every kernel so far has as `bbr`.
const BBR_V1: (&str, &str) = ("long, lossy paths (BBRv1)", "others beside it; resends much");

// --- as a table ------------------------------------------------------------------------------------

/// One line for each, or two where the terminal is too narrow.
fn table(rows: &[Row]) -> Table {
    let wide = wide(rows);
    match terminal_size_of(io::stdout()) {
        Some((Width(room), _)) if usize::from(room) < wide.width() => narrow(rows),
        _ => wide,
    }
}

fn wide(rows: &[Row]) -> Table {
    let columns = ["name", "loaded", "for", "good for", "bad for"];
    let mut table = Table::new(&columns.map(|heading| (heading, Align::Left)));
    for row in rows {
        let told = |words: Option<&str>| words.unwrap_or("?").to_owned();
        table.row(vec![
            row.name.clone(),
            row.holder(),
            row.users(),
            told(row.good_for),
            told(row.bad_for),
        ]);
    }
    table
}

fn narrow(rows: &[Row]) -> Table {
    let columns = ["name", "loaded, for", "good for (+), bad for (-)"];
    let mut table = Table::new(&columns.map(|heading| (heading, Align::Left)));
    for row in rows {
        let told = |sign: &str, words: Option<&str>| format!("{sign} {}", words.unwrap_or("?"));
        table.row(vec![row.name.clone(), row.holder(), told("+", row.good_for)]);
        table.row(vec![String::new(), row.users(), told("-", row.bad_for)]);
    }
    table
}

impl Row {
    /// By whom it is loaded.
    fn holder(&self) -> String {
        match (self.held_by, self.pid) {
            (_, Some(pid)) => format!("process {pid}"),
            (None, _) => "no".to_owned(),
            (Some("file"), _) => "kept".to_owned(),
            (Some("nobody"), _) => "left behind".to_owned(),
            (Some("unknown"), _) => "yes".to_owned(),
            (Some(other), _) => other.to_owned(),
        }
    }

    /// Who may choose it.
    fn users(&self) -> String {
        let who = match (self.loaded, self.allowed_to_all) {
            (true, true) => "all",
            (true, false) => "root",
            (false, _) => "",
        };
        match (who, self.default) {
            (who, false) => who.to_owned(),
            ("", true) => "default".to_owned(),
            (who, true) => format!("{who}, default"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        let command = "lastbyte cc load nv".to_owned();
        Machine {
            available: ["reno", "theirs", "bbr", "lb_nv", "lb_reno", "lb_bic", "lb_lp"]
                .map(str::to_owned)
                .into(),
            allowed: vec!["reno".to_owned()],
            default: "reno".to_owned(),
            holders: BTreeMap::from([
                ("reno".to_owned(), Holder::Kernel),
                ("bbr".to_owned(), Holder::Kernel),
                ("theirs".to_owned(), Holder::Unknown),
                ("lb_nv".to_owned(), Holder::Process { pid: 4_194_304, command }),
                ("lb_reno".to_owned(), Holder::File("/sys/fs/bpf/lastbyte/lb_reno".into())),
                ("lb_bic".to_owned(), Holder::Nobody),
                ("lb_lp".to_owned(), Holder::Unknown),
            ]),
        }
    }

    fn row(name: &str) -> Row {
        machine().rows().into_iter().find(|row| row.name == name).unwrap()
    }

    #[test]
    fn each_is_there_once_the_kernels_first() {
        let rows = machine().rows();
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names[..4], ["bbr", "reno", "theirs", "lb_bbr"]);
        assert_eq!(rows.len(), 3 + all().len());
        assert_eq!([rows[1].origin, rows[2].origin], ["kernel", "other"]);
    }

    #[test]
    fn each_says_who_holds_it_and_who_may_choose_it() {
        let told = |name: &str| (row(name).holder(), row(name).users());
        let words = |holder: &str, users: &str| (holder.to_owned(), users.to_owned());
        assert_eq!(told("reno"), words("kernel", "all, default"));
        assert_eq!(told("bbr"), words("kernel", "root"));
        assert_eq!(told("lb_nv"), words("process 4194304", "root"));
        assert_eq!(told("lb_reno"), words("kept", "root"));
        assert_eq!(told("lb_bic"), words("left behind", "root"));
        assert_eq!(told("lb_lp"), words("yes", "root"));
        assert_eq!(told("lb_vegas"), words("no", ""));
    }

    #[test]
    fn the_kernels_bbr_is_not_the_catalogues() {
        assert_eq!(row("bbr").good_for, Some("long, lossy paths (BBRv1)"));
        assert_ne!(row("bbr").good_for, row("lb_bbr").good_for);
        assert_eq!(row("reno").good_for, row("lb_reno").good_for);
    }

    #[test]
    fn two_lines_fit_a_terminal_of_80() {
        assert!(narrow(&machine().rows()).width() <= 80);
    }
}
