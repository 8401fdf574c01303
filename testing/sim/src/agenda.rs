//! What is going to happen, in order of true time; what is due at the same time happens in the order it was put down.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A queue of things to come.
#[derive(Debug)]
pub struct Agenda<T> {
    heap: BinaryHeap<Reverse<(u64, u64, Slot)>>,
    slots: Vec<Option<T>>,
    free: Vec<u32>,
    count: u64,
}

type Slot = u32;

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), slots: Vec::new(), free: Vec::new(), count: 0 }
    }
}

impl<T> Agenda<T> {
    /// Puts something down for a time.
    pub fn add(&mut self, at: u64, what: T) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as Slot
        });
        self.slots[slot as usize] = Some(what);
        self.count += 1;
        self.heap.push(Reverse((at, self.count, slot)));
    }

    /// Takes the next thing out.
    pub fn take_next(&mut self) -> Option<(u64, T)> {
        let Reverse((at, _, slot)) = self.heap.pop()?;
        self.free.push(slot);
        let what = self.slots[slot as usize].take()?;
        Some((at, what))
    }
}
