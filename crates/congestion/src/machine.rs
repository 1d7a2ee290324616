//! The loaded algorithms of this machine, and their holders.

use lastbyte_host::Proc;

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
    let proc = Proc::default();
    let pid = proc.pids().ok()?.into_iter().find(|pid| proc.has_descriptor_with(*pid, line))?;
    Some(Holder::Process { pid, command: one_line(&proc.command(pid, LONGEST)) })
}

/// So many bytes of a command line are read: more than are shown.
const LONGEST: usize = 4096;

/// A command line, which may be long, and several lines.
fn one_line(command: &str) -> String {
    const MOST: usize = 100;
    let mut line: String =
        command.chars().map(|one| if one.is_control() { ' ' } else { one }).take(MOST).collect();
    if command.chars().nth(MOST).is_some() {
        line.push_str("...");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_one_line() {
        assert_eq!(one_line("lastbyte cc load"), "lastbyte cc load");
        assert_eq!(one_line("sh -c a\nb\x1bc"), "sh -c a b c");
        assert_eq!(one_line(""), "");
        assert_eq!(one_line(&"x".repeat(5000)).len(), 103);
    }
}
