//! Those who wait here: who asks for all, who sleeps, who is told what.

use super::*;
use crate::options::WaitMode;

const MS: Duration = Duration::from_millis(1);

impl Bench {
    /// The call that was given out to a task, if one was.
    fn asks(&self) -> Option<TicketId> {
        self.out.iter().find_map(|output| match output {
            Output::To(id, TaskEffect::Call(sending)) if matches!(sending.request, Request::Acquire(_)) => Some(*id),
            _ => None,
        })
    }

    fn refused(&self, id: TicketId) -> bool {
        self.out.iter().any(|output| matches!(output, Output::To(to, TaskEffect::Busy(_)) if *to == id))
    }

    fn failed(&self, id: TicketId) -> bool {
        self.out.iter().any(|output| matches!(output, Output::To(to, TaskEffect::Failed(_)) if *to == id))
    }

    fn once(&mut self, name: &str, owner: &Owner) -> TicketId {
        self.want_with(&[name], owner, Options { term: KEPT, ..Options::default() }, true)
    }

    /// A task that sleeps until it is told.
    fn sleeper(&mut self, owner: &Owner) -> TicketId {
        let id = self.want(&["a"], owner, KEPT);
        let (ask, _) = self.call();
        self.fall_asleep(ask, "a");
        assert!(self.sleeps(id));
        id
    }
}

#[test]
fn one_asks_and_the_others_wait_in_line() {
    let mut bench = Bench::new();
    let first = bench.want(&["a"], &fresh(1), KEPT);
    assert_eq!(bench.asks(), Some(first));
    let (ask, _) = bench.call();
    let second = bench.want(&["a"], &fresh(2), FIXED);
    let third = bench.want(&["a"], &fresh(3), KEPT);
    assert!(bench.out.is_empty(), "{:?}", bench.out);
    bench.grant(ask, LEASE);
    let hold = bench.granted().unwrap().hold;
    bench.want(&["a"], &fresh(4), KEPT);
    assert!(bench.out.is_empty(), "held by another here");
    bench.step(Input::Release(hold, named("a")));
    let (release, _) = bench.call();
    bench.want(&["a"], &fresh(5), KEPT);
    assert!(bench.out.is_empty(), "on its way back");
    bench.release_answered(release, Released::Released { waiters: Some(0) });
    assert_eq!(bench.asks(), Some(second), "in the order they came");
    let (ask, _) = bench.call();
    bench.step(Input::Cancel(second, named("a")));
    assert!(bench.out.is_empty(), "its call goes on without it");
    bench.step(Input::Unsent(ask));
    assert_eq!(bench.asks(), Some(third));
}

#[test]
fn a_sleeper_that_is_told_asks_again_and_its_place_is_taken_when_it_goes() {
    let mut bench = Bench::new();
    let first = bench.sleeper(&fresh(1));
    let until = bench.sleeps_until(first).unwrap();
    assert_eq!(until, bench.now + LEASE + MS, "to the end of the holder's lease, and a moment more");
    let second = bench.want(&["a"], &fresh(2), KEPT);
    assert!(bench.out.is_empty());
    // Only the first in line sleeps for all, and only when its time has come does it ask.
    bench.step(Input::Woke(second, named("a")));
    assert!(bench.out.is_empty());
    bench.pass(MS);
    bench.step(Input::Woke(first, named("a")));
    assert_eq!(bench.sleeps_until(first), Some(until));
    bench.step(Input::Cancel(second, named("a")));
    assert!(bench.out.is_empty(), "{:?}", bench.out);
    let third = bench.want(&["a"], &fresh(3), KEPT);
    bench.step(Input::Cancel(first, named("a")));
    assert_eq!(bench.sleeps_until(third), Some(until), "in its place");
    bench.step(Input::Hint(named("a")));
    assert_eq!(bench.asks(), Some(third));
    bench.step(Input::Hint(named("b")));
    assert!(bench.out.is_empty());
}

#[test]
fn a_hint_that_comes_while_a_call_is_under_way_is_remembered() {
    let mut bench = Bench::new();
    let first = bench.sleeper(&fresh(1));
    bench.step(Input::Hint(named("a")));
    let (ask, _) = bench.call();
    bench.step(Input::Hint(named("a")));
    assert!(bench.out.is_empty());
    bench.busy(ask, "a");
    assert_eq!(bench.asks(), Some(first), "it asks once more");
    let (ask, _) = bench.call();
    bench.busy(ask, "a");
    assert!(bench.sleeps(first), "and then sleeps");
}

#[test]
fn everybody_asks_when_hints_may_have_been_missed() {
    let mut bench = Bench::new();
    let mut sleepers = Vec::new();
    for name in ["c", "a", "b"] {
        let id = bench.want(&[name], &fresh(1), KEPT);
        let (ask, _) = bench.call();
        bench.fall_asleep(ask, name);
        sleepers.push(id);
    }
    bench.step(Input::HintAll);
    let asked = bench.out.iter().filter_map(|output| match output {
        Output::To(id, TaskEffect::Call(_)) => Some(*id),
        _ => None,
    });
    assert_eq!(asked.collect::<Vec<_>>(), [sleepers[1], sleepers[2], sleepers[0]], "in the order of names");
}

#[test]
fn one_who_spins_asks_again_after_pauses_that_grow() {
    let mut bench = Bench::new();
    let options = Options { term: KEPT, wait_mode: WaitMode::Spinning, ..Options::default() };
    let id = bench.want_with(&["a"], &fresh(1), options, false);
    for attempt in 1..12_u32 {
        let (ask, _) = bench.call();
        bench.busy(ask, "a");
        let pause = bench.sleeps_until(id).unwrap().since(bench.now);
        let least = (MS * (1 << attempt)).min(MS * 200);
        assert!((least..=least * 2).contains(&pause), "{attempt}: {pause:?}");
        bench.pass(pause);
        bench.step(Input::Woke(id, named("a")));
    }
}

#[test]
fn where_the_store_has_no_hints_a_waiter_spins() {
    let mut bench = Bench::new();
    bench.table.settings.hints = false;
    let id = bench.want(&["a"], &fresh(1), KEPT);
    let (ask, _) = bench.call();
    bench.busy(ask, "a");
    assert!(bench.sleeps_until(id).unwrap().since(bench.now) <= MS * 4, "{:?}", bench.out);
}

#[test]
fn a_subscription_that_fails_is_tried_again_after_a_pause() {
    let mut bench = Bench::new();
    let id = bench.want(&["a"], &fresh(1), KEPT);
    let (ask, _) = bench.call();
    bench.busy(ask, "a");
    let (watch, _) = bench.call();
    bench.step(Input::Answer(watch, Answer::Watch(Err(unreached()))));
    let until = bench.sleeps_until(id).unwrap();
    assert!(until.since(bench.now) <= MS * 30);
    bench.now = until;
    bench.step(Input::Woke(id, named("a")));
    assert_eq!(bench.asks(), Some(id));
}

#[test]
fn a_sending_that_came_too_late_is_sent_again_at_once() {
    let mut bench = Bench::new();
    let id = bench.want(&["a"], &fresh(1), KEPT);
    let (ask, _) = bench.call();
    let reply = bench.ok(Acquired::TooLate);
    bench.step(Input::Answer(ask, Answer::Acquire(reply)));
    assert_eq!(bench.asks(), Some(id));
}

#[test]
fn a_name_that_nobody_wants_any_more_is_left_and_its_list_too() {
    let mut bench = Bench::new();
    let id = bench.sleeper(&fresh(1));
    bench.step(Input::Cancel(id, named("a")));
    assert!(matches!(&bench.out[..], [Output::Unwatch(name)] if *name == named("a")), "{:?}", bench.out);
    assert!(bench.table.is_empty());
    // One who has it leaves the list by that, and the subscription with the name.
    let id = bench.want(&["a"], &fresh(1), KEPT);
    let (ask, _) = bench.call();
    bench.grant(ask, LEASE);
    let hold = bench.granted().unwrap().hold;
    bench.step(Input::Release(hold, named("a")));
    let (release, _) = bench.call();
    bench.release_answered(release, Released::Released { waiters: Some(0) });
    assert!(matches!(&bench.out[..], [Output::Released(..)]), "{id:?} never waited: {:?}", bench.out);
    assert!(bench.table.is_empty());
}

#[test]
fn whoever_asks_once_is_answered_by_the_store_or_by_who_holds_it_here() {
    let mut bench = Bench::new();
    let id = bench.once("a", &fresh(1));
    let (ask, _) = bench.call();
    bench.busy(ask, "a");
    assert!(bench.refused(id), "{:?}", bench.out);
    assert!(bench.table.is_empty());
    // Its answer was lost, and that is the answer.
    let id = bench.once("a", &fresh(1));
    let (ask, _) = bench.call();
    bench.step(Input::Answer(ask, Answer::Acquire(Err(unreached()))));
    assert!(bench.failed(id) && bench.table.is_empty(), "{:?}", bench.out);
    let hold = bench.hold(&fresh(2), KEPT);
    let id = bench.once("a", &fresh(1));
    let told = bench.out.iter().find_map(|output| match output {
        Output::To(to, TaskEffect::Busy(busy)) if *to == id => Some(busy.clone()),
        _ => None,
    });
    let holder = told.expect("it is told at once").holder.expect("who holds it");
    assert_eq!(holder.fence, Some(Fence::at(store_time(bench.now))));
    // Its time is over, though nobody has noticed: it is not held any more.
    bench.pass(LEASE);
    let id = bench.once("a", &fresh(1));
    assert_eq!(bench.asks(), Some(id), "{:?}", bench.out);
    let lost = bench.out.iter().any(|output| matches!(output, Output::Lost(lost, ..) if *lost == hold));
    assert!(lost, "{:?}", bench.out);
}

#[test]
fn whoever_asks_once_behind_one_who_asks_shares_its_answer() {
    for granted in [false, true] {
        let mut bench = Bench::new();
        let first = bench.want(&["a"], &fresh(1), KEPT);
        let (ask, _) = bench.call();
        let once = bench.once("a", &fresh(2));
        assert!(bench.out.is_empty(), "the first asks already: {:?}", bench.out);
        if granted {
            bench.grant(ask, LEASE);
            assert!(bench.granted().is_some());
        } else {
            bench.busy(ask, "a");
        }
        assert!(bench.refused(once), "{:?}", bench.out);
        assert!(!bench.refused(first));
    }
    let mut bench = Bench::new();
    let first = bench.want(&["a"], &fresh(1), KEPT);
    let (ask, _) = bench.call();
    let once = bench.once("a", &fresh(2));
    bench.step(Input::Answer(ask, Answer::Acquire(Err(unreached()))));
    assert!(bench.failed(once) && bench.sleeps(first), "{:?}", bench.out);
}

#[test]
fn whoever_asks_once_behind_a_sleeper_has_it_ask_now() {
    let mut bench = Bench::new();
    let first = bench.sleeper(&fresh(1));
    let once = bench.once("a", &fresh(2));
    assert_eq!(bench.asks(), Some(first));
    let (ask, _) = bench.call();
    bench.busy(ask, "a");
    assert!(bench.refused(once) && bench.sleeps(first), "{:?}", bench.out);
}

/// A lease on its way back whose answer was lost: nobody asks before it is sent again.
#[test]
fn whoever_asks_once_while_nobody_can_ask_is_told_that_it_is_busy() {
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), KEPT);
    bench.step(Input::Release(hold, named("a")));
    let (release, _) = bench.call();
    let once = bench.once("a", &fresh(2));
    assert!(bench.out.is_empty(), "soon it is known: {:?}", bench.out);
    bench.step(Input::Answer(release, Answer::Release(Err(unknown()))));
    let later = bench.once("a", &fresh(3));
    assert!(bench.refused(later), "{:?}", bench.out);
    bench.now = bench.table.next_timer().unwrap();
    bench.step(Input::Tick);
    let (release, _) = bench.call();
    bench.release_answered(release, Released::Released { waiters: Some(0) });
    assert_eq!(bench.asks(), Some(once));

    let mut bench = Bench::new();
    let id = bench.want(&["a"], &fresh(1), KEPT);
    let (ask, _) = bench.call();
    bench.step(Input::Answer(ask, Answer::Acquire(Err(unknown()))));
    bench.step(Input::Cancel(id, named("a")));
    assert!(matches!(bench.call().1, Request::Release(_)));
    let once = bench.once("a", &fresh(2));
    assert!(bench.refused(once), "what may have been granted is on its way back: {:?}", bench.out);
}

/// Where the series of one owner cannot serve the next in line, it is given back first.
#[test]
fn one_that_needs_another_owner_waits_until_the_open_asking_is_settled() {
    let mut bench = Bench::new();
    let id = bench.want(&["a"], &explicit(), KEPT);
    let (ask, _) = bench.call();
    let next = bench.want(&["a"], &fresh(2), KEPT);
    bench.step(Input::Answer(ask, Answer::Acquire(Err(unknown()))));
    let until = bench.sleeps_until(id).unwrap();
    bench.step(Input::Cancel(id, named("a")));
    assert_eq!(bench.sleeps_until(next), Some(until));
    bench.now = until;
    bench.step(Input::Woke(next, named("a")));
    let (withdraw, request) = bench.call();
    assert!(matches!(request, Request::Release(_)), "{request:?}");
    bench.pass(CALL * 2);
    let reply = bench.ok(Released::NotHeld);
    bench.step(Input::Answer(withdraw, Answer::Release(reply)));
    assert_eq!(bench.asks(), Some(next));
}

/// What a task that has gone was granted is taken by the next in line that can use it.
#[test]
fn a_grant_goes_to_the_next_in_line_if_its_asker_has_gone() {
    for (owner, term, takes) in [
        (fresh(2), KEPT, true),
        (explicit(), KEPT, false),
        (fresh(2), Term::Fixed(LEASE), false),
        (fresh(2), Term::Fixed(LEASE * 2), false),
    ] {
        let mut bench = Bench::new();
        let id = bench.want(&["a"], &fresh(1), KEPT);
        let (ask, _) = bench.call();
        let next = bench.want(&["a"], &owner, term);
        bench.step(Input::Cancel(id, named("a")));
        bench.grant(ask, LEASE);
        let to = bench.out.iter().find_map(|output| match output {
            Output::To(to, TaskEffect::Granted(_)) => Some(*to),
            _ => None,
        });
        assert_eq!(to, takes.then_some(next), "{owner:?} {term:?}: {:?}", bench.out);
    }
    // Fixed leases alike: it is enough that as much is left as the next one asked for.
    for (left, takes) in [(LEASE, true), (LEASE - MS, false)] {
        let mut bench = Bench::new();
        let id = bench.want(&["a"], &fresh(1), FIXED);
        let (ask, _) = bench.call();
        bench.want(&["a"], &fresh(2), FIXED);
        bench.step(Input::Cancel(id, named("a")));
        bench.grant(ask, left);
        assert_eq!(bench.granted().is_some(), takes, "{left:?}: {:?}", bench.out);
    }
}

#[test]
fn a_grant_that_is_over_when_it_comes_goes_back() {
    for (late, granted) in [(Duration::ZERO, false), (Duration::from_nanos(1), true)] {
        let mut bench = Bench::new();
        bench.want(&["a"], &fresh(1), KEPT);
        let (ask, _) = bench.call();
        bench.now = crate::lease::deadline(bench.now, LEASE) - late;
        bench.grant(ask, LEASE);
        assert_eq!(bench.granted().is_some(), granted, "{late:?}");
    }
}

#[test]
fn a_task_is_passed_the_lock_only_within_budget_block_and_lease() {
    let budget = crate::options::BUDGET_DEFAULT;
    let passes = |keep: Duration, next: Options, owner: &Owner, len: u32, after: Duration| {
        let mut bench = Bench::new();
        bench.want(&["a"], &fresh(1), Term::Kept(keep));
        let (ask, _) = bench.call();
        bench.want_with(&["a"], owner, next, false);
        let block = Block { first: Fence::new(1_000_000), len };
        let reply = bench.ok(Acquired::Granted(smallvec![Granted { block, holds: 1, left: keep }]));
        bench.step(Input::Answer(ask, Answer::Acquire(reply)));
        let hold = bench.granted().unwrap().hold;
        bench.pass(after);
        bench.step(Input::Release(hold, named("a")));
        let given = bench
            .out
            .iter()
            .any(|output| matches!(output, Output::Released(_, Ok(Released::Released { waiters: None }))));
        assert_eq!(given, bench.granted().is_some(), "{:?}", bench.out);
        bench.granted().is_some()
    };
    let kept = |lease: Duration| Options { term: Term::Kept(lease), ..Options::default() };
    assert!(passes(LEASE, kept(LEASE), &fresh(2), 2, MS));
    assert!(passes(LEASE, kept(LEASE), &fresh(2), 2, budget - Duration::from_nanos(1)));
    assert!(!passes(LEASE, kept(LEASE), &fresh(2), 2, budget), "the budget is over");
    assert!(!passes(LEASE, kept(LEASE), &fresh(2), 1, MS), "the block is used up");
    assert!(!passes(LEASE, kept(LEASE + MS), &fresh(2), 2, MS), "it needs a longer lease");
    assert!(passes(LEASE, kept(LEASE - MS), &fresh(2), 2, MS));
    assert!(!passes(LEASE, kept(LEASE), &explicit(), 2, MS), "others may have its owner");
    assert!(!passes(LEASE, Options { term: FIXED, ..Options::default() }, &fresh(2), 2, MS), "it is fixed");
    assert!(!passes(LEASE, Options { budget: Duration::ZERO, ..kept(LEASE) }, &fresh(2), 2, MS), "it wants no budget");
    assert!(!passes(LEASE, Options { at_least: MS, ..kept(LEASE) }, &fresh(2), 2, MS), "it must stay taken");
}

#[test]
fn patience_ends_where_the_store_has_never_answered_and_only_there() {
    let mut bench = Bench::new();
    let id = bench.want(&["a"], &fresh(1), KEPT);
    let (ask, _) = bench.call();
    bench.pass(Duration::from_secs(5) - MS);
    bench.step(Input::Answer(ask, Answer::Acquire(Err(unreached()))));
    assert!(!bench.failed(id));
    bench.now = bench.sleeps_until(id).unwrap();
    bench.step(Input::Woke(id, named("a")));
    let (ask, _) = bench.call();
    bench.step(Input::Answer(ask, Answer::Acquire(Err(unreached()))));
    assert!(bench.failed(id) && bench.table.is_empty(), "{:?}", bench.out);

    let mut bench = Bench::new();
    let id = bench.sleeper(&fresh(1));
    bench.pass(Duration::from_secs(60));
    bench.step(Input::Hint(named("a")));
    let (ask, _) = bench.call();
    bench.step(Input::Answer(ask, Answer::Acquire(Err(unreached()))));
    assert!(!bench.failed(id) && bench.sleeps(id), "it was answered once: {:?}", bench.out);

    let mut bench = Bench::new();
    let id = bench.want(&["a"], &fresh(1), KEPT);
    let (ask, _) = bench.call();
    let next = bench.want(&["a"], &fresh(2), KEPT);
    let unfit = Error::new(ErrorKind::Unfit, "acquire", "no").with_outcome(Outcome::NotApplied);
    bench.step(Input::Answer(ask, Answer::Acquire(Err(unfit))));
    assert!(bench.failed(id) && !bench.failed(next), "what cannot be retried is final at once: {:?}", bench.out);
}

#[test]
fn a_waiter_whose_calls_fail_pauses_for_longer_each_time() {
    let mut bench = Bench::new();
    let id = bench.want(&["a"], &fresh(1), KEPT);
    let mut pauses = Vec::new();
    for _ in 0..5 {
        let (ask, _) = bench.call();
        bench.step(Input::Answer(ask, Answer::Acquire(Err(unreached()))));
        let until = bench.sleeps_until(id).unwrap();
        pauses.push(until.since(bench.now).as_millis());
        bench.now = until;
        bench.step(Input::Woke(id, named("a")));
    }
    let bounds = [10..=15, 20..=30, 40..=60, 80..=120, 160..=240];
    assert!(pauses.iter().zip(&bounds).all(|(pause, bound)| bound.contains(pause)), "{pauses:?}");
}

#[test]
fn a_subscription_ends_with_the_name_though_the_lock_was_had() {
    let mut bench = Bench::new();
    bench.sleeper(&fresh(1));
    bench.step(Input::Hint(named("a")));
    let (ask, _) = bench.call();
    bench.grant(ask, LEASE);
    let hold = bench.granted().unwrap().hold;
    bench.step(Input::Release(hold, named("a")));
    let (release, _) = bench.call();
    bench.release_answered(release, Released::Released { waiters: Some(0) });
    assert!(matches!(&bench.out[..], [Output::Released(..), Output::Unwatch(_)]), "{:?}", bench.out);
}

#[test]
fn a_line_keeps_the_order_of_tickets_wherever_they_come_from_and_go() {
    let mut bench = Bench::new();
    let ids: Vec<TicketId> = (0..6).map(|_| bench.table.ticket()).collect();
    let options: Arc<Options> = Arc::default();
    let ticket = || {
        let (names, owner) = (Names::One(named("a")), fresh(1));
        let want =
            AcquireRequest { names, owner, options: options.clone(), about: Arc::default(), once: false, until: None };
        crate::table::queue::Ticket { request: want, patience: None }
    };
    let mut queue = crate::table::queue::Queue::EMPTY;
    for at in [2, 4, 5, 0, 3, 1] {
        queue.insert(ids[at], ticket());
    }
    assert!(queue.iter().map(|(id, _)| id).eq(ids.iter().copied()));
    assert!(ids.iter().all(|id| queue.contains(*id) && queue.get(*id).is_some() && queue.get_mut(*id).is_some()));
    assert!(queue.remove(ids[3]).is_some() && queue.remove(ids[3]).is_none());
    assert!(!queue.contains(ids[3]) && queue.get(ids[3]).is_none() && queue.get_mut(ids[3]).is_none());
    for at in [0, 1, 2, 4, 5] {
        assert_eq!(queue.head().map(|(id, _)| id), Some(ids[at]));
        assert!(!queue.is_empty() && queue.remove(ids[at]).is_some());
    }
    assert!(queue.is_empty() && queue.head().is_none());
}

/// A grant that nobody takes is on its way back, and one answer away from free: a task that asks once waits for that answer.
#[test]
fn whoever_asks_once_while_an_unwanted_grant_goes_back_asks_after_it() {
    let mut bench = Bench::new();
    let id = bench.want(&["a"], &fresh(1), KEPT);
    let (ask, _) = bench.call();
    bench.step(Input::Cancel(id, named("a")));
    bench.grant(ask, LEASE);
    let (release, request) = bench.call();
    assert!(matches!(request, Request::Release(_)), "{request:?}");
    let once = bench.once("a", &fresh(2));
    assert!(bench.out.is_empty(), "soon it is known: {:?}", bench.out);
    bench.release_answered(release, Released::Released { waiters: Some(0) });
    assert_eq!(bench.asks(), Some(once));
}
