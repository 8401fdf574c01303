//! What a step leaves to be done at its end: names to look at again, and requests to begin again.

use smallvec::SmallVec;

use super::types::{AcquireRequest, TicketId};
use crate::name::Name;

#[derive(Debug, Default)]
pub(super) struct Agenda {
    touched: SmallVec<[Name; 1]>,
    requests: Vec<(TicketId, AcquireRequest)>,
}

impl Agenda {
    /// Something about this name has changed.
    pub(super) fn touch(&mut self, name: &Name) {
        if self.touched.last() != Some(name) {
            self.touched.push(name.clone());
        }
    }

    /// The names that were touched since the last call, in order.
    pub(super) fn take_touched(&mut self) -> SmallVec<[Name; 1]> {
        std::mem::take(&mut self.touched)
    }

    /// A task starts over with its request, as if it had just come.
    pub(super) fn begin_again(&mut self, id: TicketId, request: AcquireRequest) {
        self.requests.push((id, request));
    }

    pub(super) fn next_request(&mut self) -> Option<(TicketId, AcquireRequest)> {
        self.requests.pop()
    }
}
