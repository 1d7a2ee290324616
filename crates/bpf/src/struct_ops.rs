//! The `struct_ops` in the kernel, whichever process registered them.

use std::fs;
use std::path::Path;

use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo, MapInfoIter, ProgInfoIter};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use crate::error::BpfError;
use crate::messages::with_messages;
use crate::object;

/// A `struct_ops` in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StructOps {
    /// The name of its map, which is that of the variable in C, of at most 15 characters.
    pub name: String,
    /// The number of its map.
    pub map: u32,
    /// Whether a link holds it registered, and not the map itself.
    pub is_tied: bool,
    /// Whether it is registered: if not, only its users still hold it.
    pub is_registered: bool,
    /// The number of the link that keeps it registered. `None` if it is not tied, or only its users
    /// still hold it.
    pub link: Option<u32>,
}

impl StructOps {
    /// All `struct_ops`. Empty without the privilege (`CAP_SYS_ADMIN`).
    #[must_use]
    pub fn all() -> Vec<Self> {
        let links: Vec<(u32, u32)> = LinkInfoIter::default()
            .filter_map(|link| match link.info {
                LinkTypeInfo::StructOps(info) => Some((info.map_id, link.id)),
                _ => None,
            })
            .collect();
        let maps = MapInfoIter::default().filter(|map| map.ty == MapType::StructOps);
        maps.map(|map| {
            let is_tied = object::is_tied(map.map_flags);
            let link = links.iter().find(|(of, _)| *of == map.id).map(|(_, link)| *link);
            Self {
                name: map.name.to_string_lossy().into_owned(),
                map: map.id,
                is_tied,
                is_registered: if is_tied {
                    link.is_some()
                } else {
                    MapHandle::from_map_id(map.id).is_ok_and(|map| is_in_use(&map))
                },
                link,
            }
        })
        .collect()
    }
}

/// Whether the only entry of a map that is not tied is in use. It begins with two words of 4 bytes,
/// the number of users and the state (`enum bpf_struct_ops_state` in
/// `kernel/bpf/bpf_struct_ops.c`).
fn is_in_use(map: &MapHandle) -> bool {
    const IN_USE: [u8; 4] = 1_u32.to_ne_bytes();
    let value = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok().flatten();
    value.is_some_and(|value| value.get(4..8) == Some(&IN_USE))
}

/// The names of all programs in the kernel, at most 15 characters each. Empty without the
/// privilege.
#[must_use]
pub fn programs() -> Vec<String> {
    ProgInfoIter::default().map(|one| one.name.to_string_lossy().into_owned()).collect()
}

/// Unregisters a `struct_ops` without a link.
///
/// # Errors
/// [`BpfError::Refused`], [`BpfError::NotAllowed`].
pub fn unregister(one: &StructOps) -> Result<(), BpfError> {
    let map = with_messages("open", &one.name, || MapHandle::from_map_id(one.map))?;
    object::empty(&map, &one.name)
}

/// Unregisters the `struct_ops` that a file of bpffs pins, and removes the file; a missing file is
/// no error.
///
/// # Errors
/// [`BpfError::File`], [`BpfError::Refused`], [`BpfError::NotAllowed`].
pub fn unload_kept(file: &Path) -> Result<(), BpfError> {
    let failed = |error| BpfError::File { path: file.to_owned(), error };
    match fs::symlink_metadata(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        found => found.map_err(failed)?,
    };
    // A map that is not tied stays registered without its file.
    if file.to_string_lossy().ends_with(object::MAP) {
        let name = file.display().to_string();
        let map = with_messages("open", &name, || MapHandle::from_pinned_path(file))?;
        if is_in_use(&map) {
            object::empty(&map, &name)?;
        }
    }
    fs::remove_file(file).map_err(failed)
}
