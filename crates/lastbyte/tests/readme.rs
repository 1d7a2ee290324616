//! The library in ten lines, as the README has it, is the example that the documentation tests.

use std::fs;
use std::path::Path;

#[test]
fn the_example_of_the_readme_is_the_one_that_is_tested() {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(crate_folder.join("../../README.md")).unwrap();
    let shown = readme.split("```rust\n").nth(1).unwrap().split("```").next().unwrap();
    let source = fs::read_to_string(crate_folder.join("src/lib.rs")).unwrap();
    let tested = source.split("//! ```\n").nth(1).unwrap();
    let visible = tested.lines().filter(|line| !line.starts_with("//! #"));
    let visible: Vec<&str> = visible.map(|line| line[3..].trim_start_matches(' ')).collect();
    assert_eq!(shown.lines().collect::<Vec<_>>(), visible);
}
