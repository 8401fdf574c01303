//! What a store remembers of names that nobody holds, and for how long.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn name() -> Name {
    Name::new("a").unwrap()
}

fn private(client: u64, number: u64) -> Acquire {
    let asked = request(client, number);
    Acquire { owner: StoreOwner::Private(asked.request), ..asked }
}

fn named(number: u64, text: &str) -> Acquire {
    Acquire { names: Names::One(Name::new(text).unwrap()), ..private(1, number) }
}

#[test]
fn a_free_name_is_forgotten_at_once_where_the_clock_never_goes_back() {
    let mut store = Reference::new(1, Duration::ZERO);
    let one = private(1, 1);
    store.acquire(at(0), &one).unwrap();
    assert_eq!((store.len(), store.is_empty()), (1, false));
    store.release(at(0) + Duration::from_millis(1), &release(&one));
    assert!(store.is_empty());
    // Not before the clock has passed the last of its fences.
    store.acquire(at(1), &Acquire { block: 100, ..one.clone() }).unwrap();
    store.release(at(1), &release(&one));
    assert_eq!(store.len(), 1);
    store.acquire(at(2), &named(2, "b")).unwrap();
    assert_eq!(store.len(), 1, "the next request finds that it can be forgotten");
}

#[test]
fn a_name_that_lingers_or_is_waited_for_is_not_forgotten() {
    let mut store = Reference::new(1, Duration::ZERO);
    let one = private(1, 1);
    store.acquire(at(0), &one).unwrap();
    store.release(at(0) + Duration::from_millis(1), &Release { cooldown: SECOND * 5, ..release(&one) });
    store.acquire(at(4), &named(2, "b")).unwrap();
    assert_eq!(store.len(), 2);
    store.acquire(at(6), &named(3, "c")).unwrap();
    assert_eq!(store.len(), 2, "`a` is forgotten, `b` has ended and is not looked at");

    let mut store = Reference::new(1, Duration::ZERO);
    store.acquire(at(0), &one).unwrap();
    store.acquire(at(0), &Acquire { enlist: true, ..private(2, 1) }).unwrap();
    store.release(at(0) + Duration::from_millis(1), &release(&one));
    assert_eq!(store.len(), 1);
    store.leave(at(1), ClientId([2, 0]), &name());
    assert!(store.is_empty(), "and when the last one leaves it is");
}

#[test]
fn fences_are_remembered_for_as_long_as_was_said() {
    let mut store = Reference::new(1, SECOND * 100);
    let one = private(1, 1);
    store.acquire(at(0), &one).unwrap();
    store.release(at(0), &release(&one));
    store.acquire(at(99), &named(2, "b")).unwrap();
    assert!(store.take(&name()).is_some_and(|record| {
        let last = record.last;
        store.put(name(), record);
        last > Fence::NONE
    }));
    store.acquire(at(100), &named(3, "c")).unwrap();
    assert!(store.take(&name()).is_none());
}

/// Nobody releases what a dead process held: it is found when there are twice as many records as at the last look.
#[test]
#[cfg_attr(miri, ignore = "thousands of names take Miri minutes")]
fn names_whose_lease_ran_out_are_swept_when_there_are_many() {
    let mut store = Reference::new(1, Duration::ZERO);
    for number in 0..128 {
        store.acquire(at(0), &named(number, &format!("n{number}"))).unwrap();
    }
    assert_eq!(store.len(), 128);
    store.acquire(at(10), &named(1_000, "m")).unwrap();
    assert_eq!(store.len(), 1);
    // What is held is kept, and the next look is at twice as many.
    for number in 0..300 {
        let held = Acquire { lease: SECOND * 1_000, ..named(number, &format!("h{number}")) };
        store.acquire(at(20), &held).unwrap();
    }
    assert_eq!(store.len(), 300, "`m` went when it was looked for");
    store.sweep(at(2_000));
    assert!(store.is_empty());
}

#[test]
fn sweeping_keeps_fences_and_waiters_for_their_time() {
    let mut store = Reference::new(1, SECOND * 100);
    store.acquire(at(0), &private(1, 1)).unwrap();
    store.sweep(at(100));
    assert_eq!(store.len(), 1, "it ended a second later");
    store.sweep(at(101));
    assert!(store.is_empty());
    let mut store = Reference::new(1, Duration::ZERO);
    store.acquire(at(0), &private(1, 1)).unwrap();
    store.acquire(at(0), &Acquire { enlist: true, ..private(2, 1) }).unwrap();
    store.sweep(at(2));
    assert_eq!(store.len(), 1, "somebody waits");
    store.sweep(at(3));
    assert!(store.is_empty());
}

#[test]
#[cfg_attr(miri, ignore = "thousands of names take Miri minutes")]
fn memory_follows_the_names_in_use() {
    let mut store = Reference::new(1, Duration::ZERO);
    for number in 0..5_000 {
        store.acquire(at(0), &Acquire { lease: SECOND * 9, ..named(number, &format!("n{number}")) }).unwrap();
    }
    assert!(store.records.capacity() >= 5_000);
    store.sweep(at(10));
    assert!(store.is_empty() && store.records.capacity() <= 1_024, "{}", store.records.capacity());
}

#[test]
fn a_lock_that_was_broken_at_once_is_forgotten() {
    let mut store = Reference::new(1, Duration::ZERO);
    store.acquire(at(0), &private(1, 1)).unwrap();
    store.break_lock(at(0) + Duration::from_millis(1), &name(), Break::Now.into());
    assert!(store.is_empty());
}

#[test]
fn a_poisoned_fence_is_unfit_until_it_is_reset() {
    use crate::fence::FENCE_AHEAD_MAX;
    use crate::port::{Break, BreakOptions};
    for memory in [Reference::new(1, SECOND * 100), Reference::new(1, SECOND * 100).fallible()] {
        let mut store = memory;
        let poisoned = Fence::at(at(0)).plus(FENCE_AHEAD_MAX);
        store.put(name(), Record { last: poisoned, ..Record::default() });
        let error = store.acquire(at(0), &private(1, 1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unfit);
        assert!(error.message().contains(&poisoned.to_string()), "{error}");
        let several = several(1, 2, &["a", "b"]);
        assert_eq!(store.acquire(at(0), &several).unwrap_err().kind(), ErrorKind::Unfit);
        assert!(fences(store.acquire(at(0), &named(3, "b")).unwrap())[0].0 < poisoned, "another name is not hurt");
        // Time passes, and it comes nearer.
        let acquired = store.acquire(at(1), &private(1, 4)).unwrap();
        assert_eq!(fences(acquired)[0].0, poisoned.plus(1));
        let (broken, _) = store.break_lock(at(1), &name(), BreakOptions::from(Break::Now).reset_fence());
        assert_eq!(broken.refused, None);
        assert!(fences(store.acquire(at(1), &private(1, 5)).unwrap())[0].0 < poisoned);
    }
}

#[test]
fn a_store_that_had_many_names_gives_room_back_and_keeps_some() {
    let with = |names: u64| {
        let mut store = Reference::new(1, Duration::ZERO);
        store.records.reserve(10_000);
        for number in 0..names {
            store.put(Name::new(number.to_string()).unwrap(), Record::default());
        }
        let before = store.records.capacity();
        store.shrink();
        (store.records.capacity(), before)
    };
    let (after, before) = with(100);
    assert!(after >= 200 && after < before / 8, "{after} of {before}");
    let (after, before) = with(2_000);
    assert_eq!(after, before, "it is filled to an eighth");
}

/// The clock alone would give it out again.
#[test]
fn a_name_is_remembered_while_the_clock_has_not_passed_its_last_fence() {
    let mut store = Reference::new(1, Duration::ZERO);
    let later = at(0) + Duration::from_millis(1);
    let fence = |acquired: Acquired| match acquired {
        Acquired::Granted(grants) => grants[0].block.first,
        other => panic!("{other:?}"),
    };
    let one = Acquire { seen: Fence::new(Fence::at(later).get() - 1), ..private(1, 1) };
    assert_eq!(fence(store.acquire(at(0), &one).unwrap()), Fence::at(later));
    store.release(at(0), &release(&one));
    // At the next request is looked for what can be forgotten.
    store.acquire(later, &named(2, "b")).unwrap();
    assert_eq!(fence(store.acquire(later, &private(1, 3)).unwrap()), Fence::at(later).plus(1));
}
