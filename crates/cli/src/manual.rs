//! What the program knows of itself, in the manual: its commands and options, the doctor's codes, the
//! scenarios and their keys. Each test compares a part of a page, between its marks; with
//! `LASTBYTE_WRITE_MANUAL` set (`make manual`) it writes that part.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use clap::{Arg, Args, Command, CommandFactory, Parser};
use lastbyte_doctor::pages;
use lastbyte_link::{Scenario, Topology};

use crate::args::{AFTER_HELP, Cli};
use crate::path::PathArgs;

/// With this variable set the parts are written instead of compared.
const WRITE: &str = "LASTBYTE_WRITE_MANUAL";

const PATH_OPTIONS: &str = "[a path](link.md#describing-a-path)";

/// Taken by whoever reads and writes a page: several tests write to that of `link`.
static PAGES: Mutex<()> = Mutex::new(());

#[test]
fn each_command_has_a_page_with_its_options() {
    for command in program().get_subcommands().filter(|command| is_listed(command)) {
        let page = format!("docs/manual/{}.md", command.get_name());
        compare(&page, "options", &options_of(command, None));
    }
}

#[test]
fn options_that_pages_name_exist() {
    let program = program();
    let known = longs_of(&program);
    let mut unknown = Vec::new();
    for command in program.get_subcommands().filter(|command| is_listed(command)) {
        let page = format!("docs/manual/{}.md", command.get_name());
        let text = source(&page);
        let code = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
        // What begins otherwise is the command line of another program.
        let code = code.filter(|code| code.starts_with("--"));
        let words = code.flat_map(str::split_whitespace);
        let longs = words.filter_map(|word| word.strip_prefix("--")?.split('=').next());
        let longs = longs.filter(|long| !long.is_empty() && !known.contains(*long));
        unknown.extend(longs.map(|long| format!("{page}: no command has --{long}")));
    }
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
}

/// As far as they are one line, and whole.
#[test]
fn commands_that_pages_show_are_understood() {
    let folder = fs::read_dir(file("docs/manual")).expect("it is a directory");
    let pages = folder.map(|page| page.expect("it can be read").file_name().into_string().unwrap());
    let pages =
        pages.filter(|page| page.ends_with(".md")).map(|page| format!("docs/manual/{page}"));
    let (mut seen, mut refused) = (0, Vec::new());
    for page in pages {
        for line in source(&page).lines().filter_map(shown_command) {
            seen += 1;
            if let Err(error) = Cli::try_parse_from(words_of(line)) {
                refused.push(format!("{page}: {line}: {error}"));
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(seen > 20, "only {seen} commands are shown");
}

#[test]
fn a_path_is_described_on_the_page_of_link() {
    let path = PathArgs::augment_args(Command::new("path"));
    let rows = [heading(["Argument", "Means"])].into_iter().chain(path.get_arguments().map(row));
    compare("docs/manual/link.md", "path", &table(rows.collect()));
}

#[test]
fn the_readme_has_each_command_and_no_other() {
    let readme = source("README.md");
    let mut listed: Vec<&str> = readme
        .lines()
        .filter_map(|line| line.strip_prefix("| [`lastbyte "))
        .filter_map(|row| row.split_once("`]("))
        .map(|(command, rest)| {
            let page = format!("docs/manual/{command}.md)");
            assert!(rest.starts_with(&page), "README.md should link {command} to its page");
            command
        })
        .collect();
    let program = program();
    let commands = program.get_subcommands().filter(|command| is_listed(command));
    let mut commands: Vec<&str> = commands.map(Command::get_name).collect();
    listed.sort_unstable();
    commands.sort_unstable();
    assert_eq!(listed, commands, "the table of commands of README.md");
}

#[test]
fn exit_codes_are_explained() {
    let page = source("docs/start.md");
    let (_, table) = page.split_once("## Exit codes\n").expect("it has that heading");
    for code in ["0", "1", "2", "130"] {
        assert!(
            AFTER_HELP.contains(&format!("{code} ")) || AFTER_HELP.contains(&format!("{code},"))
        );
        assert!(table.contains(&format!("\n| {code} | ")), "docs/start.md lacks {code}");
    }
}

#[test]
fn the_doctors_codes_are_listed() {
    let rows = pages()
        .iter()
        .map(|page| vec![page.code.to_string(), page.title.to_owned(), page.class.to_string()]);
    let rows = [heading(["Code", "What", "Class"])].into_iter().chain(rows);
    compare("docs/manual/doctor.md", "codes", &table(rows.collect()));
}

#[test]
fn scenarios_and_topologies_are_listed() {
    let rows = Scenario::all().unwrap().into_iter().map(|scenario| {
        vec![format!("`{}`", scenario.name), scenario.title.clone(), scenario.spec.to_string()]
    });
    let scenarios = [heading(["Name", "What", "Path"])].into_iter().chain(rows).collect();
    compare("docs/manual/link.md", "scenarios", &table(scenarios));

    let rows = Topology::all()
        .unwrap()
        .into_iter()
        .map(|(name, topology)| vec![format!("`{name}`"), topology.title().to_owned()]);
    let topologies = [heading(["Name", "What"])].into_iter().chain(rows).collect();
    compare("docs/manual/link.md", "topologies", &table(topologies));
}

/// They are in the documentation of the crate, where a test reads them as a scenario.
#[test]
fn keys_of_a_scenario_are_shown() {
    let code = source("crates/link/src/scenario.rs");
    let (_, toml) = code.split_once("//! ```toml\n").expect("its documentation has the keys");
    let (toml, _) = toml.split_once("//! ```\n").expect("they end");
    let lines = toml.lines().map(|line| line.trim_start_matches("//!"));
    let lines = lines.map(|line| line.strip_prefix(' ').unwrap_or(line));
    let shown = format!("```toml\n{}\n```\n", lines.collect::<Vec<_>>().join("\n"));
    compare("docs/manual/link.md", "scenario keys", &shown);
}

/// The program's commands, each with the options that it takes.
fn program() -> Command {
    let mut program = Cli::command();
    program.build();
    program
}

fn is_listed(command: &Command) -> bool {
    !command.is_hide_set() && command.get_name() != "help"
}

/// The long options of a command and of all below it.
fn longs_of(command: &Command) -> BTreeSet<String> {
    let mine = command.get_arguments().filter_map(Arg::get_long).map(str::to_owned);
    mine.chain(command.get_subcommands().flat_map(longs_of)).collect()
}

/// A command of ours that is typed at a prompt, without what the shell does with it.
fn shown_command(line: &str) -> Option<&str> {
    let typed = line.strip_prefix("$ ").or_else(|| line.strip_prefix("sudo "))?;
    let typed = typed.strip_prefix("sudo ").unwrap_or(typed);
    let ends = [" | ", " |", " < ", " > ", "  #"].map(|end| typed.find(end).unwrap_or(typed.len()));
    let command = &typed[..ends.into_iter().min().unwrap_or(typed.len())];
    (command.starts_with("lastbyte ") && !command.contains("...")).then_some(command)
}

/// The words of a command, as a shell reads single quotes.
fn words_of(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for (number, piece) in command.split('\'').enumerate() {
        let is_quoted = number % 2 == 1;
        for (part, text) in piece.split(' ').enumerate() {
            if part > 0 && !is_quoted {
                words.push(String::new());
            }
            let word = words.last_mut().expect("there is one");
            if part > 0 && is_quoted {
                word.push(' ');
            }
            word.push_str(text);
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The options of a command in a table, and below it each of its own commands with its table.
fn options_of(command: &Command, parent: Option<&Command>) -> String {
    let mut rows = vec![heading(["Argument", "Means"])];
    let mine =
        || command.get_arguments().filter(|arg| arg.get_id() != "help" && !arg.is_hide_set());
    let path = PathArgs::augment_args(Command::new("path"));
    let has_path =
        path.get_arguments().all(|arg| mine().any(|other| other.get_id() == arg.get_id()));
    if has_path {
        rows.push(vec![names(path.get_arguments()), PATH_OPTIONS.to_owned()]);
    }
    let is_of_path =
        |arg: &Arg| has_path && path.get_arguments().any(|other| other.get_id() == arg.get_id());
    let is_of_parent = |arg: &Arg| {
        parent.is_some_and(|parent| {
            parent
                .get_arguments()
                .any(|other| other.get_id() == arg.get_id() && text(other) == text(arg))
        })
    };
    let (of_parent, own): (Vec<&Arg>, Vec<&Arg>) =
        mine().filter(|arg| !is_of_path(arg)).partition(|arg| is_of_parent(arg));
    rows.extend(own.into_iter().map(row));
    if let (Some(parent), false) = (parent, of_parent.is_empty()) {
        let as_there = format!("as for `{}`", parent.get_bin_name().unwrap_or_default());
        rows.push(vec![names(of_parent.into_iter()), as_there]);
    }
    let mut options = if rows.len() > 1 { table(rows) } else { String::new() };
    for child in command.get_subcommands().filter(|child| is_listed(child)) {
        let about = child.get_about().map(ToString::to_string).unwrap_or_default();
        let name = child.get_bin_name().unwrap_or_default();
        options += &format!("\n### {name}\n\n{about}.\n");
        let below = options_of(child, Some(command));
        if !below.is_empty() {
            options += &format!("\n{below}");
        }
    }
    options.trim_start().to_owned()
}

fn heading<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

fn row(arg: &Arg) -> Vec<String> {
    vec![name(arg), text(arg)]
}

fn names<'a>(args: impl Iterator<Item = &'a Arg>) -> String {
    args.map(name).collect::<Vec<_>>().join(", ")
}

/// As on the command line, such as `--rtt TIME` or `[SCENARIO]`.
fn name(arg: &Arg) -> String {
    let takes = arg.get_action().takes_values();
    let values = arg.get_value_names().unwrap_or_default();
    let value = values.iter().map(|value| value.to_string()).collect::<Vec<_>>().join(" ");
    let value = if value.is_empty() { arg.get_id().as_str().to_uppercase() } else { value };
    let written = match (arg.get_long(), arg.get_short()) {
        (None, None) if arg.is_last_set() => format!("-- {value}"),
        (None, None) if arg.is_required_set() => value,
        (None, None) => format!("[{value}]"),
        (Some(long), _) if takes => format!("--{long} {value}"),
        (Some(long), None) => format!("--{long}"),
        (Some(long), Some(short)) => format!("-{short}, --{long}"),
        (None, Some(short)) => format!("-{short}"),
    };
    format!("`{written}`")
}

/// What help says of it, with its values and its default.
fn text(arg: &Arg) -> String {
    let help =
        arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut text = format!("{}.", help.split_whitespace().collect::<Vec<_>>().join(" "));
    if !arg.get_action().takes_values() {
        return text;
    }
    let values = arg.get_possible_values();
    let values = values.iter().filter(|value| !value.is_hide_set()).map(|value| {
        let name = format!("`{}`", value.get_name());
        value.get_help().map_or_else(|| name.clone(), |help| format!("{name} ({help})"))
    });
    let values = values.collect::<Vec<_>>().join(", ");
    if !values.is_empty() {
        text += &format!(" One of {values}.");
    }
    let defaults = arg.get_default_values().iter().map(|value| value.to_string_lossy());
    let defaults = defaults.collect::<Vec<_>>().join(", ");
    if !defaults.is_empty() {
        text += &format!(" Default: {defaults}.");
    }
    text
}

/// A table in Markdown; the first row is its heading.
fn table(rows: Vec<Vec<String>>) -> String {
    let mut table = String::new();
    for (number, row) in rows.iter().enumerate() {
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        table += &format!("| {} |\n", cells.join(" | "));
        if number == 0 {
            table += &format!("|{}\n", "---|".repeat(row.len()));
        }
    }
    table
}

/// Compares what stands between two marks of a page with what should, or writes that.
fn compare(page: &str, marks: &str, right: &str) {
    let _mine = PAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let text = source(page);
    let (opening, closing) = (format!("<!-- {marks} -->\n"), format!("<!-- /{marks} -->"));
    let (before, rest) =
        text.split_once(&opening).unwrap_or_else(|| panic!("{page}: no {opening}"));
    let (there, after) =
        rest.split_once(&closing).unwrap_or_else(|| panic!("{page}: no {closing}"));
    if there == right {
        return;
    }
    assert!(
        env::var_os(WRITE).is_some(),
        "{page} is out of date below {opening}: run `make manual`"
    );
    fs::write(file(page), [before, &opening, right, &closing, after].concat()).unwrap();
}

/// A file, named from the root.
fn source(name: &str) -> String {
    fs::read_to_string(file(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn file(name: &str) -> PathBuf {
    let cli = Path::new(env!("CARGO_MANIFEST_DIR"));
    cli.ancestors().nth(2).expect("crates/cli is two below the root").join(name)
}
