//! Congestion controls in BPF that the kernel has registered (`struct_ops`).

use std::path::Path;

use lastbyte_bpf::StructOps;

use crate::error::CongestionError;

/// The line of `/proc/PID/fdinfo` by which the process is found that holds an algorithm; `None` where
/// no process can.
pub(crate) fn trace_of(name: &str) -> Option<String> {
    let all = StructOps::all();
    let named = || all.iter().filter(|one| one.name == name);
    // What is no longer registered stays for as long as connections have it; it has no link then.
    if let Some(link) = named().find_map(|one| one.link) {
        return Some(format!("link_id:\t{link}"));
    }
    let map = named().find(|one| !one.is_tied && one.is_registered)?.map;
    Some(format!("map_id:\t{map}"))
}

/// Unregisters what no link holds: what a process left that was killed, before Linux 6.4.
pub(crate) fn unload_left(name: &str) -> Result<(), CongestionError> {
    let all = StructOps::all();
    let left = all.iter().find(|one| one.name == name && !one.is_tied && one.is_registered);
    let left = left.ok_or_else(|| CongestionError::NotLoaded(name.to_owned()))?;
    Ok(lastbyte_bpf::unregister(left)?)
}

/// Unregisters what a file keeps, and removes it.
pub(crate) fn unload_file(file: &Path) -> Result<(), CongestionError> {
    Ok(lastbyte_bpf::unload_kept(file)?)
}
