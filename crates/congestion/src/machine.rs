//! The loaded algorithms of this machine, and their holders.

use std::fs;

use crate::bpffs::kept;
use crate::catalogue::is_of_catalogue;
use crate::holder::Holder;
use crate::struct_ops;
use crate::sysctl::available;

/// The loaded algorithms of the catalogue, with their holders.
#[must_use]
pub fn holders() -> Vec<(String, Holder)> {
    let available = available().unwrap_or_default();
    let ours = available.into_iter().filter(|name| is_of_catalogue(name));
    ours.map(|name| (name.clone(), holder_of(&name))).collect()
}

/// The holder of a loaded algorithm, of the catalogue or not. Without `CAP_SYS_ADMIN` one that is not of the
/// catalogue is reported as the kernel's.
#[must_use]
pub fn holder_of(name: &str) -> Holder {
    if let Some((_, file)) = kept().into_iter().find(|(of, _)| of == name) {
        return Holder::File(file);
    }
    match struct_ops::fdinfo_line(name) {
        Some(line) => process_with(&line).unwrap_or_else(|| {
            // A link is held by a process that we cannot see; a map needs no holder.
            if line.starts_with("map_id") { Holder::Nobody } else { Holder::Unknown }
        }),
        None if is_of_catalogue(name) => Holder::Unknown,
        None => Holder::Kernel,
    }
}

/// The process that has a descriptor whose `/proc/PID/fdinfo` has such a line.
fn process_with(line: &str) -> Option<Holder> {
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let mut infos = fs::read_dir(entry.path().join("fdinfo")).into_iter().flatten().flatten();
        let has_line = |info: &fs::DirEntry| {
            fs::read_to_string(info.path()).is_ok_and(|text| text.lines().any(|one| one == line))
        };
        if infos.any(|info| has_line(&info)) {
            let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            return Some(Holder::Process { pid, command: one_line(&words) });
        }
    }
    None
}

/// The words of a command line, which a zero ends each. They may be long, and several lines.
fn one_line(words: &[u8]) -> String {
    const MOST: usize = 100;
    let words = String::from_utf8_lossy(words);
    let words = words.trim_end_matches('\0');
    let mut line: String =
        words.chars().map(|one| if one.is_control() { ' ' } else { one }).take(MOST).collect();
    if words.chars().nth(MOST).is_some() {
        line.push_str("...");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_one_line() {
        assert_eq!(one_line(b"lastbyte\0cc\0load\0"), "lastbyte cc load");
        assert_eq!(one_line(b"sh\0-c\0a\nb\x1bc\0"), "sh -c a b c");
        assert_eq!(one_line(b""), "");
        assert_eq!(one_line(&[b'x'; 5000]).len(), 103);
    }
}
