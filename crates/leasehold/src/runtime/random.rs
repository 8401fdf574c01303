//! Randomness: ids from the operating system, owners from a generator that is seeded by it.

use std::cell::RefCell;

use leasehold_clock::seed;
use leasehold_core::backoff::Rng;
use leasehold_core::{ClientId, Error, Owner};

thread_local! {
    /// Two generators, so that an owner comes from 128 random bits.
    static OWNERS: RefCell<Option<[Rng; 2]>> = const { RefCell::new(None) };
}

pub(crate) fn client_id() -> Result<ClientId, Error> {
    Ok(ClientId([seed()?, seed()?]))
}

/// An owner for one acquire, which never re-enters by accident.
pub(crate) fn owner() -> Result<Owner, Error> {
    OWNERS.with_borrow_mut(|owners| {
        let [a, b] = match owners {
            Some(owners) => owners,
            empty => empty.insert([Rng::new(seed()?), Rng::new(seed()?)]),
        };
        Ok(Owner::generated([a.draw(), b.draw()]))
    })
}
