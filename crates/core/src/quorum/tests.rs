//! Checks of the decisions of a quorum, one by one: three servers, and what each of them says.

use std::time::Duration;

use super::epoch::Facts;
use super::*;
use crate::backoff::Rng;
use crate::fence::{Block, Fence};
use crate::name::{Name, Names};
use crate::owner::{ClientId, RequestId, StoreOwner};
use crate::port::{Acquire, Answered, Busy, Holder, Notification, Released, Renewed, Reply};
use crate::reference::{FENCES_KEPT_FOR, Reference};
use crate::time::{Moment, StoreTime};

const SERVERS: usize = 3;
const LEASE: Duration = Duration::from_secs(30);
const MS: Duration = Duration::from_millis(1);

fn rules() -> Rules {
    Rules { servers: (0..SERVERS).map(|server| server.to_string().into()).collect(), limit: None, quarantine: LEASE }
}

fn at(ms: u64) -> Moment {
    Moment::from_nanos(ms * 1_000_000)
}

/// What every server's clock shows at that moment.
fn store_time(ms: u64) -> StoreTime {
    StoreTime::from_nanos(1_000_000_000_000 + ms * 1_000_000)
}

fn clocks() -> Clocks {
    let mut clocks = Clocks::new(SERVERS);
    (0..SERVERS).for_each(|server| clocks.observe(server, at(0), at(0), store_time(0)));
    clocks
}

fn request() -> Acquire {
    let id = RequestId { client: ClientId([1, 2]), number: 1 };
    Acquire { kept: true, ..Acquire::new(Names::One(Name::new("a").unwrap()), StoreOwner::Private(id), id, LEASE) }
}

/// An attempt whose ballots were sent to every server.
fn asked() -> Attempt {
    let everybody = (0..SERVERS).map(|_| None).collect();
    Attempt::begin(&rules(), request(), at(0), &clocks(), everybody).0
}

fn says(voted: Voted) -> Reply<Vote> {
    Ok(Answered { at: store_time(1), result: Vote { standing: VotingStatus::Votes, voted } })
}

fn failed(outcome: Outcome) -> Error {
    Error::new(ErrorKind::Unreachable, "call", "the connection broke").with_outcome(outcome)
}

fn upheld(standing: VotingStatus, renewed: Renewed) -> Reply<RenewedVote> {
    Ok(Answered { at: store_time(1), result: RenewedVote { standing, renewed: vec![renewed] } })
}

/// A renewal of one lease that was sent to all servers.
fn renewing() -> VoteRenewal {
    VoteRenewal::begin(&rules(), 1, at(0), at(50))
}

fn kept(seconds: u64) -> Reply<RenewedVote> {
    upheld(VotingStatus::Votes, Renewed::Kept { left: Duration::from_secs(seconds) })
}

#[test]
fn a_renewal_lasts_as_long_as_a_majority_keeps_it() {
    let mut renewing = renewing();
    renewing.answered(0, at(0), kept(10));
    assert!(renewing.verdict(at(1)).is_none(), "one is no majority");
    renewing.answered(1, at(0), kept(30));
    let left = Duration::from_secs(10);
    assert_eq!(renewing.verdict(at(2)).unwrap().unwrap(), [Renewed::Kept { left }], "after that only one has it");
}

#[test]
fn a_lease_that_one_server_lost_is_not_lost() {
    let mut renewing = renewing();
    renewing.answered(0, at(0), upheld(VotingStatus::Votes, Renewed::Lost));
    assert!(renewing.verdict(at(1)).is_none(), "the other two may have it");
    renewing.answered(1, at(0), kept(30));
    assert!(renewing.verdict(at(2)).is_none());
    renewing.answered(2, at(0), kept(30));
    assert_eq!(renewing.verdict(at(3)).unwrap().unwrap(), [Renewed::Kept { left: LEASE }]);
}

#[test]
fn only_servers_that_vote_and_lost_what_a_majority_keeps_are_asked_anew() {
    let recovering = VotingStatus::Recovering { left: LEASE };
    let vacant = |third: Reply<RenewedVote>, second: Reply<RenewedVote>| -> Vec<usize> {
        let mut renewing = renewing();
        for (server, reply) in [kept(30), second, third].into_iter().enumerate() {
            renewing.answered(server, at(0), reply);
        }
        renewing.vacant(0).collect()
    };
    let lost = || upheld(VotingStatus::Votes, Renewed::Lost);
    assert_eq!(vacant(lost(), kept(30)), [2]);
    assert_eq!(vacant(kept(30), kept(30)), []);
    assert_eq!(vacant(upheld(recovering, Renewed::Lost), kept(30)), [], "it does not vote");
    assert_eq!(vacant(lost(), lost()), [], "no majority has it");
}

#[test]
fn a_lease_that_a_majority_lost_is_lost_at_once() {
    let mut renewing = renewing();
    renewing.answered(0, at(0), upheld(VotingStatus::Votes, Renewed::Lost));
    renewing.answered(2, at(0), upheld(VotingStatus::Votes, Renewed::Lost));
    assert_eq!(renewing.verdict(at(2)).unwrap().unwrap(), [Renewed::Lost]);
    assert!(renewing.verdict(at(3)).is_none(), "it is told once");
}

#[test]
fn an_answer_that_is_not_about_each_lease_says_nothing() {
    let mut renewing = renewing();
    for server in 0..2 {
        let short = RenewedVote { standing: VotingStatus::Votes, renewed: Vec::new() };
        renewing.answered(server, at(0), Ok(Answered { at: store_time(1), result: short }));
    }
    renewing.answered(2, at(0), kept(30));
    assert!(renewing.verdict(at(1)).unwrap().is_err(), "one is no majority");
}

#[test]
fn a_grant_lasts_as_long_as_a_majority_has_it() {
    let mut attempt = asked();
    attempt.voted(at(1), &clocks(), 0, 1, at(0), says(Voted::Took { left: LEASE }));
    attempt.voted(at(9), &clocks(), 1, 1, at(5), says(Voted::Took { left: LEASE / 2 }));
    let verdict = attempt.verdict(at(9), &mut Rng::new(1));
    let Some(Verdict::Granted(granted)) = verdict else { panic!("{verdict:?}") };
    assert_eq!(granted.left, LEASE / 2 + 5 * MS, "from when that server was asked");
}

#[test]
fn a_ballot_whose_answer_was_lost_may_still_be_executed() {
    let mut attempt = asked();
    attempt.voted(at(1), &clocks(), 0, 1, at(0), Err(failed(Outcome::Unknown)));
    attempt.voted(at(1), &clocks(), 1, 1, at(0), Err(failed(Outcome::NotApplied)));
    attempt.voted(at(1), &clocks(), 2, 1, at(0), says(Voted::Took { left: LEASE }));
    let traces = attempt.traces();
    let not_after = store_time(0) + rules().limit(LEASE);
    assert_eq!(traces[0], Some(Some(not_after)), "a release before that may be overtaken by it");
    assert_eq!((traces[1], traces[2]), (Some(None), Some(None)));
}

/// Two clients know the clocks to within a round trip, so the second may propose less than the first did. Higher fences are proposed only
/// where a majority could take them; where it could not, that is no matter of clocks.
#[test]
fn a_server_that_knows_a_higher_fence_is_not_said_to_have_another_clock() {
    let message = |last: Fence| {
        let mut attempt = asked();
        attempt.voted(at(1), &clocks(), 0, 1, at(0), Err(failed(Outcome::NotApplied)));
        attempt.voted(at(1), &clocks(), 1, 1, at(0), Err(failed(Outcome::NotApplied)));
        let more = attempt.voted(at(1), &clocks(), 2, 1, at(0), says(Voted::Held { left: LEASE, last }));
        assert!(more.is_empty(), "one is no majority: {more:?}");
        match attempt.verdict(at(1), &mut Rng::new(1)) {
            Some(Verdict::Failed { error, .. }) => error.to_string(),
            verdict => panic!("{verdict:?}"),
        }
    };
    let proposed = asked().block().first;
    for last in [proposed, proposed.plus(1)] {
        let said = message(last);
        assert!(said.contains("votes for it with a higher fence") && !said.contains("clocks"), "{said}");
    }
    let said = message(Fence::NONE);
    assert!(said.contains("takes no fence that the others take"), "{said}");
}

/// Another fence would be another grant, and the client has the first one.
#[test]
fn a_repeat_proposes_no_other_fences() {
    let (clocks, mut attempt) = (clocks(), asked());
    for server in 0..2 {
        attempt.voted(at(1), &clocks, server, 1, at(0), says(Voted::Took { left: LEASE }));
    }
    assert!(matches!(attempt.verdict(at(1), &mut Rng::new(1)), Some(Verdict::Granted(_))));
    let (mut again, sends) = attempt.repeat(at(10), &clocks);
    for send in sends {
        assert_eq!(send.ballot.block, attempt.block());
        let held = Voted::Held { left: LEASE, last: Fence::new(9) };
        let more = again.voted(at(11), &clocks, send.server, send.round, at(10), says(held));
        assert!(more.is_empty(), "{more:?}");
    }
    let verdict = again.verdict(at(11), &mut Rng::new(1));
    assert!(matches!(verdict, Some(Verdict::Failed { .. })), "{verdict:?}");
}

/// Whether the lease is still there nobody can tell then.
#[test]
fn a_repeat_ends_as_soon_as_every_server_has_failed() {
    let clocks = clocks();
    let (mut again, sends) = granted_by_two().repeat(at(10), &clocks);
    for (nth, send) in sends.iter().enumerate() {
        let verdict = again.verdict(at(11), &mut Rng::new(1));
        assert!(verdict.is_none(), "{nth} of three have failed: {verdict:?}");
        again.voted(at(11), &clocks, send.server, send.round, at(10), Err(failed(Outcome::Unknown)));
    }
    let verdict = again.verdict(at(11), &mut Rng::new(1));
    assert!(
        matches!(&verdict, Some(Verdict::Failed { error, .. }) if error.outcome() == Outcome::Unknown),
        "{verdict:?}"
    );
}

/// Before it forgot, a server may have taken a fence that is up to a second ahead of its clock.
#[test]
fn a_server_that_forgot_takes_no_fence_that_it_may_have_taken_before() {
    let emptied = Facts { run: 1, started: store_time(0), untouched: false, synced: false };
    let mut server = Server::new(Reference::new(1, FENCES_KEPT_FOR));
    let mut takes = |ms: u64| {
        let id = RequestId { client: ClientId([1, 2]), number: ms };
        let acquire = Acquire { owner: StoreOwner::Private(id), request: id, lease: MS, ..request() };
        let block = Block { first: Fence::at(store_time(ms)), len: 1 };
        let ballot = Ballot { acquire, block, again: false };
        let vote = server.vote(store_time(ms), emptied, LEASE, &ballot).unwrap();
        matches!(vote.voted, Voted::Took { .. })
    };
    assert!(!takes(0) && !takes(500) && !takes(1_000));
    assert!(takes(1_002));
}

#[test]
fn an_answer_to_an_older_call_does_not_tell_a_server_s_time() {
    let mut clocks = clocks();
    clocks.observe(0, at(100), at(101), store_time(100));
    clocks.observe(0, at(50), at(200), store_time(150));
    assert_eq!(clocks.latest(0, at(300)), Some(store_time(300)), "the newer call tells it more closely");
}

/// A grant of two servers; the answer of the third was lost.
fn granted_by_two() -> Attempt {
    let (clocks, mut attempt) = (clocks(), asked());
    attempt.voted(at(1), &clocks, 2, 1, at(0), Err(failed(Outcome::Unknown)));
    for server in 0..2 {
        attempt.voted(at(1), &clocks, server, 1, at(0), says(Voted::Took { left: LEASE }));
    }
    assert!(matches!(attempt.verdict(at(1), &mut Rng::new(1)), Some(Verdict::Granted(_))));
    attempt
}

#[test]
fn a_server_that_refuses_is_released_while_an_older_ballot_is_open_there() {
    let clocks = clocks();
    let (mut again, sends) = granted_by_two().repeat(at(10), &clocks);
    assert_eq!(sends[2].server, 2);
    again.voted(at(11), &clocks, 2, sends[2].round, at(10), says(Voted::TooLate));
    let not_after = store_time(10) + rules().limit(LEASE);
    assert_eq!(again.traces()[2], Some(Some(not_after)), "the first ballot may still be executed");
}

#[test]
fn there_is_never_a_second_ballot_beside_one_that_may_still_be_executed() {
    let (clocks, mut hold) = (clocks(), Hold::of(granted_by_two()));
    let names = [Name::new("a").unwrap()];
    let asks = |hold: &mut Hold, ms| hold.ask_anew(&rules(), 2, &names, LEASE, at(ms), &clocks).is_some();
    assert!(asks(&mut hold, 100));
    assert!(!asks(&mut hold, 101) && !asks(&mut hold, 150), "it is not answered, and may be executed until 150 ms");
    assert!(asks(&mut hold, 151));
    let took = says(Voted::Took { left: LEASE });
    hold.asked_anew(2, store_time(150), store_time(152), &took);
    assert!(!asks(&mut hold, 153), "only the first one is answered");
    hold.asked_anew(2, store_time(201), store_time(152), &took);
    assert!(asks(&mut hold, 153), "the other one is answered");
}

#[test]
fn a_release_counts_only_after_the_last_ballot_that_was_executed() {
    let mut rng = Rng::new(1);
    let traces = [Some(Some(store_time(100))), None, None].into_iter().collect();
    let mut sweep = Sweep::begin(&rules(), traces, at(0), at(1_000), at(60_000));
    assert_eq!(sweep.due(at(0))[..], [0]);
    let gave = Released::Released { waiters: Some(0) };
    sweep.answered(at(61), 0, Ok(Answered { at: store_time(60), result: gave }), &mut rng);
    // Answers come in any order: the ballot of 80 ms took the names after the release.
    sweep.executed(0, Some(store_time(80)), false);
    sweep.executed(0, Some(store_time(50)), true);
    assert!(!sweep.is_done());
    assert_eq!(sweep.due(sweep.wakes().max(at(200)))[..], [0]);
    sweep.answered(at(201), 0, Ok(Answered { at: store_time(200), result: Released::NotHeld }), &mut rng);
    assert!(sweep.is_done());
}

/// Asked once more because of a ballot that may have come after, it has nothing left: that was its first answer's doing.
#[test]
fn what_a_server_gave_back_counts_though_it_is_asked_again() {
    let mut rng = Rng::new(1);
    let traces = [Some(Some(store_time(100))), Some(None), Some(None)].into_iter().collect();
    let mut sweep = Sweep::begin(&rules(), traces, at(0), at(1_000), at(60_000));
    assert_eq!(sweep.due(at(0))[..], [0, 1, 2]);
    let gave = Released::Released { waiters: Some(0) };
    sweep.answered(at(61), 0, Ok(Answered { at: store_time(60), result: gave }), &mut rng);
    assert_eq!(sweep.due(at(200))[..], [0]);
    sweep.answered(at(201), 0, Ok(Answered { at: store_time(200), result: Released::NotHeld }), &mut rng);
    assert!(sweep.verdict(at(201)).is_none(), "one is no majority");
    sweep.answered(at(202), 1, Ok(Answered { at: store_time(201), result: gave }), &mut rng);
    assert_eq!(sweep.verdict(at(202)).unwrap().unwrap(), gave);
}

fn busy_with(owner: u64, fence: Option<Fence>) -> Voted {
    let id = RequestId { client: ClientId([9, 9]), number: owner };
    let holder = Holder {
        owner: StoreOwner::Private(id),
        fence,
        holds: 1,
        left: None,
        lease: None,
        since: None,
        broken: false,
        about: Default::default(),
    };
    let name = Name::new("a").unwrap();
    Voted::Busy(Box::new(Busy {
        name,
        holder: Some(holder),
        free_in: Some(LEASE),
        notification: Notification::default(),
    }))
}

/// A vote has a fence before anybody was granted it: only a majority of votes makes it the holder's.
#[test]
fn a_holder_has_a_fence_only_where_a_majority_says_so() {
    let clocks = clocks();
    let fence = |number| Some(Fence::new(number));
    let recovers = VotingStatus::Recovering { left: LEASE };
    let held = |seen: &[(VotingStatus, u64, u64)]| {
        let mut attempt = asked();
        for (server, (standing, owner, number)) in seen.iter().enumerate() {
            let vote = Vote { standing: *standing, voted: busy_with(*owner, fence(*number)) };
            let says = Ok(Answered { at: store_time(1), result: vote });
            attempt.voted(at(1), &clocks, server, 1, at(0), says);
        }
        attempt.tick(at(50), &clocks);
        let verdict = attempt.verdict(at(50), &mut Rng::new(1));
        let Some(Verdict::Busy { busy, .. }) = verdict else { panic!("{verdict:?}") };
        busy.holder.unwrap().fence
    };
    let votes = VotingStatus::Votes;
    assert_eq!(held(&[(votes, 1, 7), (votes, 1, 7)]), fence(7));
    assert_eq!(held(&[(votes, 1, 7), (votes, 1, 7), (votes, 2, 9)]), fence(7));
    assert_eq!(held(&[(votes, 1, 7), (votes, 1, 9)]), None, "of two requests");
    assert_eq!(held(&[(votes, 1, 7), (votes, 2, 9)]), None, "of two owners");
    assert_eq!(held(&[(votes, 2, 9), (recovers, 2, 9)]), None, "one of them has forgotten who held it");
    assert_eq!(held(&[(votes, 2, 9)]), None, "the others did not answer");
}

/// Only where nobody has a majority does it help to ask again soon.
#[test]
fn a_lock_that_a_majority_has_for_one_owner_is_not_split() {
    let clocks = clocks();
    let busy = |owner: u64| says(busy_with(owner, None));
    for (second, expected) in [(1, false), (2, true)] {
        let mut attempt = asked();
        attempt.voted(at(1), &clocks, 0, 1, at(0), busy(1));
        attempt.voted(at(1), &clocks, 1, 1, at(0), busy(second));
        let verdict = attempt.verdict(at(1), &mut Rng::new(1));
        let Some(Verdict::Busy { busy, split }) = verdict else { panic!("{verdict:?}") };
        assert_eq!(split, expected);
        assert_eq!(busy.free_in == Some(LEASE), !expected, "{:?}", busy.free_in);
        assert!(busy.free_in >= Some(MS), "it would ask again at once");
    }
}

/// Who does not answer in time may have it for the same holder; who cannot be reached has it for nobody.
#[test]
fn one_that_is_busy_and_one_that_is_slow_make_a_lock_busy() {
    let clocks = clocks();
    let verdict = |unreachable: &[usize]| {
        let mut attempt = asked();
        attempt.voted(at(1), &clocks, 0, 1, at(0), says(busy_with(1, None)));
        for server in unreachable {
            attempt.voted(at(1), &clocks, *server, 1, at(0), Err(failed(Outcome::NotApplied)));
        }
        attempt.tick(at(50), &clocks);
        attempt.verdict(at(50), &mut Rng::new(1))
    };
    assert!(matches!(verdict(&[1]), Some(Verdict::Busy { .. })));
    assert!(matches!(verdict(&[1, 2]), Some(Verdict::Failed { .. })));
}

/// Servers that will never vote are not waited for beyond what the others could add; those that may come back are.
#[test]
fn what_cannot_get_better_is_told_at_once() {
    let clocks = clocks();
    let unfit = || Error::new(ErrorKind::Unfit, "acquire", "a replica").with_outcome(Outcome::NotApplied);
    let fails = |error: &dyn Fn() -> Error, servers: usize| {
        let mut attempt = asked();
        for server in 0..servers {
            attempt.voted(at(1), &clocks, server, 1, at(0), Err(error()));
        }
        attempt.verdict(at(1), &mut Rng::new(1))
    };
    let verdict = fails(&unfit, 2);
    assert!(
        matches!(&verdict, Some(Verdict::Failed { error, silent: false }) if error.kind() == ErrorKind::Unfit),
        "{verdict:?}"
    );
    let unreachable = || failed(Outcome::NotApplied);
    let verdict = fails(&unreachable, 2);
    assert!(verdict.is_none(), "the third may say who holds it: {verdict:?}");
    let verdict = fails(&unreachable, 3);
    assert!(matches!(&verdict, Some(Verdict::Failed { silent: false, .. })), "{verdict:?}");
    let mut attempt = asked();
    attempt.tick(at(50), &clocks);
    let verdict = attempt.verdict(at(50), &mut Rng::new(1));
    assert!(matches!(&verdict, Some(Verdict::Failed { silent: true, .. })), "{verdict:?}");
}

#[test]
fn a_release_of_one_hold_says_how_many_others_servers_keep() {
    let mut rng = Rng::new(1);
    let traces = (0..SERVERS).map(|_| Some(None)).collect();
    let mut sweep = Sweep::begin(&rules(), traces, at(0), at(1_000), at(60_000));
    assert_eq!(sweep.due(at(0))[..], [0, 1, 2]);
    for server in 0..2 {
        let still = Answered { at: store_time(1), result: Released::StillHeld(4) };
        sweep.answered(at(1), server, Ok(still), &mut rng);
    }
    assert!(sweep.verdict(at(1)).is_none(), "the third may have given it back");
    assert_eq!(sweep.verdict(at(1_000)).unwrap().unwrap(), Released::StillHeld(4));
}

/// They are asked less often from then on. A server that was left out has told nothing new.
#[test]
fn servers_that_were_asked_and_did_not_answer_are_named() {
    let clocks = clocks();
    let begin = |third: Option<Option<Error>>| {
        let left_out = [None, None, third].into_iter().collect();
        Attempt::begin(&rules(), request(), at(0), &clocks, left_out).0
    };
    let named = |attempt: &Attempt| -> Vec<(usize, bool)> {
        attempt.silent().map(|(server, error)| (server, error.is_some())).collect()
    };
    for third in [None, Some(failed(Outcome::NotApplied))] {
        let mut attempt = begin(Some(third));
        attempt.voted(at(1), &clocks, 0, 1, at(0), says(Voted::Took { left: LEASE }));
        attempt.tick(at(50), &clocks);
        assert_eq!(named(&attempt), [(1, false)]);
    }
    let mut attempt = begin(None);
    attempt.voted(at(1), &clocks, 1, 1, at(0), Err(failed(Outcome::Unknown)));
    attempt.tick(at(50), &clocks);
    assert_eq!(named(&attempt), [(0, false), (1, true), (2, false)]);
}

#[test]
fn a_release_is_heard_once_every_server_answered_failed_or_was_given_up() {
    let mut rng = Rng::new(1);
    let traces = [Some(None), Some(None), None].into_iter().collect();
    let mut sweep = Sweep::begin(&rules(), traces, at(0), at(1_000), at(60_000));
    assert!(!sweep.is_heard());
    assert_eq!(sweep.due(at(0))[..], [0, 1]);
    assert!(!sweep.is_heard(), "it was only sent");
    sweep.answered(at(1), 0, Err(failed(Outcome::Unknown)), &mut rng);
    assert!(!sweep.is_heard());
    let gave = Released::Released { waiters: Some(0) };
    sweep.answered(at(1), 1, Ok(Answered { at: store_time(1), result: gave }), &mut rng);
    assert!(sweep.is_heard() && !sweep.is_done(), "the first is asked again");

    let traces = (0..SERVERS).map(|_| Some(None)).collect();
    let mut sweep = Sweep::begin(&rules(), traces, at(0), at(1_000), at(60_000));
    assert!(sweep.due(at(60_000)).is_empty(), "the lease is over everywhere");
    assert!(sweep.is_heard() && sweep.is_done());
}

/// Granted by a bare majority and broken in order, the lease keeps others out until its end: its holder has that long.
#[test]
fn a_lease_of_a_bare_majority_is_broken_whichever_server_answers_first() {
    let answers = [Renewed::Lost, Renewed::Broken, Renewed::Broken];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut renewing = VoteRenewal::begin(&rules(), 1, at(0), at(50));
        let mut verdicts = Vec::new();
        for (server, ms) in order.into_iter().zip(1..) {
            renewing.answered(server, at(0), upheld(VotingStatus::Votes, answers[server]));
            verdicts.extend(renewing.verdict(at(ms)).map(Result::unwrap));
        }
        assert_eq!(verdicts, [[Renewed::Broken]], "{order:?}");
    }
}

/// Where no majority says broken, others may be granted it.
#[test]
fn a_lease_that_a_minority_broke_is_lost_once_no_majority_can_say_broken() {
    let begun = || {
        let mut renewing = VoteRenewal::begin(&rules(), 1, at(0), at(50));
        renewing.answered(0, at(0), upheld(VotingStatus::Votes, Renewed::Lost));
        renewing.answered(1, at(0), upheld(VotingStatus::Votes, Renewed::Broken));
        assert_eq!(renewing.verdict(at(2)).map(Result::unwrap), None);
        renewing
    };
    let mut silent = begun();
    assert_eq!((silent.wakes(), silent.verdict(at(50)).map(Result::unwrap)), (at(50), Some(vec![Renewed::Lost])));
    let failed = Err(Error::new(ErrorKind::Unreachable, "renew", "it is down"));
    for third in [failed, upheld(VotingStatus::Votes, Renewed::Lost), kept(30)] {
        let mut renewing = begun();
        renewing.answered(2, at(0), third);
        assert_eq!(renewing.verdict(at(3)).map(Result::unwrap), Some(vec![Renewed::Lost]));
    }
}

/// Servers that answered but do not vote yet: when enough of them do, unless too many are silent.
#[test]
fn without_a_quorum_it_is_said_when_there_is_one() {
    let left = |seconds| Said::Recovering(Duration::from_secs(seconds));
    let fails = |said: [Said<'_>; SERVERS]| {
        rules().no_quorum("acquire", Outcome::NotApplied, said.into_iter().enumerate()).retry_after()
    };
    assert_eq!(fails([left(9), left(3), left(5)]), Some(Duration::from_secs(5)));
    assert_eq!(fails([left(9), Said::Silent, left(5)]), Some(Duration::from_secs(9)));
    assert_eq!(fails([Said::Fine("votes for it"), Said::Silent, left(5)]), Some(Duration::from_secs(5)));
    assert_eq!(fails([Said::Silent, Said::Silent, left(5)]), None);
    assert_eq!(fails([Said::Silent, Said::Silent, Said::Silent]), None);
    // Those who vote are a majority: it is another reason.
    assert_eq!(fails([Said::Fine("is busy"), Said::Fine("votes for it"), left(5)]), None);
}
