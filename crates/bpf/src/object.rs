//! A BPF object, from its image to its attached programs.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use libbpf_rs::{Link, MapCore, MapFlags, MapType, ObjectBuilder, OpenObject};

use crate::error::BpfError;
use crate::messages::with_messages;
use crate::ring::Ring;

/// The flag of a `struct_ops` map that is tied to a link (`BPF_F_LINK`, `bpf.h`).
const TIED: u32 = 1 << 13;
/// The size of a pointer to a program, bytes.
const POINTER: usize = size_of::<*const u8>();
/// The suffix of a file that pins a map, not a link. bpffs allows no dot in a name.
pub(crate) const MAP: &str = "-map";

/// An object before it is loaded: its constants can be set.
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
        let open = with_messages("read", name, || ObjectBuilder::default().open_memory(image))?;
        Ok(Self { name: name.to_owned(), open, is_tied: true })
    }

    /// Writes the constants of a section, such as `.rodata.given`. If the value is shorter than the
    /// section, the rest stays as compiled.
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

    /// Removes the first function from a `struct_ops`, for a kernel without a member of its name:
    /// the kernel would refuse the whole `struct_ops`.
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

    /// Makes its `struct_ops` as before Linux 6.4: registered until a process unregisters them.
    ///
    /// # Errors
    /// [`BpfError::Refused`].
    pub fn untie(&mut self) -> Result<(), BpfError> {
        let all = self.open.maps_mut().filter(|map| map.map_type() == MapType::StructOps);
        for mut map in all {
            let flags = map.map_flags() & !TIED;
            with_messages("untie", &self.name, || map.set_map_flags(flags))?;
        }
        self.is_tied = false;
        Ok(())
    }

    /// Leaves out a program that this kernel would refuse, together with all others.
    ///
    /// # Errors
    /// [`BpfError::NoSuchPart`]: the object has no such program.
    pub fn leave_out(&mut self, program: &str) -> Result<(), BpfError> {
        let none = || BpfError::NoSuchPart { name: self.name.clone(), part: program.to_owned() };
        let mut found = self.open.progs_mut().find(|one| one.name() == program).ok_or_else(none)?;
        found.set_autoload(false);
        Ok(())
    }

    /// Uses a map of another object in place of the one with the same name.
    ///
    /// # Errors
    /// [`BpfError::NoSuchPart`]: one of the two has no such map; [`BpfError::Refused`]: they
    /// differ.
    pub fn share(&mut self, map: &str, with: &Loaded) -> Result<(), BpfError> {
        let none = || BpfError::NoSuchPart { name: self.name.clone(), part: map.to_owned() };
        let theirs = with.map(map)?;
        let mut ours = self.open.maps_mut().find(|one| one.name() == map).ok_or_else(none)?;
        with_messages("share", map, || ours.reuse_fd(theirs.as_fd()))
    }

    /// Loads the object: the kernel verifies its programs.
    ///
    /// # Errors
    /// [`BpfError::NotAllowed`]; [`BpfError::Refused`] with the end of the verifier's log.
    pub fn load(self) -> Result<Loaded, BpfError> {
        let Self { name, open, is_tied } = self;
        let object = with_messages("load", &name, || open.load())?;
        Ok(Loaded { name, object, is_tied })
    }
}

/// A loaded object. Dropping it unloads it, except for parts that are attached or in use.
pub struct Loaded {
    name: String,
    object: libbpf_rs::Object,
    is_tied: bool,
}

impl Loaded {
    /// Registers the `struct_ops` with that name.
    ///
    /// # Errors
    /// [`BpfError::Exists`]: its name is in use; [`BpfError::Refused`].
    pub fn attach(mut self, struct_ops: &str) -> Result<Attached, BpfError> {
        let none = || BpfError::NoSuchPart { name: self.name.clone(), part: struct_ops.to_owned() };
        let mut maps = self.object.maps_mut();
        let mut map = maps.find(|map| map.name() == struct_ops).ok_or_else(none)?;
        let link = with_messages("register", struct_ops, || map.attach_struct_ops())?;
        drop(maps);
        let Self { object, is_tied, .. } = self;
        Ok(Attached { struct_ops: struct_ops.to_owned(), link, is_tied, object })
    }
}

impl Loaded {
    /// Attaches a program to what its section names. Dropping the link detaches it.
    ///
    /// # Errors
    /// [`BpfError::NoSuchPart`]; [`BpfError::NotAllowed`]; [`BpfError::Refused`].
    pub fn link(&self, program: &str) -> Result<Linked, BpfError> {
        let found = self.program(program)?;
        let link = with_messages("attach", program, || found.attach())?;
        Ok(Linked { _link: link })
    }

    /// Attaches an iterator program to the entries of a map.
    ///
    /// # Errors
    /// As [`Loaded::link`].
    pub fn iterate(&self, program: &str, map: &str) -> Result<Iterated, BpfError> {
        let found = self.program(program)?;
        let over = self.map(map)?;
        let link = with_messages("attach", program, || found.attach_iter(over.as_fd()))?;
        Ok(Iterated { program: program.to_owned(), link })
    }

    /// Attaches an iterator program whose section names its target, such as `iter/tcp`: the sockets
    /// of the network namespace in which it is run.
    ///
    /// # Errors
    /// As [`Loaded::link`].
    pub fn iterate_all(&self, program: &str) -> Result<Iterated, BpfError> {
        let found = self.program(program)?;
        let link = with_messages("attach", program, || found.attach())?;
        Ok(Iterated { program: program.to_owned(), link })
    }

    /// Reads what programs write to a ring buffer; `length` is that of a record, bytes.
    ///
    /// # Errors
    /// [`BpfError::NoSuchPart`]; [`BpfError::Refused`].
    pub fn ring(&self, map: &str, record: usize) -> Result<Ring, BpfError> {
        Ring::over(&self.map(map)?, map, record)
    }

    /// Writes an entry of a map.
    ///
    /// # Errors
    /// [`BpfError::NoSuchPart`]; [`BpfError::Refused`]: it is full.
    pub fn write(&self, map: &str, key: &[u8], value: &[u8]) -> Result<(), BpfError> {
        let found = self.map(map)?;
        with_messages("write to", map, || found.update(key, value, MapFlags::ANY))
    }

    /// Reads an entry of a map.
    ///
    /// # Errors
    /// [`BpfError::NoSuchPart`]; [`BpfError::Refused`].
    pub fn read(&self, map: &str, key: &[u8]) -> Result<Option<Vec<u8>>, BpfError> {
        let found = self.map(map)?;
        with_messages("read from", map, || found.lookup(key, MapFlags::ANY))
    }

    /// Reads an entry that each processor has separately.
    ///
    /// # Errors
    /// [`BpfError::NoSuchPart`]; [`BpfError::Refused`].
    pub fn read_each(&self, map: &str, key: &[u8]) -> Result<Vec<Vec<u8>>, BpfError> {
        let found = self.map(map)?;
        let values = with_messages("read from", map, || found.lookup_percpu(key, MapFlags::ANY))?;
        Ok(values.unwrap_or_default())
    }

    /// Removes an entry from a map; a missing one is no error.
    ///
    /// # Errors
    /// [`BpfError::NoSuchPart`].
    pub fn remove(&self, map: &str, key: &[u8]) -> Result<(), BpfError> {
        // There is no other reason to fail.
        let _ = self.map(map)?.delete(key);
        Ok(())
    }

    /// Reads and removes all entries of a map.
    ///
    /// # Errors
    /// [`BpfError::NoSuchPart`]; [`BpfError::Refused`].
    pub fn empty(&self, map: &str, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), BpfError> {
        /// Entries at a time.
        const BATCH: u32 = 1024;
        let found = self.map(map)?;
        let all = with_messages("empty", map, || {
            found.lookup_and_delete_batch(BATCH, MapFlags::ANY, MapFlags::ANY)
        })?;
        for (key, value) in all {
            each(&key, &value);
        }
        Ok(())
    }

    fn program(&self, name: &str) -> Result<libbpf_rs::ProgramMut<'_>, BpfError> {
        let none = || BpfError::NoSuchPart { name: self.name.clone(), part: name.to_owned() };
        self.object.progs_mut().find(|program| program.name() == name).ok_or_else(none)
    }

    pub(crate) fn map(&self, name: &str) -> Result<libbpf_rs::Map<'_>, BpfError> {
        let none = || BpfError::NoSuchPart { name: self.name.clone(), part: name.to_owned() };
        self.object.maps().find(|map| map.name() == name).ok_or_else(none)
    }
}

/// An attached program. Dropping it detaches it.
pub struct Linked {
    _link: Link,
}

/// An iterator program: each run calls it once for each entry or socket.
pub struct Iterated {
    program: String,
    link: Link,
}

impl Iterated {
    /// Runs it for all of them.
    ///
    /// # Errors
    /// [`BpfError::Refused`].
    pub fn run(&self) -> Result<(), BpfError> {
        let mut iterator =
            with_messages("run", &self.program, || libbpf_rs::Iter::new(&self.link))?;
        // It writes nothing; reading from it runs it.
        let failed = |error: io::Error| BpfError::Refused {
            operation: "run",
            name: self.program.clone(),
            error: error.to_string(),
            messages: Vec::new(),
        };
        io::copy(&mut iterator, &mut io::sink()).map(drop).map_err(failed)
    }
}

/// A registered `struct_ops`. Dropping it unregisters it; connections that use it keep it until
/// they end.
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

    /// Pins it beyond this process, by a file in a directory of bpffs: `NAME`, or `NAME-map` if it
    /// is not tied.
    ///
    /// # Errors
    /// [`BpfError::Exists`]: there is such a file; [`BpfError::Refused`].
    pub fn keep(mut self, folder: &Path) -> Result<PathBuf, BpfError> {
        let file = kept_in(folder, &self.struct_ops, self.is_tied);
        let name = file.display().to_string();
        if self.is_tied {
            with_messages("keep", &name, || self.link.pin(&file))?;
            return Ok(file);
        }
        let map = self.object.maps_mut().find(|map| map.name() == self.struct_ops.as_str());
        if let Some(mut map) = map {
            with_messages("keep", &name, || map.pin(&file))?;
        }
        self.link.disconnect();
        Ok(file)
    }
}

/// The file that pins a `struct_ops`.
#[must_use]
pub fn kept_in(folder: &Path, struct_ops: &str, is_tied: bool) -> PathBuf {
    folder.join(if is_tied { struct_ops.to_owned() } else { format!("{struct_ops}{MAP}") })
}

/// Deletes the only entry of a `struct_ops` map that is not tied, which unregisters it.
pub(crate) fn empty(map: &libbpf_rs::MapHandle, name: &str) -> Result<(), BpfError> {
    with_messages("unregister", name, || map.delete(&0_u32.to_ne_bytes()))
}

/// Whether a map of these flags is tied to a link.
pub(crate) fn is_tied(flags: u32) -> bool {
    flags & TIED != 0
}
