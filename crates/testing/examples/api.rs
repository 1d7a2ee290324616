//! The public names of the crate `lastbyte`, as its documentation has them, in one file that is kept:
//! `crates/lastbyte/api.txt`. What changes it is seen by whoever reviews the change.
//!
//! ```text
//! make api      writes the file
//! make check    compares it
//! ```
//!
//! It reads what `cargo doc -p lastbyte` has written, so that neither a nightly compiler nor another tool
//! is needed. Of each item it takes the declaration, the methods, and the traits that are implemented
//! by hand or derived; not those that the compiler adds.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command talks")]

use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

/// How the file of an item's page begins.
const KINDS: [&str; 7] = ["constant.", "enum.", "fn.", "macro.", "struct.", "trait.", "type."];

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let (pages, kept) = (target.join("doc/lastbyte"), root.join("crates/lastbyte/api.txt"));
    let listing = listing(&pages)?;
    if env::args().nth(1).as_deref() == Some("write") {
        fs::write(&kept, listing)?;
        return Ok(ExitCode::SUCCESS);
    }
    let before = fs::read_to_string(&kept)?;
    if before == listing {
        return Ok(ExitCode::SUCCESS);
    }
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (before, now) = (lines(&before), lines(&listing));
    eprintln!("the public names of `lastbyte` are not those of crates/lastbyte/api.txt:");
    before.difference(&now).for_each(|gone| eprintln!("- {gone}"));
    now.difference(&before).for_each(|new| eprintln!("+ {new}"));
    eprintln!("Where that is meant, run `make api` and say it in CHANGELOG.md.");
    Ok(ExitCode::FAILURE)
}

/// All items, by their paths.
fn listing(pages: &Path) -> Result<String, Box<dyn Error>> {
    let mut items = BTreeSet::new();
    let mut folders = vec![pages.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                folders.push(path);
            } else if let Some(item) = item_of(&name) {
                let inside = path.parent().unwrap_or(pages).strip_prefix(pages)?;
                let inside = inside.to_string_lossy().replace('/', "::");
                let module = if inside.is_empty() { String::new() } else { inside + "::" };
                items.insert(described(&format!("{module}{item}"), &fs::read_to_string(path)?));
            }
        }
    }
    if items.is_empty() {
        return Err(format!("{} has no pages: `make api` makes them", pages.display()).into());
    }
    Ok(items.into_iter().collect())
}

/// The name of an item, by the name of its page.
fn item_of(page: &str) -> Option<&str> {
    let kind = KINDS.iter().find(|kind| page.starts_with(**kind))?;
    page[kind.len()..].strip_suffix(".html")
}

/// One item: its path, its declaration, then what is implemented for it, one thing a line.
fn described(path: &str, page: &str) -> String {
    let declaration = between(page, "item-decl\"><code>", "</code></pre>").next().unwrap_or("");
    let mut lines = format!("{path}\n    {}\n", text_of(declaration));
    // Of an alias, its page shows what its type has.
    if declaration.starts_with("pub type") {
        return lines;
    }
    let mut implemented = BTreeSet::new();
    let methods = between(page, "id=\"implementations-list\"", "id=\"trait-implementations\"");
    for part in methods.flat_map(|part| part.split("class=\"impl\">").skip(1)) {
        let of = between(part, "<h3 class=\"code-header\">", "</h3>").next().unwrap_or("");
        for method in between(part, "<h4 class=\"code-header\">", "</h4>") {
            implemented.insert(format!("    {} {{ {} }}\n", text_of(of), text_of(method)));
        }
    }
    let traits = between(page, "id=\"trait-implementations-list\"", "id=\"synthetic-impl");
    for of in traits.flat_map(|part| between(part, "<h3 class=\"code-header\">", "</h3>")) {
        let of = text_of(of);
        // The compiler's own, beside a derived `PartialEq`.
        if !of.starts_with("impl StructuralPartialEq") {
            implemented.insert(format!("    {of}\n"));
        }
    }
    lines.extend(implemented);
    lines
}

/// What stands between two marks, as often as there is something.
fn between<'a>(text: &'a str, begin: &'a str, end: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(begin).skip(1).map(move |rest| rest.split(end).next().unwrap_or(rest))
}

/// The text of a piece of HTML, in one line.
fn text_of(html: &str) -> String {
    let mut text = String::new();
    for piece in html.split('<') {
        let (tag, rest) = piece.split_once('>').unwrap_or(("", piece));
        // What a page folds away has a line that says so.
        if tag.starts_with("summary") || rest.starts_with("Show ") {
            continue;
        }
        if tag.starts_with("div") {
            text.push(' ');
        }
        text.push_str(rest);
    }
    for (escaped, char) in
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")]
    {
        text = text.replace(escaped, char);
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
