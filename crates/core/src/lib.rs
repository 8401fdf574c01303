//! The decisions of leasehold, without a clock, a socket or a thread.
//!
//! - [`port`]: what a store does; every engine implements [`port::Store`].
//! - [`table`]: everything that one client decides, `step(now, input) -> outputs`.
//! - [`reference`](mod@reference): a store as pure state, `apply(now, request) -> reply`: the meaning of correct.
//! - [`quorum`]: a lock over several servers, granted by a majority of them.
//! - [`multi`]: parts of several stores, taken together.
//! - [`lease`]: the one place that says how long a holder may act.
//!
//! The client in the crate `leasehold` is a thin shell around this; the simulation in `testing/sim` is another.

pub mod backoff;
pub mod capability;
pub mod check;
pub mod error;
pub mod fence;
pub mod identity;
pub mod lease;
pub mod multi;
pub mod name;
pub mod options;
pub mod owner;
pub mod password;
pub mod port;
pub mod quorum;
pub mod reference;
pub mod table;
pub mod task_tracker;
pub mod time;

pub use capability::{Capability, Consistency, Fencing};
pub use check::{Check, Verdict};
pub use error::{Error, ErrorKind, Outcome};
pub use fence::{Block, Fence};
pub use identity::Identity;
pub use lease::Lease;
pub use name::{Name, Names};
pub use options::{Options, Term, WaitMode};
pub use owner::{ClientId, Owner, RequestId, StoreOwner};
pub use password::PasswordSource;
pub use port::{Call, Hint, HintSink, Reply, Store};
pub use time::{ClockBounds, Moment, StoreClock, StoreTime};
