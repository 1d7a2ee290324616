//! The pages for people: each relative link and anchor in them leads somewhere, the index has them
//! all, and what they name exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::{assert_no_complaints, files_below, root, shown, source, text_lines, text_of};

/// The longest that the README may be, in lines: who reads more opens a page.
const README_LINES: usize = 150;

#[test]
fn each_link_leads_somewhere() {
    let mut complaints = Vec::new();
    for page in pages() {
        let text = source(&page);
        for (line, target) in links_in(&text).into_iter().filter(|(_, target)| is_relative(target))
        {
            if let Some(wrong) = wrong_with(&page, target) {
                complaints.push(format!("{}:{line}: {target}: {wrong}", shown(&page)));
            }
        }
    }
    assert_no_complaints(&complaints);
}

#[test]
fn the_index_has_each_page_once() {
    let docs = root().join("docs");
    let index = docs.join("SUMMARY.md");
    let mut listed = BTreeMap::new();
    for (_, target) in links_in(&source(&index)) {
        *listed.entry(docs.join(target)).or_insert(0) += 1;
    }
    let mut complaints = Vec::new();
    for page in pages().into_iter().filter(|page| page.starts_with(&docs) && *page != index) {
        match listed.get(&page) {
            Some(1) => {}
            Some(times) => complaints.push(format!("{}: {times} times in the index", shown(&page))),
            None => complaints.push(format!("{}: add it to docs/SUMMARY.md", shown(&page))),
        }
    }
    assert_no_complaints(&complaints);
}

#[test]
fn pages_that_any_file_names_exist() {
    // Results tell of the day on which they were made; this file has examples.
    let left_out = [root().join("bench/results"), root().join("crates/testing/tests/house")];
    let is_judged = |file: &PathBuf| !left_out.iter().any(|folder| file.starts_with(folder));
    let mut complaints = Vec::new();
    for file in files_below(&root()).into_iter().filter(is_judged) {
        let bytes = fs::read(&file).expect("a file of the tree is readable");
        for (number, line) in text_lines(&bytes) {
            for page in pages_named_in(&line).filter(|page| !root().join(page).exists()) {
                complaints.push(format!("{}:{number}: there is no {page}", shown(&file)));
            }
        }
    }
    assert_no_complaints(&complaints);
}

/// Those from the root, and in the form `core/src/finish.rs` those of a crate.
#[test]
fn files_that_pages_name_exist() {
    let made_later = ["target/", "tests/soak.jsonl"];
    let root = root();
    let mut complaints = Vec::new();
    for page in pages() {
        let text = source(&page);
        for path in paths_named_in(&text) {
            let first = path.split('/').next().unwrap_or_default();
            let is_of_a_crate =
                path.strip_prefix(first).is_some_and(|rest| rest.starts_with("/src/"));
            let (from, is_ours) = if is_of_a_crate {
                (root.join("crates"), true)
            } else {
                // `tests/` is that of a crate, where ARCHITECTURE speaks of one.
                (root.clone(), !page.ends_with("ARCHITECTURE.md") && root.join(first).is_dir())
            };
            let is_there =
                from.join(path).exists() || made_later.iter().any(|later| path.starts_with(later));
            if is_ours && !is_there {
                complaints.push(format!("{}: there is no {path}", shown(&page)));
            }
        }
    }
    assert_no_complaints(&complaints);
}

#[test]
fn make_targets_that_pages_name_exist() {
    let makefile = text_of("Makefile");
    let targets: BTreeSet<&str> = makefile
        .lines()
        .filter(|line| line.contains("## "))
        .filter_map(|line| line.split_once(':').map(|(target, _)| target))
        .collect();
    let mut complaints = Vec::new();
    for page in pages() {
        for target in targets_named_in(&source(&page)).difference(&targets) {
            complaints.push(format!("{}: there is no `make {target}`", shown(&page)));
        }
    }
    assert_no_complaints(&complaints);
}

#[test]
fn the_readme_is_short() {
    let lines = text_of("README.md").lines().count();
    assert!(lines <= README_LINES, "README.md has {lines} lines, more than {README_LINES}");
}

/// Every page for people.
fn pages() -> Vec<PathBuf> {
    let beside = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"];
    let mut pages: Vec<PathBuf> = beside.iter().map(|name| root().join(name)).collect();
    let is_page = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "md");
    pages.extend(files_below(&root().join("docs")).into_iter().filter(is_page));
    pages
}

fn is_relative(target: &str) -> bool {
    !target.contains("://") && !target.starts_with("mailto:")
}

/// Why a relative link of the page leads nowhere. The book has what is below docs alone, so its pages
/// may lead nowhere else.
fn wrong_with(page: &Path, target: &str) -> Option<String> {
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let folder = page.parent().expect("a file is in a directory");
    let leads_to = if file.is_empty() { page.to_path_buf() } else { folder.join(file) };
    let Ok(leads_to) = fs::canonicalize(leads_to) else { return Some("no such file".to_owned()) };
    let book = fs::canonicalize(root().join("docs")).expect("docs is a directory");
    if page.starts_with(root().join("docs")) && !leads_to.starts_with(book) {
        return Some("not in the book: name the file instead".to_owned());
    }
    if !anchor.is_empty() && !anchors_in(&source(&leads_to)).contains(anchor) {
        return Some(format!("no heading #{anchor}"));
    }
    None
}

/// The targets of links in Markdown, each with its line, without those in code.
fn links_in(text: &str) -> Vec<(usize, &str)> {
    let mut links = Vec::new();
    let (mut in_block, mut in_code) = (false, false);
    for (number, line) in text.lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        in_block ^= is_fence;
        if in_block || is_fence {
            continue;
        }
        in_code &= !line.trim().is_empty();
        for piece in line.split_inclusive('`') {
            if !in_code {
                let after = piece.split("](").skip(1);
                let targets = after.filter_map(|rest| rest.split_once(')'));
                links.extend(targets.map(|(target, _)| (number + 1, target)));
            }
            in_code ^= piece.ends_with('`');
        }
    }
    links
}

/// The anchors of a page: those that GitHub and mdbook make of its headings.
fn anchors_in(text: &str) -> BTreeSet<String> {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    let mut in_block = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        }
        let heading = line.trim_start_matches('#');
        if in_block || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let anchor = anchor_of(heading.trim());
        let before = times.entry(anchor.clone()).or_insert(0);
        anchors.insert(if *before == 0 { anchor } else { format!("{anchor}-{before}") });
        *before += 1;
    }
    anchors
}

fn anchor_of(heading: &str) -> String {
    let kept = heading.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        letter if letter.is_alphanumeric() || "-_".contains(letter) => Some(letter),
        _ => None,
    });
    kept.flat_map(char::to_lowercase).collect()
}

/// Paths such as `docs/manual/gate.md` in a line, if they are not the end of a longer path.
fn pages_named_in(line: &str) -> impl Iterator<Item = &str> {
    let is_of_a_path = |letter: char| letter.is_ascii_alphanumeric() || "_./-".contains(letter);
    line.match_indices("docs/").filter_map(move |(at, _)| {
        if line[..at].ends_with(is_of_a_path) {
            return None;
        }
        let rest = &line[at..];
        let end = rest.find(|letter| !is_of_a_path(letter)).unwrap_or(rest.len());
        let path = rest[..end].trim_end_matches('.');
        [".md", ".svg"].iter().any(|kind| path.ends_with(kind)).then_some(path)
    })
}

/// Paths with a slash at the beginning of code in a line, without those that stand for others.
fn paths_named_in(text: &str) -> BTreeSet<&str> {
    let is_of_a_path = |letter: char| letter.is_ascii_alphanumeric() || "_./-".contains(letter);
    let code = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let words = code.filter_map(|code| code.split_whitespace().next());
    let is_path = |word: &&str| word.find('/') > Some(0) && word.chars().all(is_of_a_path);
    words.filter(is_path).filter(|word| !word.contains("NAME")).collect()
}

/// What is named as `make TARGET` in code, without variables.
fn targets_named_in(text: &str) -> BTreeSet<&str> {
    let is_of_a_target = |letter: char| letter.is_ascii_lowercase() || letter == '-';
    let named = text.split("`make ").skip(1).map(|rest| {
        let end = rest.find(|letter| !is_of_a_target(letter)).unwrap_or(rest.len());
        &rest[..end]
    });
    named.filter(|target| !target.is_empty()).collect()
}

// --- the tools above, tested --------------------------------------------------------------------

#[test]
fn links_are_found() {
    let text =
        "[a](b.md#c) and `[no](x)`\n```\n[no](y)\n```\n[`d`](e) ![f](g)\n`two\nlines` [h](#i)";
    assert_eq!(links_in(text), [(1, "b.md#c"), (5, "e"), (5, "g"), (7, "#i")]);
}

#[test]
fn anchors_are_those_of_headings() {
    let text =
        "# The `lab`, measured\n```\n# no\n```\n## Other systems: not tried\n#no\n## A\n## A";
    let anchors = ["a", "a-1", "other-systems-not-tried", "the-lab-measured"];
    assert_eq!(anchors_in(text), BTreeSet::from(anchors.map(str::to_owned)));
}

#[test]
fn names_of_pages_and_targets_are_found() {
    let line = "see docs/manual/gate.md, (docs/x.svg). not /docs/y.md, docs/z or docs/a.html";
    assert!(pages_named_in(line).eq(["docs/manual/gate.md", "docs/x.svg"]));
    let text = "`a/b.rs c`, `d`, `src/NAME.rs`, `e<f>/g` and `h/`, i/j";
    assert_eq!(paths_named_in(text), BTreeSet::from(["a/b.rs", "h/"]));
    let text = "`make test-real`, `make fuzz FUZZ_SECONDS=1`, make it, `make`";
    assert_eq!(targets_named_in(text), BTreeSet::from(["fuzz", "test-real"]));
}
