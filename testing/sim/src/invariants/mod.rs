//! What must be true in every world, one file each.

pub mod already_held;
pub mod at_least;
pub mod backing;
pub mod blocks;
pub mod breaking;
pub mod closing;
pub mod exclusion;
pub mod extending;
pub mod fences;
pub mod herd;
pub mod keeping;
pub mod left_over;
pub mod line;
pub mod lost_before;
pub mod only_holder;
pub mod own_end;
pub mod passing;
pub mod patience;
pub mod releasing;
pub mod revival;
pub mod starvation;
pub mod term;
pub mod tries;
pub mod validity;
pub mod wake_up;

use leasehold_core::Name;

use crate::beliefs::Belief;
use crate::plan::Plan;
use crate::process::Process;

/// An invariant that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which one.
    pub invariant: &'static str,
    /// On which name, where it concerns one.
    pub name: Option<usize>,
    /// What happened.
    pub what: String,
}

/// Whether an invariant holds.
pub type Verdict = Result<(), Violation>;

/// What invariants look at.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// True time.
    pub at: u64,
    /// Faults ended then; later than everything while they go on.
    pub quiet_since: u64,
    /// What kind of world it is.
    pub plan: &'a Plan,
    /// Every process.
    pub processes: &'a [Process],
    /// Every name.
    pub names: &'a [Name],
    /// Who believes to hold what.
    pub beliefs: &'a [Belief],
    /// The store never lost what it had granted.
    pub remembers: bool,
    /// A lock was taken away at once: until then its old holder may not know.
    pub taken_until: [u64; 3],
}

impl Scene<'_> {
    /// Whether nobody is wrong about a name through no fault of its own: the store remembers, and nobody took the lock away.
    pub(crate) fn is_certain(&self, name: usize) -> bool {
        self.remembers && self.at >= self.taken_until[name]
    }

    /// Whether a client's clock stood still, and it has not heard of it.
    pub(crate) fn is_misled(&self, client: usize) -> bool {
        self.processes[client].misled
    }
}

pub(crate) fn broken(invariant: &'static str, name: Option<usize>, what: String) -> Verdict {
    Err(Violation { invariant, name, what })
}
