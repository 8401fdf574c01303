//! Rows and holds: who holds a name, until when, and what a renewal or a release changes.

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const NANO: Duration = Duration::from_nanos(1);

fn name() -> Name {
    Name::new("a").unwrap()
}

fn private(client: u64, number: u64) -> Acquire {
    let asked = request(client, number);
    Acquire { owner: StoreOwner::Private(asked.request), lease: SECOND * 10, ..asked }
}

fn other(client: u64) -> Acquire {
    Acquire { owner: StoreOwner::Shared("other".into()), ..request(client, 1) }
}

fn granted(acquired: Acquired) -> Granted {
    match acquired {
        Acquired::Granted(grants) => grants[0],
        other => panic!("{other:?}"),
    }
}

fn busy(acquired: Acquired) -> Busy {
    match acquired {
        Acquired::Busy(busy) => *busy,
        other => panic!("{other:?}"),
    }
}

fn renew(of: &Acquire, fence: Fence, term: Duration) -> Renew {
    let lease = Lease { name: name(), owner: of.owner.clone(), fence };
    Renew { lease, hold: Some(of.request), term, kept: of.kept }
}

#[test]
fn an_owner_that_comes_at_the_end_of_its_lease_is_granted_anew() {
    let mut store = Reference::new(1, Duration::ZERO);
    let first = granted(store.acquire(at(0), &request(1, 1)).unwrap());
    let next = granted(store.acquire(at(1), &request(1, 2)).unwrap());
    assert!(next.block.first > first.block.first && next.holds == 1, "{first:?}, {next:?}");
}

#[test]
fn one_who_gives_everything_back_gives_nothing_of_another_owner() {
    let mut store = Reference::new(1, Duration::ZERO);
    let one = request(1, 1);
    granted(store.acquire(at(0), &one).unwrap());
    let everything = |of: &Acquire| Release { scope: ReleaseScope::All, ..release(of) };
    assert_eq!(store.release(at(0), &everything(&other(2))).0, Released::NotHeld);
    busy(store.acquire(at(0), &other(3)).unwrap());
    assert_eq!(store.release(at(1), &everything(&one)).0, Released::NotHeld, "its lease has ended");
}

#[test]
fn a_grant_lasts_as_long_as_its_lease() {
    let mut store = Reference::new(1, Duration::ZERO);
    let one = private(1, 1);
    let grant = granted(store.acquire(at(0), &one).unwrap());
    assert_eq!((grant.left, grant.holds, grant.block.len), (SECOND * 10, 1, 1));
    let refusal = busy(store.acquire(at(4), &private(2, 1)).unwrap());
    let holder = refusal.holder.unwrap();
    assert_eq!(
        (refusal.name, refusal.free_in, refusal.notification),
        (name(), Some(SECOND * 6), Notification::default())
    );
    assert_eq!((holder.owner.clone(), holder.fence), (one.owner.clone(), Some(grant.block.first)));
    assert_eq!((holder.holds, holder.left, holder.lease), (1, Some(SECOND * 6), Some(SECOND * 10)));
    assert_eq!((holder.since, holder.broken), (Some(at(0)), false));
    assert_eq!(store.inspect(at(4), &name()).holders, [holder]);
    busy(store.acquire(at(10) - NANO, &private(2, 1)).unwrap());
    assert!(store.inspect(at(10), &name()).holders.is_empty());
    granted(store.acquire(at(10), &private(2, 1)).unwrap());
}

#[test]
fn a_request_that_is_sent_again_is_granted_once_with_what_is_left() {
    let mut store = Reference::new(1, Duration::ZERO);
    let one = Acquire { block: 5, ..private(1, 1) };
    let first = granted(store.acquire(at(0), &one).unwrap());
    assert_eq!(first.block.len, 5);
    let again = granted(store.acquire(at(4), &one).unwrap());
    assert_eq!((again.block, again.holds, again.left), (first.block, 1, SECOND * 6));
    // Of a private owner there is nothing else to enter.
    let stranger = Acquire { owner: one.owner.clone(), ..private(1, 2) };
    let entered = granted(store.acquire(at(4), &stranger).unwrap());
    assert_eq!((entered.holds, entered.left), (1, Duration::ZERO));
    assert_eq!(store.release(at(5), &release(&one)).0, Released::Released { waiters: Some(0) });
}

#[test]
fn an_acquire_is_not_executed_after_its_time() {
    let mut store = Reference::new(1, Duration::ZERO);
    let in_time = Acquire { not_after: at(1), ..private(1, 1) };
    granted(store.acquire(at(1), &in_time).unwrap());
    let late = Acquire { not_after: at(1), ..private(2, 1) };
    assert!(matches!(store.acquire(at(1) + NANO, &late).unwrap(), Acquired::TooLate));
    // Its hold has ended: granted before, but not any more.
    assert!(matches!(store.acquire(at(11), &in_time).unwrap(), Acquired::TooLate));
    // Of several names it must hold all.
    let both = Acquire { not_after: at(1), ..several(1, 1, &["a", "b"]) };
    let mut store = Reference::new(1, Duration::ZERO);
    store.acquire(at(1), &both).unwrap();
    assert!(matches!(store.acquire(at(1) + NANO, &both).unwrap(), Acquired::Granted(_)));
    store.release(at(1), &release(&both));
    assert!(matches!(store.acquire(at(1) + NANO, &both).unwrap(), Acquired::TooLate));
}

#[test]
fn only_exclusive_locks_are_kept() {
    let mut store = Reference::new(1, Duration::ZERO);
    let shared = Acquire { mode: Mode::Shared, ..private(1, 1) };
    assert_eq!(store.acquire(at(0), &shared).unwrap_err().kind(), ErrorKind::Unfit);
}

/// A shared owner's second hold with a shorter lease, in another process, does not cut the first one short; and a longer one
/// does not lengthen it.
#[test]
fn each_hold_of_a_shared_owner_has_an_end_of_its_own() {
    for (first, second) in [(10, 2), (2, 10)] {
        let mut store = Reference::new(1, Duration::ZERO);
        let one = Acquire { lease: SECOND * first, ..request(1, 1) };
        let two = Acquire { lease: SECOND * second, ..request(2, 1) };
        let fence = granted(store.acquire(at(0), &one).unwrap()).block.first;
        let entered = granted(store.acquire(at(0), &two).unwrap());
        assert_eq!((entered.block.first, entered.holds, entered.left), (fence, 2, SECOND * second));
        let shown = &store.inspect(at(1), &name()).holders[0];
        assert_eq!((shown.holds, shown.left, shown.lease), (2, Some(SECOND * 9), Some(SECOND * 10)));
        busy(store.acquire(at(10) - NANO, &other(3)).unwrap());
        assert_eq!(store.inspect(at(2), &name()).holders[0].holds, 1, "the shorter one has ended");
        let (short, long) = if first < second { (&one, &two) } else { (&two, &one) };
        assert_eq!(store.renew(at(3), &[renew(short, fence, SECOND * 5)]), [Renewed::Lost]);
        assert_eq!(store.renew(at(3), &[renew(long, fence, SECOND)]), [Renewed::Kept { left: SECOND * 7 }]);
        granted(store.acquire(at(10), &other(3)).unwrap());
    }
}

#[test]
fn a_renewal_lengthens_its_own_hold_and_shortens_none() {
    let mut store = Reference::new(1, Duration::ZERO);
    let (one, two) = (Acquire { lease: SECOND * 4, ..request(1, 1) }, Acquire { lease: SECOND * 4, ..request(2, 1) });
    let fence = granted(store.acquire(at(0), &one).unwrap()).block.first;
    store.acquire(at(0), &two).unwrap();
    assert_eq!(store.renew(at(1), &[renew(&one, fence, SECOND * 9)]), [Renewed::Kept { left: SECOND * 9 }]);
    assert_eq!(store.renew(at(1), &[renew(&one, fence, SECOND)]), [Renewed::Kept { left: SECOND * 9 }]);
    assert_eq!(store.renew(at(4), &[renew(&two, fence, SECOND * 9)]), [Renewed::Lost], "it ended by itself");
    assert_eq!(store.inspect(at(4), &name()).holders[0].left, Some(SECOND * 6));
    // Without a hold that is named, every one that has not ended.
    store.acquire(at(5), &two).unwrap();
    let all = Renew { hold: None, ..renew(&one, fence, SECOND * 20) };
    assert_eq!(store.renew(at(5), &[all]), [Renewed::Kept { left: SECOND * 20 }]);
    store.release(at(6), &release(&one));
    assert_eq!(store.inspect(at(6), &name()).holders[0].left, Some(SECOND * 19));
}

#[test]
fn what_is_not_that_lease_is_not_renewed() {
    let mut store = Reference::new(1, Duration::ZERO);
    let one = private(1, 1);
    let fence = granted(store.acquire(at(0), &one).unwrap()).block.first;
    let wrong = [
        renew(&one, fence.plus(1), SECOND * 50),
        renew(&private(1, 2), fence, SECOND * 50),
        Renew { hold: Some(private(1, 2).request), ..renew(&one, fence, SECOND * 50) },
        Renew { hold: None, ..renew(&private(1, 2), fence, SECOND * 50) },
    ];
    assert_eq!(store.renew(at(1), &wrong), [Renewed::Lost; 4]);
    assert_eq!(store.inspect(at(1), &name()).holders[0].left, Some(SECOND * 9));
    store.break_lock(at(1), &name(), Break::AtLeaseEnd.into());
    assert_eq!(store.renew(at(1), &[renew(&one, fence, SECOND * 50)]), [Renewed::Broken], "it was broken");
    assert_eq!(store.renew(at(10), &[renew(&one, fence, SECOND * 50)]), [Renewed::Lost], "it has ended");
    assert!(store.inspect(at(10), &name()).holders.is_empty());
    assert_eq!(store.renew(at(10), &[renew(&one, fence, SECOND)]), [Renewed::Lost]);
}

#[test]
fn a_broken_lock_is_busy_to_its_own_owner_too() {
    let mut store = Reference::new(1, Duration::ZERO);
    store.acquire(at(0), &Acquire { lease: SECOND * 10, ..request(1, 1) }).unwrap();
    store.break_lock(at(0), &name(), Break::AtLeaseEnd.into());
    let refusal = busy(store.acquire(at(1), &request(2, 1)).unwrap());
    assert!(refusal.holder.unwrap().broken);
    assert_eq!(refusal.free_in, Some(SECOND * 9));
    let next = granted(store.acquire(at(10), &request(2, 1)).unwrap());
    assert_eq!(next.holds, 1);
}

#[test]
fn a_release_takes_only_what_is_of_its_lease() {
    let mut store = Reference::new(1, Duration::ZERO);
    let one = private(1, 1);
    let fence = granted(store.acquire(at(0), &one).unwrap()).block.first;
    let stale = Release { fence: Some(fence.plus(1)), ..release(&one) };
    assert_eq!(store.release(at(1), &stale).0, Released::NotHeld);
    assert_eq!(store.release(at(1), &release(&private(2, 1))).0, Released::NotHeld);
    let unknown = Release { scope: ReleaseScope::Hold(private(2, 1).request), cooldown: SECOND * 60, ..release(&one) };
    assert_eq!(store.release(at(1), &unknown).0, Released::NotHeld, "another hold of it");
    assert_eq!(store.release(at(10), &release(&one)).0, Released::NotHeld, "it has ended");
    granted(store.acquire(at(10), &private(3, 1)).unwrap());
    let mut store = Reference::new(1, Duration::ZERO);
    let fence = granted(store.acquire(at(0), &one).unwrap()).block.first;
    let right = Release { fence: Some(fence), ..release(&one) };
    assert_eq!(store.release(at(10) - NANO, &right).0, Released::Released { waiters: Some(0) });
    assert_eq!(store.release(at(10) - NANO, &right).0, Released::NotHeld, "once");
    let nobody = Release { name: Name::new("z").unwrap(), ..release(&one) };
    assert_eq!(store.release(at(1), &nobody).0, Released::NotHeld);
}

#[test]
fn holds_are_given_back_one_by_one_each_once() {
    let mut store = Reference::new(1, Duration::ZERO);
    let holds = [request(1, 1), request(2, 1), request(3, 1)];
    for hold in &holds {
        store.acquire(at(0), hold).unwrap();
    }
    for _ in 0..2 {
        assert_eq!(store.release(at(0), &release(&holds[0])).0, Released::StillHeld(2));
    }
    let any = |number| ReleaseScope::One(RequestId { client: ClientId([9, 0]), number });
    let one = |number| Release { scope: any(number), ..release(&holds[1]) };
    for _ in 0..2 {
        assert_eq!(store.release(at(0), &one(1)).0, Released::StillHeld(1), "counted once by its own id");
    }
    assert_eq!(store.release(at(0), &one(2)).0, Released::Released { waiters: Some(0) });
    for hold in &holds {
        store.acquire(at(1), hold).unwrap();
    }
    let all = Release { scope: ReleaseScope::All, ..release(&holds[0]) };
    assert_eq!(store.release(at(1), &all).0, Released::Released { waiters: Some(0) });
}

/// A hold that has ended is not counted, and does not keep the name when the last living one is given back.
#[test]
fn ended_holds_are_not_given_back_in_anybodys_place() {
    let mut store = Reference::new(1, Duration::ZERO);
    let (short, long) = (Acquire { lease: SECOND, ..request(1, 1) }, Acquire { lease: SECOND * 9, ..request(2, 1) });
    store.acquire(at(0), &short).unwrap();
    store.acquire(at(0), &long).unwrap();
    assert_eq!(store.release(at(1), &release(&short)).0, Released::NotHeld);
    assert_eq!(store.release(at(1), &release(&long)).0, Released::Released { waiters: Some(0) });
    store.acquire(at(2), &short).unwrap();
    store.acquire(at(2), &long).unwrap();
    let third = Acquire { lease: SECOND * 9, ..request(3, 1) };
    assert_eq!(granted(store.acquire(at(3), &third).unwrap()).holds, 2, "the first has just ended");
}

#[test]
fn when_the_longest_hold_goes_the_rest_ends_as_it_would() {
    let mut store = Reference::new(1, Duration::ZERO);
    let (short, long) = (Acquire { lease: SECOND, ..request(1, 1) }, Acquire { lease: SECOND * 9, ..request(2, 1) });
    store.acquire(at(0), &short).unwrap();
    store.acquire(at(0), &long).unwrap();
    assert_eq!(store.release(at(0), &release(&long)).0, Released::StillHeld(1));
    assert_eq!(store.inspect(at(0), &name()).holders[0].left, Some(SECOND));
    granted(store.acquire(at(1), &other(3)).unwrap());
}

#[test]
fn lingering_keeps_everybody_out_and_is_never_shortened() {
    let mut store = Reference::new(1, Duration::ZERO);
    let (one, two) = (request(1, 1), request(2, 1));
    store.acquire(at(0), &one).unwrap();
    store.acquire(at(0), &two).unwrap();
    store.release(at(0), &Release { cooldown: SECOND * 8, ..release(&one) });
    store.release(at(0), &Release { cooldown: SECOND * 2, ..release(&two) });
    let refusal = busy(store.acquire(at(3), &one).unwrap());
    assert_eq!((refusal.holder, refusal.free_in), (None, Some(SECOND * 5)));
    granted(store.acquire(at(8), &one).unwrap());
    assert_eq!(busy(store.acquire(at(8), &other(3)).unwrap()).free_in, Some(SECOND));
}

#[test]
fn one_who_enters_what_is_held_is_not_kept_out_by_lingering() {
    let mut store = Reference::new(1, Duration::ZERO);
    let (one, two, three) = (request(1, 1), request(2, 1), request(3, 1));
    store.acquire(at(0), &one).unwrap();
    store.acquire(at(0), &two).unwrap();
    store.release(at(0), &Release { cooldown: SECOND * 8, ..release(&one) });
    assert_eq!(granted(store.acquire(at(0), &three).unwrap()).holds, 2);
    let refusal = busy(store.acquire(at(0), &other(4)).unwrap());
    assert_eq!(store.inspect(at(0), &name()).cooldown, None, "it is held");
    assert_eq!(refusal.free_in, Some(SECOND * 8), "to the end of lingering, which is later than the lease");
}

#[test]
fn what_is_kept_by_a_process_is_buried_with_it() {
    let mut store = Reference::new(1, Duration::ZERO);
    let bury = |store: &mut Reference, client: u64| {
        let mut record = store.take(&name()).unwrap();
        let any = record.bury(|gone| gone == ClientId([client, 0]));
        store.put(name(), record);
        any
    };
    let kept = |client| Acquire { kept: true, ..request(client, 1) };
    store.acquire(at(0), &Acquire { lease: SECOND * 9, ..kept(1) }).unwrap();
    store.acquire(at(0), &kept(2)).unwrap();
    assert!(!bury(&mut store, 7));
    assert!(bury(&mut store, 1));
    let left = &store.inspect(at(0), &name()).holders[0];
    assert_eq!((left.holds, left.left), (1, Some(SECOND)));
    assert!(bury(&mut store, 2));
    assert!(store.inspect(at(0), &name()).holders.is_empty());
    // One hold that is not kept takes that back for all.
    for takes_back in ["a second hold", "a renewal", "nothing"] {
        let mut store = Reference::new(1, Duration::ZERO);
        let fence = granted(store.acquire(at(0), &kept(1)).unwrap()).block.first;
        match takes_back {
            "a second hold" => drop(store.acquire(at(0), &request(2, 1)).unwrap()),
            "a renewal" => drop(store.renew(at(0), &[Renew { kept: false, ..renew(&kept(1), fence, SECOND) }])),
            _ => {}
        }
        assert_eq!(bury(&mut store, 1), takes_back == "nothing", "{takes_back}");
    }
}

#[test]
fn several_names_are_taken_together_or_not_at_all() {
    let mut store = Reference::new(1, Duration::ZERO);
    store.acquire(at(0), &Acquire { names: several(1, 1, &["b"]).names, ..private(1, 1) }).unwrap();
    let both = Acquire { enlist: true, ..several(2, 1, &["a", "b", "c"]) };
    let refusal = busy(store.acquire(at(0), &both).unwrap());
    assert_eq!(refusal.name, Name::new("b").unwrap());
    for (free, waiters) in [("a", 0), ("b", 1), ("c", 0)] {
        let shown = store.inspect(at(0), &Name::new(free).unwrap());
        assert_eq!((shown.holders.len(), shown.waiters), (usize::from(free == "b"), Some(waiters)), "{free}");
    }
}

#[test]
fn names_are_listed_in_order_by_prefix_page_by_page() {
    let mut store = Reference::new(1, Duration::ZERO);
    for text in ["b/2", "b/1", "a/1", "b/3", "c"] {
        store.acquire(at(0), &Acquire { names: several(1, 1, &[text]).names, ..private(1, 1) }).unwrap();
    }
    let names = |after: Option<&str>, limit| -> Vec<String> {
        let after = after.map(|after| Name::new(after).unwrap());
        store.list(at(1), "b/", after.as_ref(), limit).iter().map(|shown| shown.name.to_string()).collect()
    };
    assert_eq!(names(None, 10), ["b/1", "b/2", "b/3"]);
    assert_eq!(names(None, 2), ["b/1", "b/2"]);
    assert_eq!(names(Some("b/2"), 10), ["b/3"]);
    assert!(store.list(at(10), "", None, 10).is_empty(), "all have ended");
}

#[test]
fn a_renewal_of_every_hold_answers_with_the_one_that_lasts_longest() {
    let mut store = Reference::new(1, Duration::ZERO);
    let (long, short) =
        (Acquire { lease: SECOND * 9, ..request(1, 1) }, Acquire { lease: SECOND * 4, ..request(2, 1) });
    let fence = granted(store.acquire(at(0), &long).unwrap()).block.first;
    store.acquire(at(0), &short).unwrap();
    let all = Renew { hold: None, ..renew(&long, fence, SECOND) };
    assert_eq!(store.renew(at(0), &[all]), [Renewed::Kept { left: SECOND * 9 }]);
}

#[test]
fn a_group_that_is_sent_again_is_granted_again() {
    let mut store = Reference::new(1, Duration::ZERO);
    let group = several(1, 1, &["a", "b"]);
    let group = Acquire { owner: StoreOwner::Private(group.request), block: 0, ..group };
    let first = store.acquire(at(0), &group).unwrap();
    assert_eq!(granted(first.clone()).block.len, 1, "one fence at least");
    assert_eq!(fences(store.acquire(at(0), &group).unwrap()), fences(first));
}

/// As many as 64 releases that are sent again count once, whatever was given back since.
#[test]
fn a_row_remembers_many_holds_that_were_given_back() {
    let mut store = Reference::new(1, Duration::ZERO);
    let holds: Vec<Acquire> = (0..70).map(|number| request(1, number)).collect();
    for hold in &holds {
        store.acquire(at(0), hold).unwrap();
    }
    for (at_most, hold) in holds[..64].iter().enumerate() {
        assert_eq!(store.release(at(0), &release(hold)).0, Released::StillHeld(69 - at_most as u32));
    }
    assert_eq!(store.release(at(0), &release(&holds[0])).0, Released::StillHeld(6));
    store.acquire(at(0), &holds[0]).unwrap();
    assert_eq!(store.inspect(at(0), &name()).holders[0].holds, 6, "nor does a sending of it count again");
}

#[test]
fn who_holds_a_name_and_who_left_it_is_told_in_full() {
    let mut store = Reference::new(1, Duration::ZERO);
    let about = Arc::new(About { pid: Some(7), ..About::default() });
    let one = Acquire { about: about.clone(), ..private(1, 1) };
    let fence = granted(store.acquire(at(0), &one).unwrap()).block.first;
    assert_eq!(store.inspect(at(0), &name()).holders[0].about, about);
    store.release(at(1), &Release { cooldown: SECOND * 5, ..release(&one) });
    let last = store.inspect(at(2), &name()).cooldown.unwrap().last.unwrap();
    assert_eq!((last.fence, last.lease, last.since), (Some(fence), Some(SECOND * 10), Some(at(0))));
    assert_eq!((last.about, last.left, last.broken), (about, Some(Duration::ZERO), false));
}
