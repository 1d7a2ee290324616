//! What the running kernel says of itself.

use libbpf_rs::btf::TypeId;
use libbpf_rs::btf::types::{Enum, FuncProto, Ptr, Struct};
use libbpf_rs::{Btf, ReferencesType};

use crate::error::BpfError;
use crate::object::hearing;

/// The kernel's description of its own types (BTF).
pub struct Kernel {
    btf: Btf<'static>,
}

impl Kernel {
    /// Reads it from `/sys/kernel/btf/vmlinux`.
    ///
    /// # Errors
    /// [`BpfError::NoBtf`]: the kernel has none.
    pub fn look() -> Result<Self, BpfError> {
        let btf = hearing("read", "the kernel's types", Btf::from_vmlinux);
        let btf = btf.map_err(|_| BpfError::NoBtf)?;
        Ok(Self { btf })
    }

    /// Whether it has a structure of that name.
    #[must_use]
    pub fn has_struct(&self, name: &str) -> bool {
        self.btf.type_by_name::<Struct<'_>>(name).is_some()
    }

    /// Whether an enumeration has a value of that name.
    #[must_use]
    pub fn has_value(&self, enumeration: &str, value: &str) -> bool {
        let all = self.btf.type_by_name::<Enum<'_>>(enumeration);
        all.is_some_and(|all| all.iter().any(|one| one.name.is_some_and(|name| name == value)))
    }

    /// Whether a structure has a member of that name.
    #[must_use]
    pub fn has_member(&self, structure: &str, member: &str) -> bool {
        self.type_of(structure, member).is_some()
    }

    /// How many arguments a function has that a structure points to; `None` where there is none.
    #[must_use]
    pub fn arguments_of(&self, structure: &str, member: &str) -> Option<usize> {
        let pointer: Ptr<'_> = self.btf.type_by_id(self.type_of(structure, member)?)?;
        let function: FuncProto<'_> = FuncProto::try_from(pointer.referenced_type()).ok()?;
        Some(function.len())
    }

    fn type_of(&self, structure: &str, member: &str) -> Option<TypeId> {
        let structure: Struct<'_> = self.btf.type_by_name(structure)?;
        let mut members = structure.iter();
        members.find(|one| one.name.is_some_and(|name| name == member)).map(|one| one.ty)
    }

    /// Whether a `struct_ops` can be tied to a link, so that it goes when the last process that holds
    /// it does (Linux 6.4).
    #[must_use]
    pub fn ties_struct_ops(&self) -> bool {
        self.has_struct("bpf_struct_ops_link")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_and_what_is_not() {
        let Ok(kernel) = Kernel::look() else { return };
        assert!(kernel.has_value("bpf_func_id", "BPF_FUNC_tcp_send_ack"));
        assert!(!kernel.has_value("bpf_func_id", "BPF_FUNC_of_nobody"));
        assert!(!kernel.has_value("nothing", "BPF_FUNC_tcp_send_ack"));
        assert!(kernel.has_member("tcp_congestion_ops", "ssthresh"));
        assert!(!kernel.has_member("tcp_congestion_ops", "nothing"));
    }
}
