//! Checks of the reference store: what simulated worlds found.

use super::*;
use crate::name::Names;
use crate::quorum::member::{Ballot, Voted};

fn request(client: u64, number: u64) -> Acquire {
    Acquire::new(
        Names::One(Name::new("a").unwrap()),
        StoreOwner::Shared("shared".into()),
        RequestId { client: ClientId([client, 0]), number },
        Duration::from_secs(1),
    )
}

fn release(of: &Acquire) -> Release {
    Release::hold(Name::new("a").unwrap(), of.owner.clone(), of.request)
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
    let lingering = Release { cooldown: Duration::from_secs(60), ..release(&one) };
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
    store.break_lock(at(0), &Name::new("b").unwrap(), Break::AtLeaseEnd.into());
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
    store.release(at(0), &Release { cooldown: Duration::from_secs(5), ..release(&one) });
    let shown = store.inspect(at(1), &name);
    let cooldown = shown.cooldown.clone().unwrap();
    assert!(shown.holders.is_empty());
    assert_eq!(cooldown.left, Duration::from_secs(4));
    assert_eq!(cooldown.last.map(|last| (last.owner, last.holds)), Some((one.owner.clone(), 0)));
    assert_eq!(store.list(at(1), "", None, 10), [shown]);
    assert_eq!(store.inspect(at(5), &name).cooldown, None);
    assert!(store.list(at(5), "", None, 10).is_empty());
    store.acquire(at(5), &request(2, 1)).unwrap();
    assert_eq!(store.inspect(at(5), &name).cooldown, None, "it is held");
}

/// Of a request of its own, for `first` and as many fences as are said.
fn ballot(client: u64, first: u64, len: u32) -> Ballot {
    let acquire = Acquire { lease: Duration::from_secs(30), ..request(client, 1) };
    let owner = StoreOwner::Private(acquire.request);
    Ballot { acquire: Acquire { owner, ..acquire }, block: Block { first: Fence::new(first), len }, again: false }
}

/// Whether the fences of a ballot are taken by a server that has the name for it.
fn takes(store: &mut Reference, now: StoreTime, ballot: &Ballot) -> bool {
    match store.vote(now, ballot, Fence::NONE) {
        Voted::Took { .. } => true,
        Voted::Held { .. } => false,
        other => panic!("{other:?}"),
    }
}

/// The clock of [`at`] as a fence.
fn fence_at(seconds: u64) -> u64 {
    Fence::at(at(seconds)).get()
}

/// A store where another was granted these fences and has gone.
fn after_another(first: u64, len: u32) -> Reference {
    let mut store = Reference::new(1, FENCES_KEPT_FOR);
    let other = ballot(9, first, len);
    assert!(takes(&mut store, at(0), &other));
    store.withdraw(at(0), &release(&other.acquire));
    store
}

#[test]
fn a_ballot_that_is_executed_twice_is_answered_alike() {
    let first = fence_at(0);
    let mut store = after_another(first, 1);
    let same_as_the_other = ballot(1, first, 1);
    assert!(!takes(&mut store, at(0), &same_as_the_other), "another had this fence");
    assert!(!takes(&mut store, at(0), &same_as_the_other), "and had it before it was asked twice");
    let larger = ballot(1, first + 10, 1);
    assert!(takes(&mut store, at(0), &larger));
    assert!(!takes(&mut store, at(0), &same_as_the_other), "it is stale");
    assert!(takes(&mut store, at(0), &larger), "what is stale has taken the fences away");
    assert!(!takes(&mut store, at(0), &ballot(1, first + 10, 2)), "these are others");
}

#[test]
fn a_ballot_that_was_too_far_ahead_of_the_clock_stays_refused() {
    let mut store = Reference::new(1, FENCES_KEPT_FOR);
    let ahead = ballot(1, fence_at(3), 1);
    assert!(!takes(&mut store, at(0), &ahead));
    assert!(!takes(&mut store, at(3), &ahead));
    assert!(takes(&mut store, at(3), &ballot(1, fence_at(3) + 1, 1)));
}

/// Two clients may propose the same fence, and a majority grant it to one of them.
#[test]
fn a_ballot_joins_neither_another_owners_grant_nor_one_that_was_broken() {
    let mut store = Reference::new(1, FENCES_KEPT_FOR);
    let first = fence_at(1);
    assert!(takes(&mut store, at(1), &ballot(1, first, 1)));
    let others = Ballot { again: true, ..ballot(2, first, 1) };
    assert!(matches!(store.vote(at(1), &others, Fence::NONE), Voted::Busy(_)));
    store.break_lock(at(1), &Name::new("a").unwrap(), Break::AtLeaseEnd.into());
    assert!(matches!(store.vote(at(1), &ballot(1, first, 1), Fence::NONE), Voted::Busy(_)));
}

#[test]
fn a_ballot_is_no_repeat_once_its_lease_is_over() {
    let mut store = Reference::new(1, FENCES_KEPT_FOR);
    let one = ballot(1, fence_at(0), 1);
    assert!(takes(&mut store, at(0), &one));
    assert!(!takes(&mut store, at(30), &one), "these fences were given out before");
}

#[test]
fn what_joined_a_majority_is_confirmed_though_the_server_knows_a_larger_fence() {
    let mut store = after_another(fence_at(0) + 100, 1);
    let ours = ballot(1, fence_at(0), 1);
    assert!(takes(&mut store, at(0), &Ballot { again: true, ..ours.clone() }));
    assert!(takes(&mut store, at(0), &ours));
}

#[test]
fn fences_that_were_not_taken_are_not_given_back() {
    let first = fence_at(0);
    let mut store = after_another(first, 3);
    let same_as_the_other = ballot(1, first, 3);
    assert!(!takes(&mut store, at(0), &same_as_the_other));
    let given = Release { last_used: Some(Fence::new(first)), ..release(&same_as_the_other.acquire) };
    assert!(matches!(store.release(at(0), &given).0, Released::Released { .. }));
    assert!(!takes(&mut store, at(0), &ballot(2, first + 1, 1)), "the other may have used it");
}

#[test]
fn a_vote_is_executed_up_to_the_last_moment() {
    let mut store = Reference::new(1, FENCES_KEPT_FOR);
    let mut in_time = ballot(1, fence_at(1), 1);
    in_time.acquire.not_after = at(1);
    let late = store.vote(at(1) + Duration::from_nanos(1), &in_time, Fence::NONE);
    assert!(matches!(late, Voted::TooLate), "{late:?}");
    assert!(takes(&mut store, at(1), &in_time));
}

#[test]
fn a_ballot_is_stale_once_its_request_proposed_larger_fences_though_they_were_not_taken() {
    let mut store = Reference::new(1, FENCES_KEPT_FOR);
    let first = ballot(1, fence_at(0), 1);
    assert!(takes(&mut store, at(0), &first));
    assert!(!takes(&mut store, at(0), &ballot(1, fence_at(3), 1)), "it is too far ahead of the clock");
    assert!(!takes(&mut store, at(0), &first));
}

#[test]
fn a_vote_leaves_the_others_in_line() {
    let mut store = Reference::new(1, FENCES_KEPT_FOR);
    let first = ballot(1, fence_at(0), 1);
    assert!(takes(&mut store, at(0), &first));
    for waits in [2, 3] {
        let mut refused = ballot(waits, fence_at(0) + 1, 1);
        refused.acquire.enlist = true;
        assert!(matches!(store.vote(at(0), &refused, Fence::NONE), Voted::Busy(_)));
    }
    store.withdraw(at(1), &release(&first.acquire));
    assert!(takes(&mut store, at(1), &ballot(2, fence_at(1), 1)));
    assert_eq!(store.inspect(at(1), first.acquire.names.first()).waiters, Some(1), "the third still waits");
}

#[test]
fn of_several_names_all_take_the_fences_or_none() {
    let first = fence_at(0);
    let mut store = after_another(first, 1);
    let mut both = ballot(1, first, 1);
    both.acquire.names = Names::new(["a", "b"].map(|name| Name::new(name).unwrap())).unwrap();
    assert!(!takes(&mut store, at(0), &both));
    assert!(!takes(&mut store, at(0), &both));
    assert!(takes(&mut store, at(0), &Ballot { block: Block { first: Fence::new(first + 1), len: 1 }, ..both }));
}
mod line;
mod memory;
mod rows;
/// Its hold of one name has ended, another of its owner's has not: it would wait for itself, as if it had never held it.
#[test]
fn an_ended_hold_of_one_name_does_not_take_several() {
    let mut store = Reference::new(1, Duration::ZERO);
    let names = Names::new(["a", "b"].map(|name| Name::new(name).unwrap())).unwrap();
    let both = Acquire { names, ..request(1, 1) };
    store.acquire(at(0), &both).unwrap();
    store.acquire(at(0), &Acquire { lease: Duration::from_secs(60), ..request(2, 1) }).unwrap();
    assert_eq!(store.acquire(at(2), &both).unwrap_err().kind(), ErrorKind::AlreadyHeld);
}
