//! The rules of the house that no compiler checks, checked by reading the workspace: which crate
//! may use which, which licences come in, where unsafe code may be, what a crate's first words say,
//! that no file names a directory of the machine it was written on, and what pages for people name.
//!
//! `make check` runs this. Each test collects every complaint before it fails, and each complaint
//! says what to do.

#[path = "house/modules.rs"]
mod modules;
#[path = "house/pages.rs"]
mod pages;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;

/// Each crate, by its short name, with the crates of the workspace that it uses.
type Arrows = BTreeMap<String, BTreeSet<String>>;

#[test]
fn arrows_between_crates_are_those_that_architecture_md_lists() {
    let listed = arrows_listed_in(&text_of("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    assert_no_complaints(&complaints_about_arrows(&arrows_in_use(), &listed));
}

#[test]
fn every_package_has_a_licence_that_we_allow() {
    let mut complaints = Vec::new();
    for package in packages() {
        let name = format!("{} {}", text(&package["name"]), text(&package["version"]));
        match package["license"].as_str().map(|licence| (licence, is_allowed(licence))) {
            Some((_, Ok(true))) => {}
            Some((licence, Ok(false))) if is_tool(text(&package["name"]), licence) => {}
            Some((licence, Ok(false))) => complaints.push(format!("{name}: `{licence}`")),
            Some((licence, Err(reason))) => {
                complaints.push(format!("{name}: `{licence}` {reason}"));
            }
            None => complaints.push(format!("{name}: names no licence")),
        }
    }
    assert_no_complaints(&complaints);
}

#[test]
fn tools_with_other_licences_are_used_by_tests_alone() {
    let mut complaints = Vec::new();
    for package in workspace_packages() {
        for dependency in list(&package["dependencies"]) {
            let name = text(&dependency["name"]);
            if TOOLS.iter().any(|(tool, _)| *tool == name) && dependency["kind"] != "dev" {
                let ours = text(&package["name"]);
                complaints.push(format!("{ours} uses {name} outside of its tests"));
            }
        }
    }
    assert_no_complaints(&complaints);
}

#[test]
fn only_the_doors_may_use_unsafe_code() {
    let mut complaints = Vec::new();
    for (name, file) in crate_roots() {
        if CRATES_WITH_UNSAFE_CODE.contains(&name.as_str()) {
            continue;
        }
        let wanted = "#![forbid(unsafe_code)]";
        if !source(&file).lines().any(|line| line.trim() == wanted) {
            complaints.push(format!("{}: add `{wanted}`", shown(&file)));
        }
    }
    assert_no_complaints(&complaints);
}

#[test]
fn the_first_words_of_a_crate_say_what_it_forbids() {
    let mut complaints = Vec::new();
    for (_, file) in crate_roots() {
        let opening = opening_paragraphs(&source(&file));
        if !words_of(&opening).any(|word| word == "forbids" || word == "Forbids") {
            complaints.push(format!(
                "{}: begin with `//!` lines that say what the crate forbids, with that word, in \
                 the summary or the paragraph after it",
                shown(&file)
            ));
        }
    }
    assert_no_complaints(&complaints);
}

#[test]
fn pages_name_the_oldest_rust_of_cargo_toml() {
    let ours = |package: &&Value| text(&package["name"]) == "lastbyte-cli";
    let packages = packages();
    let promised = text(&packages.iter().find(ours).expect("it is a package")["rust_version"]);
    let mut complaints = Vec::new();
    for page in ["README.md", "docs/start.md"] {
        for named in rust_versions_named_in(&text_of(page)) {
            if named != promised && !named.starts_with(&format!("{promised}.")) {
                complaints.push(format!("{page} names Rust {named}, Cargo.toml Rust {promised}"));
            }
        }
    }
    assert_no_complaints(&complaints);
}

#[test]
fn no_file_names_a_directory_of_one_machine() {
    let mut complaints = Vec::new();
    for file in files_below(&root()) {
        if file == root().join(HOUSE) {
            continue;
        }
        let bytes = fs::read(&file).expect("a file of the tree is readable");
        for (number, line) in text_lines(&bytes) {
            if let Some(path) = machine_path_in(&line) {
                complaints.push(format!("{}:{number}: names {path}", shown(&file)));
            }
        }
    }
    assert_no_complaints(&complaints);
}

#[test]
fn each_package_has_one_program_of_tests_with_all_its_modules() {
    let mut complaints = Vec::new();
    for package in workspace_packages() {
        let programs = programs_of_tests(package);
        if programs.len() > 1 {
            let (first, others) = (shown(&programs[0]), programs.len() - 1);
            complaints.push(format!(
                "{}: has {others} programs of tests beside {first}: make modules of one of them",
                text(&package["name"])
            ));
        }
        for program in programs {
            complaints.extend(modules_left_out_of(&program));
        }
    }
    assert_no_complaints(&complaints);
}

#[test]
fn tests_that_nextest_is_told_of_exist() {
    let known: BTreeSet<String> = files_below(&root())
        .into_iter()
        .filter(|file| file.extension().is_some_and(|extension| extension == "rs"))
        .flat_map(|file| functions_in(&source(&file)))
        .collect();
    let mut complaints = Vec::new();
    for name in tests_named_in(&text_of(".config/nextest.toml")) {
        let function = name.rsplit("::").next().expect("one part at least");
        if !known.contains(function) {
            complaints.push(format!(".config/nextest.toml: there is no test {name}"));
        }
    }
    assert_no_complaints(&complaints);
}

#[test]
fn what_could_not_be_tested_is_said_in_one_way() {
    let mut complaints = Vec::new();
    for file in files_below(&root()) {
        let name = shown(&file);
        let is_rust = file.extension().is_some_and(|extension| extension == "rs");
        let may = name.starts_with("crates/testing/");
        if !is_rust || may {
            continue;
        }
        let is_test = format!("/{name}").contains("/tests");
        for (number, line) in text_lines(&source(&file).into_bytes()) {
            if let Some(words) = skip_said_otherwise(&line, is_test) {
                complaints.push(format!(
                    "{name}:{number}: `{words}`: use `lastbyte_testing::not_tested!(\"why\")`"
                ));
            }
        }
    }
    assert_no_complaints(&complaints);
}

/// It would wait for the cargo that runs the test, build with other features, and want an index. This
/// one asks for metadata, which builds nothing.
#[test]
fn no_test_runs_cargo() {
    let mut complaints = Vec::new();
    for file in files_below(&root()) {
        let name = shown(&file);
        let is_rust = file.extension().is_some_and(|extension| extension == "rs");
        let is_test = name.starts_with("tests/") || name.starts_with("crates/");
        let may = name == "tests/house.rs" || name.starts_with("crates/testing/");
        if !is_rust || !is_test || may {
            continue;
        }
        for (number, line) in text_lines(&source(&file).into_bytes()) {
            if let Some(words) = runs_cargo(&line) {
                complaints.push(format!(
                    "{name}:{number}: `{words}`: let scripts/tests.py build it, and find it by \
                     `lastbyte_testing::built`"
                ));
            }
        }
    }
    assert_no_complaints(&complaints);
}

/// Nobody steps through either, and every build is shorter and smaller.
#[test]
fn what_is_released_is_stripped_and_dependencies_have_no_debug_information() {
    let text = text_of("Cargo.toml");
    let says = |heading: &str, line: &str| {
        let section = text.split_once(&format!("\n[{heading}]\n")).map_or("", |found| found.1);
        section.lines().take_while(|line| !line.starts_with('[')).any(|said| said == line)
    };
    let mut complaints = Vec::new();
    for (heading, line) in [
        ("profile.dev.package.\"*\"", "debug = false"),
        ("profile.release", "debug = false"),
        ("profile.release", "strip = \"symbols\""),
    ] {
        if !says(heading, line) {
            complaints.push(format!("Cargo.toml: [{heading}] has to say `{line}`"));
        }
    }
    assert_no_complaints(&complaints);
}

/// This file, which has to name what it looks for.
const HOUSE: &str = "crates/testing/tests/house.rs";

/// The door to the kernel, and the one to programs in C.
const CRATES_WITH_UNSAFE_CODE: [&str; 2] = ["sys", "capi"];

/// Licences that a package may come under, as SPDX names them.
const ALLOWED_LICENCES: [&str; 12] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Tools of tests with a licence that is not on the list, which asks nothing of who only runs them:
/// no byte of theirs is in what we ship. cbindgen writes the header of the C face, and its licence
/// covers its own files, not what it writes.
const TOOLS: [(&str, &str); 1] = [("cbindgen", "MPL-2.0")];

/// Directories that exist on the machine of whoever wrote the line, and nowhere else.
const MACHINE_PATHS: [&str; 3] = ["/root/", "/home/", "/work/"];

/// Programs of tests that a package may have beside the one of all its tests.
const OTHER_PROGRAMS_OF_TESTS: [&str; 1] = [
    // It must not wait for what it checks to be built.
    "house",
];

/// Fails with all complaints, one a line.
fn assert_no_complaints(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n  {}\n", complaints.join("\n  "));
}

// --- arrows -------------------------------------------------------------------------------------

/// What the crates of the workspace use of each other outside of tests, according to cargo.
fn arrows_in_use() -> Arrows {
    let names: BTreeSet<&str> =
        workspace_packages().map(|package| text(&package["name"])).collect();
    let mut arrows = Arrows::new();
    for package in workspace_packages() {
        let used = list(&package["dependencies"])
            .iter()
            .filter(|dependency| dependency["kind"].is_null())
            .map(|dependency| text(&dependency["name"]))
            .filter(|name| names.contains(name))
            .map(short_name)
            .collect();
        arrows.insert(short_name(text(&package["name"])), used);
    }
    arrows
}

/// Reads lines such as `link -> sys, units` and `core -> nothing` from between the two marks. Blank
/// lines and the fence of a code block are passed over.
fn arrows_listed_in(document: &str) -> Result<Arrows, String> {
    let lines: Vec<&str> = document.lines().map(str::trim).collect();
    let place = |mark: &str| {
        lines
            .iter()
            .position(|line| *line == mark)
            .ok_or_else(|| format!("the line `{mark}` is missing"))
    };
    let (start, end) = (place("<!-- arrows -->")?, place("<!-- /arrows -->")?);
    let between =
        lines.get(start + 1..end).ok_or("the marks of the arrows are in the wrong order")?;

    let mut arrows = Arrows::new();
    for line in between.iter().filter(|line| !line.is_empty() && !line.starts_with("```")) {
        let (from, to) = line.split_once(" -> ").ok_or_else(|| format!("`{line}` is no arrow"))?;
        let to = if to == "nothing" {
            BTreeSet::new()
        } else {
            to.split(", ").map(String::from).collect()
        };
        if arrows.insert(from.to_string(), to).is_some() {
            return Err(format!("`{from}` is listed twice"));
        }
    }
    Ok(arrows)
}

/// Every difference between the two, and every cycle.
fn complaints_about_arrows(used: &Arrows, listed: &Arrows) -> Vec<String> {
    let mut complaints = Vec::new();
    let nothing = BTreeSet::new();
    for name in used.keys().chain(listed.keys()).collect::<BTreeSet<_>>() {
        if !listed.contains_key(name) {
            complaints.push(format!("crate {name} is not listed in ARCHITECTURE.md"));
        }
        if !used.contains_key(name) {
            complaints
                .push(format!("crate {name} is listed in ARCHITECTURE.md and does not exist"));
        }
        let used = used.get(name).unwrap_or(&nothing);
        let listed = listed.get(name).unwrap_or(&nothing);
        for to in used.difference(listed) {
            complaints.push(format!("{name} -> {to} is not listed in ARCHITECTURE.md"));
        }
        for to in listed.difference(used) {
            complaints.push(format!("{name} -> {to} is listed in ARCHITECTURE.md and not in use"));
        }
    }
    for arrows in [used, listed] {
        complaints.extend(cycle_in(arrows).map(|cycle| format!("cycle: {}", cycle.join(" -> "))));
    }
    complaints
}

/// One cycle, its first crate repeated at its end, if there is any.
fn cycle_in(arrows: &Arrows) -> Option<Vec<String>> {
    let mut open = arrows.clone();
    while let Some(name) = open.iter().find(|(_, to)| to.is_empty()).map(|(name, _)| name.clone()) {
        open.remove(&name);
        for to in open.values_mut() {
            to.remove(&name);
        }
    }
    // Each crate left uses another one that is left, or one that is not listed at all.
    let mut walk = vec![open.keys().next()?.clone()];
    loop {
        let next = open.get(walk.last()?)?.first()?.clone();
        if let Some(start) = walk.iter().position(|name| *name == next) {
            walk.push(next);
            return Some(walk.split_off(start));
        }
        walk.push(next);
    }
}

/// `lastbyte-core` is `core` in ARCHITECTURE.md; `lastbyte` itself stays.
fn short_name(package: &str) -> String {
    package.strip_prefix("lastbyte-").unwrap_or(package).to_string()
}

// --- licences -----------------------------------------------------------------------------------

/// Whether the SPDX expression can be satisfied with allowed licences alone. The old form with a
/// slash (`MIT/Apache-2.0`) means `OR`.
fn is_allowed(expression: &str) -> Result<bool, String> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let allowed = any_of(&mut rest)?;
    match rest.first() {
        None => Ok(allowed),
        Some(word) => Err(format!("cannot be read from `{word}` on")),
    }
}

fn is_tool(package: &str, licence: &str) -> bool {
    TOOLS.contains(&(package, licence))
}

/// `all_of (OR all_of)*`, the weakest binding.
fn any_of(rest: &mut &[&str]) -> Result<bool, String> {
    let mut allowed = all_of(rest)?;
    while skip(rest, "OR") {
        allowed |= all_of(rest)?;
    }
    Ok(allowed)
}

/// `one (AND one)*`.
fn all_of(rest: &mut &[&str]) -> Result<bool, String> {
    let mut allowed = one(rest)?;
    while skip(rest, "AND") {
        allowed &= one(rest)?;
    }
    Ok(allowed)
}

/// A name, a name `WITH` an exception, or an expression in parentheses.
fn one(rest: &mut &[&str]) -> Result<bool, String> {
    if skip(rest, "(") {
        let allowed = any_of(rest)?;
        return if skip(rest, ")") { Ok(allowed) } else { Err("lacks a `)`".to_string()) };
    }
    let mut licence = name(rest)?.to_string();
    if skip(rest, "WITH") {
        licence = format!("{licence} WITH {}", name(rest)?);
    }
    Ok(ALLOWED_LICENCES.contains(&licence.as_str()))
}

/// The next word, which has to be the name of a licence or of an exception.
fn name<'a>(rest: &mut &[&'a str]) -> Result<&'a str, String> {
    match rest.split_first() {
        Some((word, after)) if !["AND", "OR", "WITH", "(", ")"].contains(word) => {
            *rest = after;
            Ok(word)
        }
        Some((word, _)) => Err(format!("has `{word}` where a name should be")),
        None => Err("ends where a name should be".to_string()),
    }
}

/// Passes over the next word if it is this one.
fn skip(rest: &mut &[&str], word: &str) -> bool {
    let is_next = rest.first() == Some(&word);
    if is_next {
        *rest = &rest[1..];
    }
    is_next
}

// --- text ---------------------------------------------------------------------------------------

/// The summary of a crate and the paragraph after it: the `//!` lines that the file begins with, up
/// to the second empty one.
fn opening_paragraphs(source: &str) -> String {
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    let text: Vec<&str> = lines.map(str::trim).collect();
    text.split(|line| line.is_empty())
        .take(2)
        .map(|lines| lines.join(" "))
        .collect::<Vec<_>>()
        .join(" ")
}

fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// Each version that follows the word Rust, such as `1.88` in "Rust 1.88 or later".
fn rust_versions_named_in(document: &str) -> Vec<&str> {
    let after_each =
        document.match_indices("Rust 1.").map(|(at, _)| &document[at + "Rust ".len()..]);
    after_each
        .map(|text| {
            let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
            text[..end].trim_end_matches('.')
        })
        .collect()
}

/// The names in lines such as `mod words;`.
fn modules_declared_in(source: &str) -> BTreeSet<&str> {
    let names = source.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
    names.collect()
}

/// The names in lines such as `fn first() {`, wherever they are.
fn functions_in(source: &str) -> Vec<String> {
    let names = source.lines().filter_map(|line| {
        let (_, rest) = line.split_once("fn ")?;
        Some(rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?.to_owned())
    });
    names.collect()
}

/// Each name in the `test(=name)` of a filter.
fn tests_named_in(filters: &str) -> Vec<&str> {
    let names = filters.split("test(=").skip(1).filter_map(|rest| rest.split_once(')'));
    names.map(|(name, _)| name).collect()
}

/// The numbered lines of a text file; none for a binary one, which has a zero byte.
fn text_lines(bytes: &[u8]) -> Vec<(usize, String)> {
    if bytes.contains(&0) {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(bytes);
    text.lines().enumerate().map(|(index, line)| (index + 1, line.to_string())).collect()
}

/// Words of a print of its own by which a test says that it did not look.
fn skip_said_otherwise(line: &str, is_test: bool) -> Option<&'static str> {
    if line.trim_start().starts_with("//") {
        return None;
    }
    let prints = ["print!(", "println!("].into_iter().any(|print| line.contains(print));
    let lower = line.to_lowercase();
    let said = ["not tested", "skipped", "skipping", "left out", "too busy"];
    let said = said.into_iter().find(|words| lower.contains(words))?;
    let is_ours = line.contains("\"NOT TESTED") || line.contains("\"VOID:");
    (prints && (is_test || is_ours)).then_some(said)
}

/// Words by which a program in Rust names the cargo that it is going to run.
fn runs_cargo(line: &str) -> Option<&'static str> {
    if line.trim_start().starts_with("//") {
        return None;
    }
    let words = ["\"cargo\"", "\"CARGO\"", "\"cargo "];
    words.into_iter().find(|words| line.contains(words))
}

/// A machine path that begins in this line. One inside of a longer path (`src/home/`) is none.
fn machine_path_in(line: &str) -> Option<&'static str> {
    let begins = |at: usize| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| !c.is_alphanumeric() && !"_-.~".contains(c))
    };
    MACHINE_PATHS.into_iter().find(|path| line.match_indices(path).any(|(at, _)| begins(at)))
}

// --- the workspace ------------------------------------------------------------------------------

/// What cargo says about the workspace and all that it depends on, on any platform, tests included.
static METADATA: LazyLock<Value> = LazyLock::new(|| {
    let said = cargo_metadata(&["--offline"]).or_else(|_| cargo_metadata(&[]));
    let said = said.unwrap_or_else(|talk| panic!("cargo metadata failed: {talk}"));
    serde_json::from_slice(&said).expect("cargo metadata prints JSON")
});

/// Its answer, or what it said when it failed.
fn cargo_metadata(options: &[&str]) -> Result<Vec<u8>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(options)
        .current_dir(root())
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn packages() -> &'static [Value] {
    list(&METADATA["packages"])
}

fn workspace_packages() -> impl Iterator<Item = &'static Value> {
    let members = list(&METADATA["workspace_members"]);
    packages().iter().filter(|package| members.contains(&package["id"]))
}

/// The short name and the file of each library and program of the workspace.
fn crate_roots() -> Vec<(String, PathBuf)> {
    let mut roots = Vec::new();
    for package in workspace_packages() {
        for target in list(&package["targets"]) {
            let kinds = list(&target["kind"]);
            if !kinds.iter().any(|kind| NOT_CRATES_OF_OURS.contains(&text(kind))) {
                roots.push((short_name(text(&package["name"])), text(&target["src_path"]).into()));
            }
        }
    }
    roots
}

/// The files that cargo makes the package's programs of integration tests of, but for the exceptions.
fn programs_of_tests(package: &Value) -> Vec<PathBuf> {
    let is_one = |target: &&Value| {
        list(&target["kind"]).iter().any(|kind| kind == "test")
            && !OTHER_PROGRAMS_OF_TESTS.contains(&text(&target["name"]))
    };
    let targets = list(&package["targets"]).iter().filter(is_one);
    targets.map(|target| text(&target["src_path"]).into()).collect()
}

/// Files beside a `main.rs` of tests that it does not have as modules: nobody would compile them.
fn modules_left_out_of(program: &Path) -> Vec<String> {
    if program.file_name().is_none_or(|name| name != "main.rs") {
        return Vec::new();
    }
    let text = source(program);
    let declared = modules_declared_in(&text);
    let beside = fs::read_dir(program.parent().expect("a file is in a directory"));
    let beside = beside.expect("a directory of the tree is readable");
    let files = beside.map(|entry| entry.expect("an entry of the tree is readable").path());
    let left_out = files.filter(|file| {
        let module = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let is_rust = file.extension().is_some_and(|extension| extension == "rs");
        is_rust && file != program && !declared.contains(module)
    });
    left_out.map(|file| format!("{}: is no module of {}", shown(&file), shown(program))).collect()
}

/// Kinds of target that serve a crate and are none themselves.
const NOT_CRATES_OF_OURS: [&str; 4] = ["bench", "custom-build", "example", "test"];

/// Every file below the directory, without what was built and what belongs to git.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory of the tree is readable") {
        let entry = entry.expect("an entry of the tree is readable");
        let kind = entry.file_type().expect("an entry of the tree has a type");
        // In a worktree `.git` is a file, which names the place of the repository.
        if entry.file_name() == ".git" {
            continue;
        }
        if kind.is_dir() && entry.file_name() != "target" {
            files.extend(files_below(&entry.path()));
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    files
}

fn root() -> PathBuf {
    let testing = Path::new(env!("CARGO_MANIFEST_DIR"));
    testing.ancestors().nth(2).expect("crates/testing is two below the root").to_path_buf()
}

/// A file, named from the root.
fn text_of(file: &str) -> String {
    source(&root().join(file))
}

/// A file as complaints name it: from the root.
fn shown(file: &Path) -> String {
    file.strip_prefix(root()).unwrap_or(file).display().to_string()
}

fn source(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", shown(file)))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("cargo metadata has a list here")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("cargo metadata has a string here")
}

// --- the tools above, tested --------------------------------------------------------------------

#[test]
fn licence_expressions_are_evaluated() {
    for allowed in [
        "MIT",
        "MIT OR GPL-3.0-only",
        "GPL-3.0-only OR MIT",
        "MIT/Apache-2.0",
        "GPL-2.0/MIT",
        "(MIT OR Apache-2.0) AND Unicode-3.0",
        "Apache-2.0 WITH LLVM-exception",
        "GPL-3.0-only AND MIT OR ISC",
        "MIT AND (GPL-3.0-only OR (Zlib AND 0BSD))",
    ] {
        assert_eq!(is_allowed(allowed), Ok(true), "{allowed}");
    }
    for refused in [
        "GPL-3.0-only",
        "MIT AND GPL-3.0-only",
        "GPL-3.0-only AND MIT",
        "GPL-3.0-only WITH LLVM-exception",
        "(MIT OR ISC) AND GPL-3.0-only",
        "LGPL-2.1-or-later OR GPL-3.0-only",
        "mit",
    ] {
        assert_eq!(is_allowed(refused), Ok(false), "{refused}");
    }
    for unreadable in ["", "MIT OR", "AND MIT", "(MIT", "MIT)", "MIT ISC", "MIT WITH", "()"] {
        assert!(is_allowed(unreadable).is_err(), "{unreadable}");
    }
}

#[test]
fn lists_of_arrows_are_read() {
    let read =
        |lines: &str| arrows_listed_in(&format!("<!-- arrows -->\n{lines}\n<!-- /arrows -->"));
    let arrows =
        read("```\nlink -> sys, units\n\ncore -> nothing\n```").expect("it is well formed");
    assert_eq!(arrows, arrows_of(&[("core", &[]), ("link", &["sys", "units"])]));

    assert!(read("link sys").is_err());
    assert!(read("link -> sys\nlink -> units").is_err());
    assert!(arrows_listed_in("link -> sys").is_err());
    assert!(arrows_listed_in("<!-- /arrows -->\n<!-- arrows -->").is_err());
}

#[test]
fn each_difference_of_arrows_is_a_complaint() {
    let both = arrows_of(&[("link", &["sys"]), ("sys", &[])]);
    assert_eq!(complaints_about_arrows(&both, &both), [""; 0]);

    let more = arrows_of(&[("link", &["sys"]), ("sys", &[]), ("units", &[])]);
    assert_eq!(
        complaints_about_arrows(&more, &both),
        ["crate units is not listed in ARCHITECTURE.md"]
    );
    assert_eq!(
        complaints_about_arrows(&both, &more),
        ["crate units is listed in ARCHITECTURE.md and does not exist"]
    );

    let none = arrows_of(&[("link", &[]), ("sys", &[])]);
    assert_eq!(
        complaints_about_arrows(&both, &none),
        ["link -> sys is not listed in ARCHITECTURE.md"]
    );
    assert_eq!(
        complaints_about_arrows(&none, &both),
        ["link -> sys is listed in ARCHITECTURE.md and not in use"]
    );
}

#[test]
fn cycles_are_found() {
    assert_eq!(cycle_in(&arrows_of(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])])), None);
    assert_eq!(cycle_in(&arrows_of(&[("a", &["not listed"])])), None);
    let cycle =
        cycle_in(&arrows_of(&[("a", &["b"]), ("b", &["c", "d"]), ("c", &["b"]), ("d", &[])]));
    assert_eq!(cycle.expect("b and c use each other").join(" "), "b c b");
    assert!(cycle_in(&arrows_of(&[("a", &["a"])])).is_some());
}

#[test]
fn texts_are_searched() {
    assert_eq!(
        opening_paragraphs("//! One\n//! two.\n//!\n//! Three.\n//!\n//! No."),
        "One two. Three."
    );
    assert_eq!(opening_paragraphs("// One.\n//! Two.\n"), "");
    assert_eq!(
        rust_versions_named_in("Rust 1.88 or 2; Rust 1.90.1. Rust 1.7"),
        ["1.88", "1.90.1", "1.7"]
    );
    assert_eq!(
        modules_declared_in("mod one;\n#[cfg(x)]\nmod two;\n// mod three;\nmod four {"),
        BTreeSet::from(["one", "two"])
    );
    assert_eq!(functions_in("fn one() {\n    pub(crate) fn two<T>(\nlet three"), ["one", "two"]);
    assert_eq!(tests_named_in("a | test(=b::c) | test(/d/)\n| test(=e)"), ["b::c", "e"]);
    assert_eq!(machine_path_in("see /home/me"), Some("/home/"));
    assert_eq!(machine_path_in("file:///root/x"), Some("/root/"));
    assert_eq!(machine_path_in("src/home/mod.rs and https://example.org/work/"), None);
}

#[test]
fn ways_to_say_that_nothing_was_tested_are_known() {
    for (line, is_test, said) in [
        ("    eprintln!(\"NOT TESTED: {error}\");", false, Some("not tested")),
        ("    eprintln!(\"skipped: no root\");", true, Some("skipped")),
        ("    println!(\"left out: {why}\")", true, Some("left out")),
        ("    eprintln!(\"left out: {why}\")", false, None),
        ("    not_tested!(\"{why}\")", true, None),
        ("    line.starts_with(\"NOT TESTED: \")", true, None),
        ("    // eprintln!(\"NOT TESTED: \")", true, None),
        ("    eprintln!(\"{count} flows\")", true, None),
    ] {
        assert_eq!(skip_said_otherwise(line, is_test), said, "{line}");
    }
}

#[test]
fn ways_to_run_cargo_are_known() {
    for (line, found) in [
        ("    Command::new(\"cargo\").arg(\"build\")", Some("\"cargo\"")),
        ("    let cargo = std::env::var_os(\"CARGO\").unwrap();", Some("\"CARGO\"")),
        ("    .args([\"-c\", \"cargo build\"])", Some("\"cargo ")),
        ("    Path::new(env!(\"CARGO_TARGET_TMPDIR\"))", None),
        ("    // Command::new(\"cargo\")", None),
    ] {
        assert_eq!(runs_cargo(line), found, "{line}");
    }
}

/// Arrows written short.
fn arrows_of(list: &[(&str, &[&str])]) -> Arrows {
    let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    list.iter().map(|(from, to)| (from.to_string(), owned(to))).collect()
}
