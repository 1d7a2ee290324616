//! The directory of tracefs: where it is mounted, or else a detached mount of our own.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lastbyte_sys::mount;

use super::super::Roots;

/// The root directory of tracefs.
#[derive(Clone, Debug)]
pub(super) struct TracingDirectory {
    pub(super) path: PathBuf,
    /// A mount of our own, which is unmounted with its last user.
    _own: Option<Arc<OwnedFd>>,
}

impl TracingDirectory {
    /// Finds the mounted tracefs, or mounts it for us alone. The error is a sentence.
    pub(super) fn find(roots: &Roots) -> Result<Self, String> {
        let places = ["kernel/tracing", "kernel/debug/tracing"].map(|place| roots.sys.join(place));
        for path in &places {
            match path.join("instances").metadata() {
                Ok(_) => return Ok(Self { path: path.clone(), _own: None }),
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    return Err("only root may use tracefs: CAP_SYS_ADMIN is missing".to_owned());
                }
                Err(_) => {}
            }
        }
        if roots.sys != Roots::default().sys {
            // `/sys` is another machine's, or none: a mount of ours would show this kernel.
            let place = places[0].display();
            return Err(format!(
                "tracefs is not mounted; `mount -t tracefs nodev {place}` does it"
            ));
        }
        let own = mount::detached_tracefs().map_err(|error| refusal(&error, &places[0]))?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", own.as_raw_fd()));
        fs::metadata(path.join("instances")).map_err(|error| {
            format!(
                "tracefs is not mounted, and a mount of it for the doctor alone cannot be \
                     read: {error}"
            )
        })?;
        Ok(Self { path, _own: Some(Arc::new(own)) })
    }
}

/// Why there is no tracefs, and what would help.
fn refusal(error: &io::Error, place: &Path) -> String {
    let likely = match error.kind() {
        ErrorKind::PermissionDenied => {
            "root has the privilege (CAP_SYS_ADMIN), unless a seccomp filter, such as a \
             container's, or the machine's policy refuses it"
                .to_owned()
        }
        ErrorKind::Unsupported => {
            format!("before Linux 5.2 only `mount -t tracefs nodev {}` does it", place.display())
        }
        _ if error.raw_os_error() == Some(mount::NO_SUCH_FILE_SYSTEM) => {
            "this kernel was built without tracing (CONFIG_TRACING)".to_owned()
        }
        _ => format!("`mount -t tracefs nodev {}` may do it", place.display()),
    };
    format!(
        "tracefs is not mounted, and mounting it for the doctor alone was refused ({error}): \
         {likely}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_likely_cause() {
        // EPERM, ENODEV, ENOSYS, EBUSY.
        let cases =
            [(1, "CAP_SYS_ADMIN"), (19, "CONFIG_TRACING"), (38, "5.2"), (16, "mount -t tracefs")];
        for (errno, expected) in cases {
            let why =
                refusal(&io::Error::from_raw_os_error(errno), Path::new("/sys/kernel/tracing"));
            assert!(why.contains(expected) && why.contains("not mounted"), "{why}");
        }
    }
}
