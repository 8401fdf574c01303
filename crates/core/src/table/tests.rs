//! Checks of the table, step by step: what simulated worlds found, each with the steps that led to it.

use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;

use super::*;
use crate::error::Outcome;
use crate::fence::Block;
use crate::name::Names;
use crate::options::{Options, Term};
use crate::owner::{ClientId, Owner};
use crate::planted::Planted;
use crate::port::{Acquired, Answered, Busy, Granted, Released, Renewed, Reply};
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
            call_limit: CALL,
            patience: Duration::from_secs(5),
            clock: StoreClock::new(begin, store_time(begin)),
            seed: 7,
            planted: Planted::default(),
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
            Want { names, owner: owner.clone(), options, about: Arc::default(), once: false },
        ));
        id
    }

    /// The one call that was given out, and to whom.
    fn call(&mut self) -> (Context, Request) {
        let calls = std::mem::take(&mut self.out).into_iter().filter_map(|output| match output {
            Output::To(_, Told::Call(sending)) => Some(*sending),
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

    fn grant(&mut self, context: Context, left: Duration) {
        let block = Block { first: Fence::at(store_time(self.now)), len: 1 };
        let reply = self.ok(Acquired::Granted(smallvec![Granted { block, holds: 1, left }]));
        self.step(Input::Answer(context, Answer::Acquire(reply)));
    }

    fn busy(&mut self, context: Context, name: &str) {
        let busy = Busy { name: named(name), holder: None, free_in: Some(LEASE) };
        let reply = self.ok(Acquired::Busy(Box::new(busy)));
        self.step(Input::Answer(context, Answer::Acquire(reply)));
    }

    fn release_answered(&mut self, context: Context, result: Released) {
        let reply = self.ok(result);
        self.step(Input::Answer(context, Answer::Release(reply)));
    }

    fn granted(&self) -> Option<Grant> {
        self.out.iter().find_map(|output| match output {
            Output::To(_, Told::Granted(grants)) => Some(grants[0]),
            _ => None,
        })
    }

    fn sleeps(&self, id: TicketId) -> bool {
        self.out.iter().any(|output| matches!(output, Output::To(to, Told::Sleep(_)) if *to == id))
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
    bench.want(&["a"], &owner, FIXED);
    let (ask, _) = bench.call();
    bench.grant(ask, LEASE);
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
fn a_reentry_that_falls_back_to_the_queue_sleeps_at_its_head() {
    let mut bench = Bench::new();
    let owner = fresh(1);
    bench.want(&["a"], &owner, FIXED);
    let (ask, _) = bench.call();
    bench.grant(ask, LEASE);
    bench.pass(LEASE / 2);
    let again = bench.want(&["a"], &owner, FIXED);
    let (lengthen, _) = bench.call();
    bench.want(&["a"], &fresh(2), KEPT);
    bench.pass(LEASE / 2);
    bench.step(Input::Tick);
    let (ask, _) = bench.call();
    bench.busy(ask, "a");
    let (watch, _) = bench.call();
    let reply = bench.ok(());
    bench.step(Input::Answer(watch, Answer::Watch(reply)));
    let (ask, _) = bench.call();
    bench.busy(ask, "a");
    let reply = bench.ok(vec![Renewed::Lost]);
    bench.step(Input::Answer(lengthen, Answer::Renew(reply)));
    assert!(bench.sleeps(again), "{:?}", bench.out);
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
    bench.want(&["a"], &fresh(1), KEPT);
    let (ask, _) = bench.call();
    bench.grant(ask, LEASE);
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
    bench.want(&["a"], &fresh(1), FIXED);
    let (ask, _) = bench.call();
    bench.grant(ask, LEASE);
    let hold = bench.granted().unwrap().hold;
    bench.step(Input::Jumped(LEASE));
    assert!(matches!(&bench.out[..], [Output::Lost(..)]), "{:?}", bench.out);
    bench.step(Input::Release(hold, named("a")));
    let (release, _) = bench.call();
    bench.step(Input::Answer(release, Answer::Release(Err(unknown()))));
    bench.pass(Duration::from_millis(50));
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
