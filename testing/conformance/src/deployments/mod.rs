//! Every deployment there is.

mod file;
mod memory;
mod redis;
mod redlock;

use std::sync::Arc;

use crate::deployment::Deployment;

/// All of them.
pub fn all() -> Vec<Arc<dyn Deployment>> {
    vec![
        Arc::new(memory::Memory),
        Arc::new(file::File),
        Arc::new(redis::Redis { name: "redis-redisson", layout: "redisson" }),
        Arc::new(redis::Redis { name: "redis-plain", layout: "plain" }),
        Arc::new(redlock::Redlock),
    ]
}
