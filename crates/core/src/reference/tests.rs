//! Checks of the reference store: what simulated worlds found.

use super::*;
use crate::name::Names;

fn request(client: u64, number: u64) -> Acquire {
    Acquire {
        names: Names::One(Name::new("a").unwrap()),
        owner: StoreOwner::Shared("shared".into()),
        request: RequestId { client: ClientId([client, 0]), number },
        mode: Mode::Exclusive,
        lease: Duration::from_secs(1),
        block: 1,
        seen: Fence::NONE,
        not_after: StoreTime::NEVER,
        enlist: false,
        kept: false,
        about: Arc::default(),
    }
}

fn release(of: &Acquire) -> Release {
    Release {
        client: of.request.client,
        name: Name::new("a").unwrap(),
        owner: of.owner.clone(),
        fence: None,
        give: Give::Hold(of.request),
        last_used: None,
        linger: Duration::ZERO,
        rejoin: false,
    }
}

#[test]
fn an_acquire_that_comes_again_after_its_hold_was_given_back_is_not_counted() {
    let now = StoreTime::from_nanos(1_000_000_000);
    let mut store = Reference::new(1, Duration::ZERO);
    let (one, other) = (request(1, 1), request(2, 1));
    store.acquire(now, &one).unwrap();
    store.acquire(now, &other).unwrap();
    assert_eq!(store.release(now, &release(&one)).0, Released::StillHeld(1));
    store.acquire(now, &one).unwrap();
    assert_eq!(store.release(now, &release(&other)).0, Released::Released { waiters: Some(0) });
}

#[test]
fn a_late_copy_of_a_granted_request_is_answered_like_the_first() {
    let now = StoreTime::from_nanos(1_000_000_000);
    let mut store = Reference::new(1, Duration::ZERO);
    let one = Acquire { not_after: now, ..request(1, 1) };
    store.acquire(now, &one).unwrap();
    let late = now + Duration::from_millis(1);
    assert!(matches!(store.acquire(late, &one).unwrap(), Acquired::Granted(_)));
    let other = Acquire { not_after: now, ..request(2, 1) };
    assert!(matches!(store.acquire(late, &other).unwrap(), Acquired::TooLate));
}

fn at(seconds: u64) -> StoreTime {
    StoreTime::from_nanos((1_000 + seconds) * 1_000_000_000)
}

/// A process dies; another of the same explicit owner takes and gives back the lock now and then.
#[test]
fn a_dead_holder_loses_the_lock_after_its_lease_though_its_owner_lives_elsewhere() {
    let mut store = Reference::new(1, Duration::ZERO);
    let lease = Duration::from_secs(10);
    store.acquire(at(0), &Acquire { lease, ..request(1, 1) }).unwrap(); // Never heard of again.
    let mut refused = 0;
    for round in 1..100_u64 {
        let visit = Acquire { lease, ..request(2, round) };
        if let Acquired::Granted(_) = store.acquire(at(round * 5), &visit).unwrap() {
            store.release(at(round * 5 + 1), &release(&visit));
        }
        let other = Acquire { owner: StoreOwner::Shared("other".into()), lease, ..request(3, round) };
        match store.acquire(at(round * 5 + 2), &other).unwrap() {
            Acquired::Granted(_) => drop(store.release(at(round * 5 + 3), &release(&other))),
            _ => refused += 1,
        }
    }
    assert!(refused <= 2, "refused {refused} times in 500 s for the sake of a lease of 10 s whose holder is dead");
}

/// `at_least` of one holder is forgotten when another hold of its owner is still there.
#[test]
fn lingering_outlives_a_partial_release() {
    let mut store = Reference::new(1, Duration::ZERO);
    let (one, two) = (request(1, 1), request(2, 1));
    store.acquire(at(0), &one).unwrap();
    store.acquire(at(0), &two).unwrap();
    let lingering = Release { linger: Duration::from_secs(60), ..release(&one) };
    assert_eq!(store.release(at(0), &lingering).0, Released::StillHeld(1));
    store.release(at(0), &release(&two));
    let other = Acquire { owner: StoreOwner::Shared("other".into()), ..request(3, 1) };
    let answer = store.acquire(at(1), &other).unwrap();
    assert!(matches!(answer, Acquired::Busy(_)), "others were to be kept out for 60 s, and come after one: {answer:?}");
}

fn several(client: u64, number: u64, names: &[&str]) -> Acquire {
    let names: Vec<Name> = names.iter().map(|name| Name::new(name).unwrap()).collect();
    Acquire { names: Names::new(names).unwrap(), ..request(client, number) }
}

fn fences(acquired: Acquired) -> Vec<(Fence, u32)> {
    match acquired {
        Acquired::Granted(grants) => grants.iter().map(|grant| (grant.block.first, grant.holds)).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_shared_owner_re_enters_several_names_only_where_it_holds_them_all() {
    let mut store = Reference::new(1, Duration::ZERO);
    let first = fences(store.acquire(at(0), &several(1, 1, &["a", "b", "c"])).unwrap());
    let inner = several(2, 1, &["a", "c"]);
    for _ in 0..2 {
        let again = fences(store.acquire(at(0), &inner).unwrap());
        assert_eq!(again, [(first[0].0, 2), (first[2].0, 2)], "sent again, it counts once");
    }
    let error = store.acquire(at(0), &several(3, 1, &["a", "z"])).unwrap_err();
    assert_eq!((error.kind(), error.lock()), (ErrorKind::AlreadyHeld, Some("a")));
    assert_eq!(store.release(at(0), &release(&inner)).0, Released::StillHeld(1));
}

#[test]
fn several_names_are_not_re_entered_where_one_was_broken_or_the_owner_is_private() {
    let mut store = Reference::new(1, Duration::ZERO);
    store.acquire(at(0), &several(1, 1, &["a", "b"])).unwrap();
    store.break_lock(at(0), &Name::new("b").unwrap(), Break::AtLeaseEnd);
    let error = store.acquire(at(0), &several(2, 1, &["a", "b"])).unwrap_err();
    assert_eq!((error.kind(), error.lock()), (ErrorKind::AlreadyHeld, Some("a")));
    let private = |number| Acquire {
        owner: StoreOwner::Private(RequestId { client: ClientId([1, 0]), number: 1 }),
        ..several(1, number, &["c", "d"])
    };
    store.acquire(at(0), &private(1)).unwrap();
    assert_eq!(store.acquire(at(0), &private(2)).unwrap_err().kind(), ErrorKind::AlreadyHeld);
}

#[test]
fn a_name_that_lingers_is_shown_and_listed_with_who_held_it_last() {
    let mut store = Reference::new(1, Duration::ZERO);
    let name = Name::new("a").unwrap();
    let one = request(1, 1);
    store.acquire(at(0), &one).unwrap();
    store.release(at(0), &Release { linger: Duration::from_secs(5), ..release(&one) });
    let shown = store.inspect(at(1), &name);
    let lingers = shown.lingers.clone().unwrap();
    assert!(shown.holders.is_empty());
    assert_eq!(lingers.left, Duration::from_secs(4));
    assert_eq!(lingers.last.map(|last| (last.owner, last.holds)), Some((one.owner.clone(), 0)));
    assert_eq!(store.list(at(1), "", None, 10), [shown]);
    assert_eq!(store.inspect(at(5), &name).lingers, None);
    assert!(store.list(at(5), "", None, 10).is_empty());
    store.acquire(at(5), &request(2, 1)).unwrap();
    assert_eq!(store.inspect(at(5), &name).lingers, None, "it is held");
}
