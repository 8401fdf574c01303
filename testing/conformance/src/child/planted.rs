//! Bugs in the processes of a case, for showing that its checks would see them.

/// What a process does wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Planted {
    /// Nothing.
    #[default]
    Nothing,
    /// It works without the lock.
    NoLock,
    /// It works under the fence of its first grant.
    FirstFence,
    /// It believes that it holds what it lost, and that it has given it back.
    Believes,
    /// It keeps what it was to drop.
    Keeps,
    /// It does not listen to the lost signal.
    Deaf,
    /// Every renewal seems to succeed.
    HidesRenewals,
}

const ALL: [(Planted, &str); 7] = [
    (Planted::Nothing, "nothing"),
    (Planted::NoLock, "no lock"),
    (Planted::FirstFence, "first fence"),
    (Planted::Believes, "believes"),
    (Planted::Keeps, "keeps"),
    (Planted::Deaf, "deaf"),
    (Planted::HidesRenewals, "hides renewals"),
];

impl Planted {
    /// Its name.
    pub fn name(self) -> &'static str {
        ALL.iter().find(|(bug, _)| *bug == self).map_or("", |(_, name)| name)
    }

    /// By its name.
    pub fn named(name: &str) -> Option<Self> {
        ALL.iter().find(|(_, known)| *known == name).map(|(bug, _)| *bug)
    }
}
