//! What a fuzzer has found worth keeping: `fuzz/corpus/scenario`.

use lastbyte_link::{Scenario, Topology};

#[test]
fn each_file_of_the_corpus_is_a_path_a_network_or_an_error() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/scenario");
    let mut understood = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let Ok(text) = std::fs::read_to_string(entry.unwrap().path()) else { continue };
        let path = Scenario::parse("fuzzed", &text).is_ok();
        let network = Topology::parse("fuzzed", &text).is_ok();
        understood += usize::from(path || network);
    }
    assert!(understood > 0, "{folder} has nothing that is understood");
}
