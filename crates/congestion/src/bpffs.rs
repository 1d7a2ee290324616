//! Algorithms that outlive the process that loaded them: files of bpffs, one for each.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::error::{BPFFS, CongestionError};

/// The folder of our files.
pub const FOLDER: &str = "/sys/fs/bpf/lastbyte";

/// Whether algorithms can be kept: whether bpffs is mounted at [`BPFFS`].
#[must_use]
pub fn keeps() -> bool {
    lastbyte_sys::file::is_bpffs(Path::new(BPFFS)).unwrap_or(false)
}

/// Mounts bpffs at [`BPFFS`], as most machines do at boot. The caller has to record it, and to undo it by
/// [`unmount_bpffs`]. Returns the path.
///
/// # Errors
/// [`CongestionError::File`]: the kernel refused.
pub fn mount_bpffs() -> Result<&'static Path, CongestionError> {
    let path = Path::new(BPFFS);
    lastbyte_sys::mount::bpffs(DEVICE, path).map_err(failed(path))?;
    Ok(path)
}

/// Unmounts what [`mount_bpffs`] has mounted. It does nothing where there is none, or another's.
///
/// # Errors
/// [`CongestionError::BpffsInUse`]: something is kept there; [`CongestionError::File`].
pub fn unmount_bpffs() -> Result<(), CongestionError> {
    let (path, mounts) = (Path::new(BPFFS), Path::new("/proc/self/mountinfo"));
    let mounts = fs::read_to_string(mounts).map_err(failed(mounts))?;
    if !is_ours(&mounts) {
        return Ok(());
    }
    // It fails if the folder is not empty.
    let _ = fs::remove_dir(FOLDER);
    let entries = fs::read_dir(path).map_err(failed(path))?.flatten();
    let others = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    // The kernel's own files are always there; names of BPF objects have no dot.
    let others =
        others.filter(|name| !name.ends_with(".debug") && path.join(name) != Path::new(FOLDER));
    let names: Vec<String> = kept().into_iter().map(|(name, _)| name).chain(others).collect();
    if !names.is_empty() {
        return Err(CongestionError::BpffsInUse(names.join(", ")));
    }
    lastbyte_sys::mount::unmount_detach(path).map_err(failed(path))
}

/// The device of our mount, as lists of mounts show it.
const DEVICE: &str = "lastbyte";

/// Whether the topmost mount at [`BPFFS`] is ours, by the lines of `/proc/PID/mountinfo`: the fifth field is
/// the mount point, type and device follow a dash (`proc_pid_mountinfo(5)`).
fn is_ours(mounts: &str) -> bool {
    let there = |line: &&str| line.split(' ').nth(4) == Some(BPFFS);
    let last = mounts.lines().rfind(there).and_then(|line| line.split_once(" - "));
    last.is_some_and(|(_, rest)| rest.starts_with(&format!("bpf {DEVICE} ")))
}

/// The kept algorithms: their names, and their files.
#[must_use]
pub fn kept() -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let mut kept: Vec<_> = entries
        .map(|entry| {
            let file = entry.path();
            (name_of(&file), file)
        })
        .collect();
    kept.sort();
    kept
}

/// The name of the algorithm that a file keeps.
pub(crate) fn name_of(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.strip_suffix("-map").unwrap_or(&name).to_owned()
}

/// The folder, created if it is missing.
#[cfg_attr(not(feature = "bpf"), allow(dead_code, reason = "without BPF nothing is kept"))]
pub(crate) fn folder() -> Result<PathBuf, CongestionError> {
    let folder = PathBuf::from(FOLDER);
    if !keeps() {
        return Err(CongestionError::NoBpffs(BPFFS.into()));
    }
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(failed(&folder)(error));
        }
        _ => {}
    }
    // Where every user may make folders, this one may be another user's, who could remove files in it.
    let found = fs::symlink_metadata(&folder).map_err(failed(&folder))?;
    if !found.is_dir() || found.uid() != lastbyte_sys::process::effective_user() {
        let error =
            io::Error::new(io::ErrorKind::PermissionDenied, "it is not a folder of this user");
        return Err(failed(&folder)(error));
    }
    Ok(folder)
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> CongestionError {
    let path = path.to_owned();
    move |error| CongestionError::File { path, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_on_top_decides() {
        let line = |device: &str| {
            format!("65 47 0:39 / /sys/fs/bpf rw,nosuid shared:7 - bpf {device} rw,mode=700\n")
        };
        let sysfs = "24 30 0:22 / /sys rw,nosuid - sysfs sysfs rw\n";
        assert!(is_ours(&[sysfs, &line("lastbyte")].concat()));
        assert!(is_ours(&[line("bpf"), line("lastbyte")].concat()));
        assert!(!is_ours(&[line("lastbyte"), line("bpf")].concat()));
        assert!(!is_ours(&[sysfs, &line("bpf")].concat()));
        assert!(!is_ours(sysfs));
        assert!(!is_ours(&line("lastbyte").replace("/sys/fs/bpf", "/sys/fs/bpf2")));
        assert!(!is_ours("65 47 0:39 / /sys/fs/bpf rw"));
    }

    #[test]
    fn a_file_has_the_name_of_what_it_keeps() {
        assert_eq!(name_of(Path::new("/sys/fs/bpf/lastbyte/lb_reno")), "lb_reno");
        assert_eq!(name_of(Path::new("/sys/fs/bpf/lastbyte/lb_reno-map")), "lb_reno");
    }
}
