//! What stays beyond the process that loaded it: files of bpffs, one for each algorithm.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::error::CongestionError;
use crate::load;

/// Where bpffs is mounted by custom.
const BPFFS: &str = "/sys/fs/bpf";
/// Where ours are.
pub const FOLDER: &str = "/sys/fs/bpf/lastbyte";

/// Whether something can be kept: whether bpffs is mounted where it belongs.
#[must_use]
pub fn keeps() -> bool {
    lastbyte_sys::file::is_bpffs(Path::new(BPFFS)).unwrap_or(false)
}

/// Mounts bpffs where it belongs; most machines do at boot. Whoever calls this remembers it, so that
/// it can be undone. Returns where.
///
/// # Errors
/// [`CongestionError::File`]: the kernel refused.
pub fn mount_bpffs() -> Result<&'static Path, CongestionError> {
    let path = Path::new(BPFFS);
    lastbyte_sys::mount::bpffs(path).map_err(failed(path))?;
    Ok(path)
}

/// The files that keep algorithms, with the names of these.
#[must_use]
pub fn kept() -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let mut kept: Vec<_> = entries
        .map(|entry| {
            let file = entry.file_name().to_string_lossy().into_owned();
            (file.strip_suffix("-map").unwrap_or(&file).to_owned(), entry.path())
        })
        .collect();
    kept.sort();
    kept
}

/// Unloads what a file keeps; one that is gone already is well. The folder goes with the last.
///
/// # Errors
/// What the kernel says against it.
pub fn unload_kept(file: &Path) -> Result<(), CongestionError> {
    load::unload_file(file)?;
    // Not empty: others are kept.
    let _ = fs::remove_dir(FOLDER);
    Ok(())
}

/// The folder, made if it is not there.
#[cfg_attr(not(feature = "bpf"), allow(dead_code, reason = "without BPF nothing is kept"))]
pub(crate) fn folder() -> Result<PathBuf, CongestionError> {
    let folder = PathBuf::from(FOLDER);
    if !keeps() {
        return Err(CongestionError::NoBpffs(BPFFS.into()));
    }
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed(&folder)(error)),
        _ => Ok(folder),
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> CongestionError {
    let path = path.to_owned();
    move |error| CongestionError::File { path, error }
}
