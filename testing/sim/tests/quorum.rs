//! Decisions of a quorum, one by one: each of these was once decided wrongly.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backoff::Rng;
use leasehold_core::port::{Acquire, Answered, Busy, Holder, Notification, Released, Reply};
use leasehold_core::quorum::{Attempt, Clocks, Hold, PerServer, Rules, Sweep, Verdict, Vote, Voted, VotingStatus};
use leasehold_core::{
    ClientId, Error, ErrorKind, Fence, Moment, Name, Names, Outcome, RequestId, StoreOwner, StoreTime,
};

const MS: Duration = Duration::from_millis(1);

fn rules(servers: usize) -> Rules {
    Rules {
        servers: (0..servers).map(|n| Arc::from(format!("s{n}"))).collect(),
        limit: None,
        quarantine: Duration::from_secs(60),
    }
}

fn at(ms: u64) -> Moment {
    Moment::from_nanos(ms * 1_000_000)
}

fn store(ms: u64) -> StoreTime {
    StoreTime::from_nanos(1_000_000_000_000 + ms * 1_000_000)
}

fn clocks(servers: usize, now: u64) -> Clocks {
    let mut clocks = Clocks::new(servers);
    (0..servers).for_each(|server| clocks.observe(server, at(now), at(now), store(now)));
    clocks
}

fn request(names: &[Name]) -> Acquire {
    let client = ClientId([1, 2]);
    Acquire {
        kept: true,
        ..Acquire::new(
            Names::new(names.to_vec()).expect("names"),
            StoreOwner::Private(RequestId { client, number: 1 }),
            RequestId { client, number: 1 },
            Duration::from_secs(30),
        )
    }
}

fn took(now: u64) -> Reply<Vote> {
    let voted = Voted::Took { left: Duration::from_secs(30) };
    Ok(Answered { at: store(now), result: Vote { standing: VotingStatus::Votes, voted } })
}

fn held(servers: usize, names: &[Name]) -> (Rules, Hold) {
    let (rules, clocks) = (rules(servers), clocks(servers, 0));
    let left_out: PerServer<_> = (0..servers).map(|_| None).collect();
    let (mut attempt, sends) = Attempt::begin(&rules, request(names), at(0), &clocks, left_out);
    for send in sends {
        attempt.voted(at(1), &clocks, send.server, send.round, at(0), took(1));
    }
    assert!(matches!(attempt.verdict(at(1), &mut Rng::new(1)), Some(Verdict::Granted(_))));
    (rules, Hold::of(attempt))
}

/// A server whose connection broke just when it was asked anew is asked again at a later renewal.
#[test]
fn asked_anew_again_after_a_broken_connection() {
    let name = Name::new("l").unwrap();
    let (rules, mut hold) = held(3, std::slice::from_ref(&name));
    let term = Duration::from_secs(30);
    let asked = hold.ask_anew(&rules, 0, std::slice::from_ref(&name), term, at(10_000), &clocks(3, 10_000));
    let not_after = asked.expect("it is asked").acquire.not_after;
    let reset = Error::new(ErrorKind::Unreachable, "call", "connection reset").with_outcome(Outcome::Unknown);
    hold.asked_anew(0, not_after, store(10_005), &Err(reset));
    // Ten seconds, a minute, an hour later: no ballot of then can be executed any more.
    for later in [20_000, 70_000, 3_600_000] {
        let asked = hold.ask_anew(&rules, 0, std::slice::from_ref(&name), term, at(later), &clocks(3, later));
        let asked = asked.unwrap_or_else(|| panic!("after {later} ms the server is not asked for its vote anew"));
        hold.asked_anew(0, asked.acquire.not_after, store(later + 1), &took(later + 1));
    }
}

/// A server that came back is asked anew for every name of a group, in one renewal.
#[test]
fn asked_anew_for_every_name_of_a_group() {
    let names: Vec<Name> = (0..5).map(|n| Name::new(format!("n{n}")).unwrap()).collect();
    let (rules, mut hold) = held(3, &names);
    let (term, clocks) = (Duration::from_secs(30), clocks(3, 10_000));
    let ballot = hold.ask_anew(&rules, 0, &names, term, at(10_000), &clocks).expect("it is asked");
    assert_eq!(ballot.acquire.names.as_slice(), names, "names asked anew in one renewal");
}

/// Servers that missed a grant are known once their ballots are too late; those that have it or recover are not asked anew.
#[test]
fn who_missed_a_grant_may_join_it() {
    let name = Name::new("l").unwrap();
    let (rules, clocks) = (rules(5), clocks(5, 0));
    let left_out: PerServer<_> = (0..5).map(|_| None).collect();
    let (mut attempt, _) = Attempt::begin(&rules, request(std::slice::from_ref(&name)), at(0), &clocks, left_out);
    assert_eq!(attempt.awaits(), 3, "nothing is certain before three were heard of");
    for server in 0..3 {
        attempt.voted(at(1), &clocks, server, 1, at(0), took(1));
    }
    assert!(matches!(attempt.verdict(at(1), &mut Rng::new(1)), Some(Verdict::Granted(_))));
    let mut hold = Hold::of(attempt);
    assert_eq!(hold.joined_from(), at(50));
    assert_eq!(hold.vacant().collect::<Vec<_>>(), [3, 4], "they have not answered yet");
    hold.voted(at(2), &clocks, 3, 1, at(0), took(2));
    assert_eq!(hold.vacant().collect::<Vec<_>>(), [4], "it has it");
    let said = |standing| Ok(Answered { at: store(60), result: Vote { standing, voted: Voted::TooLate } });
    let mut recovering = hold.clone();
    recovering.voted(at(60), &clocks, 4, 1, at(0), said(VotingStatus::Recovering { left: MS }));
    assert_eq!(recovering.vacant().next(), None, "a server that recovers was to be asked");
    hold.voted(at(60), &clocks, 4, 1, at(0), said(VotingStatus::Votes));
    assert_eq!(hold.vacant().collect::<Vec<_>>(), [4], "it heard of it too late");
    hold.release();
    let term = Duration::from_secs(30);
    assert!(hold.ask_anew(&rules, 4, &[name], term, at(70), &clocks).is_none(), "it was given back");
}

/// Nobody is woken too late: whatever servers say, and whoever is left out, nothing is decided by fewer answers than are awaited.
#[test]
fn nothing_is_certain_before_so_many_were_heard_of() {
    let name = Name::new("l").unwrap();
    let vote = |standing, voted| Ok(Answered { at: store(1), result: Vote { standing, voted } });
    let busy = || {
        let busy = Busy { name: name.clone(), holder: None, free_in: None, notification: Notification::default() };
        Voted::Busy(Box::new(busy))
    };
    let left = Duration::from_secs(30);
    let recovers = VotingStatus::Recovering { left };
    let failed = |kind| Err(Error::new(kind, "call", "no").with_outcome(Outcome::NotApplied));
    let replies: [Reply<Vote>; 8] = [
        took(1),
        vote(VotingStatus::Votes, Voted::Held { left, last: Fence::NONE }),
        vote(VotingStatus::Votes, busy()),
        vote(VotingStatus::Votes, Voted::TooLate),
        vote(recovers, Voted::Took { left }),
        vote(recovers, busy()),
        failed(ErrorKind::Unreachable),
        failed(ErrorKind::Unfit),
    ];
    let (rules, clocks) = (rules(5), clocks(5, 0));
    for (dark, fit) in [(0, true), (1, true), (2, true), (1, false), (2, false)] {
        let kind = if fit { ErrorKind::Unreachable } else { ErrorKind::Unfit };
        let error = || Some(Some(Error::new(kind, "call", "no")));
        let left_out: PerServer<_> = (0..5).map(|server| if server < dark { error() } else { None }).collect();
        let asked = 5 - dark;
        for mut said in 0..replies.len().pow(asked as u32) {
            let request = request(std::slice::from_ref(&name));
            let (mut attempt, _) = Attempt::begin(&rules, request, at(0), &clocks, left_out.clone());
            let mut awaited = attempt.awaits();
            for server in dark..5 {
                let reply = replies[said % replies.len()].clone();
                said /= replies.len();
                let sends = attempt.voted(at(1), &clocks, server, 1, at(0), reply);
                awaited -= 1;
                if !sends.is_empty() || attempt.verdict(at(1), &mut Rng::new(1)).is_some() {
                    assert_eq!(awaited, 0, "{attempt:?}");
                    break;
                }
                awaited = awaited.max(attempt.awaits());
                assert!(awaited < 5 - server, "more than are left: {attempt:?}");
            }
        }
    }
}

/// What three of five granted, the others not asked.
fn held_by_three(name: &Name) -> (Rules, Clocks, Hold) {
    let (rules, clocks) = (rules(5), clocks(5, 0));
    let left_out: PerServer<_> = (0..5).map(|server| (server > 2).then_some(None)).collect();
    let (mut attempt, _) = Attempt::begin(&rules, request(std::slice::from_ref(name)), at(0), &clocks, left_out);
    assert_eq!(attempt.awaits(), 3, "one that refuses says nothing of the others");
    for server in 0..3 {
        attempt.voted(at(1), &clocks, server, 1, at(0), took(1));
    }
    assert!(matches!(attempt.verdict(at(1), &mut Rng::new(1)), Some(Verdict::Granted(_))));
    (rules, clocks, Hold::of(attempt))
}

fn said(released: Released) -> Reply<Released> {
    Ok(Answered { at: store(71), result: released })
}

/// A lock is given back wherever it may be, and nowhere else: to ask a server that does not answer for nothing costs for a whole lease.
#[test]
fn who_was_not_asked_need_not_give_back() {
    let name = Name::new("l").unwrap();
    let (rules, clocks, mut hold) = held_by_three(&name);
    let term = Duration::from_secs(30);
    let asked = hold.ask_anew(&rules, 4, std::slice::from_ref(&name), term, at(60), &clocks).expect("it is asked");
    let sweep_of = |hold: &mut Hold| Sweep::begin(&rules, hold.release(), at(70), at(1_570), at(60_000));
    assert_eq!(sweep_of(&mut hold.clone()).due(at(70)).as_slice(), [0, 1, 2, 4], "while it is asked anew");
    hold.asked_anew(4, asked.acquire.not_after, store(61), &took(61));
    let mut sweep = sweep_of(&mut hold);
    assert_eq!(sweep.due(at(70)).as_slice(), [0, 1, 2, 4], "it has it");
    let mut rng = Rng::new(1);
    sweep.answered(at(71), 0, said(Released::NotHeld), &mut rng);
    sweep.answered(at(71), 1, said(Released::Released { waiters: Some(0) }), &mut rng);
    sweep.answered(at(71), 2, said(Released::NotHeld), &mut rng);
    assert_eq!(sweep.awaits(), 1);
    assert!(sweep.verdict(at(71)).is_none(), "one that may have it was not heard of");
    sweep.answered(at(71), 4, said(Released::NotHeld), &mut rng);
    assert!(matches!(sweep.verdict(at(71)), Some(Ok(Released::NotHeld))), "a majority did not have it");
    assert!(sweep.is_done());
}

/// A grant that is asked for once more reckons with those that were asked anew before: such a ballot may still be executed.
#[test]
fn who_is_asked_once_more_knows_who_was_asked_anew() {
    let name = Name::new("l").unwrap();
    let (rules, clocks, mut hold) = held_by_three(&name);
    let term = Duration::from_secs(30);
    let ballot = hold.ask_anew(&rules, 4, std::slice::from_ref(&name), term, at(60), &clocks).unwrap();
    let until = ballot.acquire.not_after;
    assert_eq!(hold.clone().release()[4], Some(Some(until)), "a release waits for it");
    let (mut again, sends) = hold.repeat(at(61), &clocks);
    for send in &sends {
        again.voted(at(62), &clocks, send.server, send.round, at(61), took(62));
    }
    assert!(matches!(again.verdict(at(62), &mut Rng::new(1)), Some(Verdict::Granted(_))));
    let left = Hold::of(again).release()[4];
    assert!(left.flatten().is_some_and(|open| open >= until), "it may still be executed: {left:?}");
}

/// A server that gave it back and was not heard of says afterwards that it has nothing: that does not make it lost.
#[test]
fn a_lost_answer_does_not_make_a_release_a_loss() {
    let (rules, _, mut hold) = held_by_three(&Name::new("l").unwrap());
    for first in [Outcome::Unknown, Outcome::NotApplied] {
        let mut sweep = Sweep::begin(&rules, hold.release(), at(70), at(1_570), at(60_000));
        assert_eq!(sweep.due(at(70)).as_slice(), [0, 1, 2]);
        let mut rng = Rng::new(1);
        let failed = |outcome| Err(Error::new(ErrorKind::Unreachable, "release", "cut").with_outcome(outcome));
        sweep.answered(at(71), 0, failed(first), &mut rng);
        if first == Outcome::NotApplied {
            sweep.answered(at(72), 0, failed(Outcome::Unknown), &mut rng);
        }
        sweep.answered(at(90), 0, said(Released::NotHeld), &mut rng);
        sweep.answered(at(91), 1, said(Released::Released { waiters: Some(0) }), &mut rng);
        assert!(sweep.verdict(at(91)).is_none(), "the third may not have it");
        sweep.answered(at(92), 2, said(Released::Released { waiters: Some(0) }), &mut rng);
        assert!(matches!(sweep.verdict(at(92)), Some(Ok(Released::Released { .. }))), "{sweep:?}");
        assert!(sweep.is_done());
    }
    let mut sweep = Sweep::begin(&rules, hold.release(), at(70), at(1_570), at(60_000));
    let unsent = Error::new(ErrorKind::Unreachable, "release", "refused").with_outcome(Outcome::NotApplied);
    sweep.answered(at(71), 0, Err(unsent), &mut Rng::new(1));
    sweep.answered(at(90), 0, said(Released::NotHeld), &mut Rng::new(1));
    for server in [1, 2] {
        sweep.answered(at(91), server, said(Released::Released { waiters: None }), &mut Rng::new(1));
    }
    assert!(matches!(sweep.verdict(at(92)), Some(Ok(Released::NotHeld))), "it was lost before: {sweep:?}");
}

/// What a server took in one round is given back, though it heard of the next one too late.
#[test]
fn what_an_earlier_round_left_is_given_back() {
    let name = Name::new("l").unwrap();
    let (rules, clocks) = (rules(3), clocks(3, 0));
    let left_out: PerServer<_> = (0..3).map(|_| None).collect();
    let (mut attempt, _) = Attempt::begin(&rules, request(&[name]), at(0), &clocks, left_out);
    let vote = |voted| Ok(Answered { at: store(1), result: Vote { standing: VotingStatus::Votes, voted } });
    let held = || vote(Voted::Held { left: Duration::from_secs(30), last: Fence::NONE });
    attempt.voted(at(1), &clocks, 0, 1, at(0), held());
    assert_eq!(attempt.voted(at(1), &clocks, 1, 1, at(0), held()).len(), 3, "a second round");
    attempt.voted(at(1), &clocks, 2, 1, at(0), vote(Voted::TooLate));
    for server in 0..3 {
        attempt.voted(at(2), &clocks, server, 2, at(1), vote(Voted::TooLate));
    }
    assert_eq!(attempt.traces().as_slice(), [Some(None), Some(None), None]);
}

/// A server that recovers has forgotten who holds a lock, and may have what somebody tried there since: it is believed last.
#[test]
fn whoever_is_named_is_named_by_servers_that_vote() {
    let name = Name::new("l").unwrap();
    let (rules, clocks) = (rules(5), clocks(5, 0));
    let left_out: PerServer<_> = (0..5).map(|_| None).collect();
    let (mut attempt, _) = Attempt::begin(&rules, request(std::slice::from_ref(&name)), at(0), &clocks, left_out);
    let by = |number| StoreOwner::Private(RequestId { client: ClientId([3, 4]), number });
    let busy = |standing, number| {
        let holder = Holder {
            owner: by(number),
            fence: None,
            holds: 1,
            left: None,
            lease: None,
            since: None,
            broken: false,
            about: Default::default(),
        };
        let busy =
            Busy { name: name.clone(), holder: Some(holder), free_in: None, notification: Notification::default() };
        Ok(Answered { at: store(1), result: Vote { standing, voted: Voted::Busy(Box::new(busy)) } })
    };
    let recovers = VotingStatus::Recovering { left: MS };
    for (server, said) in [(0, busy(VotingStatus::Votes, 1)), (1, busy(recovers, 2)), (2, busy(recovers, 2))] {
        attempt.voted(at(1), &clocks, server, 1, at(0), said);
    }
    for now in [1, 50] {
        attempt.tick(at(now), &clocks);
        if let Some(verdict) = attempt.verdict(at(now), &mut Rng::new(1)) {
            let Verdict::Busy { busy, .. } = verdict else { panic!("{verdict:?}") };
            assert_eq!(busy.holder.map(|holder| holder.owner), Some(by(1)));
            return;
        }
    }
    panic!("no verdict");
}

/// A release is repeated where a ballot may have come after it, and only there.
#[test]
fn a_release_is_repeated_only_where_a_ballot_came_after_it() {
    let begun = || {
        let traces = (0..3).map(|_| Some(Some(store(50)))).collect();
        let mut sweep = Sweep::begin(&rules(3), traces, at(0), Moment::NEVER, at(60_000));
        assert_eq!(sweep.due(at(0)).len(), 3);
        sweep
    };
    let released = |ms| Ok(Answered { at: store(ms), result: Released::Released { waiters: Some(0) } });
    let mut rng = Rng::new(1);
    let mut sweep = begun();
    // Before the release, after it, and nobody knows.
    for (server, executed) in [(0, Some(1)), (1, Some(3)), (2, None)] {
        sweep.answered(at(2), server, released(2), &mut rng);
        if let Some(executed) = executed {
            sweep.executed(server, Some(store(executed)), true);
        }
    }
    assert_eq!(sweep.due(at(100))[..], [1, 2]);
    // It is heard of before the release is answered.
    let mut sweep = begun();
    for (server, executed) in [(0, 1), (1, 3)] {
        sweep.executed(server, Some(store(executed)), true);
        sweep.answered(at(2), server, released(2), &mut rng);
    }
    // One of two ballots is still open.
    sweep.executed(2, Some(store(1)), false);
    sweep.answered(at(2), 2, released(2), &mut rng);
    assert_eq!(sweep.due(at(100))[..], [1, 2]);
}

/// A sweep that nobody waits for, and whose releases are all under way, has nothing to wake for before they are answered.
#[test]
fn a_sweep_in_the_background_sleeps() {
    let rules = rules(3);
    let traces = (0..3).map(|_| Some(None)).collect();
    let mut sweep = Sweep::begin(&rules, traces, at(0), Moment::NEVER, at(60_000));
    assert_eq!(sweep.due(at(0)).len(), 3);
    assert!(sweep.wakes() > at(1_000), "it wakes at once, again and again, until servers answer: {:?}", sweep.wakes());
}

/// One server whose stored fence is far in the future must not spoil a round that the others would win.
#[test]
fn one_spoiled_fence_does_not_spoil_the_others() {
    let name = Name::new("l").unwrap();
    let (rules, clocks) = (rules(5), clocks(5, 0));
    let left_out: PerServer<_> = (0..5).map(|_| None).collect();
    let (mut attempt, sends) = Attempt::begin(&rules, request(&[name]), at(0), &clocks, left_out);
    let first = sends[0].ballot.block.first;
    let held = |last| {
        let voted = Voted::Held { left: Duration::from_secs(30), last };
        Ok(Answered { at: store(1), result: Vote { standing: VotingStatus::Votes, voted } })
    };
    let far = Fence::new(1 << 52);
    let dead = Error::new(ErrorKind::Unreachable, "call", "refused").with_outcome(Outcome::NotApplied);
    attempt.voted(at(1), &clocks, 4, 1, at(0), Err(dead));
    attempt.voted(at(1), &clocks, 0, 1, at(0), held(far));
    attempt.voted(at(1), &clocks, 1, 1, at(0), held(first.plus(5)));
    let mut sends = attempt.voted(at(1), &clocks, 2, 1, at(0), took(1));
    sends.extend(attempt.voted(at(1), &clocks, 3, 1, at(0), took(1)));
    assert!(!sends.is_empty(), "another round");
    let second = sends[0].ballot.block.first;
    assert!(
        second < far,
        "{second:?} is proposed, which nobody takes, where anything above {:?} would do",
        first.plus(5)
    );
}

/// Fences grow, though a server forgot and clocks are less than a second apart, with the shortest quarantine that is allowed.
#[test]
fn fences_grow_though_a_server_forgot() {
    use leasehold_core::quorum::Server;
    use leasehold_core::quorum::epoch::Facts;
    use leasehold_core::reference::Reference;

    let quarantine = 200 * MS;
    let mut rules = rules(3);
    rules.quarantine = quarantine;
    let lease = 200 * MS;
    let new = || Server::new(Reference::new(7, Duration::from_secs(3_600)));
    let facts = |run, started| Facts { run, started: store(started), untouched: true, synced: false };
    // A and B show the right time, C is 900 ms behind.
    let shows = |server: usize, now: u64| store(if server == 2 { now - 900 } else { now });
    let ask = |number: u64, now: u64, known: &[usize], servers: &mut [(Server, Facts)], asked: &[usize]| {
        let mut clocks = Clocks::new(3);
        known.iter().for_each(|server| clocks.observe(*server, at(now), at(now), shows(*server, now)));
        let name = Name::new("l").unwrap();
        let client = ClientId([number, 2]);
        let id = RequestId { client, number };
        let request = Acquire { owner: StoreOwner::Private(id), request: id, lease, ..request(&[name]) };
        let left_out: PerServer<_> = (0..3).map(|_| None).collect();
        let (mut attempt, mut sends) = Attempt::begin(&rules, request, at(now), &clocks, left_out);
        while let Some(send) = sends.pop() {
            if !asked.contains(&send.server) {
                continue;
            }
            let (server, facts) = &mut servers[send.server];
            let vote = server.vote(shows(send.server, now), *facts, quarantine, &send.ballot).unwrap();
            let reply = Ok(Answered { at: shows(send.server, now), result: vote });
            sends.extend(attempt.voted(at(now + 1), &clocks, send.server, send.round, at(now), reply));
        }
        attempt.tick(at(now + 60), &clocks);
        (attempt.verdict(at(now + 60), &mut Rng::new(1)), attempt.giving_back(&Name::new("l").unwrap()))
    };
    let mut servers = [(new(), facts(1, 0)), (new(), facts(1, 0)), (new(), facts(1, 0))];
    let start = 100_000;
    // C is cut off from the first.
    let (verdict, _) = ask(1, start, &[0, 1, 2], &mut servers, &[0, 1]);
    let Some(Verdict::Granted(first)) = verdict else { panic!("{verdict:?}") };
    // B is started again without its memory, A is gone for good, and the first lease is over.
    servers[1] = (new(), facts(2, start + 50));
    let (verdict, give_back) = ask(2, start + 230, &[1, 2], &mut servers, &[1, 2]);
    assert!(!matches!(verdict, Some(Verdict::Granted(_))), "{verdict:?}");
    for server in [1, 2] {
        servers[server].0.store.withdraw(shows(server, start + 240), &give_back);
    }
    // Once it votes again, B takes no fence that it may have taken before; and then only larger ones.
    let (verdict, give_back) = ask(3, start + 600, &[1, 2], &mut servers, &[1, 2]);
    assert!(!matches!(verdict, Some(Verdict::Granted(_))), "{verdict:?}");
    for server in [1, 2] {
        servers[server].0.store.withdraw(shows(server, start + 610), &give_back);
    }
    let (verdict, _) = ask(4, start + 3_000, &[1, 2], &mut servers, &[1, 2]);
    let Some(Verdict::Granted(second)) = verdict else { panic!("{verdict:?}") };
    assert!(second.block.first > first.block.last(), "{:?} after {:?}", second.block, first.block);
}
