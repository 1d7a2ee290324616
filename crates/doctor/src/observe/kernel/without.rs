//! The replacement for tier 3 in a program that was built without it.

use std::os::fd::BorrowedFd;

use super::tables::Tables;
use super::{Each, ObserveError, Plan, Roots, Source};

/// Never exists.
#[derive(Debug)]
pub(super) enum KernelSource {}

impl KernelSource {
    /// Fails with the reason.
    ///
    /// # Errors
    /// Always.
    pub(super) fn start(_: &Plan, _: &Roots) -> Result<Self, String> {
        Err("this program was built without eBPF (the feature bpf)".to_owned())
    }
}

impl Source for KernelSource {
    fn take(&mut self, _: &mut Tables, _: Each<'_>) -> Result<(), ObserveError> {
        match *self {}
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        match *self {}
    }

    fn watch(&mut self, _: u32, _: &Tables) {
        match *self {}
    }

    fn window(&mut self, _: bool) {
        match *self {}
    }
}
