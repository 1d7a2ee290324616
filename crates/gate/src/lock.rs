//! Locks that a thread which panicked cannot spoil: nothing here panics while it holds one.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, whatever became of the thread that had it before.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
