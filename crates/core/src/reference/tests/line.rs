//! The line of waiting clients: who stands in it, who is told, who is forgotten.

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn name() -> Name {
    Name::new("a").unwrap()
}

/// A request that nobody shares.
fn private(client: u64, number: u64) -> Acquire {
    let asked = request(client, number);
    Acquire { owner: StoreOwner::Private(asked.request), ..asked }
}

fn waiting(client: u64) -> Acquire {
    Acquire { enlist: true, ..private(client, 2) }
}

fn told(hints: &Hints) -> Vec<u64> {
    hints.iter().map(|(client, _)| client.0[0]).collect()
}

/// Client 1 holds `a` for ten seconds, and the others come in line at second 0.
fn held(waiters: &[u64]) -> (Reference, Acquire) {
    let mut store = Reference::new(1, Duration::ZERO);
    let holder = Acquire { lease: SECOND * 10, ..private(1, 1) };
    store.acquire(at(0), &holder).unwrap();
    for client in waiters {
        assert!(matches!(store.acquire(at(0), &waiting(*client)).unwrap(), Acquired::Busy(_)));
    }
    (store, holder)
}

#[test]
fn a_release_tells_the_first_in_line_and_how_many_wait() {
    let (mut store, holder) = held(&[2, 3, 4]);
    assert_eq!(store.inspect(at(0), &name()).waiters, Some(3));
    let (released, hints) = store.release(at(1), &release(&holder));
    assert_eq!((released, told(&hints)), (Released::Released { waiters: Some(3) }, vec![2]));
    assert_eq!(hints[0].1, name());
}

#[test]
fn whoever_asks_again_keeps_its_place_and_whoever_asks_once_has_none() {
    let (mut store, holder) = held(&[2, 3]);
    store.acquire(at(1), &waiting(3)).unwrap();
    store.acquire(at(1), &waiting(2)).unwrap();
    store.acquire(at(1), &private(9, 1)).unwrap();
    assert_eq!(store.inspect(at(1), &name()).waiters, Some(2));
    assert_eq!(told(&store.release(at(2), &release(&holder)).1), [2]);
}

/// Three seconds after it asked last a client is forgotten: it is neither told nor counted.
#[test]
fn a_dead_waiter_does_not_stay_in_line() {
    for (last, alive) in [(SECOND * 3, false), (SECOND * 3 - MS, true)] {
        let now = at(0) + last;
        let (mut store, holder) = held(&[2]);
        store.acquire(at(0) + MS, &waiting(3)).unwrap();
        store.acquire(at(2), &waiting(3)).unwrap();
        assert_eq!(store.inspect(now, &name()).waiters, Some(if alive { 2 } else { 1 }));
        let (released, hints) = store.release(now, &release(&holder));
        let expected = if alive { (2, 2) } else { (1, 3) };
        assert_eq!((released, told(&hints)), (Released::Released { waiters: Some(expected.0) }, vec![expected.1]));
    }
    let (mut store, _) = held(&[2]);
    store.acquire(at(2), &waiting(3)).unwrap();
    assert_eq!(told(&store.break_lock(at(3), &name(), Break::Now.into()).1), [3]);
}

#[test]
fn a_store_may_keep_waiters_for_longer() {
    let mut store = Reference::new(1, Duration::ZERO).enlisting_for(SECOND * 60);
    let holder = Acquire { lease: SECOND * 100, ..private(1, 1) };
    store.acquire(at(0), &holder).unwrap();
    store.acquire(at(0), &waiting(2)).unwrap();
    assert_eq!(store.inspect(at(59), &name()).waiters, Some(1));
    assert_eq!(told(&store.release(at(59), &release(&holder)).1), [2]);
    let rejoining = Acquire { lease: SECOND * 100, ..private(2, 2) };
    store.acquire(at(59), &rejoining).unwrap();
    store.release(at(60), &Release { rejoin: true, ..release(&rejoining) });
    assert_eq!(store.inspect(at(119), &name()).waiters, Some(1));
    assert_eq!(store.inspect(at(120), &name()).waiters, Some(0));
}

/// The head was told, and does not come: the next is told when it leaves, and only then.
#[test]
fn when_the_head_leaves_a_free_name_the_next_is_told() {
    let (mut store, holder) = held(&[2, 3, 4]);
    assert!(store.leave(at(1), ClientId([2, 0]), &name()).is_empty(), "it is held");
    store.release(at(1), &release(&holder));
    assert!(store.leave(at(1), ClientId([4, 0]), &name()).is_empty(), "it was not the head");
    store.acquire(at(1), &private(9, 1)).unwrap();
    store.release(at(1), &release(&private(9, 1)));
    assert_eq!(told(&store.leave(at(1), ClientId([3, 0]), &name())), Vec::<u64>::new(), "nobody is left");
    let (mut store, holder) = held(&[2, 3]);
    store.release(at(1), &release(&holder));
    assert_eq!(told(&store.leave(at(1), ClientId([2, 0]), &name())), [3]);
    assert_eq!(store.inspect(at(1), &name()).waiters, Some(1));
}

#[test]
fn whoever_leaves_tells_nobody_who_is_dead() {
    let (mut store, holder) = held(&[2, 3]);
    store.acquire(at(2), &waiting(4)).unwrap();
    store.release(at(2), &release(&holder));
    store.acquire(at(2), &waiting(2)).unwrap();
    let grant = Acquire { request: waiting(2).request, ..waiting(2) };
    store.release(at(2), &release(&grant));
    assert_eq!(told(&store.leave(at(3), ClientId([3, 0]), &name())), [4]);
}

#[test]
fn a_name_that_lingers_is_not_free_when_somebody_leaves() {
    let (mut store, holder) = held(&[2, 3]);
    let (_, hints) = store.release(at(1), &Release { cooldown: SECOND, ..release(&holder) });
    assert!(hints.is_empty(), "nobody may come yet");
    assert!(store.leave(at(1), ClientId([2, 0]), &name()).is_empty());
    assert_eq!(told(&store.leave(at(2), ClientId([3, 0]), &name())), Vec::<u64>::new());
}

#[test]
fn whoever_releases_with_more_in_line_stands_at_its_end() {
    let (mut store, holder) = held(&[1, 2, 3]);
    let (released, hints) = store.release(at(1), &Release { rejoin: true, ..release(&holder) });
    assert_eq!((released, told(&hints)), (Released::Released { waiters: Some(2) }, vec![2]), "itself not counted");
    assert_eq!(store.inspect(at(1), &name()).waiters, Some(3));
    store.acquire(at(1), &waiting(2)).unwrap();
    store.release(at(1), &release(&waiting(2)));
    store.acquire(at(1), &waiting(3)).unwrap();
    assert_eq!(told(&store.release(at(1), &release(&waiting(3))).1), [1]);
    assert_eq!(store.inspect(at(3), &name()).waiters, Some(1));
    assert_eq!(store.inspect(at(4), &name()).waiters, Some(0), "like one who asked");
}

#[test]
fn whoever_is_granted_waits_no_longer() {
    let (mut store, holder) = held(&[2, 3]);
    store.release(at(1), &release(&holder));
    store.acquire(at(1), &waiting(2)).unwrap();
    assert_eq!(store.inspect(at(1), &name()).waiters, Some(1));
    assert_eq!(told(&store.release(at(1), &release(&waiting(2))).1), [3]);
    // And whoever releases without more in line does not wait either.
    let (mut store, holder) = held(&[1]);
    assert_eq!(store.release(at(1), &release(&holder)).0, Released::Released { waiters: Some(0) });
}

#[test]
fn breaking_a_lock_at_once_tells_the_head_and_at_the_end_of_its_lease_nobody() {
    let (mut store, _) = held(&[2, 3]);
    let (before, hints) = store.break_lock(at(1), &name(), Break::AtLeaseEnd.into());
    assert!(hints.is_empty() && before.was.holders.len() == 1 && !before.was.holders[0].broken);
    assert!(store.inspect(at(1), &name()).holders[0].broken);
    let (before, hints) = store.break_lock(at(1), &name(), Break::Now.into());
    assert_eq!((before.was.holders[0].broken, told(&hints)), (true, vec![2]));
    assert!(store.inspect(at(1), &name()).holders.is_empty());
    assert!(matches!(store.acquire(at(1), &private(9, 1)).unwrap(), Acquired::Granted(_)));
}

#[test]
fn breaking_ends_lingering_too() {
    let (mut store, holder) = held(&[]);
    store.release(at(1), &Release { cooldown: SECOND * 5, ..release(&holder) });
    let (before, _) = store.break_lock(at(2), &name(), Break::Now.into());
    assert_eq!(before.was.cooldown.map(|cooldown| cooldown.left), Some(SECOND * 4));
    assert_eq!(store.inspect(at(2), &name()).cooldown, None);
    assert!(matches!(store.acquire(at(2), &private(9, 1)).unwrap(), Acquired::Granted(_)));
}

/// Client 2 is believed to wait until second 3, client 3 until second 5.
fn two_that_asked_at_different_times() -> (Reference, Acquire) {
    let (mut store, holder) = held(&[4, 2]);
    for client in [4, 3] {
        store.acquire(at(2), &waiting(client)).unwrap();
    }
    (store, holder)
}

#[test]
fn at_the_end_of_its_time_a_waiter_is_not_told() {
    let (mut store, holder) = two_that_asked_at_different_times();
    store.release(at(2), &release(&holder));
    assert_eq!(told(&store.leave(at(3), ClientId([4, 0]), &name())), [3]);
}

#[test]
fn a_waiter_that_comes_back_at_the_end_of_its_time_goes_to_the_end_of_the_line() {
    let (mut store, holder) = two_that_asked_at_different_times();
    store.release(at(2), &release(&holder));
    store.acquire(at(3), &private(4, 3)).unwrap();
    store.acquire(at(3), &waiting(2)).unwrap();
    assert_eq!(told(&store.release(at(3), &release(&private(4, 3))).1), [3]);
}

#[test]
fn a_break_that_names_another_fence_changes_nothing() {
    let (mut store, _) = held(&[2]);
    let fence = store.inspect(at(0), &name()).holders[0].fence.unwrap();
    let only = |fence| crate::port::BreakOptions::from(Break::Now).fence(fence);
    let (broken, hints) = store.break_lock(at(1), &name(), only(fence.plus(1)));
    assert_eq!((broken.refused, hints.len()), (Some(crate::port::BreakRefusal::OtherFence), 0));
    assert_eq!(store.inspect(at(1), &name()).holders[0].fence, Some(fence));
    let (broken, hints) = store.break_lock(at(1), &name(), only(fence));
    assert_eq!((broken.refused, told(&hints)), (None, vec![2]));
    assert!(store.inspect(at(1), &name()).holders.is_empty());
}

#[test]
fn a_break_that_names_a_fence_leaves_a_lock_that_lingers_alone() {
    let (mut store, holder) = held(&[2]);
    let fence = store.inspect(at(0), &name()).holders[0].fence.unwrap();
    store.release(at(1), &crate::port::Release { cooldown: SECOND * 10, ..release(&holder) });
    for (how, fence) in [(Break::Now, fence), (Break::Now, fence.plus(1)), (Break::AtLeaseEnd, fence.plus(1))] {
        let options = crate::port::BreakOptions::from(how).fence(fence).reset_fence();
        let (broken, hints) = store.break_lock(at(2), &name(), options);
        assert_eq!((broken.refused, hints.len()), (Some(crate::port::BreakRefusal::OtherFence), 0));
        assert!(store.inspect(at(2), &name()).cooldown.is_some(), "{how:?} took it away");
    }
    let (broken, _) = store.break_lock(at(2), &name(), Break::Now.into());
    assert!(broken.refused.is_none() && store.inspect(at(2), &name()).cooldown.is_none());
}

#[test]
fn a_break_that_names_a_fence_does_not_reset_the_fences_of_a_free_name() {
    let mut store = Reference::new(1, SECOND * 10);
    let holder = private(1, 1);
    let far = Fence::at(at(0)).plus(20_000_000);
    let Acquired::Granted(granted) = store.acquire(at(0), &Acquire { seen: far, ..holder.clone() }).unwrap() else {
        panic!("it is free")
    };
    let fence = granted[0].block.first;
    store.release(at(1), &release(&holder));
    let reset = |fence| crate::port::BreakOptions::from(Break::Now).fence(fence).reset_fence();
    for fence in [fence, fence.plus(1)] {
        let (broken, hints) = store.break_lock(at(1), &name(), reset(fence));
        assert!(broken.refused.is_none() && broken.was.holders.is_empty() && hints.is_empty());
    }
    let Acquired::Granted(next) = store.acquire(at(1), &private(1, 2)).unwrap() else { panic!("it is free") };
    assert!(next[0].block.first > fence, "{next:?} after {fence}");
}

#[test]
fn a_renewal_of_a_broken_lock_says_so_until_its_lease_ends() {
    let (mut store, holder) = held(&[]);
    let fence = store.inspect(at(0), &name()).holders[0].fence.unwrap();
    let lease = crate::Lease { name: name(), owner: holder.owner.clone(), fence };
    let renew = [crate::port::Renew { lease, hold: Some(holder.request), term: SECOND * 10, kept: true }];
    store.break_lock(at(1), &name(), Break::AtLeaseEnd.into());
    assert_eq!(store.renew(at(9), &renew), [crate::port::Renewed::Broken]);
    assert_eq!(store.renew(at(10), &renew), [crate::port::Renewed::Lost]);
}

#[test]
fn a_reset_fence_starts_at_the_clock_again() {
    let (mut store, holder) = held(&[]);
    let far = Acquire { seen: Fence::at(at(1_000)), ..private(2, 1) };
    store.release(at(1), &release(&holder));
    store.acquire(at(1), &far).unwrap();
    assert!(store.inspect(at(1), &name()).holders[0].fence.unwrap() > Fence::at(at(1_000)));
    store.break_lock(at(2), &name(), crate::port::BreakOptions::from(Break::Now).reset_fence());
    store.acquire(at(3), &private(3, 1)).unwrap();
    assert_eq!(store.inspect(at(3), &name()).holders[0].fence, Some(Fence::at(at(3))));
}
