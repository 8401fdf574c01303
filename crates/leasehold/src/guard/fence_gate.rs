//! The resource's side of fencing: a gate that lets only the newest holder through.

use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::{Error, ErrorKind, Fence, Owner};

/// Remembers the largest fence (fencing token) that it has seen and who had it, and refuses stale holders.
///
/// Put one in front of a resource inside a process, and pass every write through it. A holder that was paused, lost its lock without
/// noticing and comes back is refused, because a later holder has been here.
///
/// # Guarantees
///
/// Once a fence has passed, no smaller one ever passes, and neither does the same fence of another owner. (A store that can neither forget
/// nor have its clock set back never gives one fence to two owners; the gate does not depend on that.) The check and the remembering are
/// one atomic step; the *write* behind the gate is not part of it: order [`FenceGate::pass`] with the write, for instance under the
/// resource's own mutex.
///
/// # Example
///
/// ```
/// use leasehold::{Fence, FenceGate, Owner};
///
/// let (blue, green) = (Owner::explicit("blue")?, Owner::explicit("green")?);
/// let gate = FenceGate::new();
/// assert!(gate.pass(Fence::new(7), &blue).is_ok());
/// assert!(gate.pass(Fence::new(7), &blue).is_ok(), "the same holder may write again");
/// assert!(gate.pass(Fence::new(7), &green).is_err(), "another one may not");
/// assert!(gate.pass(Fence::new(6), &blue).is_err(), "nor an older one");
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct FenceGate {
    last: Mutex<Passed>,
}

/// The newest holder that passed a [`FenceGate`], to be stored with the resource.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Passed {
    /// Its fence.
    pub fence: Fence,
    /// Its owner, as text. Empty if it is not known: then any owner with that fence passes.
    pub owner: String,
}

impl FenceGate {
    /// A gate that has seen no fence.
    pub const fn new() -> Self {
        Self { last: Mutex::new(Passed { fence: Fence::NONE, owner: String::new() }) }
    }

    /// A gate that continues from what was stored with the resource.
    pub const fn from_stored(passed: Passed) -> Self {
        Self { last: Mutex::new(passed) }
    }

    /// Lets a holder pass, unless one with a larger fence, or another one with the same fence, has passed before.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] if it is refused: it lost the lock.
    pub fn pass(&self, fence: Fence, owner: &Owner) -> Result<(), Error> {
        let mut last = self.last();
        let what = if fence < last.fence {
            format!("fence {fence} is older than {}, which was here already", last.fence)
        } else if fence == last.fence && !last.owner.is_empty() && last.owner != owner.to_string() {
            format!("fence {fence} was here already, with another owner")
        } else {
            if fence > last.fence || last.owner.is_empty() {
                *last = Passed { fence, owner: owner.to_string() };
            }
            return Ok(());
        };
        Err(Error::new(ErrorKind::Lost, "fence check", what).with_hint("the lock was lost; stop, and take it again"))
    }

    /// The newest holder that passed, to be stored with the resource.
    pub fn passed(&self) -> Passed {
        self.last().clone()
    }

    fn last(&self) -> MutexGuard<'_, Passed> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(bits: u64) -> Owner {
        Owner::generated([bits, bits])
    }

    #[test]
    fn an_old_holder_is_refused_for_ever() {
        let gate = FenceGate::from_stored(Passed { fence: Fence::new(5), owner: String::new() });
        assert_eq!(gate.pass(Fence::new(4), &owner(4)).unwrap_err().kind(), ErrorKind::Lost);
        gate.pass(Fence::new(9), &owner(9)).unwrap();
        for fence in 0..9 {
            assert!(gate.pass(Fence::new(fence), &owner(9)).is_err());
        }
        assert_eq!(gate.passed(), Passed { fence: Fence::new(9), owner: owner(9).to_string() });
    }

    #[test]
    fn the_same_fence_of_another_owner_is_refused_and_changes_nothing() {
        let gate = FenceGate::new();
        gate.pass(Fence::new(7), &owner(1)).unwrap();
        assert_eq!(gate.pass(Fence::new(7), &owner(2)).unwrap_err().kind(), ErrorKind::Lost);
        gate.pass(Fence::new(7), &owner(1)).unwrap();
        let stored = FenceGate::from_stored(gate.passed());
        assert!(stored.pass(Fence::new(7), &owner(2)).is_err());
        stored.pass(Fence::new(7), &owner(1)).unwrap();
    }

    #[test]
    fn whoever_comes_first_with_a_fence_of_unknown_owner_keeps_it() {
        let gate = FenceGate::from_stored(Passed { fence: Fence::new(7), owner: String::new() });
        gate.pass(Fence::new(7), &owner(1)).unwrap();
        assert!(gate.pass(Fence::new(7), &owner(2)).is_err());
    }
}
