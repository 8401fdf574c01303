//! The tasks that wait for a name here, first come, first served.

use std::collections::VecDeque;

use super::types::{AcquireRequest, TicketId};
use crate::name::Names;
use crate::time::Moment;

/// A task that waits for a name.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) request: AcquireRequest,
    /// Errors are final from then on, unless the store has answered once. None until it is this task's turn to ask, or until the store
    /// does not answer the task before it.
    pub(crate) patience: Option<Moment>,
}

impl Ticket {
    /// Whether a lease can be handed off to it in memory.
    pub(crate) fn takes_handoff(&self) -> bool {
        matches!(self.request.names, Names::One(_)) && self.request.allows_handoff()
    }
}

/// Tickets in the order of their numbers, which is the order in which they came.
///
/// The first has a place of its own, so that a task that meets nobody costs no allocation. Both ends are quick; leaving from the middle
/// moves the shorter side.
#[derive(Debug)]
pub(crate) struct Queue {
    first: Option<(TicketId, Ticket)>,
    rest: VecDeque<(TicketId, Ticket)>,
    /// How many of them could take a lease that is handed off.
    pub(crate) handoff_takers: u32,
}

impl Queue {
    pub(crate) const EMPTY: Self = Self { first: None, rest: VecDeque::new(), handoff_takers: 0 };

    pub(crate) fn insert(&mut self, id: TicketId, ticket: Ticket) {
        self.handoff_takers += u32::from(ticket.takes_handoff());
        match &mut self.first {
            None => self.first = Some((id, ticket)),
            // A group that comes over from another name's queue keeps its place by number.
            Some(first) if first.0 > id => {
                let second = std::mem::replace(first, (id, ticket));
                self.rest.push_front(second);
            }
            Some(_) => match self.rest.back() {
                Some((last, _)) if *last > id => {
                    let at = self.rest.partition_point(|(other, _)| *other < id);
                    self.rest.insert(at, (id, ticket));
                }
                _ => self.rest.push_back((id, ticket)),
            },
        }
    }

    pub(crate) fn remove(&mut self, id: TicketId) -> Option<Ticket> {
        let (_, ticket) = match &self.first {
            Some((first, _)) if *first == id => std::mem::replace(&mut self.first, self.rest.pop_front())?,
            _ => self.rest.remove(position(&self.rest, id)?)?,
        };
        self.handoff_takers -= u32::from(ticket.takes_handoff());
        Some(ticket)
    }

    pub(crate) fn head(&self) -> Option<(TicketId, &Ticket)> {
        self.first.as_ref().map(|(id, ticket)| (*id, ticket))
    }

    pub(crate) fn get(&self, id: TicketId) -> Option<&Ticket> {
        match &self.first {
            Some((first, ticket)) if *first == id => Some(ticket),
            _ => Some(&self.rest[position(&self.rest, id)?].1),
        }
    }

    pub(crate) fn get_mut(&mut self, id: TicketId) -> Option<&mut Ticket> {
        match &mut self.first {
            Some((first, ticket)) if *first == id => Some(ticket),
            _ => {
                let at = position(&self.rest, id)?;
                Some(&mut self.rest[at].1)
            }
        }
    }

    pub(crate) fn contains(&self, id: TicketId) -> bool {
        self.get(id).is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The store has answered: tasks whose turn it was not have all their patience when it comes.
    pub(crate) fn end_patience(&mut self) {
        for (_, ticket) in self.iter_mut().filter(|(_, ticket)| ticket.patience != Some(Moment::NEVER)) {
            ticket.patience = None;
        }
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (TicketId, &mut Ticket)> {
        self.first.iter_mut().chain(&mut self.rest).map(|(id, ticket)| (*id, ticket))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (TicketId, &Ticket)> {
        self.first.iter().chain(&self.rest).map(|(id, ticket)| (*id, ticket))
    }
}

fn position(rest: &VecDeque<(TicketId, Ticket)>, id: TicketId) -> Option<usize> {
    rest.binary_search_by_key(&id, |(other, _)| *other).ok()
}
