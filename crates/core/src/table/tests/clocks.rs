//! The client's clock, what it missed, and what is known of the store's.

use super::*;
use crate::lease;

const SECOND: Duration = Duration::from_secs(1);

/// How far off the store's clock may be when the next acquire is executed.
fn not_after(request: &Request) -> StoreTime {
    match request {
        Request::Acquire(acquire) => acquire.not_after,
        other => panic!("{other:?}"),
    }
}

/// What was missed counts once: counted twice, whoever extends is told that it lost a lock that it holds.
#[test]
fn a_guard_can_be_extended_after_a_jump() {
    let mut bench = Bench::new();
    bench.step(Input::Jumped(SECOND * 3600));
    let hold = bench.hold(&fresh(1), FIXED);
    let id = bench.table.ticket();
    bench.step(Input::Extend(id, hold, named("a"), LEASE * 2));
    let (extend, request) = bench.call();
    assert!(matches!(request, Request::Renew(_)), "{request:?}");
    let reply = bench.ok(vec![Renewed::Kept { left: LEASE * 2 }]);
    bench.step(Input::Answer(extend, Answer::Renew(reply)));
    assert!(matches!(&bench.out[..], [Output::To(_, TaskEffect::Extended)]), "{:?}", bench.out);
    assert_eq!(bench.left(hold), Some(lease::deadline(bench.now, LEASE * 2).since(bench.now)));
}

#[test]
fn what_the_clock_missed_is_over_for_every_guard() {
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), KEPT);
    let whole = bench.left(hold).unwrap();
    bench.step(Input::Jumped(LEASE / 2));
    assert_eq!(bench.left(hold), Some(whole - LEASE / 2));
    assert_eq!(bench.table.holds_for(bench.now, &named("a"), &fresh(1)), Some(true));
    assert_eq!(bench.table.busy(bench.now, &named("a")).unwrap().free_in, Some(whole - LEASE / 2));
    bench.pass(LEASE / 2);
    assert_eq!(bench.left(hold), None);
    assert_eq!(bench.table.holds_for(bench.now, &named("a"), &fresh(1)), Some(false));
}

#[test]
fn a_release_goes_by_what_the_clock_missed() {
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), KEPT);
    bench.step(Input::Jumped(LEASE / 2));
    let mut out = Outputs::new();
    bench.pass(LEASE / 2);
    bench.table.release(bench.now, hold, &named("a"), &mut out);
    assert!(matches!(&out[0], Output::Released(_, Err(error)) if error.kind() == ErrorKind::Lost), "{out:?}");
    assert!(matches!(&out[1], Output::Background(sending) if sending.context.sent() == bench.now), "{out:?}");
}

#[test]
fn a_release_in_time_is_sent_for_its_guard() {
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), KEPT);
    bench.step(Input::Jumped(LEASE / 2));
    let mut out = Outputs::new();
    bench.table.release(bench.now, hold, &named("a"), &mut out);
    let [Output::ForHold(given, sending)] = &out[..] else { panic!("{out:?}") };
    assert_eq!((*given, sending.context.sent()), (hold, bench.now));
}

#[test]
fn tasks_sleep_and_timers_ring_by_the_clients_own_clock() {
    let mut bench = Bench::new();
    bench.step(Input::Jumped(SECOND * 100));
    let id = bench.want(&["a"], &fresh(1), KEPT);
    let (ask, _) = bench.call();
    assert_eq!(ask.sent(), bench.now);
    bench.busy_with(ask, "a", Notification::Coming);
    let until = bench.sleeps_until(id).unwrap();
    assert_eq!(until, bench.now + LEASE + Duration::from_millis(1), "a moment after the holder's lease");
    bench.now = until;
    bench.step(Input::Woke(id, named("a")));
    let (ask, _) = bench.call();
    bench.grant(ask, LEASE);
    assert_eq!(bench.table.next_timer(), Some(bench.now + LEASE / 3), "the renewal");
}

#[test]
fn an_acquire_may_be_executed_for_as_long_as_a_call_may_take_by_the_stores_clock() {
    let mut bench = Bench::new();
    bench.want(&["a"], &fresh(1), KEPT);
    let (ask, request) = bench.call();
    assert_eq!(not_after(&request), store_time(bench.now) + CALL);
    // The answer took as long as a call may take, and shows that the store's clock is ahead.
    let sent = bench.now;
    bench.pass(CALL);
    let at = store_time(sent) + SECOND;
    let busy = Busy { name: named("a"), holder: None, free_in: None, notification: Notification::Coming };
    bench.step(Input::Answer(ask, Answer::Acquire(Ok(Answered { at, result: Acquired::Busy(Box::new(busy)) }))));
    bench.step(Input::Hint(named("a")));
    let (_, request) = bench.call();
    assert_eq!(not_after(&request), at + CALL + CALL);
}

/// A process that slept finds an answer that says little of where the store's clock stands now.
#[test]
fn an_answer_that_took_too_long_tells_of_the_stores_clock_only_when_it_is_ahead() {
    for (ahead, known) in [(Duration::ZERO, false), (CALL * 2, false), (CALL * 3, true)] {
        let mut bench = Bench::new();
        // What was known is a millisecond ahead of what the late answer will say at most.
        let before = bench.now + Duration::from_millis(1);
        bench.table.settings.clock = StoreClock::new(bench.now, bench.now, store_time(before));
        bench.want(&["a"], &fresh(1), KEPT);
        let (ask, _) = bench.call();
        let sent = bench.now;
        bench.pass(CALL * 2);
        let at = store_time(sent) + ahead;
        let busy = Busy { name: named("a"), holder: None, free_in: None, notification: Notification::Coming };
        bench.step(Input::Answer(ask, Answer::Acquire(Ok(Answered { at, result: Acquired::Busy(Box::new(busy)) }))));
        bench.step(Input::Hint(named("a")));
        let (_, request) = bench.call();
        let latest = if known { at + CALL * 2 } else { store_time(before) + CALL * 2 };
        assert_eq!(not_after(&request), latest + CALL, "{ahead:?}");
    }
}

/// What may have been granted is over a lease after the last moment at which it can have been executed; what the clock missed
/// while the call was under way comes on top of it.
#[test]
fn an_unanswered_acquire_is_given_up_when_its_lease_is_surely_over() {
    for missed in [Duration::ZERO, CALL] {
        let mut bench = Bench::new();
        bench.step(Input::Jumped(SECOND));
        let id = bench.want(&["a"], &fresh(1), KEPT);
        let (ask, _) = bench.call();
        let sent = bench.now;
        if !missed.is_zero() {
            bench.step(Input::Jumped(missed));
        }
        bench.step(Input::Answer(ask, Answer::Acquire(Err(unknown()))));
        bench.step(Input::Cancel(id, named("a")));
        let (_, request) = bench.call();
        assert!(matches!(request, Request::Release(_)));
        // In the table's time, which has all that was missed in it, and so has the end: by the client's clock nothing changes.
        let over = lease::surely_over(sent + missed + CALL * 2, LEASE);
        assert_eq!(bench.table.next_timer(), Some(over - missed), "{missed:?}");
    }
}

/// A jump may just be a clock that was set: nothing that the store may still have is over sooner for it.
#[test]
fn a_jump_ends_nothing_that_the_store_may_still_have() {
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), KEPT);
    let over = lease::surely_over(bench.now, LEASE);
    bench.step(Input::Release(hold, named("a")));
    assert_eq!(bench.table.next_timer(), Some(over));
    bench.step(Input::Jumped(SECOND * 3600));
    assert_eq!(bench.table.next_timer(), Some(over), "held, and on its way back");

    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), KEPT);
    bench.step(Input::Jumped(SECOND * 3600));
    assert!(matches!(&bench.out[..], [Output::Lost(..)]), "{:?}", bench.out);
    bench.step(Input::Jumped(SECOND * 3600));
    bench.step(Input::Release(hold, named("a")));
    let (release, _) = bench.call();
    bench.step(Input::Jumped(SECOND * 3600));
    bench.step(Input::Answer(release, Answer::Release(Err(unknown()))));
    bench.now = bench.table.next_timer().unwrap();
    bench.step(Input::Tick);
    assert!(matches!(bench.call().1, Request::Release(_)), "it is not over, and sent again");
}

/// The guards of a lease share what is to be released with the last of them.
#[test]
fn a_jump_ends_no_lost_lease_of_several_guards() {
    let mut bench = Bench::new();
    let owner = fresh(1);
    let one = bench.hold(&owner, KEPT);
    let two = bench.enter(&owner, KEPT).hold;
    bench.step(Input::Jumped(SECOND * 3600));
    bench.step(Input::Jumped(SECOND * 3600));
    bench.step(Input::Release(one, named("a")));
    bench.step(Input::Release(two, named("a")));
    assert!(matches!(bench.call().1, Request::Release(_)), "the store may still have it");
}

/// An answer in time says where the store's clock stands, also where that is less than was known.
#[test]
fn an_answer_in_time_sets_what_is_known_of_the_stores_clock() {
    for took in [Duration::from_millis(1), CALL] {
        let mut bench = Bench::new();
        bench.table.settings.clock = StoreClock::new(bench.now, bench.now, store_time(bench.now) + SECOND);
        bench.want(&["a"], &fresh(1), KEPT);
        let (ask, _) = bench.call();
        let at = store_time(bench.now);
        bench.pass(took);
        let busy = Busy { name: named("a"), holder: None, free_in: None, notification: Notification::Coming };
        bench.step(Input::Answer(ask, Answer::Acquire(Ok(Answered { at, result: Acquired::Busy(Box::new(busy)) }))));
        bench.step(Input::Hint(named("a")));
        assert_eq!(not_after(&bench.call().1), at + took + CALL);
    }
}

#[test]
fn a_lease_is_left_by_the_clients_own_clock() {
    let mut bench = Bench::new();
    let hold = bench.hold(&explicit(), FIXED);
    bench.want(&["a"], &fresh(2), KEPT);
    bench.step(Input::Jumped(LEASE / 2));
    let mut out = Outputs::new();
    assert_eq!(bench.table.check_detach(bench.now, hold, &named("a")).unwrap(), Duration::ZERO);
    bench.table.detach(bench.now, hold, &named("a"), &mut out);
    let [Output::To(_, TaskEffect::Call(sending))] = &out[..] else { panic!("{out:?}") };
    assert_eq!(sending.context.sent(), bench.now);
}

/// An acquire is sent twice; the first answer is lost, and the second grants it when its task has gone. The release is answered by a
/// store whose clock was set back: by the client's own clock the first sending is settled soon, and others may ask.
#[test]
fn a_grant_that_nobody_takes_blocks_no_name_if_the_stores_clock_is_set_back() {
    let mut bench = Bench::new();
    let id = bench.want(&["a"], &explicit(), KEPT);
    let (ask, _) = bench.call();
    bench.step(Input::Answer(ask, Answer::Acquire(Err(unknown()))));
    bench.now = bench.sleeps_until(id).unwrap();
    bench.step(Input::Woke(id, named("a")));
    let (ask, _) = bench.call();
    bench.step(Input::Cancel(id, named("a")));
    bench.grant(ask, LEASE);
    let (release, request) = bench.call();
    assert!(matches!(request, Request::Release(_)), "{request:?}");
    let hour = Duration::from_secs(3600);
    let at = StoreTime::from_nanos(store_time(bench.now).as_nanos() - 3_600_000_000_000);
    let result = Released::Released { waiters: Some(0) };
    bench.step(Input::Answer(release, Answer::Release(Ok(Answered { at, result }))));
    let next = bench.table.next_timer().expect("it is sent once more");
    assert!(next < bench.now + hour / 2, "nobody here can have the name for {:?}", next.since(bench.now));
}
