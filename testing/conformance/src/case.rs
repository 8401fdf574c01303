//! What a case is, and what it may need of a store or its deployment.

use std::future::Future;
use std::pin::Pin;

use leasehold::{Capability, Fencing};

use crate::deployment::{Deployment, Hook};
use crate::world::World;

/// Why a case failed.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What a case comes to. Most say by a panic that something is wrong.
pub type Checked = Result<(), Failure>;

/// One thing that every store must do.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name, after that of its topic.
    pub name: &'static str,
    /// Without these it is ignored.
    pub needs: &'static [Need],
    /// What it does.
    pub run: Run,
}

/// How a case is run.
#[derive(Clone, Copy)]
pub enum Run {
    /// On a runtime with two workers.
    Async(fn(World) -> Pin<Box<dyn Future<Output = Checked>>>),
    /// On a thread without a runtime.
    Blocking(fn(&World) -> Checked),
}

/// What a case needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// News of releases.
    Hints,
    /// A list of waiting clients.
    Waiters,
    /// Fences.
    Fences,
    /// The lost signal before another owner.
    LostBefore,
    /// An explicit owner in several clients.
    SharedReentrance,
    /// Several names in one step.
    SeveralNames,
    /// A lock that outlives the process that took it.
    OutlivesProcess,
    /// Something that the deployment does.
    Hook(Hook),
}

impl Need {
    /// Why it cannot be had; none where it can.
    pub fn missing(self, capability: &Capability, deployment: &dyn Deployment) -> Option<&'static str> {
        let (has, reason) = match self {
            Self::Hints => (capability.hints, "the store has no hints"),
            Self::Waiters => (capability.waiters, "the store keeps no list of waiters"),
            Self::Fences => (capability.fencing != Fencing::None, "the store has no fences"),
            Self::LostBefore => (capability.lost_before, "the store does not promise lost-before"),
            Self::SharedReentrance => (capability.shared_reentrance, "the store does not count holds"),
            Self::SeveralNames => (capability.several_names, "the store takes one name at a time"),
            Self::OutlivesProcess => (capability.outlives_process, "a lock ends with the process that took it"),
            Self::Hook(hook) => return deployment.lacks(hook),
        };
        (!has).then_some(reason)
    }
}

/// A list of cases from functions, named as they are: `cases! { async first; async second needs [Need::Hints]; blocking third; }`.
#[macro_export]
macro_rules! cases {
    (@one blocking $name:ident $needs:expr) => {
        $crate::case::Case { name: stringify!($name), needs: $needs, run: $crate::case::Run::Blocking($name) }
    };
    (@one async $name:ident $needs:expr) => {
        $crate::case::Case {
            name: stringify!($name),
            needs: $needs,
            run: $crate::case::Run::Async(|world| Box::pin($name(world))),
        }
    };
    ($($how:ident $name:ident $(needs [$($need:expr),+])?;)*) => {
        /// The cases of this topic.
        pub(in $crate::cases) const CASES: &[$crate::case::Case] = &[
            $($crate::cases!(@one $how $name &[$($($need),+)?])),*
        ];
    };
}
