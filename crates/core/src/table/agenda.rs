//! What a step leaves to be done at its end: names to look at again, and requests to begin again.

use std::collections::VecDeque;

use super::types::{AcquireRequest, TicketId};
use crate::name::Name;

/// Room for this many names is kept from step to step.
const TOUCHED_KEPT: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Agenda {
    touched: VecDeque<Name>,
    /// Tasks that start over with their request, as if they had just come.
    pub(super) requests: Vec<(TicketId, AcquireRequest)>,
}

impl Agenda {
    /// Something about this name has changed.
    pub(super) fn touch(&mut self, name: &Name) {
        if self.touched.back() != Some(name) {
            self.touched.push_back(name.clone());
        }
    }

    /// The name that was touched first.
    pub(super) fn next_name(&mut self) -> Option<Name> {
        let name = self.touched.pop_front();
        // A step may touch every lock of a client; most touch one.
        if name.is_none() && self.touched.capacity() > TOUCHED_KEPT {
            self.touched.shrink_to(TOUCHED_KEPT);
        }
        name
    }
}
