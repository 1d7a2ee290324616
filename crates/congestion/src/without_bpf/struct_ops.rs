//! Stands for `struct_ops.rs` where the feature `bpf` is off.

use std::fs;
use std::io;
use std::path::Path;

use crate::error::CongestionError;
use crate::load;

pub(crate) fn fdinfo_line(_: &str) -> Option<String> {
    None
}

pub(crate) fn unload_left(name: &str) -> Result<(), CongestionError> {
    Err(CongestionError::NotLoaded(name.to_owned()))
}

/// A link ends with its file. A map's algorithm would stay registered without it, and unregistering needs BPF.
pub(crate) fn unload_file(file: &Path) -> Result<(), CongestionError> {
    if file.to_string_lossy().ends_with("-map") && file.exists() {
        load::ability()?;
    }
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(CongestionError::File { path: file.to_owned(), error })
        }
        _ => Ok(()),
    }
}
