//! The privileges that a path needs, and how to get them without being root: in a user namespace.

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

/// Gives an unprivileged process the privileges that a path needs, where that is possible: it enters a
/// user namespace of its own, in which it is root, and which owns the paths made from then on. Outside
/// of these it may do no more than before, and the files it writes belong to its user. It cannot leave.
///
/// The user becomes root in there, as with `unshare --map-root-user`, because only root keeps its
/// capabilities when it starts a program: so a program on a path may do there what it may when root
/// runs all of this.
///
/// Call it before the first thread is started: a process of several threads cannot do this.
///
/// # Errors
/// The kernel's, where this machine forbids it. Making a path then fails with
/// [`crate::LinkError::Rights`], which names the setting that forbids it.
pub fn take_rights() -> io::Result<()> {
    if have_rights() {
        return Ok(());
    }
    // Once in the namespace, they are unknown.
    let (user, group) = (process::effective_user(), process::effective_group());
    namespace::unshare_user()?;
    namespace::map_to_root(user, group)
}

/// Settings that forbid user namespaces to unprivileged users: the sysctl, and the value that forbids
/// it.
const SETTINGS: [(&str, &str); 3] = [
    ("user.max_user_namespaces", "0"),
    // Debian's.
    ("kernel.unprivileged_userns_clone", "0"),
    // Ubuntu's: they can be made, but give no capabilities.
    ("kernel.apparmor_restrict_unprivileged_userns", "1"),
];

/// The setting of this machine that forbids user namespaces, in words; `None` if no known one does.
pub(crate) fn why_not_in_a_user_namespace() -> Option<String> {
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
            let why = why_not_in_a_user_namespace().unwrap();
            assert_eq!(why, "user.max_user_namespaces = 0 forbids them here");
        } else {
            let why = why_not_in_a_user_namespace().unwrap_or_default();
            assert!(!why.contains("max_user_namespaces"), "{why}");
        }
    }
}
