//! The resource's side of fencing: a gate that lets only the newest holder through.

use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::{Error, ErrorKind, Fence};

/// Remembers the largest fence it has seen, and refuses smaller ones.
///
/// Put one in front of a resource inside a process, and pass every write through it. A holder that was paused, lost its lock
/// without noticing and comes back is refused, because a later holder has been here.
///
/// # Guarantees
///
/// Once a fence has passed, no smaller one ever passes. The check and the remembering are one atomic step; the *write* behind the
/// gate is not part of it: do it while [`FenceGate::pass`] is ordered with the write, for instance under the resource's own mutex.
///
/// # Example
///
/// ```
/// use leasehold::{Fence, FenceGate};
///
/// let gate = FenceGate::new();
/// assert!(gate.pass(Fence::new(7)).is_ok());
/// assert!(gate.pass(Fence::new(7)).is_ok(), "the same holder may write again");
/// assert!(gate.pass(Fence::new(6)).is_err(), "an older one may not");
/// ```
#[derive(Debug, Default)]
pub struct FenceGate {
    largest: AtomicU64,
}

impl FenceGate {
    /// A gate that has seen nothing.
    pub const fn new() -> Self {
        Self { largest: AtomicU64::new(0) }
    }

    /// A gate that goes on from a fence that was stored with the resource.
    pub const fn from_stored(fence: Fence) -> Self {
        Self { largest: AtomicU64::new(fence.get()) }
    }

    /// Lets `fence` through, unless a larger one was here.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] when a larger fence has passed: whoever holds this one lost the lock.
    pub fn pass(&self, fence: Fence) -> Result<(), Error> {
        let before = self.largest.fetch_max(fence.get(), Ordering::AcqRel);
        if before <= fence.get() {
            return Ok(());
        }
        let what = format!("fence {fence} is older than {before}, which was here already");
        Err(Error::new(ErrorKind::Lost, "fence check", what).with_hint("the lock was lost; stop, and take it again"))
    }

    /// The largest fence that passed, to be stored with the resource.
    pub fn largest(&self) -> Fence {
        Fence::new(self.largest.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_holder_is_refused_for_ever() {
        let gate = FenceGate::from_stored(Fence::new(5));
        assert_eq!(gate.pass(Fence::new(4)).unwrap_err().kind(), ErrorKind::Lost);
        gate.pass(Fence::new(9)).unwrap();
        for fence in 0..9 {
            assert!(gate.pass(Fence::new(fence)).is_err());
        }
        assert_eq!(gate.largest(), Fence::new(9));
    }
}
