//! An object, from its image to what is attached.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use libbpf_rs::{ErrorKind, Link, MapCore, MapType, ObjectBuilder, OpenObject, PrintLevel};

use crate::error::BpfError;

/// The flag of a `struct_ops` map that is tied to a link (`BPF_F_LINK`, `bpf.h`).
const TIED: u32 = 1 << 13;
/// The bytes of a pointer to a program.
const POINTER: usize = size_of::<*const u8>();
/// How the name of a file ends that keeps a map, and not a link. bpffs takes no dot in a name.
pub(crate) const MAP: &str = "-map";
/// So many lines of what the verifier says are kept: its last words name the instruction and the reason.
const LAST_WORDS: usize = 12;

/// An object that is not loaded yet: its constants can be set.
pub struct Object {
    name: String,
    open: OpenObject,
    is_tied: bool,
}

impl Object {
    /// Reads the image of an object.
    ///
    /// # Errors
    /// [`BpfError::Refused`]: it is none.
    pub fn open(name: &str, image: &[u8]) -> Result<Self, BpfError> {
        let open = hearing("read", name, || ObjectBuilder::default().open_memory(image))?;
        Ok(Self { name: name.to_owned(), open, is_tied: true })
    }

    /// Writes the constants of a section, such as `.rodata.given`. The value has the length of the
    /// section or is shorter; the rest stays as it was compiled.
    ///
    /// # Errors
    /// [`BpfError::NoSuchPart`]: the object has no such section, or a smaller one.
    pub fn give(&mut self, section: &str, value: &[u8]) -> Result<(), BpfError> {
        let none = || BpfError::NoSuchPart { name: self.name.clone(), part: section.to_owned() };
        let mut map = self.open.maps_mut().find(|map| map.name() == section).ok_or_else(none)?;
        let room = map.initial_value_mut().and_then(|room| room.get_mut(..value.len()));
        room.ok_or_else(none)?.copy_from_slice(value);
        Ok(())
    }

    /// Takes the first function out of a `struct_ops`, for a kernel that has no member of its name: all
    /// others would be refused with it.
    ///
    /// # Errors
    /// [`BpfError::NoSuchPart`]: the object has no such `struct_ops`.
    pub fn leave_out_first(&mut self, struct_ops: &str) -> Result<(), BpfError> {
        let none = || BpfError::NoSuchPart { name: self.name.clone(), part: struct_ops.to_owned() };
        let mut map = self.open.maps_mut().find(|map| map.name() == struct_ops).ok_or_else(none)?;
        let first = map.initial_value_mut().and_then(|value| value.get_mut(..POINTER));
        first.ok_or_else(none)?.fill(0);
        Ok(())
    }

    /// Makes its `struct_ops` such as a kernel before 6.4 has them: registered until somebody
    /// unregisters them.
    ///
    /// # Errors
    /// [`BpfError::Refused`].
    pub fn untie(&mut self) -> Result<(), BpfError> {
        let all = self.open.maps_mut().filter(|map| map.map_type() == MapType::StructOps);
        for mut map in all {
            let flags = map.map_flags() & !TIED;
            hearing("untie", &self.name, || map.set_map_flags(flags))?;
        }
        self.is_tied = false;
        Ok(())
    }

    /// Has the kernel look through its programs and keep them.
    ///
    /// # Errors
    /// [`BpfError::NotAllowed`]; [`BpfError::Refused`] with the last words of the verifier.
    pub fn load(self) -> Result<Loaded, BpfError> {
        let Self { name, open, is_tied } = self;
        let object = hearing("load", &name, || open.load())?;
        Ok(Loaded { name, object, is_tied })
    }
}

/// An object in the kernel. Dropped, it goes, but for what is attached or in use.
pub struct Loaded {
    name: String,
    object: libbpf_rs::Object,
    is_tied: bool,
}

impl Loaded {
    /// Registers the `struct_ops` of that name.
    ///
    /// # Errors
    /// [`BpfError::Exists`]: what it would be called is taken; [`BpfError::Refused`].
    pub fn attach(mut self, struct_ops: &str) -> Result<Attached, BpfError> {
        let none = || BpfError::NoSuchPart { name: self.name.clone(), part: struct_ops.to_owned() };
        let mut maps = self.object.maps_mut();
        let mut map = maps.find(|map| map.name() == struct_ops).ok_or_else(none)?;
        let link = hearing("register", struct_ops, || map.attach_struct_ops())?;
        drop(maps);
        let Self { object, is_tied, .. } = self;
        Ok(Attached { struct_ops: struct_ops.to_owned(), link, is_tied, object })
    }
}

/// A registered `struct_ops`. Dropped, it is unregistered; what uses it keeps it until it is done.
pub struct Attached {
    struct_ops: String,
    link: Link,
    is_tied: bool,
    object: libbpf_rs::Object,
}

impl Attached {
    /// Whether the kernel unregisters it when this process ends, however it ends.
    #[must_use]
    pub fn is_tied(&self) -> bool {
        self.is_tied
    }

    /// Keeps it beyond this process, by a file in a folder of bpffs: `NAME`, or `NAME-map` where it is
    /// not tied.
    ///
    /// # Errors
    /// [`BpfError::Exists`]: there is such a file; [`BpfError::Refused`].
    pub fn keep(mut self, folder: &Path) -> Result<PathBuf, BpfError> {
        let file = kept_in(folder, &self.struct_ops, self.is_tied);
        let name = file.display().to_string();
        if self.is_tied {
            hearing("keep", &name, || self.link.pin(&file))?;
            return Ok(file);
        }
        let map = self.object.maps_mut().find(|map| map.name() == self.struct_ops.as_str());
        if let Some(mut map) = map {
            hearing("keep", &name, || map.pin(&file))?;
        }
        self.link.disconnect();
        Ok(file)
    }
}

/// The file that keeps a `struct_ops`.
#[must_use]
pub fn kept_in(folder: &Path, struct_ops: &str, is_tied: bool) -> PathBuf {
    folder.join(if is_tied { struct_ops.to_owned() } else { format!("{struct_ops}{MAP}") })
}

/// Empties the one place of a `struct_ops` map that is not tied, which unregisters it.
pub(crate) fn empty(map: &libbpf_rs::MapHandle, name: &str) -> Result<(), BpfError> {
    hearing("unregister", name, || map.delete(&0_u32.to_ne_bytes()))
}

/// Whether a map of these flags is tied to a link.
pub(crate) fn is_tied(flags: u32) -> bool {
    flags & TIED != 0
}

// --- what libbpf says ------------------------------------------------------------------------------

/// What libbpf has said since somebody began to listen. It has one ear for the whole process.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// Who listens.
static LISTENING: Mutex<()> = Mutex::new(());

fn hear(_: PrintLevel, words: String) {
    if let Ok(mut said) = SAID.lock() {
        said.extend(words.lines().map(str::to_owned));
    }
}

/// Does something, and makes of its failure an error with what was said meanwhile.
pub(crate) fn hearing<T>(
    operation: &'static str,
    name: &str,
    act: impl FnOnce() -> libbpf_rs::Result<T>,
) -> Result<T, BpfError> {
    let listening = LISTENING.lock();
    libbpf_rs::set_print(Some((PrintLevel::Warn, hear)));
    let take = || SAID.lock().map(|mut said| std::mem::take(&mut *said)).unwrap_or_default();
    take();
    let outcome = act();
    let said = take();
    drop(listening);
    outcome.map_err(|error| {
        let name = name.to_owned();
        match error.kind() {
            ErrorKind::PermissionDenied => BpfError::NotAllowed { operation, name },
            ErrorKind::AlreadyExists => BpfError::Exists { operation, name },
            _ => BpfError::Refused { operation, name, error: error.to_string(), said: last(said) },
        }
    })
}

/// The last words, without those that only frame them.
fn last(said: Vec<String>) -> Vec<String> {
    let is_frame = |line: &String| line.trim().is_empty() || line.contains("PROG LOAD LOG --");
    let mut words: Vec<String> = said.into_iter().filter(|line| !is_frame(line)).collect();
    words.split_off(words.len().saturating_sub(LAST_WORDS))
}
