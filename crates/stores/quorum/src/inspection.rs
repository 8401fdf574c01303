//! Combines what several servers say about a lock.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::Name;
use leasehold_core::port::{Holder, Inspected};

use crate::store::Quorum;

impl Quorum {
    /// The holder of a name, if a majority reports it, or could together with the servers that did not answer: a lock
    /// that may be held is never called free.
    pub(crate) fn combined(&self, name: &Name, found: Vec<Inspected>, unheard: usize) -> Inspected {
        let majority = self.shared.rules.majority();
        let waiters = found.iter().filter_map(|found| found.waiters).max();
        let lingering = found.iter().filter(|found| found.cooldown.is_some()).count() >= majority;
        let cooldown = found.iter().filter_map(|found| found.cooldown.clone()).max_by_key(|cooldown| cooldown.left);
        let rows: Vec<_> = found.into_iter().flat_map(|found| found.holders).collect();
        let same = |one: &Holder| {
            let mut rows: Vec<_> =
                rows.iter().filter(|row| row.owner == one.owner && row.fence == one.fence).cloned().collect();
            // What a majority still has after the others expire.
            rows.sort_by_key(|row| std::cmp::Reverse(row.left.unwrap_or(Duration::MAX)));
            // It can still be renewed if enough servers agree.
            let whole = rows.iter().filter(|row| !row.broken).count();
            let broken = whole + unheard < majority;
            (rows.len() + unheard >= majority).then(|| Holder { broken, ..rows[majority.min(rows.len()) - 1].clone() })
        };
        let holders: Vec<_> = rows.iter().find_map(same).into_iter().collect();
        let cooldown = cooldown.filter(|_| holders.is_empty() && lingering);
        Inspected { name: name.clone(), holders, cooldown, waiters }
    }

    /// Merges a page from each server, and says where it ends: at the end of the shortest full page.
    pub(crate) fn merged(&self, pages: Vec<Vec<Inspected>>, limit: usize) -> (Vec<Inspected>, Option<Name>) {
        let unheard = self.members.len() - pages.len();
        let full = pages.iter().filter(|page| page.len() >= limit);
        let end = full.filter_map(|page| page.last().map(|last| last.name.clone())).min();
        let mut names: BTreeMap<Name, Vec<Inspected>> = BTreeMap::new();
        for found in pages.into_iter().flatten() {
            names.entry(found.name.clone()).or_default().push(found);
        }
        let within = names.into_iter().filter(|(name, _)| end.as_ref().is_none_or(|end| name <= end));
        let combined = within.map(|(name, found)| self.combined(&name, found, unheard));
        (combined.filter(|found| !found.holders.is_empty() || found.cooldown.is_some()).collect(), end)
    }
}
