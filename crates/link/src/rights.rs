//! The rights that a path needs, and where to get them without being root: in a user namespace.

use std::fs;
use std::io;

use lastbyte_sys::{namespace, process};

/// For namespaces and mounts, and for what is in a network of one's own.
const NEEDED: u64 = process::CAP_SYS_ADMIN | process::CAP_NET_ADMIN;

/// Whether the calling thread may make a path. Asking is all that this does.
#[must_use]
pub fn have_rights() -> bool {
    process::effective_capabilities().is_ok_and(|has| has & NEEDED == NEEDED)
}

/// Gives a process without rights those that a path needs, where that is possible: it enters a user
/// namespace of its own, in which it is root, and which owns the paths made from then on. Outside of
/// these it may do no more than before; what it writes to files is its user's. It cannot go back.
///
/// Root is what the user becomes in there, as with `unshare --map-root-user`, because only root keeps
/// its capabilities when it starts a program: a program on a path may do there what it may when all of
/// this is run by root.
///
/// Call it before the first thread is started: a process of several threads cannot do this.
///
/// # Errors
/// The kernel's, where this machine forbids it. Making a path then fails with
/// [`crate::LinkError::Rights`], which says what stands in the way.
pub fn take_rights() -> io::Result<()> {
    if have_rights() {
        return Ok(());
    }
    // Afterwards nobody knows them in there.
    let (user, group) = (process::effective_user(), process::effective_group());
    namespace::unshare_user()?;
    namespace::map_to_root(user, group)
}

/// Settings by which a machine forbids user namespaces to whoever is not root: the file, and the value
/// that forbids it.
const SETTINGS: [(&str, &str); 3] = [
    ("user.max_user_namespaces", "0"),
    // Debian's.
    ("kernel.unprivileged_userns_clone", "0"),
    // Ubuntu's: they can be made, and are without rights.
    ("kernel.apparmor_restrict_unprivileged_userns", "1"),
];

/// The setting of this machine that forbids user namespaces, in words; `None` if it is none that we
/// know.
pub(crate) fn what_stands_in_the_way() -> Option<String> {
    let stands = |(name, value): &&(&str, &str)| {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        fs::read_to_string(path).is_ok_and(|now| now.trim() == *value)
    };
    let (name, value) = SETTINGS.iter().find(stands)?;
    Some(format!("{name} = {value} forbids them here"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_is_as_free_as_the_settings_say() {
        // Read in another way than above.
        let max = fs::read_to_string("/proc/sys/user/max_user_namespaces").unwrap_or_default();
        if max.trim() == "0" {
            let why = what_stands_in_the_way().unwrap();
            assert_eq!(why, "user.max_user_namespaces = 0 forbids them here");
        } else {
            let why = what_stands_in_the_way().unwrap_or_default();
            assert!(!why.contains("max_user_namespaces"), "{why}");
        }
    }
}
