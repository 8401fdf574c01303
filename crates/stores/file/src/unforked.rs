//! What must not be closed in a child of `fork`: SQLite's connection is its parent's.

use std::ops::{Deref, DerefMut};

use leasehold_clock::fork::Process;

/// A value that is dropped only in the process that made it, and forgotten in a child that was forked from it.
pub(crate) struct Unforked<T> {
    /// There until it is dropped.
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
