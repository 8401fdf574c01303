//! Faults of real servers, and what holders of locks saw meanwhile.
//!
//! - [`servers`]: private servers of a test, started on free ports, killed, stopped, continued, restarted with and without what they knew.
//! - [`proxy`]: a connection that is cut, delayed, held up or refused.
//! - [`history`]: what processes did with locks, on one clock, and its checks.
//!
//! It knows nothing of the library that is tested, so that every test may use it. It never touches a server that it has not started.

pub mod history;
pub mod proxy;
pub mod servers;

/// Why something failed.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
