//! Congestion controls in the kernel's settings: which there are, and which is the default.

use std::path::PathBuf;

use lastbyte_host::Proc;

use crate::error::CongestionError;

/// The algorithms that sockets can ask for (`net.ipv4.tcp_available_congestion_control`).
///
/// # Errors
/// The file cannot be read: there is no `/proc`, or no TCP.
pub fn available() -> Result<Vec<String>, CongestionError> {
    names_in("tcp_available_congestion_control")
}

/// Whether sockets can ask for an algorithm.
///
/// # Errors
/// As [`available`].
pub fn is_available(name: &str) -> Result<bool, CongestionError> {
    Ok(available()?.iter().any(|one| one == name))
}

/// Those that programs without privileges may use (`net.ipv4.tcp_allowed_congestion_control`).
///
/// # Errors
/// As [`available`].
pub fn allowed() -> Result<Vec<String>, CongestionError> {
    names_in("tcp_allowed_congestion_control")
}

/// The default of new sockets in this network namespace (`net.ipv4.tcp_congestion_control`).
///
/// # Errors
/// As [`available`].
pub fn default_algorithm() -> Result<String, CongestionError> {
    Ok(names_in("tcp_congestion_control")?.join(" "))
}

fn names_in(file: &str) -> Result<Vec<String>, CongestionError> {
    let path = || PathBuf::from("/proc/sys/net/ipv4").join(file);
    let failed = |error| CongestionError::File { path: path(), error };
    let text = Proc::default().sysctl(&format!("net.ipv4.{file}")).map_err(failed)?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}
