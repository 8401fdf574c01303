//! Mistakes of a guardian that a test can switch on, one at a time, to show that it would catch them.
//!
//! Without the feature `planted` every question is answered "no" at compile time, and nothing of this is in the build.

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bug {
    /// It trusts the runner to tell it when the time has come.
    DeadlineIgnored,
    /// It takes the deadline for half a second later than it is.
    DeadlineLate,
    /// It ends the command's process group, and nobody who has left it.
    GroupOnly,
    /// It asks with SIGTERM and leaves it at that.
    NeverKills,
    /// Orphans do not come to it, so that it takes a command that has ended for all there was.
    AdoptsNobody,
}

/// Whether this one is switched on.
pub(super) fn is(bug: Bug) -> bool {
    cfg!(feature = "planted") && std::env::var("LEASEHOLD_PLANTED").is_ok_and(|planted| planted == format!("{bug:?}"))
}
