//! `include/lastbyte.h` is what cbindgen makes of the sources.

use std::fs;
use std::path::Path;

/// With this variable set the header is written instead of compared: `make header`.
const WRITE: &str = "LASTBYTE_WRITE_HEADER";

#[test]
fn the_header_is_up_to_date() {
    let crate_directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = crate_directory.join("include/lastbyte.h");
    let config = cbindgen::Config::from_file(crate_directory.join("cbindgen.toml")).unwrap();
    // In this order, so that a word is explained before it is used.
    let mut builder = cbindgen::Builder::new().with_config(config);
    for module in ["types", "receipt", "finish", "dial", "connection"] {
        builder = builder.with_src(crate_directory.join(format!("src/{module}.rs")));
    }
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let made = format!("{}\n", String::from_utf8(made).unwrap().trim_end());

    if std::env::var_os(WRITE).is_some() {
        fs::write(&header, &made).unwrap();
    }
    let committed = fs::read_to_string(&header).unwrap_or_default();
    let differs = made.lines().zip(committed.lines()).position(|(made, there)| made != there);
    assert!(
        made == committed,
        "crates/capi/include/lastbyte.h is out of date from line {} on: run `make header`",
        differs.unwrap_or_else(|| made.lines().count().min(committed.lines().count())) + 1
    );
}
