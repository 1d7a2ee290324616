//! Congestion controls in BPF that the kernel has registered (`struct_ops`).

use std::path::Path;

use lastbyte_bpf::StructOps;

use crate::error::CongestionError;

/// The line in `/proc/PID/fdinfo` of the process that holds an algorithm; `None` where no process can.
pub(crate) fn fdinfo_line(name: &str) -> Option<String> {
    let all = StructOps::all();
    let named = || all.iter().filter(|one| one.name == name);
    // An unregistered algorithm stays as long as connections use it, without a link.
    if let Some(link) = named().find_map(|one| one.link) {
        return Some(format!("link_id:\t{link}"));
    }
    let map = named().find(|one| !one.is_tied && one.is_registered)?.map;
    Some(format!("map_id:\t{map}"))
}

/// Unregisters an algorithm without a link, which a killed process has left, before Linux 6.4.
pub(crate) fn unload_left(name: &str) -> Result<(), CongestionError> {
    let all = StructOps::all();
    let left = all.iter().find(|one| one.name == name && !one.is_tied && one.is_registered);
    let left = left.ok_or_else(|| CongestionError::NotLoaded(name.to_owned()))?;
    Ok(lastbyte_bpf::unregister(left)?)
}

/// Unregisters the algorithm that a file keeps, and removes the file.
pub(crate) fn unload_file(file: &Path) -> Result<(), CongestionError> {
    Ok(lastbyte_bpf::unload_kept(file)?)
}
