//! Layers: the user's own code around a store, for logging, flow control or chaos.

use std::sync::Arc;

use leasehold_core::Store;

/// Wraps a store in another.
///
/// Given to [`ClientBuilder::layer`](crate::ClientBuilder::layer), it is applied to the callers' connection and to the keeper's.
/// The wrapper implements [`Store`], and names the methods that it only forwards in
/// [`forward_store!`](crate::port::forward_store); `examples/layer.rs` shows one.
///
/// A call that panics has an unknown outcome, and is treated like one whose answer was lost. The panic goes on to the caller that
/// waits for it; without one (a dropped guard, a renewal) it is logged with `tracing`.
pub trait Layer: Send + Sync {
    /// Wraps it.
    fn layer(&self, inner: Arc<dyn Store>) -> Arc<dyn Store>;

    /// Whether it hands on every hint and every subscription unchanged. If a layer may not, waiters ask again each second, even
    /// if the store is sure of its hints.
    fn hands_hints_on(&self) -> bool {
        false
    }
}

impl<F: Fn(Arc<dyn Store>) -> Arc<dyn Store> + Send + Sync> Layer for F {
    fn layer(&self, inner: Arc<dyn Store>) -> Arc<dyn Store> {
        self(inner)
    }
}
