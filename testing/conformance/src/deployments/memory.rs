//! `memory:` in this process.

use std::sync::Arc;

use leasehold_memory::Config;

use crate::case::Failure;
use crate::deployment::{Boxed, Deployment, Hook, Place};

/// The only way to deploy it.
pub(crate) struct Memory;

impl Deployment for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn lacks(&self, hook: Hook) -> Option<&'static str> {
        match hook {
            Hook::Restart => Some("memory: ends with its process"),
            Hook::Processes | Hook::Liveness => Some("memory: is one process only"),
            Hook::InStep | Hook::Unattended => None,
        }
    }

    fn open(&self) -> Boxed<Result<Arc<dyn Place>, Failure>> {
        Box::pin(async {
            let name = format!("conformance-{:016x}", getrandom::u64()?);
            // Held, so that the store lives as long as the place.
            let store = leasehold_memory::Memory::shared(&Config { name: name.clone() });
            Ok(Arc::new(Named { name, store }) as Arc<dyn Place>)
        })
    }
}

struct Named {
    name: String,
    store: Arc<leasehold_memory::Memory>,
}

impl Place for Named {
    fn url(&self) -> String {
        format!("memory:{}", self.name)
    }

    fn records(&self) -> Option<usize> {
        Some(self.store.len())
    }
}
