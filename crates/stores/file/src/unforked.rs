//! Values that must not be closed in a forked child: SQLite's connection belongs to the parent.

use std::ops::{Deref, DerefMut};

use leasehold_clock::fork::Process;

/// A value that is dropped only in the process that created it. A forked child leaks it.
pub(crate) struct Unforked<T> {
    /// Present until it is dropped.
    value: Option<T>,
    process: Process,
}

impl<T> Unforked<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Some(value), process: Process::current() }
    }
}

impl<T> Deref for Unforked<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("it is there until it is dropped")
    }
}

impl<T> DerefMut for Unforked<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("it is there until it is dropped")
    }
}

impl<T> Drop for Unforked<T> {
    fn drop(&mut self) {
        if !self.process.is_current() {
            std::mem::forget(self.value.take());
        }
    }
}
