//! Known bugs that a simulation can switch on, one at a time, to show that it would catch them.
//!
//! Without the feature `planted` every question is answered "no" at compile time, and nothing of this is in the build.

/// A mistake that systems of this kind have made, or that a step of the protocol stands against.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Bug {
    /// The deadline counts from when the reply came.
    DeadlineFromReply,
    /// A grant found by sending a request again counts as if it were made then.
    ResentDeadlineFull,
    /// The keeper stops at a partial release of a re-entrant lock.
    KeeperStopsAtPartialRelease,
    /// The keeper goes on after the release.
    KeeperOutlivesRelease,
    /// An acquire whose answer was lost is forgotten.
    UnknownForgotten,
    /// An abandoned acquire is released once, before its `not_after`.
    ReleaseOvertakesAcquire,
    /// The store executes an acquire however late it comes.
    NotAfterIgnored,
    /// A re-sent acquire counts twice.
    ResentAcquireCounts,
    /// A re-sent release counts twice.
    ResentReleaseCounts,
    /// The store records the first fence of a block, not its last.
    BlockNotRecorded,
    /// Fences are counted from the record alone, so that they restart when it is lost.
    FenceOfRecordOnly,
    /// The store ignores that it may have forgotten: a name without a record starts at the clock, with a whole block.
    LossUnsuspected,
    /// A block is larger than the time it has to be used, and handed out ahead of the clock.
    FenceAheadOfClock,
    /// A lease is passed on after its deadline.
    PassedAfterDeadline,
    /// A lease is passed on under the same fence.
    PassedSameFence,
    /// A renewal revives a lease that had ended.
    RenewalRevives,
    /// A failed renewal releases a lock that is still in use.
    FailedRenewalReleases,
    /// An old lease of the same owner can be released in place of the new one.
    ReleaseIgnoresFence,
    /// Anybody's release takes the lock away.
    ReleaseIgnoresOwner,
    /// After its turn a process asks again at once, whoever waits.
    NoGivingWay,
    /// A cancelled acquire that turns out granted is kept.
    CancelledGrantKept,
    /// A dropped guard does nothing.
    DroppedGuardKept,
    /// A cancelled waiter at the head leaves the others asleep.
    CancelledAskerStrandsQueue,
    /// A release tells nobody.
    HintsNobody,
    /// A release tells everybody who waits.
    HintsEverybody,
    /// A waiter sleeps as long as the holder's lease, trusting in hints.
    LostHintCostsLease,
    /// A hint that comes while a call is under way is forgotten.
    HintInFlightForgotten,
    /// A lost lease is found out only when a renewal is answered.
    LostOnlyByReply,
    /// Re-entrance goes by a flag and not by the clock.
    ReentersAfterDeadline,
    /// The clock stands still while the machine is suspended.
    ClockSleeps,
    /// A group that is refused keeps its places on the names that were free.
    GroupKeepsPlaces,
    /// A lock that is released before its `at_least` is over lets others in at once.
    AtLeastForgotten,
    /// The store does not keep others out, though the release asks for it.
    LingerIgnored,
    /// A hold goes on after its `max_hold`.
    MaxHoldIgnored,
    /// A lease that was lengthened for one guard stays in the store when the guards that are left have ended.
    EndedLeaseKept,
    /// A release that finds nothing to give back says that all is well.
    GoneReleasedFine,
    /// Lengthening a lost hold is answered as if it were held.
    ExtendsLost,
    /// A hold is not longer after it was lengthened.
    ExtendsNothing,
    /// One who asks just once waits with the others when it is refused.
    TriesWait,
    /// A lock is passed on for as long as somebody waits here.
    BudgetIgnored,
    /// A lease is passed to one who needs a longer one.
    PassedToLonger,
    /// The fences of a block are handed out faster than the clock goes.
    FencesUnpaced,
    /// What is left of a block is not given back at the release.
    BlockRestKept,
    /// A waiting acquire fails with the first call that fails.
    PatienceIgnored,
    /// A waiting acquire goes on for ever, though the store never answers.
    PatienceEndless,
    /// A group waits for a name that its own owner holds.
    GroupReenters,
    /// A lock that was broken goes on being renewed.
    BrokenRenewed,
    /// A clock that stood still is not made up for.
    JumpIgnored,
    /// Of a quorum: nothing is given up for clocks that run at different rates.
    NoDrift,
    /// Of a quorum: a server votes whatever it may have forgotten.
    NoQuarantine,
    /// Of a quorum: a server that was emptied, but not started again, votes.
    QuarantineByUptime,
    /// Of a quorum: a server that came back with an old state, and an old record of its birth, votes.
    QuarantineByBirthKey,
    /// Of a quorum: the lease counts from when a vote came.
    ValidityFromReply,
    /// Of a quorum: only servers that are known to have granted are released.
    ReleaseOnlyGranted,
    /// Of a quorum: a server takes the larger of its own fence and the one proposed, and says that it took it.
    FenceByMax,
    /// Of a quorum: a renewal makes a lock again that was gone.
    ExtensionRecreates,
    /// Of a quorum: servers that missed a grant are asked anew though it is being given back.
    AnewAfterRelease,
    /// Of a quorum: a release does not reckon with ballots asked anew that may come after it.
    AnewOvertaken,
    /// Of a quorum: a lease counts from when one server was asked anew, and not from when a majority was asked.
    AnewProlongs,
    /// Of a quorum: a release is not sent again once the last ballot is answered, whichever of them came first.
    OvertakenByBallot,
}

impl Bug {
    /// Every one that a client of one store can have.
    pub const ALL: &'static [Self] = &[
        Self::DeadlineFromReply,
        Self::ResentDeadlineFull,
        Self::KeeperStopsAtPartialRelease,
        Self::KeeperOutlivesRelease,
        Self::UnknownForgotten,
        Self::ReleaseOvertakesAcquire,
        Self::NotAfterIgnored,
        Self::ResentAcquireCounts,
        Self::ResentReleaseCounts,
        Self::BlockNotRecorded,
        Self::FenceOfRecordOnly,
        Self::LossUnsuspected,
        Self::FenceAheadOfClock,
        Self::PassedAfterDeadline,
        Self::PassedSameFence,
        Self::RenewalRevives,
        Self::FailedRenewalReleases,
        Self::ReleaseIgnoresFence,
        Self::ReleaseIgnoresOwner,
        Self::NoGivingWay,
        Self::CancelledGrantKept,
        Self::DroppedGuardKept,
        Self::CancelledAskerStrandsQueue,
        Self::HintsNobody,
        Self::HintsEverybody,
        Self::LostHintCostsLease,
        Self::HintInFlightForgotten,
        Self::LostOnlyByReply,
        Self::ReentersAfterDeadline,
        Self::ClockSleeps,
        Self::GroupKeepsPlaces,
        Self::AtLeastForgotten,
        Self::LingerIgnored,
        Self::MaxHoldIgnored,
        Self::EndedLeaseKept,
        Self::GoneReleasedFine,
        Self::ExtendsLost,
        Self::ExtendsNothing,
        Self::TriesWait,
        Self::BudgetIgnored,
        Self::PassedToLonger,
        Self::FencesUnpaced,
        Self::BlockRestKept,
        Self::PatienceIgnored,
        Self::PatienceEndless,
        Self::GroupReenters,
        Self::BrokenRenewed,
        Self::JumpIgnored,
    ];

    /// Those that only a quorum can have.
    pub const OF_QUORUMS: &'static [Self] = &[
        Self::NoDrift,
        Self::NoQuarantine,
        Self::QuarantineByUptime,
        Self::QuarantineByBirthKey,
        Self::ValidityFromReply,
        Self::ReleaseOnlyGranted,
        Self::FenceByMax,
        Self::ExtensionRecreates,
        Self::AnewAfterRelease,
        Self::AnewOvertaken,
        Self::AnewProlongs,
        Self::OvertakenByBallot,
    ];
}

/// Which bug is switched on, if any.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Planted {
    #[cfg(feature = "planted")]
    bug: Option<Bug>,
}

impl Planted {
    /// With this bug.
    #[cfg(feature = "planted")]
    pub fn with(bug: Bug) -> Self {
        Self { bug: Some(bug) }
    }

    /// Whether this bug is switched on.
    #[cfg(feature = "planted")]
    #[inline]
    pub fn is(self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Whether this bug is switched on: never, in this build.
    #[cfg(not(feature = "planted"))]
    #[inline(always)]
    pub(crate) fn is(self, _: Bug) -> bool {
        false
    }
}
