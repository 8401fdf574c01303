//! Checks of the table, step by step: what simulated worlds found, each with the steps that led to it.

use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;

use super::*;
use crate::error::Outcome;
use crate::fence::Block;
use crate::fence::Fence;
use crate::name::Names;
use crate::options::{Options, Term};
use crate::owner::{ClientId, Owner};
use crate::port::{Acquired, Answered, Busy, Granted, Notification, Release, Released, Renewed, Reply};
use crate::time::{StoreClock, StoreTime};

const LEASE: Duration = Duration::from_millis(600);
const CALL: Duration = Duration::from_millis(100);

/// A table, its clock, and what it gave out last.
struct Bench {
    table: Table,
    now: Moment,
    out: Vec<Output>,
}

impl Bench {
    fn new() -> Self {
        let begin = Moment::from_nanos(1_000_000_000);
        let table = Table::new(Settings {
            client: ClientId([1, 1]),
            hints: true,
            unlayered: true,
            call_limit: CALL,
            patience: Duration::from_secs(5),
            clock: StoreClock::new(begin, begin, store_time(begin)),
            seed: 7,
        });
        Self { table, now: begin, out: Vec::new() }
    }

    fn step(&mut self, input: Input) {
        let mut out = Outputs::new();
        self.table.step(self.now, input, &mut out);
        self.out = out.into_vec();
    }

    fn pass(&mut self, span: Duration) {
        self.now = self.now + span;
    }

    fn want(&mut self, names: &[&str], owner: &Owner, term: Term) -> TicketId {
        let id = self.table.ticket();
        let names = Names::new(names.iter().map(|name| named(name))).unwrap();
        let options = Arc::new(Options { term, ..Options::default() });
        self.step(Input::Acquire(
            id,
            AcquireRequest { names, owner: owner.clone(), options, about: Arc::default(), once: false, until: None },
        ));
        id
    }

    fn want_with(&mut self, names: &[&str], owner: &Owner, options: Options, once: bool) -> TicketId {
        let id = self.table.ticket();
        let names = Names::new(names.iter().map(|name| named(name))).unwrap();
        let (owner, options) = (owner.clone(), Arc::new(options));
        self.step(Input::Acquire(
            id,
            AcquireRequest { names, owner, options, about: Arc::default(), once, until: None },
        ));
        id
    }

    /// The one call that was given out, and to whom.
    fn call(&mut self) -> (Context, Request) {
        let calls = std::mem::take(&mut self.out).into_iter().filter_map(|output| match output {
            Output::To(_, TaskEffect::Call(sending)) => Some(*sending),
            Output::ForHold(_, sending) | Output::Background(sending) => Some(*sending),
            _ => None,
        });
        let mut calls: Vec<Sending> = calls.collect();
        assert_eq!(calls.len(), 1, "{calls:?}");
        let Sending { context, request } = calls.remove(0);
        (context, request)
    }

    fn ok<T>(&self, result: T) -> Reply<T> {
        Ok(Answered { at: store_time(self.now), result })
    }

    /// A task wants `a`, asks, and is granted the whole lease.
    fn hold(&mut self, owner: &Owner, term: Term) -> HoldId {
        self.want(&["a"], owner, term);
        let (ask, _) = self.call();
        self.grant(ask, LEASE);
        self.granted().unwrap().hold
    }

    fn grant(&mut self, context: Context, left: Duration) {
        let block = Block { first: Fence::at(store_time(self.now)), len: 1 };
        let reply = self.ok(Acquired::Granted(smallvec![Granted { block, holds: 1, left }]));
        self.step(Input::Answer(context, Answer::Acquire(reply)));
    }

    fn busy(&mut self, context: Context, name: &str) {
        self.busy_with(context, name, Notification::default());
    }

    fn busy_with(&mut self, context: Context, name: &str, notification: Notification) {
        let busy = Busy { name: named(name), holder: None, free_in: Some(LEASE), notification };
        let reply = self.ok(Acquired::Busy(Box::new(busy)));
        self.step(Input::Answer(context, Answer::Acquire(reply)));
    }

    fn release_answered(&mut self, context: Context, result: Released) {
        let reply = self.ok(result);
        self.step(Input::Answer(context, Answer::Release(reply)));
    }

    fn granted(&self) -> Option<Grant> {
        self.out.iter().find_map(|output| match output {
            Output::To(_, TaskEffect::Granted(grants)) => Some(grants[0]),
            _ => None,
        })
    }

    fn left(&self, hold: HoldId) -> Option<Duration> {
        self.table.time_left(self.now, &named("a"), hold)
    }

    fn sleeps_until(&self, id: TicketId) -> Option<Moment> {
        self.out.iter().find_map(|output| match output {
            Output::To(to, TaskEffect::Sleep(until)) if *to == id => Some(*until),
            _ => None,
        })
    }

    fn sleeps(&self, id: TicketId) -> bool {
        self.out.iter().any(|output| matches!(output, Output::To(to, TaskEffect::Sleep(_)) if *to == id))
    }
}

fn named(name: &str) -> Name {
    Name::new(name).unwrap()
}

/// The store's clock shows the same as the client's, a year later.
fn store_time(at: Moment) -> StoreTime {
    StoreTime::from_nanos(at.as_nanos() + 31_536_000_000_000_000)
}

fn unknown() -> Error {
    Error::new(ErrorKind::Unreachable, "call", "no answer").with_outcome(Outcome::Unknown)
}

fn fresh(bits: u64) -> Owner {
    Owner::generated([bits, bits])
}

const KEPT: Term = Term::Kept(LEASE);
const FIXED: Term = Term::Fixed(LEASE);

#[test]
fn a_cancelled_reentry_that_waited_for_a_longer_lease_queues_for_nobody() {
    let mut bench = Bench::new();
    let owner = fresh(1);
    bench.hold(&owner, FIXED);
    bench.pass(LEASE / 2);
    let again = bench.want(&["a"], &owner, FIXED);
    let (lengthen, request) = bench.call();
    assert!(matches!(request, Request::Renew(_)));
    bench.step(Input::Cancel(again, named("a")));
    let reply = bench.ok(vec![Renewed::Lost]);
    bench.step(Input::Answer(lengthen, Answer::Renew(reply)));
    assert!(!bench.out.iter().any(|output| matches!(output, Output::To(..))), "{:?}", bench.out);
    assert!(bench.table.is_empty());
}

#[test]
fn each_hold_has_a_number_of_its_own() {
    let mut bench = Bench::new();
    let owner = fresh(1);
    let first = bench.hold(&owner, KEPT);
    bench.want(&["a"], &owner, KEPT);
    let second = bench.granted().unwrap().hold;
    assert_ne!(first.number(), second.number());
}

#[test]
fn who_comes_after_the_deadline_asks_at_once() {
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), KEPT);
    let left = bench.left(hold).unwrap();
    bench.pass(left + Duration::from_nanos(1));
    // Before any timer was served.
    bench.want(&["a"], &fresh(2), KEPT);
    let asks = |output: &Output| matches!(output, Output::To(_, TaskEffect::Call(sending)) if matches!(sending.request, Request::Acquire(_)));
    assert!(bench.out.iter().any(asks), "{:?}", bench.out);
}

#[test]
fn a_map_that_was_large_gives_room_back_and_keeps_some() {
    let with = |entries: u64| {
        let mut map = HashMap::with_capacity_and_hasher(10_000, FixedState::default());
        map.extend((0..entries).map(|entry| (entry, ())));
        let before = map.capacity();
        shrink(&mut map);
        (map.capacity(), before)
    };
    let (after, before) = with(100);
    assert!(after >= 200 && after < before / 8, "{after} of {before}");
    let (after, before) = with(2_000);
    assert_eq!(after, before, "it is filled to an eighth");
}

#[test]
fn a_reentry_that_falls_back_to_the_queue_sleeps_at_its_head() {
    let mut bench = Bench::new();
    let owner = fresh(1);
    bench.hold(&owner, FIXED);
    bench.pass(LEASE / 2);
    let again = bench.want(&["a"], &owner, FIXED);
    let (lengthen, _) = bench.call();
    bench.want(&["a"], &fresh(2), KEPT);
    bench.pass(LEASE / 2);
    bench.step(Input::Tick);
    let (ask, _) = bench.call();
    bench.busy(ask, "a");
    let (watch, _) = bench.call();
    bench.step(Input::Answer(watch, Answer::Watch(Ok(()))));
    let (ask, _) = bench.call();
    bench.busy(ask, "a");
    let reply = bench.ok(vec![Renewed::Lost]);
    bench.step(Input::Answer(lengthen, Answer::Renew(reply)));
    assert!(bench.sleeps(again), "{:?}", bench.out);
}

#[test]
fn a_waiter_that_is_told_already_sleeps_at_once_and_leaves_the_list_when_it_goes() {
    let mut bench = Bench::new();
    let id = bench.want(&["a"], &fresh(1), KEPT);
    let (ask, _) = bench.call();
    bench.busy_with(ask, "a", Notification::Coming);
    assert!(bench.sleeps(id), "{:?}", bench.out);
    bench.step(Input::Cancel(id, named("a")));
    assert!(matches!(&bench.out[..], [Output::Unwatch(_)]), "{:?}", bench.out);
}

#[test]
fn a_waiter_that_is_sure_to_be_told_sleeps_for_longer_unless_a_layer_may_lose_it() {
    for (unlayered, least, most) in [(true, 9_000, 10_000), (false, 900, 1_000)] {
        let mut bench = Bench::new();
        bench.table.settings.unlayered = unlayered;
        let id = bench.want(&["a"], &fresh(1), KEPT);
        let (ask, _) = bench.call();
        let busy = Busy { name: named("a"), holder: None, free_in: None, notification: Notification::Sure };
        let reply = bench.ok(Acquired::Busy(Box::new(busy)));
        bench.step(Input::Answer(ask, Answer::Acquire(reply)));
        let until = bench.out.iter().find_map(|output| match output {
            Output::To(to, TaskEffect::Sleep(until)) if *to == id => Some(*until),
            _ => None,
        });
        let slept = until.unwrap().since(bench.now).as_millis();
        assert!((least..=most).contains(&slept), "{slept} ms");
    }
}

#[test]
fn a_waiter_that_nobody_will_tell_does_not_sleep_for_long() {
    let mut bench = Bench::new();
    let id = bench.want(&["a"], &fresh(1), KEPT);
    for _ in 0..20 {
        let (ask, _) = bench.call();
        bench.busy_with(ask, "a", Notification::Never);
        let until = bench.out.iter().find_map(|output| match output {
            Output::To(to, TaskEffect::Sleep(until)) if *to == id => Some(*until),
            _ => None,
        });
        let slept = until.unwrap().since(bench.now);
        assert!(slept <= Duration::from_millis(400), "{slept:?}");
        bench.pass(slept);
        bench.step(Input::Woke(id, named("a")));
    }
}

#[test]
fn a_waiter_that_leaves_before_it_subscribed_leaves_the_list() {
    let mut bench = Bench::new();
    let id = bench.want(&["a"], &fresh(1), KEPT);
    let (ask, _) = bench.call();
    bench.busy(ask, "a");
    let (watch, request) = bench.call();
    assert!(matches!(request, Request::Watch(_)));
    bench.step(Input::Cancel(id, named("a")));
    bench.step(Input::Unsent(watch));
    assert!(matches!(&bench.out[..], [Output::Unwatch(_)]), "{:?}", bench.out);
}

#[test]
fn a_renewal_that_hangs_is_sent_again_before_its_call_ends() {
    let mut bench = Bench::new();
    bench.hold(&fresh(1), KEPT);
    bench.pass(LEASE / 3);
    bench.step(Input::Tick);
    let (_hanging, _) = bench.call();
    bench.pass(LEASE / 6);
    bench.step(Input::Tick);
    let (renew, _) = bench.call();
    let reply = bench.ok(vec![Renewed::Kept { left: LEASE }]);
    bench.step(Input::Answer(renew, Answer::Renew(reply)));
    bench.pass(LEASE / 2);
    bench.step(Input::Tick);
    assert!(!bench.out.iter().any(|output| matches!(output, Output::Lost(..))));
}

#[test]
fn a_fixed_grant_whose_answer_came_after_its_end_goes_back() {
    let mut bench = Bench::new();
    let shared = Owner::explicit("shared").unwrap();
    bench.want(&["a"], &shared, FIXED);
    let (ask, _) = bench.call();
    bench.pass(LEASE);
    bench.grant(ask, LEASE * 3);
    assert_eq!(bench.granted(), None);
    assert!(matches!(bench.call().1, Request::Release(_)));
}

#[test]
fn the_release_of_a_lost_lease_is_sent_until_it_is_answered() {
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), FIXED);
    bench.step(Input::Jumped(LEASE - Duration::from_millis(20)));
    assert!(matches!(&bench.out[..], [Output::Lost(..)]), "{:?}", bench.out);
    bench.step(Input::Release(hold, named("a")));
    let (release, _) = bench.call();
    bench.step(Input::Answer(release, Answer::Release(Err(unknown()))));
    bench.pass(Duration::from_millis(16));
    bench.step(Input::Tick);
    let (release, _) = bench.call();
    bench.release_answered(release, Released::Released { waiters: Some(0) });
    assert!(bench.table.is_empty());
}

#[test]
fn a_lost_sending_that_may_come_late_is_released_after_its_not_after() {
    let mut bench = Bench::new();
    bench.want(&["a"], &fresh(1), KEPT);
    let (lost, _) = bench.call();
    bench.step(Input::Answer(lost, Answer::Acquire(Err(unknown()))));
    bench.pass(Duration::from_millis(20));
    let id = TicketId(1);
    bench.step(Input::Woke(id, named("a")));
    let (ask, _) = bench.call();
    bench.grant(ask, LEASE);
    let hold = bench.granted().unwrap().hold;
    bench.step(Input::Release(hold, named("a")));
    let (release, _) = bench.call();
    bench.release_answered(release, Released::Released { waiters: Some(0) });
    assert!(!bench.table.is_empty(), "the first sending may still be executed");
    bench.pass(CALL);
    bench.step(Input::Tick);
    let (release, request) = bench.call();
    assert!(matches!(request, Request::Release(release) if release.fence.is_none()));
    bench.release_answered(release, Released::Released { waiters: Some(0) });
    assert!(bench.table.is_empty());
}

#[test]
fn a_refused_group_lets_an_older_one_go_first() {
    let mut bench = Bench::new();
    let first = bench.want(&["a", "b"], &fresh(1), KEPT);
    let (ask, _) = bench.call();
    bench.want(&["a", "b"], &fresh(2), KEPT);
    bench.step(Input::Cancel(first, named("a")));
    bench.busy(ask, "b");
    let (_, request) = bench.call();
    assert!(matches!(request, Request::Acquire(_)), "the second asks, once: {request:?}");
}

// From here on a comment tells the mistake that its test stands against.

/// The store's answer to `guard.release()` comes when the lease is surely over: the guard is told nothing.
#[test]
fn a_release_that_failed_late_still_tells_its_guard() {
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), KEPT);
    bench.step(Input::Release(hold, named("a")));
    let (release, _) = bench.call();
    // The call hangs for longer than the lease; its time limit is the store's own.
    bench.pass(LEASE * 2);
    bench.step(Input::Tick);
    bench.step(Input::Answer(release, Answer::Release(Err(unknown()))));
    let told = bench.out.iter().any(|output| matches!(output, Output::Released(given, Err(_)) if *given == hold));
    assert!(told, "release().await says Ok though the store never answered: {:?}", bench.out);
}

/// The process sleeps while `extend` is under way; its answer is found when the lengthened lease is over, too.
#[test]
fn an_extension_that_is_over_already_is_not_a_success() {
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), FIXED);
    let id = bench.table.ticket();
    bench.step(Input::Extend(id, hold, named("a"), LEASE));
    let (extend, _) = bench.call();
    bench.pass(LEASE * 100);
    let reply = bench.ok(vec![Renewed::Kept { left: LEASE }]);
    bench.step(Input::Answer(extend, Answer::Renew(reply)));
    assert!(bench.table.time_left(bench.now, &named("a"), hold).is_none());
    let ok = bench.out.iter().any(|output| matches!(output, Output::To(_, TaskEffect::Extended)));
    assert!(!ok, "extend() says Ok for a lock that anybody else may hold by now");
}

/// A guard whose own time was over (is_valid said no) is made valid again by an extension sent before.
#[test]
fn an_extension_revives_no_guard() {
    let mut bench = Bench::new();
    let owner = fresh(1);
    bench.hold(&owner, KEPT);
    // A second guard of the same owner, for a short time of its own.
    bench.want(&["a"], &owner, Term::Fixed(LEASE / 3));
    let short = bench.granted().unwrap().hold;
    bench.pass(LEASE / 6);
    let id = bench.table.ticket();
    bench.step(Input::Extend(id, short, named("a"), LEASE));
    let (extend, _) = bench.call();
    bench.pass(LEASE / 3);
    assert!(bench.table.time_left(bench.now, &named("a"), short).is_none(), "its time is over");
    let reply = bench.ok(vec![Renewed::Kept { left: LEASE }]);
    bench.step(Input::Answer(extend, Answer::Renew(reply)));
    assert!(bench.table.time_left(bench.now, &named("a"), short).is_none(), "it was over, and is valid again");
}

/// A store may end what a process keeps with that process. One who re-enters to have it longer than that takes it back first.
#[test]
fn a_reentry_that_outlives_the_process_is_not_the_process_s_to_end() {
    let mut bench = Bench::new();
    let owner = Owner::explicit("me").unwrap();
    bench.hold(&owner, KEPT);
    bench.want(&["a"], &owner, Term::Fixed(LEASE / 3));
    assert!(bench.granted().is_none(), "not before the store knows");
    let (context, request) = bench.call();
    assert!(matches!(&request, Request::Renew(leases) if !leases[0].kept), "{request:?}");
    let reply = bench.ok(vec![Renewed::Kept { left: LEASE }]);
    bench.step(Input::Answer(context, Answer::Renew(reply)));
    assert!(bench.granted().is_some());
    bench.want(&["a"], &owner, Term::Fixed(LEASE / 3));
    assert!(bench.granted().is_some(), "the store knows already");
}

/// `max_hold` is a limit also for one who extends.
#[test]
fn max_hold_is_not_extended() {
    let mut bench = Bench::new();
    let id = bench.table.ticket();
    let options = Arc::new(Options { term: KEPT, max_hold: Some(LEASE), ..Options::default() });
    let names = Names::new([named("a")]).unwrap();
    bench.step(Input::Acquire(
        id,
        AcquireRequest { names, owner: fresh(1), options, about: Arc::default(), once: false, until: None },
    ));
    let (ask, _) = bench.call();
    bench.grant(ask, LEASE);
    let hold = bench.granted().unwrap().hold;
    let id = bench.table.ticket();
    bench.step(Input::Extend(id, hold, named("a"), LEASE * 5));
    let (extend, _) = bench.call();
    let reply = bench.ok(vec![Renewed::Kept { left: LEASE * 5 }]);
    bench.step(Input::Answer(extend, Answer::Renew(reply)));
    bench.pass(LEASE * 2);
    assert!(bench.table.time_left(bench.now, &named("a"), hold).is_none(), "held for twice its max_hold");
}

/// One lost renewal costs the lock where somebody re-entered with a longer `keep`.
#[test]
fn one_lost_renewal_costs_no_lock_though_the_owner_reentered_with_a_longer_keep() {
    let mut bench = Bench::new();
    let owner = fresh(1);
    bench.hold(&owner, KEPT);
    bench.want(&["a"], &owner, Term::Kept(Duration::from_secs(30)));
    assert!(bench.granted().is_some());
    let mut sent = 0;
    // Every renewal hangs: its answer is lost.
    while !bench.out.iter().any(|output| matches!(output, Output::Lost(..))) {
        bench.now = bench.table.next_timer().unwrap();
        bench.step(Input::Tick);
        sent += bench.out.iter().filter(|output| matches!(output, Output::Background(_))).count();
    }
    assert!(sent > 1, "lost after {sent} sending");
}

/// The clock stood still for a while, which the wall clock shows, with a renewal under way.
#[test]
fn a_renewal_sent_before_a_jump_does_not_undo_it() {
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), KEPT);
    bench.now = bench.table.next_timer().unwrap();
    bench.step(Input::Tick);
    let (renewal, _) = bench.call();
    let executed = bench.ok(vec![Renewed::Kept { left: LEASE }]);
    // Executed at the store at once. Then the machine stood still for half a lease.
    bench.step(Input::Jumped(LEASE / 2));
    bench.step(Input::Answer(renewal, Answer::Renew(executed)));
    let left = bench.table.time_left(bench.now, &named("a"), hold).unwrap_or_default();
    assert!(left <= LEASE / 2, "the store's lease ends in {:?}; the guard believes in {left:?}", LEASE / 2);
}

/// The same with the acquire itself.
#[test]
fn a_grant_asked_for_before_a_jump_is_as_much_shorter() {
    let mut bench = Bench::new();
    bench.want(&["a"], &fresh(1), KEPT);
    let (ask, _) = bench.call();
    bench.step(Input::Jumped(LEASE * 9 / 10));
    bench.grant(ask, LEASE);
    let left = bench.granted().and_then(|grant| bench.table.time_left(bench.now, &named("a"), grant.hold));
    let left = left.unwrap_or_default();
    assert!(left <= LEASE / 10, "the store's lease ends in {:?}; the guard believes in {left:?}", LEASE / 10);
}

/// `try_acquire` behind a task of the same client that sleeps: it is neither asked for nor refused.
#[test]
fn one_who_asks_once_does_not_wait_behind_a_sleeper() {
    let mut bench = Bench::new();
    bench.want(&["a"], &fresh(1), KEPT);
    let (ask, _) = bench.call();
    bench.busy(ask, "a");
    let (watch, _) = bench.call();
    bench.step(Input::Answer(watch, Answer::Watch(Ok(()))));
    let (ask, _) = bench.call();
    bench.busy(ask, "a");
    let id = bench.table.ticket();
    let names = Names::new([named("a")]).unwrap();
    let options = Arc::new(Options::default());
    bench.step(Input::Acquire(
        id,
        AcquireRequest { names, owner: fresh(2), options, about: Arc::default(), once: true, until: None },
    ));
    assert!(!bench.out.is_empty(), "it waits, for up to a second, in silence");
}

/// Others wait in the store, but the next group of this client does not give way to them.
#[test]
fn a_group_gives_way_to_other_processes_too() {
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), KEPT);
    bench.want(&["a", "b"], &fresh(2), KEPT);
    bench.step(Input::Release(hold, named("a")));
    let (release, _) = bench.call();
    bench.release_answered(release, Released::Released { waiters: Some(3) });
    let asks = bench.out.iter().any(
        |output| matches!(output, Output::To(_, TaskEffect::Call(sending)) if matches!(sending.request, Request::Acquire(_))),
    );
    assert!(!asks, "three other processes wait, and this one asks again at once");
}

/// One lost message, and `acquire()` of an owner that holds the lock already fails at once; a fresh one tries for 10 s.
#[test]
fn a_reentry_that_asks_the_store_rides_out_a_lost_message() {
    let mut bench = Bench::new();
    let owner = fresh(1);
    bench.hold(&owner, FIXED);
    bench.pass(LEASE / 10);
    bench.want(&["a"], &owner, FIXED);
    let (lengthen, request) = bench.call();
    assert!(matches!(request, Request::Renew(_)));
    bench.step(Input::Answer(lengthen, Answer::Renew(Err(unknown()))));
    let failed = bench.out.iter().any(|output| matches!(output, Output::To(_, TaskEffect::Failed(_))));
    assert!(!failed, "patience is five seconds, and no time has passed");
}

/// A task waited in line for longer than its patience, and the first thing that it hears of the store is one lost message.
#[test]
fn whoever_waited_long_for_its_turn_has_all_its_patience_then() {
    let mut bench = Bench::new();
    bench.hold(&fresh(1), FIXED);
    bench.want(&["a"], &fresh(2), FIXED);
    bench.pass(Duration::from_secs(6));
    bench.step(Input::Tick);
    let fails = |bench: &mut Bench| {
        let calls = std::mem::take(&mut bench.out).into_iter().filter_map(|output| match output {
            Output::To(_, TaskEffect::Call(sending)) => Some(sending.context),
            _ => None,
        });
        let ask = calls.last().expect("it asks");
        bench.step(Input::Answer(ask, Answer::Acquire(Err(unreached()))));
        bench.out.iter().any(|output| matches!(output, Output::To(_, TaskEffect::Failed(_))))
    };
    assert!(!fails(&mut bench), "patience is five seconds, and it has only begun to ask");
    bench.pass(Duration::from_secs(6));
    let sleeper = bench.out.iter().find_map(|output| match output {
        Output::To(id, TaskEffect::Sleep(_)) => Some(*id),
        _ => None,
    });
    bench.step(Input::Woke(sleeper.expect("it sleeps"), named("a")));
    assert!(fails(&mut bench), "it asks in vain for six seconds");
}

impl Bench {
    /// Wakes whoever sleeps, has its call fail, and answers who was told that it cannot have the lock.
    fn ask_in_vain(&mut self, sleeper: TicketId) -> Vec<TicketId> {
        if !self.out.iter().any(|output| matches!(output, Output::To(_, TaskEffect::Call(_)))) {
            self.step(Input::Woke(sleeper, named("a")));
        }
        let (ask, _) = self.call();
        self.step(Input::Answer(ask, Answer::Acquire(Err(unreached()))));
        let failed = |output: &Output| match output {
            Output::To(id, TaskEffect::Failed(_)) => Some(*id),
            _ => None,
        };
        self.out.iter().filter_map(failed).collect()
    }
}

/// One with a long limit asks in vain; whoever waits behind it has patience of its own.
#[test]
fn whoever_waits_behind_one_that_is_never_answered_is_told_when_its_own_patience_is_over() {
    let mut bench = Bench::new();
    let long = bench.table.ticket();
    let until = Some(bench.now + Duration::from_secs(3_600));
    let (names, options) = (Names::new([named("a")]).unwrap(), Arc::new(Options::default()));
    let want = AcquireRequest { names, owner: fresh(1), options, about: Arc::default(), once: false, until };
    bench.step(Input::Acquire(long, want));
    let call = std::mem::take(&mut bench.out);
    let behind = bench.want(&["a"], &fresh(2), KEPT);
    bench.out = call;
    assert!(bench.ask_in_vain(long).is_empty(), "its patience has only begun");
    bench.pass(Duration::from_secs(4));
    let later = bench.want(&["a"], &fresh(3), KEPT);
    assert!(bench.ask_in_vain(long).is_empty());
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.ask_in_vain(long), [behind], "patience is five seconds");
    bench.pass(Duration::from_secs(5));
    assert_eq!(bench.ask_in_vain(long), [later]);
}

/// Once the store has answered, an outage is waited for: nobody behind is told, and each has all its patience when its turn comes.
#[test]
fn whoever_waits_behind_one_that_was_answered_rides_out_the_outage() {
    let mut bench = Bench::new();
    let first = bench.want(&["a"], &fresh(1), KEPT);
    let call = std::mem::take(&mut bench.out);
    let behind = bench.want(&["a"], &fresh(2), KEPT);
    bench.out = call;
    assert!(bench.ask_in_vain(first).is_empty());
    bench.pass(Duration::from_secs(4));
    bench.step(Input::Woke(first, named("a")));
    let (ask, _) = bench.call();
    bench.busy_with(ask, "a", Notification::Coming);
    bench.pass(Duration::from_secs(4));
    assert!(bench.ask_in_vain(first).is_empty(), "the store had answered");
    bench.step(Input::Cancel(first, named("a")));
    bench.pass(Duration::from_secs(4));
    assert!(bench.ask_in_vain(behind).is_empty(), "it has only begun to ask");
    bench.pass(Duration::from_secs(6));
    assert_eq!(bench.ask_in_vain(behind), [behind]);
}

fn unreached() -> Error {
    Error::new(ErrorKind::Unreachable, "acquire", "nobody is there").with_outcome(Outcome::NotApplied)
}

/// Servers that recover for a minute grant nothing before, and whoever said that it waits for two is to have the lock then.
#[test]
fn whoever_waits_until_then_has_patience_until_then() {
    for (until, fails) in [(None, true), (Some(Duration::from_secs(120)), false)] {
        let mut bench = Bench::new();
        let (id, names, options) = (bench.table.ticket(), Names::One(named("a")), Arc::default());
        let until = until.map(|span| bench.now + span);
        let want = AcquireRequest { names, owner: fresh(1), options, about: Arc::default(), once: false, until };
        bench.step(Input::Acquire(id, want));
        let (ask, _) = bench.call();
        bench.pass(Duration::from_secs(60));
        let error = Error::new(ErrorKind::NoQuorum, "acquire", "they recover").with_outcome(Outcome::NotApplied);
        bench.step(Input::Answer(ask, Answer::Acquire(Err(error))));
        let failed = bench.out.iter().any(|output| matches!(output, Output::To(_, TaskEffect::Failed(_))));
        assert_eq!(failed, fails, "{:?}", bench.out);
    }
}

/// A lost hold of a shared owner, which another process keeps alive in the store, is not given back by closing, nor by
/// dropping its guard after it.
#[test]
fn a_closed_client_leaves_no_lost_hold_of_a_shared_owner_behind() {
    let mut bench = Bench::new();
    let hold = bench.hold(&Owner::explicit("shared").unwrap(), KEPT);
    // Cut off for a while: lost here, while the other process of this owner renews the row, and with it this hold.
    bench.pass(LEASE * 4);
    bench.step(Input::Tick);
    assert!(bench.out.iter().any(|output| matches!(output, Output::Lost(..))));
    let releases = |bench: &Bench| {
        let sent = |output: &&Output| matches!(output, Output::Background(sending) if matches!(sending.request, Request::Release(_)));
        bench.out.iter().filter(sent).count()
    };
    bench.step(Input::Close);
    let mut sent = releases(&bench);
    bench.step(Input::Release(hold, named("a")));
    sent += releases(&bench);
    assert!(sent > 0, "the store counts this hold for as long as the other process lives");
}

fn explicit() -> Owner {
    Owner::explicit("me").unwrap()
}

#[test]
fn a_lease_that_is_left_to_its_owner_is_forgotten_and_not_released_at_the_end() {
    let mut bench = Bench::new();
    let hold = bench.hold(&explicit(), FIXED);
    assert_eq!(bench.table.check_detach(bench.now, hold, &named("a")).unwrap(), Duration::ZERO);
    let mut out = Outputs::new();
    bench.table.detach(bench.now, hold, &named("a"), &mut out);
    assert!(out.is_empty(), "{out:?}");
    bench.step(Input::Close);
    assert!(bench.out.is_empty(), "{:?}", bench.out);
    assert!(bench.table.is_empty());
    assert_eq!(bench.table.next_timer(), None);
}

#[test]
fn whoever_waits_behind_a_lease_that_is_left_asks_the_store() {
    let mut bench = Bench::new();
    let hold = bench.hold(&explicit(), FIXED);
    bench.want(&["a"], &fresh(2), KEPT);
    let mut out = Outputs::new();
    bench.table.detach(bench.now, hold, &named("a"), &mut out);
    bench.out = out.into_vec();
    assert!(matches!(bench.call().1, Request::Acquire(_)));
}

#[test]
fn only_the_one_fixed_hold_of_an_explicit_owner_can_be_left() {
    for (owner, term, why) in [(explicit(), KEPT, "kept"), (fresh(1), FIXED, "generated")] {
        let mut bench = Bench::new();
        let hold = bench.hold(&owner, term);
        let error = bench.table.check_detach(bench.now, hold, &named("a")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadArgument);
        assert!(error.to_string().contains(why), "{error}");
        assert!(bench.table.is_held(&named("a"), hold), "nothing was lost");
    }
    let mut bench = Bench::new();
    let hold = bench.hold(&explicit(), FIXED);
    bench.want(&["a"], &explicit(), Term::Fixed(LEASE / 2));
    let error = bench.table.check_detach(bench.now, hold, &named("a")).unwrap_err();
    assert!(error.to_string().contains("other guards"), "{error}");
}

#[test]
fn a_lease_that_is_over_cannot_be_left() {
    let mut bench = Bench::new();
    let hold = bench.hold(&explicit(), FIXED);
    bench.pass(LEASE);
    assert_eq!(bench.table.check_detach(bench.now, hold, &named("a")).unwrap_err().kind(), ErrorKind::Lost);
}

/// The sending that was not answered may be executed when another process has released the lease: nobody would release it then.
#[test]
fn a_lease_is_not_left_while_an_earlier_sending_of_it_is_open() {
    let mut bench = Bench::new();
    bench.want(&["a"], &explicit(), FIXED);
    let (first, _) = bench.call();
    bench.step(Input::Answer(first, Answer::Acquire(Err(unknown()))));
    let again = bench.out.iter().find_map(|output| match output {
        Output::To(id, TaskEffect::Sleep(until)) => Some((*id, *until)),
        _ => None,
    });
    let (id, until) = again.unwrap();
    bench.now = until;
    bench.step(Input::Woke(id, named("a")));
    let (second, _) = bench.call();
    bench.grant(second, LEASE);
    let hold = bench.granted().unwrap().hold;
    let wait = bench.table.check_detach(bench.now, hold, &named("a")).unwrap();
    assert!(wait >= CALL, "{wait:?}");
    bench.pass(wait);
    assert_eq!(bench.table.check_detach(bench.now, hold, &named("a")).unwrap(), Duration::ZERO);
}

#[test]
fn a_table_only_waits_while_nothing_is_held_and_no_call_is_under_way() {
    let mut bench = Bench::new();
    assert!(bench.table.only_waits());
    let id = bench.want(&["a"], &fresh(1), KEPT);
    assert!(!bench.table.only_waits(), "an acquire is under way");
    let (ask, _) = bench.call();
    bench.busy(ask, "a");
    assert!(!bench.table.only_waits(), "a subscription is under way");
    let (watch, _) = bench.call();
    bench.step(Input::Answer(watch, Answer::Watch(Ok(()))));
    let (ask, _) = bench.call();
    bench.busy(ask, "a");
    assert!(bench.sleeps(id) && bench.table.only_waits());
    bench.pass(Duration::from_secs(1));
    bench.step(Input::Woke(id, named("a")));
    assert!(!bench.table.only_waits(), "it asks again");
    let (ask, _) = bench.call();
    bench.grant(ask, LEASE);
    let hold = bench.granted().unwrap().hold;
    assert!(!bench.table.only_waits(), "it is held");
    bench.step(Input::Release(hold, named("a")));
    assert!(!bench.table.only_waits(), "a release is under way");
    let (release, _) = bench.call();
    bench.release_answered(release, Released::Released { waiters: None });
    assert!(bench.table.only_waits());
}

mod clocks;
mod groups;
mod guards;
mod line;
mod losses;
mod releases;
mod requests;
