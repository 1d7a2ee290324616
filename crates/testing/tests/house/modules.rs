//! Whether the modules of a crate use only those below them, where ARCHITECTURE.md lists their order.

use std::collections::BTreeSet;

use super::{assert_no_complaints, files_below, root, shown, source, text_of};

#[test]
fn modules_use_only_those_that_architecture_md_lists_below_them() {
    let mut complaints = Vec::new();
    for (name, order) in orders_listed_in(&text_of("ARCHITECTURE.md")) {
        let src = root().join("crates").join(&name).join("src");
        for file in files_below(&src) {
            let inside = file.strip_prefix(&src).expect("the file is below it");
            let first = inside.components().next().expect("a file has a name").as_os_str();
            let module = first.to_string_lossy().trim_end_matches(".rs").to_owned();
            if file.extension().is_none_or(|extension| extension != "rs") || module == "lib" {
                continue;
            }
            let Some(own) = order.iter().position(|one| *one == module) else {
                complaints.push(format!("{}: ARCHITECTURE.md does not list it", shown(&file)));
                continue;
            };
            let used = modules_used_in(&source(&file), &order);
            for above in order.iter().skip(own + 1).filter(|one| used.contains(*one)) {
                complaints.push(format!("{}: uses {above}, which is above it", shown(&file)));
            }
        }
    }
    assert_no_complaints(&complaints);
}

/// The name of each crate whose order is listed, and its modules, the lowest first.
fn orders_listed_in(document: &str) -> Vec<(String, Vec<String>)> {
    let blocks = document.split("<!-- modules: ").skip(1);
    let orders = blocks.map(|block| {
        let (name, rest) = block.split_once(" -->").expect("the mark has an end");
        let (list, _) = rest.split_once("<!-- /modules -->").expect("the list has an end");
        let lines = list.lines().filter(|line| !line.starts_with("```"));
        let names = lines.flat_map(|line| line.split(',')).map(str::trim);
        let modules = names.filter(|name| !name.is_empty()).map(str::to_owned).collect();
        (name.to_owned(), modules)
    });
    orders.collect()
}

/// Those of the modules that the lines of a file name after `crate::`, also in braces.
fn modules_used_in(text: &str, modules: &[String]) -> BTreeSet<String> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = code.collect::<Vec<_>>().join("\n");
    let mut used = BTreeSet::new();
    for (at, path) in code.match_indices("crate::") {
        let rest = &code[at + path.len()..];
        let end = if rest.starts_with('{') { rest.find(';') } else { rest.find("::") };
        let named = &rest[..end.unwrap_or(rest.len())];
        let words = named.split(|c: char| !c.is_alphanumeric() && c != '_');
        used.extend(words.filter(|word| modules.iter().any(|one| one == word)).map(str::to_owned));
    }
    used
}

#[test]
fn modules_are_found_in_paths_and_in_braces() {
    let document = "<!-- modules: one -->\n```\na, b\nc\n```\n<!-- /modules -->";
    let orders = orders_listed_in(document);
    assert_eq!(orders, [("one".to_owned(), vec!["a".to_owned(), "b".to_owned(), "c".to_owned()])]);
    let modules = &orders[0].1;
    let used = |text| modules_used_in(text, modules).into_iter().collect::<Vec<_>>();
    assert_eq!(used("use crate::b::Thing;\n// crate::c::X"), ["b"]);
    assert_eq!(used("use crate::{\n    a::One,\n    c::Two,\n};\nlet b = 1;"), ["a", "c"]);
}
