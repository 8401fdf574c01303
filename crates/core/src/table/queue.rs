//! Who waits for a name here, first come first served.

use std::collections::VecDeque;

use super::entry::Ticket;
use super::types::TicketId;

/// Tickets in the order of their numbers, which is the order in which they came. The ends are quick; leaving from the middle moves
/// the shorter side.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    line: VecDeque<(TicketId, Ticket)>,
}

impl Queue {
    pub(crate) fn insert(&mut self, id: TicketId, ticket: Ticket) {
        match self.line.back() {
            // A group that comes over from another name's queue keeps its place by number.
            Some((last, _)) if *last > id => {
                let at = self.line.partition_point(|(other, _)| *other < id);
                self.line.insert(at, (id, ticket));
            }
            _ => self.line.push_back((id, ticket)),
        }
    }

    pub(crate) fn remove(&mut self, id: TicketId) -> Option<Ticket> {
        let at = self.position(id)?;
        let (_, ticket) = self.line.remove(at)?;
        if self.line.is_empty() && self.line.capacity() > 64 {
            self.line = VecDeque::new();
        }
        Some(ticket)
    }

    pub(crate) fn head(&self) -> Option<(TicketId, &Ticket)> {
        self.line.front().map(|(id, ticket)| (*id, ticket))
    }

    pub(crate) fn get(&self, id: TicketId) -> Option<&Ticket> {
        self.position(id).map(|at| &self.line[at].1)
    }

    pub(crate) fn get_mut(&mut self, id: TicketId) -> Option<&mut Ticket> {
        self.position(id).map(|at| &mut self.line[at].1)
    }

    pub(crate) fn contains(&self, id: TicketId) -> bool {
        self.position(id).is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (TicketId, &Ticket)> {
        self.line.iter().map(|(id, ticket)| (*id, ticket))
    }

    fn position(&self, id: TicketId) -> Option<usize> {
        match self.line.front() {
            Some((first, _)) if *first == id => Some(0),
            _ => self.line.binary_search_by_key(&id, |(other, _)| *other).ok(),
        }
    }
}
