//! What the running kernel says of itself.

use libbpf_rs::btf::TypeId;
use libbpf_rs::btf::types::{Enum, EnumMember, FuncProto, Ptr, Struct, Typedef};
use libbpf_rs::{Btf, ReferencesType};

use crate::error::BpfError;
use crate::messages::with_messages;

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
        let btf = with_messages("read", "the kernel's types", Btf::from_vmlinux);
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

    /// The values of an enumeration with their names; empty if there is no such enumeration.
    #[must_use]
    pub fn names_of(&self, enumeration: &str) -> Vec<(i64, String)> {
        let all = self.btf.type_by_name::<Enum<'_>>(enumeration);
        let named =
            |one: EnumMember<'_>| Some((one.value, one.name?.to_string_lossy().into_owned()));
        all.map(|all| all.iter().filter_map(named).collect()).unwrap_or_default()
    }

    /// The number of arguments of a program attached to a tracepoint with the kernel's types
    /// (`tp_btf`); `None` if there is no such tracepoint.
    #[must_use]
    pub fn arguments_at(&self, tracepoint: &str) -> Option<usize> {
        let name = format!("btf_trace_{tracepoint}");
        let pointer = self.btf.type_by_name::<Typedef<'_>>(&name)?.referenced_type();
        let function = Ptr::try_from(pointer).ok()?.referenced_type();
        let function: FuncProto<'_> = FuncProto::try_from(function).ok()?;
        // The first is the tracepoint's own.
        Some(function.len().saturating_sub(1))
    }

    /// Whether a structure has a member with that name.
    #[must_use]
    pub fn has_member(&self, structure: &str, member: &str) -> bool {
        self.type_of(structure, member).is_some()
    }

    /// The number of arguments of a function that a structure points to; `None` if there is none.
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

    /// Whether a `struct_ops` can be tied to a link, so that it is unregistered when the last
    /// process that holds it ends (Linux 6.4).
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
        let states = kernel.names_of("tcp_ca_state");
        assert!(states.contains(&(4, "TCP_CA_Loss".to_owned())), "{states:?}");
        assert!(kernel.names_of("nothing").is_empty());
        assert_eq!(kernel.arguments_at("inet_sock_set_state"), Some(3));
        assert_eq!(kernel.arguments_at("nothing"), None);
    }
}
