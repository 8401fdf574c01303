//! Giving back: what became of it, whose turn it is then, and what is sent until it is certain.

use super::*;
use crate::lease;

const MS: Duration = Duration::from_millis(1);

impl Bench {
    fn given(&self, hold: HoldId) -> Option<Result<Released, ErrorKind>> {
        self.out.iter().find_map(|output| match output {
            Output::Released(given, result) if *given == hold => Some(result.clone().map_err(|error| error.kind())),
            _ => None,
        })
    }

    fn asking(&self) -> bool {
        let acquire = |sending: &Sending| matches!(sending.request, Request::Acquire(_));
        self.out.iter().any(|output| matches!(output, Output::To(_, TaskEffect::Call(sending)) if acquire(sending)))
    }
}

#[test]
fn a_release_says_what_the_store_said() {
    for result in [Released::Released { waiters: Some(0) }, Released::StillHeld(3)] {
        let mut bench = Bench::new();
        let hold = bench.hold(&explicit(), KEPT);
        bench.step(Input::Release(hold, named("a")));
        let (release, _) = bench.call();
        bench.release_answered(release, result);
        assert_eq!(bench.given(hold), Some(Ok(result)));
        assert!(bench.table.is_empty());
    }
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), KEPT);
    bench.step(Input::Release(hold, named("a")));
    let (release, _) = bench.call();
    bench.release_answered(release, Released::NotHeld);
    assert_eq!(bench.given(hold), Some(Err(ErrorKind::Lost)), "it was gone before");
}

/// The first sending may have been executed, and then the second finds nothing; unless it surely was not.
#[test]
fn a_release_that_was_sent_again_may_find_nothing() {
    for outcome in [Outcome::Unknown, Outcome::NotApplied] {
        let mut bench = Bench::new();
        let hold = bench.hold(&fresh(1), KEPT);
        bench.step(Input::Release(hold, named("a")));
        let (release, first) = bench.call();
        let error = Error::new(ErrorKind::Unreachable, "release", "no").with_outcome(outcome);
        bench.step(Input::Answer(release, Answer::Release(Err(error))));
        assert_eq!(bench.given(hold), Some(Err(ErrorKind::Unreachable)));
        let pause = bench.table.next_timer().unwrap().since(bench.now);
        assert!((MS * 10..=MS * 15).contains(&pause), "{pause:?}");
        bench.pass(pause - Duration::from_nanos(1));
        bench.step(Input::Tick);
        assert!(bench.out.is_empty(), "{:?}", bench.out);
        bench.pass(Duration::from_nanos(1));
        bench.step(Input::Tick);
        let (release, second) = bench.call();
        assert_eq!(format!("{first:?}"), format!("{second:?}"), "the same again");
        bench.release_answered(release, Released::NotHeld);
        assert_eq!(bench.table.holds_for(bench.now, &named("a"), &fresh(1)), Some(false));
        assert_eq!(bench.given(hold), None, "it was told before");
        // Where it was there for the first sending, somebody else may have come since.
        assert_eq!(bench.table.is_empty(), outcome == Outcome::NotApplied);
    }
}

#[test]
fn a_release_is_sent_after_pauses_that_grow_until_its_lease_is_over() {
    let mut bench = Bench::new();
    let begin = bench.now;
    let hold = bench.hold(&fresh(1), KEPT);
    bench.step(Input::Release(hold, named("a")));
    let over = lease::surely_over(begin, LEASE);
    let mut sent = 0;
    loop {
        if bench.out.iter().any(|output| matches!(output, Output::Background(_) | Output::ForHold(..))) {
            let (release, _) = bench.call();
            sent += 1;
            bench.step(Input::Answer(release, Answer::Release(Err(unknown()))));
        }
        let Some(next) = bench.table.next_timer() else { break };
        bench.now = next;
        bench.step(Input::Tick);
    }
    assert_eq!(bench.now, over);
    assert!((4..8).contains(&sent), "{sent}");
    assert!(bench.table.is_empty());
}

/// Others of the same owner may keep it in the store, and this hold with it.
#[test]
fn the_release_of_a_shared_owner_is_not_given_up() {
    let mut bench = Bench::new();
    let hold = bench.hold(&explicit(), KEPT);
    bench.step(Input::Release(hold, named("a")));
    let (release, _) = bench.call();
    assert_eq!(bench.table.next_timer(), None);
    bench.pass(LEASE * 10);
    bench.step(Input::Answer(release, Answer::Release(Err(unknown()))));
    bench.now = bench.table.next_timer().unwrap();
    bench.step(Input::Tick);
    let (release, _) = bench.call();
    bench.step(Input::Answer(release, Answer::Release(Err(unknown()))));
    // A client that is closed waits for nobody.
    bench.step(Input::Close);
    bench.now = bench.table.next_timer().unwrap();
    bench.step(Input::Tick);
    assert!(bench.out.is_empty() && bench.table.is_empty(), "{:?}", bench.out);
}

#[test]
fn what_was_sent_before_its_lease_was_over_is_still_answered() {
    for (result, told) in [
        (Released::Released { waiters: None }, Ok(Released::Released { waiters: None })),
        (Released::NotHeld, Err(ErrorKind::Lost)),
    ] {
        let mut bench = Bench::new();
        let hold = bench.hold(&fresh(1), KEPT);
        bench.step(Input::Release(hold, named("a")));
        let (release, _) = bench.call();
        bench.pass(LEASE * 2);
        bench.step(Input::Tick);
        assert!(bench.table.is_empty());
        bench.release_answered(release, result);
        assert_eq!(bench.given(hold), Some(told));
    }
}

#[test]
fn an_answer_to_an_older_release_leaves_the_next_one_alone() {
    const FREE: Released = Released::Released { waiters: Some(0) };
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), KEPT);
    bench.step(Input::Release(hold, named("a")));
    let (older, _) = bench.call();
    bench.pass(LEASE * 2);
    bench.step(Input::Tick);
    let next = bench.hold(&fresh(2), KEPT);
    bench.step(Input::Release(next, named("a")));
    let (newer, _) = bench.call();
    bench.release_answered(older, FREE);
    assert_eq!((bench.given(hold), bench.given(next)), (Some(Ok(FREE)), None));
    assert!(!bench.table.is_empty(), "the newer one is not answered");
    bench.release_answered(newer, FREE);
    assert_eq!(bench.given(next), Some(Ok(FREE)));
    assert!(bench.table.is_empty());
}

/// Two round trips for those who wait elsewhere, and twice as much with each turn of ours while they do.
#[test]
fn after_its_turn_a_client_lets_others_go_first() {
    for (waiters, gives_way) in [(Some(0), false), (Some(1), true), (None, true)] {
        let mut bench = Bench::new();
        bench.want(&["a"], &fresh(1), FIXED);
        let (ask, _) = bench.call();
        bench.pass(MS * 3);
        bench.grant(ask, LEASE);
        let hold = bench.granted().unwrap().hold;
        let next = bench.want(&["a"], &fresh(2), FIXED);
        bench.step(Input::Release(hold, named("a")));
        let (release, _) = bench.call();
        bench.pass(MS * 3);
        bench.release_answered(release, Released::Released { waiters });
        if !gives_way {
            assert!(bench.asking(), "{:?}", bench.out);
            continue;
        }
        // It subscribes meanwhile, and sleeps for the rest.
        let until = bench.now + MS * 6;
        let (watch, request) = bench.call();
        assert!(matches!(request, Request::Watch(_)), "{request:?}");
        bench.step(Input::Answer(watch, Answer::Watch(Ok(()))));
        assert_eq!(bench.sleeps_until(next), Some(until));
        bench.now = until;
        bench.step(Input::Woke(next, named("a")));
        assert!(bench.asking());
    }
}

#[test]
fn a_hint_ends_giving_way() {
    let mut bench = Bench::new();
    bench.want(&["a"], &fresh(1), FIXED);
    let (ask, _) = bench.call();
    bench.fall_asleep(ask, "a");
    bench.step(Input::Hint(named("a")));
    let mut ways = Vec::new();
    for turn in 0..4_u64 {
        let (ask, _) = bench.call();
        bench.pass(MS * 3);
        bench.grant(ask, LEASE);
        let hold = bench.granted().unwrap().hold;
        let next = bench.want(&["a"], &fresh(10 + turn), FIXED);
        bench.step(Input::Release(hold, named("a")));
        let (release, _) = bench.call();
        bench.pass(MS * 3);
        bench.release_answered(release, Released::Released { waiters: Some(1) });
        let until = bench.sleeps_until(next).expect("it gives way");
        ways.push(until.since(bench.now));
        if turn == 2 {
            bench.step(Input::Hint(named("a")));
        } else {
            bench.now = until;
            bench.step(Input::Woke(next, named("a")));
        }
        assert!(bench.asking(), "{:?}", bench.out);
    }
    assert!(ways[1] >= ways[0] * 3 / 2 && ways[2] >= ways[1] * 3 / 2, "longer with each turn: {ways:?}");
    assert!(ways[3] <= ways[0] * 3 / 2, "and from the start again once somebody came: {ways:?}");
}

#[test]
fn one_who_asks_once_while_others_go_first_is_told_so() {
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), KEPT);
    bench.step(Input::Release(hold, named("a")));
    let (release, _) = bench.call();
    bench.pass(MS * 3);
    bench.release_answered(release, Released::Released { waiters: Some(1) });
    let until = bench.table.next_timer().expect("the name stays until others had their turn");
    assert_eq!(until, bench.now + backoff::yield_pause(bench.table.round_trip, 0));
    let options = Options { term: KEPT, ..Options::default() };
    let once = bench.want_with(&["a"], &fresh(2), options, true);
    assert!(bench.asking(), "{once:?} may ask, for nobody here waits: {:?}", bench.out);

    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), KEPT);
    bench.step(Input::Release(hold, named("a")));
    let (release, _) = bench.call();
    bench.release_answered(release, Released::Released { waiters: Some(1) });
    bench.now = bench.table.next_timer().unwrap();
    bench.step(Input::Tick);
    assert!(bench.table.is_empty(), "and then it is forgotten");
}

#[test]
fn what_a_late_sending_may_be_granted_is_released_until_that_is_past() {
    let mut bench = Bench::new();
    let id = bench.want(&["a"], &fresh(1), FIXED);
    let (ask, request) = bench.call();
    let Request::Acquire(asked) = request else { panic!() };
    bench.step(Input::Answer(ask, Answer::Acquire(Err(unknown()))));
    bench.now = bench.sleeps_until(id).unwrap();
    bench.step(Input::Woke(id, named("a")));
    let (ask, _) = bench.call();
    bench.grant(ask, LEASE);
    let hold = bench.granted().unwrap().hold;
    bench.pass(LEASE);
    bench.step(Input::Tick);
    bench.step(Input::Release(hold, named("a")));
    let (release, request) = bench.call();
    assert!(matches!(request, Request::Release(release) if release.fence.is_none()));
    // The answer is as old as the last moment at which the first sending may be executed: once more.
    let reply = Ok(Answered { at: asked.not_after, result: Released::NotHeld });
    bench.step(Input::Answer(release, Answer::Release(reply)));
    assert_eq!(bench.table.next_timer(), Some(bench.now + MS));
    bench.pass(MS);
    bench.step(Input::Tick);
    // What it is about is over by now.
    assert!(bench.table.is_empty() || matches!(bench.call().1, Request::Release(_)));
}

/// An answer after the last moment at which the first sending could be executed settles that.
#[test]
fn an_answer_that_is_late_enough_settles_an_open_sending() {
    for (late, settled) in [(Duration::ZERO, false), (Duration::from_nanos(1), true)] {
        let mut bench = Bench::new();
        let id = bench.want(&["a"], &fresh(1), KEPT);
        let (ask, request) = bench.call();
        let Request::Acquire(asked) = request else { panic!() };
        bench.step(Input::Answer(ask, Answer::Acquire(Err(unknown()))));
        bench.now = bench.sleeps_until(id).unwrap();
        bench.step(Input::Woke(id, named("a")));
        let (ask, _) = bench.call();
        let block = Block { first: Fence::new(5), len: 1 };
        let result = Acquired::Granted(smallvec![Granted { block, holds: 1, left: LEASE }]);
        let at = asked.not_after + late;
        bench.step(Input::Answer(ask, Answer::Acquire(Ok(Answered { at, result }))));
        let hold = bench.granted().unwrap().hold;
        bench.step(Input::Release(hold, named("a")));
        let (_, request) = bench.call();
        let Request::Release(given) = request else { panic!() };
        assert_eq!(given.fence, settled.then_some(block.first), "{late:?}");
    }
}

#[test]
fn a_closed_client_gives_back_all_in_order_and_takes_nothing_more() {
    let mut bench = Bench::new();
    let mut holds = Vec::new();
    for name in ["c", "a", "b"] {
        bench.want(&[name], &fresh(1), KEPT);
        let (ask, _) = bench.call();
        bench.grant(ask, LEASE);
        holds.push(bench.granted().unwrap().hold);
    }
    let waiting = bench.want(&["a"], &fresh(2), KEPT);
    bench.step(Input::Close);
    let told: Vec<String> = bench
        .out
        .iter()
        .map(|output| match output {
            Output::Lost(hold, name, report) => {
                format!("{} {name} {:?}", holds.iter().position(|h| h == hold).unwrap(), report.loss)
            }
            Output::To(id, TaskEffect::Failed(error)) => format!("{} {:?}", *id == waiting, error.kind()),
            Output::Background(sending) => match &sending.request {
                Request::Release(release) => format!("release {}", release.name),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(told, ["true Closed", "1 a Closed", "release a", "2 b Closed", "release b", "0 c Closed", "release c"]);
    let late = bench.want(&["z"], &fresh(3), KEPT);
    let [Output::To(id, TaskEffect::Failed(error))] = &bench.out[..] else { panic!("{:?}", bench.out) };
    assert_eq!((*id, error.kind()), (late, ErrorKind::Closed));
    bench.step(Input::Release(holds[0], named("c")));
    assert_eq!(bench.given(holds[0]), Some(Err(ErrorKind::Closed)));
}

#[test]
fn a_closed_client_gives_back_what_was_lost_before_in_order() {
    let mut bench = Bench::new();
    let owner = fresh(1);
    let mut holds = Vec::new();
    let order = ["c", "a", "b", "z", "k", "d", "y", "f"];
    for name in order {
        bench.want(&[name], &owner, FIXED);
        let (ask, _) = bench.call();
        bench.grant(ask, LEASE);
        holds.push(bench.granted().unwrap().hold);
    }
    bench.step(Input::Jumped(LEASE));
    assert_eq!(bench.table.remnants(), order.len());
    bench.step(Input::Close);
    let names: Vec<String> = bench
        .out
        .iter()
        .map(|output| match output {
            Output::Background(sending) => match &sending.request {
                Request::Release(release) => release.name.to_string(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(names, order, "as they were taken");
    // Dropping the guards afterwards sends nothing again.
    bench.step(Input::Release(holds[0], named("c")));
    assert_eq!(bench.given(holds[0]), Some(Err(ErrorKind::Lost)));
    assert_eq!(bench.out.len(), 1, "{:?}", bench.out);
}

#[test]
#[cfg_attr(miri, ignore = "thousands of names take Miri minutes")]
fn memory_follows_the_names_in_use() {
    let mut bench = Bench::new();
    let mut holds = Vec::new();
    for number in 0..5_000 {
        let name = format!("n{number}");
        bench.want(&[&name], &fresh(1), KEPT);
        let (ask, _) = bench.call();
        bench.grant(ask, LEASE);
        holds.push((name, bench.granted().unwrap().hold));
    }
    assert!(bench.table.entries.capacity() >= 5_000);
    for (name, hold) in holds {
        bench.step(Input::Release(hold, named(&name)));
        let (release, _) = bench.call();
        bench.release_answered(release, Released::Released { waiters: Some(0) });
    }
    assert!(bench.table.is_empty() && bench.table.next_timer().is_none());
    assert!(bench.table.entries.capacity() <= 2_048, "{}", bench.table.entries.capacity());
}

/// It stands in no queue, and tried again after the client was closed: the lock was taken for nobody to give back.
#[test]
fn a_re_entry_that_waits_for_a_longer_lease_ends_with_its_client() {
    for sleeps in [false, true] {
        let mut bench = Bench::new();
        let owner = fresh(1);
        bench.hold(&owner, FIXED);
        bench.pass(LEASE / 2);
        let id = bench.want(&["a"], &owner, FIXED);
        let (lengthen, _) = bench.call();
        let mut lengthen = Some(lengthen);
        if sleeps {
            bench.step(Input::Answer(lengthen.take().unwrap(), Answer::Renew(Err(unknown()))));
            assert!(bench.sleeps(id));
        }
        bench.step(Input::Close);
        let told = bench.out.iter().any(
            |output| matches!(output, Output::To(to, TaskEffect::Failed(error)) if *to == id && error.kind() == ErrorKind::Closed),
        );
        assert!(told, "{:?}", bench.out);
        match lengthen {
            Some(lengthen) => bench.step(Input::Answer(lengthen, Answer::Renew(Err(unknown())))),
            None => bench.step(Input::Woke(id, named("a"))),
        }
        let acts = |output: &Output| {
            matches!(output, Output::To(_, TaskEffect::Call(_) | TaskEffect::Sleep(_) | TaskEffect::Granted(_)))
        };
        assert!(!bench.out.iter().any(acts), "{:?}", bench.out);
    }
}

/// A renewal whose answer is lost may have been executed until its call ended.
#[test]
fn a_renewal_under_way_keeps_the_lease_in_the_store_for_longer() {
    for extends in [false, true] {
        let mut bench = Bench::new();
        let hold = bench.hold(&fresh(1), KEPT);
        if extends {
            bench.pass(LEASE / 3);
            let id = bench.table.ticket();
            bench.step(Input::Extend(id, hold, named("a"), LEASE));
        } else {
            bench.now = bench.table.next_timer().unwrap();
            bench.step(Input::Tick);
        }
        let sent = bench.now;
        let (_hangs, _) = bench.call();
        bench.step(Input::Release(hold, named("a")));
        assert_eq!(bench.table.next_timer(), Some(lease::surely_over(sent + CALL, LEASE)));
    }
}

#[test]
fn a_renewal_that_was_answered_keeps_the_lease_in_the_store_for_as_long_as_it_said() {
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), KEPT);
    bench.now = bench.table.next_timer().unwrap();
    bench.step(Input::Tick);
    let (renewal, _) = bench.call();
    bench.pass(MS * 5);
    let reply = bench.ok(vec![Renewed::Kept { left: LEASE * 4 }]);
    bench.step(Input::Answer(renewal, Answer::Renew(reply)));
    bench.step(Input::Release(hold, named("a")));
    assert_eq!(bench.table.next_timer(), Some(lease::surely_over(bench.now, LEASE * 4)));
}

/// Whoever is granted the lock has had its turn of giving way.
#[test]
fn a_grant_ends_giving_way() {
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), KEPT);
    bench.step(Input::Release(hold, named("a")));
    let (release, _) = bench.call();
    bench.pass(MS * 20);
    bench.release_answered(release, Released::Released { waiters: Some(1) });
    let options = Options { term: KEPT, ..Options::default() };
    bench.want_with(&["a"], &fresh(2), options, true);
    let (ask, _) = bench.call();
    bench.grant(ask, LEASE);
    let hold = bench.granted().unwrap().hold;
    bench.step(Input::Release(hold, named("a")));
    let (release, _) = bench.call();
    bench.release_answered(release, Released::Released { waiters: Some(0) });
    assert!(bench.table.is_empty());
    bench.want(&["a"], &fresh(3), KEPT);
    assert!(bench.asking(), "{:?}", bench.out);
}

/// The store does not have it, but a sending of its acquire is open: whatever that is granted is released with the guard.
#[test]
fn what_is_gone_is_released_all_the_same_while_a_sending_is_open() {
    let mut bench = Bench::new();
    let id = bench.want(&["a"], &fresh(1), KEPT);
    let (ask, _) = bench.call();
    bench.step(Input::Answer(ask, Answer::Acquire(Err(unknown()))));
    bench.now = bench.sleeps_until(id).unwrap();
    bench.step(Input::Woke(id, named("a")));
    let (ask, _) = bench.call();
    bench.grant(ask, LEASE);
    let hold = bench.granted().unwrap().hold;
    bench.now = bench.table.next_timer().unwrap();
    bench.step(Input::Tick);
    let (renewal, _) = bench.call();
    let reply = bench.ok(vec![Renewed::Lost]);
    bench.step(Input::Answer(renewal, Answer::Renew(reply)));
    bench.step(Input::Release(hold, named("a")));
    assert!(matches!(bench.call().1, Request::Release(release) if release.fence.is_none()));
}

/// A grant answers with what is left of the sending that was executed first. Another sending may have been executed since.
#[test]
fn a_release_is_sent_for_as_long_as_a_lost_sending_may_hold_the_lock() {
    let mut bench = Bench::new();
    let begin = bench.now;
    let id = bench.want(&["a"], &fresh(1), KEPT);
    let (lost, _) = bench.call();
    bench.step(Input::Answer(lost, Answer::Acquire(Err(unknown()))));
    bench.now = bench.sleeps_until(id).unwrap();
    bench.step(Input::Woke(id, named("a")));
    let (ask, _) = bench.call();
    bench.grant(ask, LEASE / 6);
    let hold = bench.granted().unwrap().hold;
    bench.step(Input::Release(hold, named("a")));
    let (release, _) = bench.call();
    bench.step(Input::Answer(release, Answer::Release(Err(unknown()))));
    // Executed at the latest moment, it lasts for a whole lease from then.
    let over = crate::lease::surely_over(begin + CALL * 2, LEASE);
    while let Some(next) = bench.table.next_timer().filter(|next| *next < over) {
        bench.now = next;
        bench.step(Input::Tick);
        if !bench.out.is_empty() {
            let (release, _) = bench.call();
            bench.step(Input::Answer(release, Answer::Release(Err(unknown()))));
        }
    }
    assert!(!bench.table.is_empty(), "given up {:?} before the lock is surely free", over.since(bench.now));
    bench.now = over;
    bench.step(Input::Tick);
    assert!(bench.table.is_empty());
}

#[test]
fn a_release_of_a_lost_lease_that_is_under_way_is_not_forgotten() {
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), FIXED);
    bench.now = bench.table.next_timer().unwrap();
    bench.step(Input::Tick);
    bench.step(Input::Release(hold, named("a")));
    let (release, _) = bench.call();
    bench.pass(LEASE * 2);
    bench.step(Input::Tick);
    assert!(!bench.table.only_waits(), "the store may execute it at any moment");
    bench.release_answered(release, Released::NotHeld);
    assert!(bench.table.is_empty());
}

/// A lock was released with others in the store's line, and this client gives way to them.
fn giving_way(next: Option<Term>) -> Bench {
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), FIXED);
    if let Some(term) = next {
        bench.want(&["a"], &fresh(2), term);
    }
    bench.step(Input::Release(hold, named("a")));
    let (release, _) = bench.call();
    bench.pass(MS * 3);
    bench.release_answered(release, Released::Released { waiters: Some(1) });
    bench
}

#[test]
fn one_who_asks_once_is_refused_at_once_while_the_first_in_line_gives_way() {
    let mut bench = giving_way(Some(FIXED));
    let (watch, request) = bench.call();
    assert!(matches!(request, Request::Watch(_)), "{request:?}");
    let is_refused = |bench: &mut Bench| {
        let once = bench.want_with(&["a"], &fresh(3), Options::default(), true);
        bench.out.iter().any(|output| matches!(output, Output::To(to, TaskEffect::Busy(_)) if *to == once))
    };
    assert!(is_refused(&mut bench), "while the other subscribes: {:?}", bench.out);
    bench.step(Input::Answer(watch, Answer::Watch(Ok(()))));
    let until = bench.out.iter().find_map(|output| match output {
        Output::To(_, TaskEffect::Sleep(until)) => Some(*until),
        _ => None,
    });
    assert!(is_refused(&mut bench), "while the other sleeps: {:?}", bench.out);
    bench.now = until.expect("it sleeps");
    assert!(!is_refused(&mut bench) && bench.asking(), "the others had their time: {:?}", bench.out);
}

#[test]
fn a_group_that_asks_once_gives_way_to_nobody() {
    let mut bench = giving_way(None);
    bench.want_with(&["a", "b"], &fresh(2), Options::default(), true);
    assert!(bench.asking(), "{:?}", bench.out);
}
