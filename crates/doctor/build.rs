//! Compiles the programs that watch. Without the feature there is nothing to compile.

use std::env;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    if env::var_os("CARGO_FEATURE_BPF").is_none() {
        return ExitCode::SUCCESS;
    }
    match lastbyte_bpf::compile::folder(Path::new("bpf"), "objects.rs") {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[allow(clippy::print_stderr, reason = "where cargo looks for the reason")]
            {
                eprintln!("{error}");
            }
            ExitCode::FAILURE
        }
    }
}
