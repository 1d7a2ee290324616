//! Loads an algorithm into the kernel.

use std::path::{Path, PathBuf};

use lastbyte_bpf::{Attached, BpfError, Kernel, Object};

use crate::bpffs::{self, FOLDER};
use crate::catalogue::{Algorithm, Given};
use crate::error::CongestionError;
use crate::machine::holder_of;
use crate::sysctl::is_available;

include!(concat!(env!("OUT_DIR"), "/objects.rs"));

/// Whether this program can load algorithms into this kernel.
///
/// # Errors
/// [`CongestionError::BuiltWithout`]; [`CongestionError::OldKernel`]; or that the kernel does not
/// describe its types. Missing privileges show only when an algorithm is loaded.
pub fn ability() -> Result<(), CongestionError> {
    able().map(drop)
}

/// The objects, and the kernel, if it supports them.
fn able() -> Result<(Objects, Kernel), CongestionError> {
    let objects = OBJECTS.map_err(|why| CongestionError::BuiltWithout(why.to_owned()))?;
    let kernel = Kernel::look()?;
    // The kernel has such a type for each `struct_ops` that it supports.
    if kernel.has_struct("bpf_struct_ops_tcp_congestion_ops") {
        Ok((objects, kernel))
    } else {
        Err(CongestionError::OldKernel)
    }
}

/// Plain names, with their images.
type Objects = &'static [(&'static str, &'static [u8])];

/// Loads an algorithm, so that sockets of the whole machine can ask for it by [`Algorithm::name`].
///
/// # Errors
/// [`CongestionError::Loaded`] if it is loaded, [`CongestionError::TakesNoRate`],
/// [`CongestionError::WantsPacing`], [`CongestionError::BuiltWithout`], and the kernel's refusals.
pub fn load(algorithm: &Algorithm, given: Given) -> Result<Registered, CongestionError> {
    let (objects, kernel) = able()?;
    if given.rate.is_some() && !algorithm.wants_rate {
        return Err(CongestionError::TakesNoRate(algorithm.plain));
    }
    let image = objects.iter().find(|(name, _)| *name == algorithm.plain);
    let (_, image) = image.ok_or(CongestionError::NoObject(algorithm.name))?;
    let loaded = || {
        let name = algorithm.name.to_owned();
        CongestionError::Loaded { holder: holder_of(&name), name }
    };
    // The kernel would refuse it too, and log that.
    if is_available(algorithm.name)? {
        return Err(loaded());
    }
    // A BPF helper of the same version is the sign: the permission itself cannot be looked up.
    if algorithm.sets_pace
        && !kernel.has_value("bpf_func_id", "BPF_FUNC_tcp_raw_gen_syncookie_ipv4")
    {
        return Err(CongestionError::WantsPacing(algorithm.name));
    }
    let mut object = Object::open(algorithm.name, image)?;
    object.give(".rodata.given", &constants(given, &kernel))?;
    if !kernel.has_member("tcp_congestion_ops", "cwnd_event_tx_start") {
        object.leave_out_first(algorithm.name)?;
    }
    if !kernel.ties_struct_ops() {
        object.untie()?;
    }
    let attached = object.load()?.attach(algorithm.name).map_err(|error| match error {
        BpfError::Exists { .. } => loaded(),
        error => error.into(),
    })?;
    Ok(Registered { name: algorithm.name, attached })
}

/// An algorithm that this process holds in the kernel. After it is dropped no socket can choose it;
/// connections that use it keep it to their end.
pub struct Registered {
    name: &'static str,
    attached: Attached,
}

impl Registered {
    /// Its name in the kernel.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether the kernel unloads it when this process ends, also by a signal: before Linux 6.4 only an
    /// orderly end does.
    #[must_use]
    pub fn ends_with_process(&self) -> bool {
        self.attached.is_tied()
    }

    /// The file in which [`Self::keep`] would keep it.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        lastbyte_bpf::kept_in(Path::new(FOLDER), self.name, self.attached.is_tied())
    }

    /// Keeps it until the next boot, or until it is unloaded. Returns the file that keeps it.
    ///
    /// # Errors
    /// [`CongestionError::NoBpffs`], [`CongestionError::File`], and the kernel's refusals.
    pub fn keep(self) -> Result<PathBuf, CongestionError> {
        Ok(self.attached.keep(&bpffs::folder()?)?)
    }
}

/// The layout of `struct given` of `bpf/tcp.h`.
fn constants(given: Given, kernel: &Kernel) -> [u8; 16] {
    // cong_control(sk, ack, flag, rs) since Linux 6.10.
    let has_ack = kernel.arguments_of("tcp_congestion_ops", "cong_control") == Some(4);
    let mut constants = [0; 16];
    constants[..4].copy_from_slice(&u32::from(has_ack).to_ne_bytes());
    constants[8..].copy_from_slice(&given.rate.unwrap_or_default().to_ne_bytes());
    constants
}
