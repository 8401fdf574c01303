//! Every deployment there is.

mod file;
mod memory;

use std::sync::Arc;

use crate::deployment::Deployment;

/// All of them.
pub fn all() -> Vec<Arc<dyn Deployment>> {
    vec![Arc::new(memory::Memory), Arc::new(file::File)]
}
