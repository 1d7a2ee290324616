//! Memory that nobody needs any more goes back to the machine.
//!
//! What flows give back stays with the allocator, in pieces between those that are still in use: after
//! 4,000 connects at once that nobody answered, 35 MB of which 0.2 MB were used. It is asked for
//! them now and then, where the process has much more than its flows can need.

use std::fs;
use std::time::Duration;

use lastbyte_sys::process;

/// How often somebody looks. It costs three system calls.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(5);
/// What a gate without flows may have, and what each flow may, in bytes.
const GATE: usize = 8 << 20;
const FLOW: usize = 16 << 10;

/// Gives memory back, where that can be worth it.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// What it had after it was given back last time, in bytes: where that was no use, it is not tried
    /// again before there is more.
    left: usize,
}

impl Memory {
    /// Looks once, with so many flows open.
    pub(super) fn look(&mut self, flows: usize) {
        // Where it cannot be known it stays as it is.
        let Some(own) = own_memory() else { return };
        if own > self.left.max(GATE).saturating_add(flows.saturating_mul(FLOW)) {
            process::give_memory_back();
            self.left = own_memory().unwrap_or_default();
        } else if own < self.left {
            self.left = own;
        }
    }
}

/// Memory of this process that is not of files, in bytes: of `/proc/self/statm` what is resident, without
/// what is shared (proc_pid_statm(5)).
fn own_memory() -> Option<usize> {
    let pages = fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = pages.split(' ').skip(1).map(str::parse::<usize>);
    let (resident, shared) = (pages.next()?.ok()?, pages.next()?.ok()?);
    Some(resident.saturating_sub(shared) * process::page_size())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_own_memory_is_known() {
        let before = own_memory().unwrap();
        let taken = std::hint::black_box(vec![1_u8; 32 << 20]);
        let with = own_memory().unwrap();
        assert!(with > before + taken.len() / 2, "{before}, {with}");
    }
}
