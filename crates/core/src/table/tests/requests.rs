//! What is asked of the store, field by field.

use super::*;
use crate::options::WaitMode;
use crate::owner::{RequestId, StoreOwner};
use crate::port::{About, Acquire, Mode, Release, ReleaseScope};

const ME: ClientId = ClientId([1, 1]);

fn acquire(request: Request) -> Acquire {
    match request {
        Request::Acquire(acquire) => acquire,
        other => panic!("{other:?}"),
    }
}

fn release(request: Request) -> Release {
    match request {
        Request::Release(release) => release,
        other => panic!("{other:?}"),
    }
}

impl Bench {
    /// The first in line asks, is refused, subscribes, asks again, is refused, and sleeps.
    pub(super) fn fall_asleep(&mut self, ask: Context, name: &str) {
        self.busy(ask, name);
        let (watch, request) = self.call();
        assert!(matches!(request, Request::Watch(_)), "{request:?}");
        self.step(Input::Answer(watch, Answer::Watch(Ok(()))));
        let (ask, _) = self.call();
        self.busy(ask, name);
    }

    fn grant_block(&mut self, context: Context, first: Fence, len: u32) -> Grant {
        let granted = Granted { block: Block { first, len }, holds: 1, left: LEASE };
        let reply = self.ok(Acquired::Granted(smallvec![granted]));
        self.step(Input::Answer(context, Answer::Acquire(reply)));
        self.granted().expect("it is granted")
    }
}

#[test]
fn an_acquire_says_all_that_the_store_must_know() {
    let mut bench = Bench::new();
    let about = Arc::new(About { pid: Some(7), ..About::default() });
    let (id, names) = (bench.table.ticket(), Names::One(named("a")));
    let options = Arc::new(Options { term: KEPT, ..Options::default() });
    let want = AcquireRequest { names, owner: fresh(1), options, about: about.clone(), once: false, until: None };
    bench.step(Input::Acquire(id, want));
    let (_, request) = bench.call();
    let asked = acquire(request);
    assert_eq!(asked.names.as_slice(), [named("a")]);
    assert_eq!(asked.request.client, ME);
    assert_eq!(asked.owner, StoreOwner::Private(asked.request), "an owner of this client's making");
    assert_eq!((asked.mode, asked.lease, asked.block, asked.seen), (Mode::Exclusive, LEASE, 1, Fence::NONE));
    assert_eq!((asked.enlist, asked.kept), (true, true));
    assert_eq!(asked.about, about);
}

#[test]
fn each_kind_of_wish_asks_in_its_own_way() {
    let ask = |owner: &Owner, options: Options, once: bool| {
        let mut bench = Bench::new();
        bench.want_with(&["a"], owner, options, once);
        acquire(bench.call().1)
    };
    let kept = || Options { term: KEPT, ..Options::default() };
    let fixed = Options { term: FIXED, ..Options::default() };
    assert!(!ask(&fresh(1), kept(), true).enlist, "one who asks once does not wait");
    let spinning = Options { wait_mode: WaitMode::Spinning, ..kept() };
    assert!(!ask(&fresh(1), spinning, false).enlist, "and one who spins asks again by itself");
    assert!(!ask(&fresh(1), fixed.clone(), false).kept, "a fixed lease may outlive its process");
    let at_least = Options { at_least: LEASE, ..kept() };
    assert!(!ask(&fresh(1), at_least, false).kept, "and so does one that keeps others out");
    let longer = Options { at_least: LEASE * 2, ..fixed };
    assert_eq!(ask(&fresh(1), longer, false).lease, LEASE * 2);
    let shorter = Options { max_hold: Some(LEASE / 2), ..kept() };
    assert_eq!(ask(&fresh(1), shorter, false).lease, LEASE / 2);
    assert_eq!(ask(&explicit(), kept(), false).owner, StoreOwner::Shared(explicit().as_explicit().unwrap().clone()));
}

#[test]
fn all_sendings_of_one_wish_bear_one_id_and_the_next_wish_another() {
    let mut bench = Bench::new();
    let id = bench.want(&["a"], &fresh(1), KEPT);
    let (ask, request) = bench.call();
    let first = acquire(request).request;
    bench.step(Input::Answer(ask, Answer::Acquire(Err(unknown()))));
    bench.now = bench.sleeps_until(id).unwrap();
    bench.step(Input::Woke(id, named("a")));
    let (ask, request) = bench.call();
    assert_eq!(acquire(request).request, first);
    bench.grant(ask, LEASE);
    bench.want(&["b"], &fresh(2), KEPT);
    let (_, request) = bench.call();
    let second = acquire(request).request;
    assert_ne!(second, first);
    let ids = [first, second, bench.table.request(), bench.table.request()];
    assert!(ids.iter().all(|id| id.client == ME && ids.iter().filter(|other| *other == id).count() == 1), "{ids:?}");
}

/// As many fences are reserved as those in line can use, while the lease is asked for.
#[test]
fn a_block_is_as_large_as_the_line_that_can_use_it() {
    for (others, expected) in [(0, 1), (1, 17), (3, 49)] {
        let mut bench = Bench::new();
        let first = bench.want(&["a"], &fresh(1), KEPT);
        let (ask, _) = bench.call();
        for other in 0..others {
            bench.want(&["a"], &fresh(10 + other), KEPT);
        }
        // None of these can have a lease that is passed on.
        bench.want(&["a"], &explicit(), KEPT);
        bench.want(&["a"], &fresh(20), FIXED);
        bench.want_with(&["a"], &fresh(21), Options { budget: Duration::ZERO, ..Options::default() }, false);
        bench.want_with(&["a"], &fresh(22), Options { at_least: LEASE, ..Options::default() }, false);
        bench.step(Input::Answer(ask, Answer::Acquire(Err(unreached()))));
        bench.now = bench.sleeps_until(first).unwrap();
        bench.step(Input::Woke(first, named("a")));
        assert_eq!(acquire(bench.call().1).block, expected);
    }
    let mut bench = Bench::new();
    let first = bench.want(&["a"], &fresh(1), KEPT);
    let (ask, _) = bench.call();
    let leaves = bench.want(&["a"], &fresh(2), KEPT);
    bench.want(&["a"], &fresh(3), KEPT);
    bench.step(Input::Cancel(leaves, named("a")));
    bench.step(Input::Answer(ask, Answer::Acquire(Err(unreached()))));
    bench.now = bench.sleeps_until(first).unwrap();
    bench.step(Input::Woke(first, named("a")));
    assert_eq!(acquire(bench.call().1).block, 17, "one of two has left the line");
    let mut bench = Bench::new();
    bench.want(&["a"], &explicit(), KEPT);
    let (ask, _) = bench.call();
    bench.want(&["a"], &fresh(1), KEPT);
    bench.want(&["a"], &fresh(2), KEPT);
    bench.fall_asleep(ask, "a");
    bench.step(Input::Hint(named("a")));
    assert_eq!(acquire(bench.call().1).block, 1, "an explicit owner passes nothing on");
}

/// The largest fence of a name, from the store or by handoff, is known to the next asking for it, and to no asking for another.
#[test]
fn the_largest_fence_seen_of_a_name_is_told_to_the_store() {
    let mut bench = Bench::new();
    bench.want(&["a"], &fresh(1), KEPT);
    let (ask, asked) = bench.call();
    assert_eq!(acquire(asked).seen, Fence::NONE);
    bench.want(&["a"], &fresh(2), KEPT);
    bench.want(&["a"], &fresh(3), FIXED);
    let first = Fence::new(1_000_000);
    let one = bench.grant_block(ask, first, 17);
    assert_eq!(one.fence, first);
    bench.want(&["b"], &fresh(4), KEPT);
    assert_eq!(acquire(bench.call().1).seen, Fence::NONE, "a fence of another name says nothing");
    bench.pass(Duration::from_micros(1));
    bench.step(Input::Release(one.hold, named("a")));
    let two = bench.granted().expect("it is passed on");
    assert_eq!((two.fence, two.how, two.holds, two.entered), (first.plus(1), How::HandedOff, 1, false));
    // The next one takes a fixed lease, so it asks the store; a smaller fence does not undo what was seen.
    for smaller in [Fence::new(10), Fence::new(11)] {
        let hold = bench.granted().expect("somebody has it").hold;
        bench.out.clear();
        bench.want(&["a"], &fresh(5 + smaller.get()), FIXED);
        bench.step(Input::Release(hold, named("a")));
        let (release, _) = bench.call();
        bench.release_answered(release, Released::Released { waiters: Some(0) });
        let (ask, asked) = bench.call();
        assert_eq!(acquire(asked).seen, first.plus(1));
        bench.grant_block(ask, smaller, 1);
    }
}

#[test]
fn the_fence_of_a_grant_is_told_to_the_store_by_the_next_asking() {
    let mut bench = Bench::new();
    bench.want(&["a"], &fresh(1), KEPT);
    let (ask, _) = bench.call();
    let fence = Fence::new(1_000_000);
    let hold = bench.grant_block(ask, fence, 1).hold;
    bench.want(&["a"], &fresh(2), KEPT);
    bench.step(Input::Release(hold, named("a")));
    let (release, _) = bench.call();
    bench.release_answered(release, Released::Released { waiters: Some(0) });
    assert_eq!(acquire(bench.call().1).seen, fence);
}

#[test]
fn a_release_says_which_hold_and_how_much_of_its_block_was_used() {
    let mut bench = Bench::new();
    bench.want(&["a"], &fresh(1), KEPT);
    let (ask, request) = bench.call();
    let asked = acquire(request);
    bench.want(&["a"], &fresh(2), KEPT);
    let first = Fence::new(1_000_000);
    let one = bench.grant_block(ask, first, 3);
    bench.pass(Duration::from_micros(1));
    bench.step(Input::Release(one.hold, named("a")));
    let two = bench.granted().unwrap();
    bench.step(Input::Release(two.hold, named("a")));
    let given = release(bench.call().1);
    assert_eq!((given.client, given.name, given.owner), (ME, named("a"), asked.owner));
    assert_eq!((given.fence, given.last_used), (Some(first), Some(first.plus(1))));
    assert_eq!(given.scope, ReleaseScope::Hold(asked.request));
    assert_eq!((given.cooldown, given.rejoin), (Duration::ZERO, false));
}

#[test]
fn a_block_that_is_used_up_has_nothing_to_give_back() {
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), KEPT);
    bench.step(Input::Release(hold, named("a")));
    assert_eq!(release(bench.call().1).last_used, None);
}

#[test]
fn what_is_left_of_at_least_is_asked_of_the_store() {
    let mut bench = Bench::new();
    let owner = fresh(1);
    let at_least = Options { term: KEPT, at_least: LEASE / 2, ..Options::default() };
    bench.want_with(&["a"], &owner, at_least.clone(), false);
    let (ask, _) = bench.call();
    bench.pass(Duration::from_millis(5));
    bench.grant(ask, LEASE);
    let one = bench.granted().unwrap().hold;
    bench.pass(LEASE / 10);
    bench.want_with(&["a"], &owner, at_least, false);
    let two = bench.granted().expect("it re-enters").hold;
    bench.step(Input::Release(one, named("a")));
    bench.pass(LEASE / 10);
    bench.step(Input::Release(two, named("a")));
    assert_eq!(release(bench.call().1).cooldown, LEASE / 2 - LEASE / 10, "of the one that came last");
}

#[test]
fn a_lock_that_must_stay_taken_is_not_passed_on_before() {
    let mut bench = Bench::new();
    let owner = fresh(1);
    bench.want(&["a"], &owner, KEPT);
    let (ask, _) = bench.call();
    bench.want(&["a"], &fresh(2), KEPT);
    let one = bench.grant_block(ask, Fence::new(1_000_000), 17).hold;
    let at_least = Options { term: KEPT, at_least: Duration::from_millis(30), ..Options::default() };
    bench.want_with(&["a"], &owner, at_least, false);
    let two = bench.granted().map(|grant| grant.hold);
    // It is to outlive the process, which the store must know first.
    let two = two.unwrap_or_else(|| {
        let (lengthen, _) = bench.call();
        let reply = bench.ok(vec![Renewed::Kept { left: LEASE }]);
        bench.step(Input::Answer(lengthen, Answer::Renew(reply)));
        bench.granted().unwrap().hold
    });
    bench.step(Input::Release(two, named("a")));
    bench.pass(Duration::from_millis(10));
    bench.step(Input::Release(one, named("a")));
    assert!(bench.granted().is_none());
    assert_eq!(release(bench.call().1).cooldown, Duration::from_millis(20));
}

/// A client that gives its turn away and has more in line stands at the end of the store's line in the same step.
#[test]
fn a_release_with_others_in_line_joins_the_stores_line_again() {
    for waits in [false, true] {
        let mut bench = Bench::new();
        bench.want(&["a"], &fresh(1), FIXED);
        let (ask, _) = bench.call();
        bench.fall_asleep(ask, "a");
        bench.step(Input::Hint(named("a")));
        let (ask, _) = bench.call();
        bench.grant(ask, LEASE);
        let hold = bench.granted().unwrap().hold;
        if waits {
            bench.want(&["a"], &fresh(2), FIXED);
        }
        bench.step(Input::Release(hold, named("a")));
        assert_eq!(release(bench.call().1).rejoin, waits);
    }
}

/// An earlier sending may still be executed, under another fence: the release is about whatever it is granted.
#[test]
fn a_grant_that_nobody_takes_goes_back_as_it_came() {
    for lost_before in [false, true] {
        let mut bench = Bench::new();
        let id = bench.want(&["a"], &fresh(1), KEPT);
        let (mut ask, request) = bench.call();
        let asked = acquire(request);
        if lost_before {
            bench.step(Input::Answer(ask, Answer::Acquire(Err(unknown()))));
            bench.now = bench.sleeps_until(id).unwrap();
            bench.step(Input::Woke(id, named("a")));
            ask = bench.call().0;
        }
        bench.step(Input::Cancel(id, named("a")));
        let first = Fence::new(1_000_000);
        let granted = Granted { block: Block { first, len: 3 }, holds: 1, left: LEASE };
        let reply = bench.ok(Acquired::Granted(smallvec![granted]));
        bench.step(Input::Answer(ask, Answer::Acquire(reply)));
        let (context, request) = bench.call();
        let given = release(request);
        assert_eq!((given.client, given.name, given.owner), (ME, named("a"), asked.owner));
        assert_eq!(given.scope, ReleaseScope::Hold(asked.request));
        assert_eq!(given.fence, (!lost_before).then_some(first));
        assert_eq!((given.last_used, given.cooldown, given.rejoin), (Some(first), Duration::ZERO, false));
        assert_eq!(
            bench.table.next_timer(),
            Some(crate::lease::surely_over(bench.now, LEASE).max(if lost_before {
                crate::lease::surely_over(Moment::from_nanos(1_000_000_000) + CALL * 2, LEASE)
            } else {
                bench.now
            }))
        );
        if !lost_before {
            bench.release_answered(context, Released::Released { waiters: Some(0) });
            assert!(bench.table.is_empty());
        }
    }
}

#[test]
fn a_wish_that_was_taken_back_is_released_without_a_fence_until_that_is_certain() {
    let mut bench = Bench::new();
    let id = bench.want(&["a"], &fresh(1), KEPT);
    let (ask, request) = bench.call();
    let asked = acquire(request);
    bench.pass(CALL);
    bench.step(Input::Answer(ask, Answer::Acquire(Err(unknown()))));
    bench.step(Input::Cancel(id, named("a")));
    let (withdraw, request) = bench.call();
    let given = release(request);
    assert_eq!((given.client, given.fence, given.last_used), (ME, None, None));
    assert_eq!((given.scope, given.owner), (ReleaseScope::Hold(RequestId { ..asked.request }), asked.owner));
    assert_eq!((given.cooldown, given.rejoin), (Duration::ZERO, false));
    // Answered at the last moment at which the acquire may be executed: not certain.
    let reply = Ok(Answered { at: asked.not_after, result: Released::NotHeld });
    bench.step(Input::Answer(withdraw, Answer::Release(reply)));
    assert!(bench.out.iter().all(|output| !matches!(output, Output::Background(_))), "{:?}", bench.out);
    assert_eq!(bench.table.next_timer(), Some(bench.now + Duration::from_millis(1)));
    bench.pass(Duration::from_millis(1));
    bench.step(Input::Tick);
    let (withdraw, _) = bench.call();
    let at = asked.not_after + Duration::from_nanos(1);
    bench.step(Input::Answer(withdraw, Answer::Release(Ok(Answered { at, result: Released::NotHeld }))));
    assert!(bench.table.is_empty());
}

/// A store whose clock was set back by an hour would keep the name from this client for as long; others get it at once.
#[test]
fn a_withdrawal_is_settled_by_our_own_clock_where_the_store_s_was_set_back() {
    let mut bench = Bench::new();
    let id = bench.want(&["a"], &explicit(), KEPT);
    let (ask, _) = bench.call();
    let asked = bench.now;
    bench.step(Input::Answer(ask, Answer::Acquire(Err(unknown()))));
    bench.step(Input::Cancel(id, named("a")));
    let mut sent = Vec::new();
    while !bench.table.is_empty() {
        let (withdraw, _) = bench.call();
        sent.push(bench.now);
        let at = store_time(bench.now) - Duration::from_secs(3_600);
        bench.step(Input::Answer(withdraw, Answer::Release(Ok(Answered { at, result: Released::NotHeld }))));
        if let Some(due) = bench.table.next_timer() {
            bench.now = due;
            bench.step(Input::Tick);
        }
    }
    // One at once, and one when no sending of the acquire can be executed any more.
    assert_eq!(sent.len(), 2, "{sent:?}");
    assert!(sent[1] > asked + CALL * 2 && sent[1] < asked + CALL * 3, "{sent:?}");
}

#[test]
fn a_withdrawal_is_repeated_until_what_it_is_about_is_over() {
    let mut bench = Bench::new();
    let id = bench.want(&["a"], &fresh(1), KEPT);
    let sent = bench.now;
    let (ask, _) = bench.call();
    bench.step(Input::Answer(ask, Answer::Acquire(Err(unknown()))));
    bench.step(Input::Cancel(id, named("a")));
    let over = crate::lease::surely_over(sent + CALL * 2, LEASE);
    let mut sendings = 0;
    while !bench.table.is_empty() {
        if let Some(Output::Background(_)) = bench.out.first() {
            let (withdraw, _) = bench.call();
            sendings += 1;
            bench.step(Input::Answer(withdraw, Answer::Release(Err(unknown()))));
            let pause = bench.table.next_timer().unwrap().since(bench.now);
            assert!(pause <= Duration::from_millis(1_500), "{pause:?}");
        }
        bench.now = bench.table.next_timer().unwrap();
        bench.step(Input::Tick);
    }
    assert_eq!(bench.now, over);
    assert!((3..20).contains(&sendings), "{sendings}");
}

/// A shared owner's lease may be kept by others, and this hold with it: only closing ends that.
#[test]
fn a_withdrawal_for_a_shared_owner_is_not_given_up() {
    let mut bench = Bench::new();
    let id = bench.want(&["a"], &explicit(), KEPT);
    let (ask, _) = bench.call();
    bench.step(Input::Answer(ask, Answer::Acquire(Err(unknown()))));
    bench.step(Input::Cancel(id, named("a")));
    let (withdraw, _) = bench.call();
    assert_eq!(bench.table.next_timer(), None, "not while it is under way");
    bench.pass(LEASE * 10);
    bench.step(Input::Answer(withdraw, Answer::Release(Err(unknown()))));
    bench.now = bench.table.next_timer().unwrap();
    bench.step(Input::Tick);
    assert!(matches!(bench.call().1, Request::Release(_)));
}

/// A shared owner may hold it in another process: then this client has entered what was held already.
#[test]
fn a_grant_says_whether_the_owner_held_it_elsewhere() {
    for (holds, entered) in [(1, false), (2, true)] {
        let mut bench = Bench::new();
        bench.want(&["a"], &explicit(), KEPT);
        let (ask, _) = bench.call();
        let block = Block { first: Fence::new(1_000_000), len: 1 };
        let reply = bench.ok(Acquired::Granted(smallvec![Granted { block, holds, left: LEASE }]));
        bench.step(Input::Answer(ask, Answer::Acquire(reply)));
        assert_eq!(bench.granted().unwrap().entered, entered, "{holds} holds");
    }
}

/// What is left of the lease counts, and not what the next in line would have asked for.
#[test]
fn a_kept_lease_goes_to_the_next_in_line_though_its_answer_took_long() {
    let mut bench = Bench::new();
    let first = bench.want(&["a"], &fresh(1), Term::Kept(LEASE * 4));
    let (ask, _) = bench.call();
    bench.want(&["a"], &fresh(2), KEPT);
    bench.step(Input::Cancel(first, named("a")));
    bench.pass(LEASE * 2);
    bench.grant(ask, LEASE * 4);
    assert!(bench.granted().is_some(), "{:?}", bench.out);
}
