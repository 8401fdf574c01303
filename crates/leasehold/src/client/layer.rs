//! Layers: users' own code around a store, for logging, flow control or chaos.

use std::sync::Arc;

use leasehold_core::Store;

/// Wraps a store in another.
///
/// Given to [`ClientBuilder::layer`](crate::ClientBuilder::layer), it is applied to the callers' connection and to the keeper's.
/// The wrapper implements [`Store`] and forwards every method; `examples/layer.rs` shows one.
///
/// A call that panics has an unknown outcome, and is dealt with like one whose answer was lost. Its panic goes on to the caller who
/// waits for it; where none does (a dropped guard, a renewal) it is logged with `tracing`.
pub trait Layer: Send + Sync {
    /// Wraps it.
    fn layer(&self, inner: Arc<dyn Store>) -> Arc<dyn Store>;

    /// Whether it hands every hint and every subscription on as they are. Where one may not, waiters of a store that is sure of its
    /// hints ask again each second all the same.
    fn hands_hints_on(&self) -> bool {
        false
    }
}

impl<F: Fn(Arc<dyn Store>) -> Arc<dyn Store> + Send + Sync> Layer for F {
    fn layer(&self, inner: Arc<dyn Store>) -> Arc<dyn Store> {
        self(inner)
    }
}
