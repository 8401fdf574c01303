//! Who waits for a name here, first come first served.

use std::collections::VecDeque;

use super::entry::Ticket;
use super::types::TicketId;
use crate::time::Moment;

/// Tickets in the order of their numbers, which is the order in which they came. The first has a place of its own, so that one who
/// finds nobody before it costs no allocation. The ends are quick; leaving from the middle moves the shorter side.
#[derive(Debug)]
pub(crate) struct Queue {
    first: Option<(TicketId, Ticket)>,
    rest: VecDeque<(TicketId, Ticket)>,
}

impl Queue {
    pub(crate) const EMPTY: Self = Self { first: None, rest: VecDeque::new() };

    pub(crate) fn insert(&mut self, id: TicketId, ticket: Ticket) {
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
        if self.is_first(id) {
            let next = self.rest.pop_front();
            let (_, ticket) = std::mem::replace(&mut self.first, next)?;
            return Some(ticket);
        }
        let at = self.position(id)?;
        self.rest.remove(at).map(|(_, ticket)| ticket)
    }

    pub(crate) fn head(&self) -> Option<(TicketId, &Ticket)> {
        self.first.as_ref().map(|(id, ticket)| (*id, ticket))
    }

    pub(crate) fn get(&self, id: TicketId) -> Option<&Ticket> {
        match &self.first {
            Some((first, ticket)) if *first == id => Some(ticket),
            _ => self.position(id).map(|at| &self.rest[at].1),
        }
    }

    pub(crate) fn get_mut(&mut self, id: TicketId) -> Option<&mut Ticket> {
        if self.is_first(id) {
            return self.first.as_mut().map(|(_, ticket)| ticket);
        }
        self.position(id).map(|at| &mut self.rest[at].1)
    }

    pub(crate) fn contains(&self, id: TicketId) -> bool {
        self.is_first(id) || self.position(id).is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The store has answered: those whose turn it was not have all their patience when it comes.
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

    fn is_first(&self, id: TicketId) -> bool {
        self.first.as_ref().is_some_and(|(first, _)| *first == id)
    }

    fn position(&self, id: TicketId) -> Option<usize> {
        self.rest.binary_search_by_key(&id, |(other, _)| *other).ok()
    }
}
