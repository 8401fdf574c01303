//! Guards: how long they are valid, what renews them, what ends them.

use super::*;
use crate::lease;

const MS: Duration = Duration::from_millis(1);

impl Bench {
    /// The next timer rings.
    pub(super) fn ring(&mut self) {
        self.now = self.table.next_timer().expect("a timer is set");
        self.step(Input::Tick);
    }

    pub(super) fn renewed(&mut self, context: Context, result: Renewed) {
        let reply = self.ok(vec![result]);
        self.step(Input::Answer(context, Answer::Renew(reply)));
    }

    pub(super) fn lost(&self) -> Vec<(HoldId, Loss)> {
        let lost = |output: &Output| match output {
            Output::Lost(hold, _, report) => Some((*hold, report.loss)),
            _ => None,
        };
        self.out.iter().filter_map(lost).collect()
    }

    /// The guards are lost, and though they live on the lease goes back once they have had time to notice.
    fn given_back_soon(&mut self) -> Release {
        let told = self.now;
        self.ring();
        assert_eq!(self.now, lease::noticed(told));
        let (release, request) = self.call();
        let Request::Release(request) = request else { panic!("{request:?}") };
        self.release_answered(release, Released::Released { waiters: Some(0) });
        request
    }

    /// Re-enters `a`, which is not held for long enough; the store lengthens it.
    fn enter_longer(&mut self, owner: &Owner, term: Term) -> HoldId {
        self.want(&["a"], owner, term);
        let (lengthen, request) = self.call();
        assert_eq!(term_of(&request), term.lease());
        self.renewed(lengthen, Renewed::Kept { left: term.lease() });
        self.granted().expect("it re-enters").hold
    }

    /// Re-enters `a`, which is held for long enough.
    pub(super) fn enter(&mut self, owner: &Owner, term: Term) -> Grant {
        self.want(&["a"], owner, term);
        self.granted().expect("it re-enters at once")
    }
}

fn term_of(request: &Request) -> Duration {
    match request {
        Request::Renew(leases) => leases[0].term,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_guard_is_valid_to_the_last_moment_before_its_deadline() {
    let mut bench = Bench::new();
    let begin = bench.now;
    let hold = bench.hold(&fresh(1), KEPT);
    bench.now = lease::deadline(begin, LEASE) - Duration::from_nanos(1);
    assert_eq!(bench.left(hold), Some(Duration::from_nanos(1)));
    bench.pass(Duration::from_nanos(1));
    assert_eq!(bench.left(hold), None);
    assert!(bench.table.is_held(&named("a"), hold), "the table has not noticed");
    assert_eq!(bench.table.holds_for(bench.now, &named("a"), &fresh(1)), Some(false));
    bench.step(Input::Tick);
    assert_eq!(bench.lost(), [(hold, Loss::TimeEnded)]);
    assert!(!bench.table.is_held(&named("a"), hold));
    assert_eq!(bench.table.loss(hold).map(|report| report.loss), Some(Loss::TimeEnded));
}

#[test]
fn a_table_knows_its_holds_one_by_one() {
    let mut bench = Bench::new();
    let owner = fresh(1);
    let one = bench.hold(&owner, KEPT);
    let two = bench.enter(&owner, KEPT);
    assert_eq!((two.holds, two.how, two.entered), (2, How::Reentered, true));
    let stranger = HoldId(4711);
    let name = named("a");
    for hold in [one, two.hold] {
        assert!(bench.table.is_held(&name, hold));
        assert_eq!(bench.table.holds(&name, hold), 2);
        assert!(bench.left(hold).is_some());
    }
    assert!(!bench.table.is_held(&name, stranger) && !bench.table.is_held(&named("b"), one));
    assert_eq!((bench.table.holds(&name, stranger), bench.table.holds(&named("b"), one)), (0, 0));
    assert_eq!(bench.left(stranger), None);
    assert_eq!(bench.table.holds_for(bench.now, &name, &owner), Some(true));
    assert_eq!(bench.table.holds_for(bench.now, &name, &fresh(2)), Some(false));
    assert_eq!(bench.table.holds_for(bench.now, &named("b"), &owner), Some(false));
    bench.step(Input::Release(one, name.clone()));
    assert!(matches!(&bench.out[..], [Output::Released(_, Ok(Released::StillHeld(1)))]), "{:?}", bench.out);
    bench.step(Input::Release(two.hold, name.clone()));
    let (release, _) = bench.call();
    assert!(!bench.table.is_held(&name, two.hold), "it is on its way back");
    assert_eq!((bench.left(two.hold), bench.table.holds_for(bench.now, &name, &owner)), (None, None));
    assert_eq!(bench.table.busy(bench.now, &name).map(|busy| busy.holder), None);
    bench.step(Input::Release(two.hold, name.clone()));
    assert!(
        matches!(&bench.out[..], [Output::Released(_, Err(error))] if error.kind() == ErrorKind::NotHolder),
        "{:?}",
        bench.out
    );
    bench.release_answered(release, Released::Released { waiters: Some(0) });
    assert_eq!(bench.table.holds_for(bench.now, &name, &owner), Some(false));
}

#[test]
fn only_asking_tells_whether_an_owner_holds_what_may_be_on_its_way() {
    let mut bench = Bench::new();
    bench.want(&["a"], &fresh(1), KEPT);
    assert_eq!(bench.table.holds_for(bench.now, &named("a"), &fresh(1)), None, "it may be granted");
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), FIXED);
    bench.pass(LEASE);
    bench.step(Input::Tick);
    assert_eq!(bench.table.holds_for(bench.now, &named("a"), &fresh(1)), Some(false));
    bench.step(Input::Release(hold, named("a")));
    assert_eq!(bench.table.holds_for(bench.now, &named("a"), &fresh(1)), None, "it is being released");
}

#[test]
fn whoever_asks_while_it_is_held_here_is_told_who_holds_it() {
    let mut bench = Bench::new();
    let begin = bench.now;
    bench.hold(&explicit(), KEPT);
    bench.pass(MS);
    let busy = bench.table.busy(bench.now, &named("a")).unwrap();
    let holder = busy.holder.unwrap();
    assert_eq!(holder.owner, crate::owner::StoreOwner::Shared(explicit().as_explicit().unwrap().clone()));
    assert_eq!(holder.left, Some(lease::deadline(begin, LEASE).since(bench.now)));
    assert_eq!(
        (busy.free_in, busy.notification, holder.holds, holder.broken),
        (holder.left, Notification::default(), 1, false)
    );
    assert_eq!((holder.lease, holder.since), (Some(LEASE), Some(store_time(begin))));
    assert_eq!(holder.fence, Some(Fence::at(store_time(begin))));
    assert!(bench.table.busy(bench.now, &named("b")).is_none());
}

/// What comes after the deadline changes nothing, though the table has not noticed yet that the time is over.
#[test]
fn an_answer_after_the_deadline_makes_no_guard_valid_again() {
    for extends in [false, true] {
        for late in [Duration::ZERO, MS, LEASE] {
            let mut bench = Bench::new();
            let begin = bench.now;
            let hold = bench.hold(&fresh(1), KEPT);
            let renewal = if extends {
                let id = bench.table.ticket();
                bench.step(Input::Extend(id, hold, named("a"), LEASE * 9));
                bench.call().0
            } else {
                bench.ring();
                bench.call().0
            };
            bench.now = lease::deadline(begin, LEASE) + late;
            assert_eq!(bench.left(hold), None);
            bench.renewed(renewal, Renewed::Kept { left: LEASE * 9 });
            assert_eq!(bench.left(hold), None, "valid again, {late:?} late");
            assert_eq!(bench.lost(), [(hold, Loss::TimeEnded)]);
            let extended = bench.out.iter().any(|output| matches!(output, Output::To(_, TaskEffect::Extended)));
            assert!(!extended);
            // It may be in the store for a while: released when its guard goes, or soon where it was lengthened.
            bench.step(Input::Release(hold, named("a")));
            if extends {
                bench.ring();
            }
            assert!(
                late == LEASE || bench.out.iter().any(|output| matches!(output, Output::Background(_))),
                "{:?}",
                bench.out
            );
        }
    }
}

#[test]
fn an_answer_in_the_last_moment_is_in_time() {
    let mut bench = Bench::new();
    let begin = bench.now;
    let hold = bench.hold(&fresh(1), KEPT);
    bench.ring();
    let sent = bench.now;
    assert_eq!(sent, begin + LEASE / 3);
    let (renewal, request) = bench.call();
    assert_eq!(term_of(&request), LEASE);
    bench.now = lease::deadline(begin, LEASE) - Duration::from_nanos(1);
    bench.renewed(renewal, Renewed::Kept { left: LEASE });
    assert_eq!(bench.left(hold), Some(lease::deadline(sent, LEASE).since(bench.now)));
    assert!(bench.lost().is_empty());
}

/// Answers come out of order, and of a hold that was lengthened less may be left than it had already.
#[test]
fn no_renewal_shortens_a_lease() {
    let mut bench = Bench::new();
    let begin = bench.now;
    let hold = bench.hold(&fresh(1), KEPT);
    bench.ring();
    let (renewal, _) = bench.call();
    bench.renewed(renewal, Renewed::Kept { left: LEASE / 10 });
    assert_eq!(bench.left(hold), Some(lease::deadline(begin, LEASE).since(bench.now)));
    // Nor what the store may have of it.
    let sent = bench.now;
    bench.step(Input::Release(hold, named("a")));
    assert_eq!(bench.table.next_timer(), Some(lease::surely_over(sent + CALL, LEASE)));
}

#[test]
fn a_lease_is_renewed_when_a_third_of_it_is_over_again_and_again() {
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), KEPT);
    for _ in 0..5 {
        let before = bench.now;
        bench.ring();
        assert_eq!(bench.now, before + LEASE / 3);
        let (renewal, request) = bench.call();
        let Request::Renew(leases) = &request else { panic!("{request:?}") };
        let fence = leases[0].lease.fence;
        assert_eq!((leases.len(), leases[0].kept, leases[0].term), (1, true, LEASE));
        assert_eq!(leases[0].hold.map(|id| id.client), Some(ClientId([1, 1])));
        assert_eq!(fence, Fence::at(store_time(Moment::from_nanos(1_000_000_000))));
        bench.renewed(renewal, Renewed::Kept { left: LEASE });
        assert!(bench.left(hold).is_some());
    }
}

#[test]
fn a_renewal_that_fails_is_tried_again_soon_and_one_that_hangs_a_little_later() {
    let mut bench = Bench::new();
    let begin = bench.now;
    bench.hold(&fresh(1), KEPT);
    bench.ring();
    let (renewal, _) = bench.call();
    let left = lease::deadline(begin, LEASE).since(bench.now);
    assert_eq!(bench.table.next_timer(), Some(bench.now + left / 6), "while it hangs");
    bench.step(Input::Answer(renewal, Answer::Renew(Err(unknown()))));
    assert_eq!(bench.table.next_timer(), Some(bench.now + left / 12), "after it failed");
    bench.ring();
    let (renewal, _) = bench.call();
    let left = lease::deadline(begin, LEASE).since(bench.now);
    bench.renewed(renewal, Renewed::Unknown);
    assert_eq!(bench.table.next_timer(), Some(bench.now + left / 12), "after nobody could tell");
    bench.ring();
    let (renewal, _) = bench.call();
    // No longer than it would have waited anyway.
    bench.pass(left / 8);
    let hanging = bench.table.next_timer().unwrap();
    bench.step(Input::Answer(renewal, Answer::Renew(Err(unknown()))));
    assert_eq!(bench.table.next_timer(), Some(hanging.min(bench.now + left / 12)));
}

#[test]
fn what_the_store_no_longer_has_is_lost_and_not_released() {
    let mut bench = Bench::new();
    let owner = fresh(1);
    let one = bench.hold(&owner, KEPT);
    let two = bench.enter(&owner, KEPT).hold;
    bench.ring();
    let (renewal, _) = bench.call();
    bench.renewed(renewal, Renewed::Lost);
    assert_eq!(bench.lost(), [(one, Loss::Gone), (two, Loss::Gone)]);
    assert!(bench.table.is_empty() && bench.table.remnants() == 2);
    for hold in [one, two] {
        bench.step(Input::Release(hold, named("a")));
        let [Output::Released(_, Err(error))] = &bench.out[..] else { panic!("{:?}", bench.out) };
        assert_eq!(error.kind(), ErrorKind::Lost);
        assert!(error.to_string().contains("no longer had it"), "{error}");
    }
    assert_eq!(bench.table.remnants(), 0);
}

/// It protects the work of one who has not noticed until the last guard is gone.
#[test]
fn what_may_still_be_in_the_store_is_released_with_the_last_guard() {
    let mut bench = Bench::new();
    let owner = fresh(1);
    let one = bench.hold(&owner, KEPT);
    let two = bench.enter(&owner, KEPT).hold;
    bench.pass(LEASE);
    bench.step(Input::Tick);
    assert_eq!(bench.lost().len(), 2);
    bench.step(Input::Release(one, named("a")));
    assert!(matches!(&bench.out[..], [Output::Released(_, Err(_))]), "{:?}", bench.out);
    bench.step(Input::Release(two, named("a")));
    assert!(matches!(&bench.out[..], [Output::Released(_, Err(_)), Output::Background(_)]), "{:?}", bench.out);
}

#[test]
fn a_guard_that_reached_its_own_end_is_lost_and_the_others_go_on() {
    let mut bench = Bench::new();
    let owner = fresh(1);
    let begin = bench.now;
    let long = bench.hold(&owner, KEPT);
    let short = bench.enter(&owner, Term::Fixed(LEASE / 3)).hold;
    let end = lease::deadline(begin, LEASE / 3);
    assert_eq!(bench.left(short), Some(end.since(begin)));
    assert_eq!(bench.table.next_timer(), Some(end));
    bench.now = end - Duration::from_nanos(1);
    bench.step(Input::Tick);
    assert!(bench.lost().is_empty() && bench.left(short).is_some());
    bench.now = end;
    bench.step(Input::Tick);
    assert_eq!(bench.lost(), [(short, Loss::TimeEnded)]);
    assert!(!bench.table.is_held(&named("a"), short) && bench.left(long).is_some());
    bench.step(Input::Release(short, named("a")));
    assert!(matches!(&bench.out[..], [Output::Released(_, Err(_))]), "{:?}", bench.out);
    assert!(bench.left(long).is_some());
}

/// A lease that nobody needs for longer is not renewed; one that somebody does, and for no longer than that.
#[test]
fn a_lease_is_renewed_only_for_those_who_need_it_and_only_for_so_long() {
    let mut bench = Bench::new();
    let begin = bench.now;
    bench.hold(&fresh(1), FIXED);
    assert_eq!(bench.table.next_timer(), Some(lease::deadline(begin, LEASE)), "a fixed one is not renewed");

    let mut bench = Bench::new();
    let begin = bench.now;
    let max_hold = LEASE + LEASE / 6;
    let options = Options { term: KEPT, max_hold: Some(max_hold), ..Options::default() };
    bench.want_with(&["a"], &fresh(1), options, false);
    let (ask, _) = bench.call();
    bench.grant(ask, LEASE);
    let hold = bench.granted().unwrap().hold;
    bench.ring();
    let (renewal, request) = bench.call();
    assert_eq!(term_of(&request), LEASE.min(lease::to_last((begin + max_hold).since(bench.now))));
    bench.renewed(renewal, Renewed::Kept { left: LEASE });
    bench.ring();
    assert_eq!(bench.now, begin + max_hold, "it needs no more");
    assert_eq!(bench.lost(), [(hold, Loss::TimeEnded)]);
}

#[test]
fn the_last_renewal_before_max_hold_is_as_short_as_it_may_be() {
    let mut bench = Bench::new();
    let begin = bench.now;
    let max_hold = LEASE * 2;
    let options = Options { term: KEPT, max_hold: Some(max_hold), ..Options::default() };
    bench.want_with(&["a"], &fresh(1), options, false);
    let (ask, _) = bench.call();
    bench.grant(ask, LEASE);
    let mut terms = Vec::new();
    while bench.lost().is_empty() {
        bench.ring();
        if let Some(Output::Background(_)) = bench.out.first() {
            let (renewal, request) = bench.call();
            let needed = (begin + max_hold).since(bench.now);
            assert_eq!(term_of(&request), LEASE.min(lease::to_last(needed)));
            terms.push(term_of(&request));
            let left = term_of(&request);
            bench.renewed(renewal, Renewed::Kept { left });
        }
    }
    assert_eq!(bench.now, begin + max_hold);
    let (hold, _) = bench.lost()[0];
    bench.step(Input::Release(hold, named("a")));
    let released = bench.out.iter().any(|output| matches!(output, Output::Background(_)));
    assert!(released, "it goes back with its guard: {:?}", bench.out);
    assert!(*terms.last().unwrap() < LEASE, "{terms:?}");
}

#[test]
fn whoever_re_enters_with_a_longer_lease_has_it_renewed_for_that() {
    let mut bench = Bench::new();
    let owner = fresh(1);
    bench.hold(&owner, KEPT);
    bench.enter(&owner, Term::Kept(LEASE * 3));
    bench.enter(&owner, Term::Kept(LEASE / 2));
    bench.ring();
    let (renewal, request) = bench.call();
    assert_eq!(term_of(&request), LEASE * 3, "the longest of all");
    let sent = bench.now;
    bench.renewed(renewal, Renewed::Kept { left: LEASE * 3 });
    assert_eq!(bench.table.next_timer(), Some(sent + LEASE), "a third of it");
}

#[test]
fn a_re_entry_that_needs_a_longer_lease_asks_for_it_and_has_it() {
    let mut bench = Bench::new();
    let owner = fresh(1);
    let one = bench.hold(&owner, FIXED);
    bench.pass(LEASE / 2);
    bench.want(&["a"], &owner, FIXED);
    let sent = bench.now;
    let (lengthen, request) = bench.call();
    assert_eq!(term_of(&request), LEASE);
    assert!(!bench.table.only_waits() && bench.table.remnants() == 1);
    bench.pass(MS);
    bench.renewed(lengthen, Renewed::Kept { left: LEASE });
    let two = bench.granted().unwrap();
    assert_eq!((two.how, two.holds, two.entered), (How::Reentered, 2, true));
    assert_eq!(bench.left(two.hold), Some(lease::deadline(sent, LEASE).since(bench.now)));
    assert!(bench.left(one) < bench.left(two.hold), "its own end is as it was");
    assert_eq!(bench.table.remnants(), 0);
}

/// Otherwise others would wait for a lease that no guard has any more.
#[test]
fn a_lease_that_outlasts_the_guards_that_are_left_is_given_back_when_they_end() {
    for owner in [fresh(1), explicit()] {
        for inner in [Term::Kept(LEASE * 50), Term::Fixed(LEASE * 50)] {
            let mut bench = Bench::new();
            let outer = bench.hold(&owner, FIXED);
            let inner = bench.enter_longer(&owner, inner);
            bench.step(Input::Release(inner, named("a")));
            bench.ring();
            assert_eq!(bench.now, lease::deadline(Moment::from_nanos(1_000_000_000), LEASE));
            assert_eq!(bench.lost(), [(outer, Loss::TimeEnded)]);
            let release = bench.given_back_soon();
            assert!(release.cooldown.is_zero() && release.fence.is_some());
            assert!(bench.table.is_empty());
            bench.step(Input::Release(outer, named("a")));
            assert!(matches!(&bench.out[..], [Output::Released(_, Err(_))]), "{:?}", bench.out);
            assert_eq!(bench.table.remnants(), 0);
        }
    }
}

#[test]
fn a_lease_is_given_back_also_where_the_longer_hold_was_the_first() {
    let mut bench = Bench::new();
    let owner = fresh(1);
    let kept = bench.hold(&owner, KEPT);
    let fixed = bench.enter(&owner, Term::Fixed(LEASE / 3)).hold;
    bench.step(Input::Release(kept, named("a")));
    bench.ring();
    assert_eq!(bench.lost(), [(fixed, Loss::TimeEnded)]);
    bench.given_back_soon();
    assert!(bench.table.is_empty());
}

/// The lease may have been lengthened though nobody heard of it.
#[test]
fn a_lease_is_given_back_where_its_lengthening_was_cancelled_or_not_answered() {
    for answered in [false, true] {
        let mut bench = Bench::new();
        let owner = fresh(1);
        let outer = bench.hold(&owner, FIXED);
        let inner = bench.want(&["a"], &owner, Term::Kept(LEASE * 50));
        let (lengthen, _) = bench.call();
        bench.step(Input::Cancel(inner, named("a")));
        if answered {
            bench.renewed(lengthen, Renewed::Kept { left: LEASE * 50 });
        } else {
            bench.step(Input::Answer(lengthen, Answer::Renew(Err(unknown()))));
        }
        bench.ring();
        assert_eq!(bench.lost(), [(outer, Loss::TimeEnded)]);
        bench.given_back_soon();
    }
}

#[test]
fn a_lease_that_is_given_back_at_its_end_keeps_others_out_for_as_long_as_was_promised() {
    let mut bench = Bench::new();
    let owner = fresh(1);
    let at_least = Options { term: FIXED, at_least: LEASE * 2, ..Options::default() };
    bench.want_with(&["a"], &owner, at_least, false);
    let (ask, _) = bench.call();
    let granted = bench.now;
    bench.grant(ask, LEASE * 2);
    let inner = bench.enter_longer(&owner, Term::Kept(LEASE * 50));
    bench.step(Input::Release(inner, named("a")));
    bench.ring();
    let lost = bench.now;
    assert_eq!(bench.lost().len(), 1);
    assert_eq!(bench.given_back_soon().cooldown, (granted + LEASE * 2).since(lost));
}

/// What is left to its owner is given back by nobody here: it must not last longer than its guard.
#[test]
fn a_lease_that_outlasts_its_guard_is_not_left_to_its_owner() {
    let mut bench = Bench::new();
    let outer = bench.hold(&explicit(), FIXED);
    assert!(bench.table.check_detach(bench.now, outer, &named("a")).is_ok());
    let inner = bench.enter_longer(&explicit(), Term::Kept(LEASE * 50));
    bench.step(Input::Release(inner, named("a")));
    let refused = bench.table.check_detach(bench.now, outer, &named("a")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::BadArgument);
    assert!(refused.to_string().contains("longer than this guard"), "{refused}");
    let id = bench.table.ticket();
    bench.step(Input::Extend(id, outer, named("a"), LEASE * 50));
    let (extend, _) = bench.call();
    bench.renewed(extend, Renewed::Kept { left: LEASE * 50 });
    assert!(bench.table.check_detach(bench.now, outer, &named("a")).is_ok(), "both end together now");
}

/// What a dead process leaves behind is what its living guards asked for.
#[test]
fn a_lease_is_renewed_for_no_longer_than_the_guards_that_live_ask_for() {
    let mut bench = Bench::new();
    let owner = fresh(1);
    bench.hold(&owner, KEPT);
    let longer = bench.enter(&owner, Term::Kept(LEASE * 3)).hold;
    bench.step(Input::Release(longer, named("a")));
    bench.ring();
    assert_eq!(term_of(&bench.call().1), LEASE);
}

/// So that a holder learns at once that its lock was broken, where the store tells it.
#[test]
fn a_hint_about_what_is_held_has_it_renewed_at_once() {
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), KEPT);
    bench.pass(MS);
    bench.step(Input::Hint(named("a")));
    assert_eq!(bench.table.next_timer(), Some(bench.now));
    bench.ring();
    let (renewal, request) = bench.call();
    assert_eq!(term_of(&request), LEASE);
    bench.renewed(renewal, Renewed::Broken);
    assert_eq!(bench.lost(), [(hold, Loss::Broken)]);
}

#[test]
fn hints_about_what_is_held_are_followed_ten_times_a_second_at_most() {
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), Term::Kept(LEASE * 10));
    let begin = bench.now;
    let mut sent = Vec::new();
    for _ in 0..200 {
        bench.step(Input::Hint(named("a")));
        while bench.table.next_timer().is_some_and(|due| due <= bench.now) {
            bench.step(Input::Tick);
            sent.push(bench.now.since(begin));
            let (renewal, _) = bench.call();
            bench.renewed(renewal, Renewed::Kept { left: LEASE });
        }
        bench.pass(MS);
    }
    assert_eq!(sent, [Duration::ZERO, MS * 100]);
    assert!(bench.left(hold).is_some());
}

#[test]
fn a_hint_about_a_fixed_lease_lengthens_nothing() {
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), FIXED);
    let (end, next) = (bench.left(hold).unwrap(), bench.table.next_timer());
    bench.pass(MS);
    bench.step(Input::Hint(named("a")));
    bench.ring();
    let (check, request) = bench.call();
    assert_eq!(term_of(&request), end - MS);
    assert!(bench.table.next_timer() == next, "it is asked once");
    bench.step(Input::Answer(check, Answer::Renew(Err(unknown()))));
    assert!(bench.out.is_empty(), "{:?}", bench.out);
    assert_eq!((bench.left(hold), bench.table.next_timer()), (Some(end - MS), next));
    bench.step(Input::HintAll);
    assert_eq!(bench.table.next_timer(), next, "a reconnection is no reason to ask for every lock at once");
}

#[test]
fn a_hint_about_a_fixed_lease_finds_out_that_it_was_broken() {
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), FIXED);
    bench.step(Input::Hint(named("a")));
    bench.ring();
    let (check, _) = bench.call();
    bench.renewed(check, Renewed::Broken);
    assert_eq!(bench.lost(), [(hold, Loss::Broken)]);
}

#[test]
fn a_re_entry_that_is_short_enough_asks_nobody() {
    let mut bench = Bench::new();
    let owner = fresh(1);
    bench.hold(&owner, FIXED);
    let two = bench.enter(&owner, FIXED);
    assert_eq!(two.holds, 2);
    let now = bench.now;
    assert_eq!(bench.left(two.hold), Some(lease::deadline(now, LEASE).since(now)));
    bench.pass(Duration::from_nanos(1));
    bench.want(&["a"], &owner, FIXED);
    assert!(bench.granted().is_none(), "a nanosecond too long");
}

#[test]
fn a_kept_re_entry_of_what_ends_by_itself_makes_it_kept() {
    let mut bench = Bench::new();
    let owner = fresh(1);
    bench.hold(&owner, FIXED);
    bench.want(&["a"], &owner, KEPT);
    let (lengthen, _) = bench.call();
    bench.renewed(lengthen, Renewed::Kept { left: LEASE });
    let two = bench.granted().unwrap().hold;
    bench.ring();
    assert!(matches!(bench.call().1, Request::Renew(_)), "it is renewed from now on");
    assert!(bench.left(two).is_some());
}

#[test]
fn an_extension_lasts_as_long_as_it_asked_and_shortens_nothing() {
    let mut bench = Bench::new();
    let begin = bench.now;
    let hold = bench.hold(&fresh(1), FIXED);
    for (term, end) in [(LEASE * 3, LEASE * 3), (LEASE, LEASE * 3)] {
        let id = bench.table.ticket();
        bench.step(Input::Extend(id, hold, named("a"), term));
        let (extend, request) = bench.call();
        assert_eq!(term_of(&request), term);
        bench.renewed(extend, Renewed::Kept { left: end });
        assert!(matches!(&bench.out[..], [Output::To(_, TaskEffect::Extended)]), "{:?}", bench.out);
        assert_eq!(bench.left(hold), Some(lease::deadline(begin, end).since(begin)));
    }
    assert_eq!(bench.table.next_timer(), Some(lease::deadline(begin, LEASE * 3)));
}

#[test]
fn whoever_extends_what_is_lost_is_told_why() {
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), KEPT);
    bench.ring();
    let (renewal, _) = bench.call();
    bench.renewed(renewal, Renewed::Lost);
    let id = bench.table.ticket();
    bench.step(Input::Extend(id, hold, named("a"), LEASE));
    let [Output::To(to, TaskEffect::Failed(error))] = &bench.out[..] else { panic!("{:?}", bench.out) };
    assert_eq!((*to, error.kind()), (id, ErrorKind::Lost));
    assert!(error.to_string().contains("no longer had it"), "{error}");
}

#[test]
fn an_extension_whose_lease_is_gone_loses_the_guard_and_one_that_nobody_can_tell_does_not() {
    for result in [Renewed::Lost, Renewed::Unknown] {
        let mut bench = Bench::new();
        let hold = bench.hold(&fresh(1), FIXED);
        let id = bench.table.ticket();
        bench.step(Input::Extend(id, hold, named("a"), LEASE));
        let (extend, _) = bench.call();
        bench.renewed(extend, result);
        let failed =
            bench.out.iter().any(|output| matches!(output, Output::To(to, TaskEffect::Failed(_)) if *to == id));
        assert!(failed, "{:?}", bench.out);
        if result == Renewed::Unknown {
            assert!(bench.lost().is_empty() && bench.left(hold).is_some());
            continue;
        }
        assert_eq!(bench.lost(), [(hold, Loss::Gone)]);
        bench.step(Input::Release(hold, named("a")));
        assert!(matches!(&bench.out[..], [Output::Released(_, Err(_))]), "nothing is there: {:?}", bench.out);
    }
}

#[test]
fn an_extension_that_fails_is_told_and_costs_nothing() {
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), FIXED);
    let id = bench.table.ticket();
    bench.step(Input::Extend(id, hold, named("a"), LEASE));
    let (extend, _) = bench.call();
    bench.step(Input::Answer(extend, Answer::Renew(Err(unknown()))));
    assert!(matches!(&bench.out[..], [Output::To(_, TaskEffect::Failed(_))]), "{:?}", bench.out);
    assert!(bench.left(hold).is_some());
}

/// A thousand leases a call: one that fails holds up no other.
#[test]
#[cfg_attr(miri, ignore = "thousands of names take Miri minutes")]
fn many_renewals_are_sent_in_parts() {
    let mut bench = Bench::new();
    for number in 0..1_500 {
        let name = format!("n{number}");
        bench.want(&[&name], &fresh(number), KEPT);
        let (ask, _) = bench.call();
        bench.grant(ask, LEASE);
    }
    bench.pass(LEASE / 3);
    bench.step(Input::Tick);
    let sizes = bench.out.iter().map(|output| match output {
        Output::Background(sending) => match &sending.request {
            Request::Renew(leases) => leases.len(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    });
    assert_eq!(sizes.collect::<Vec<_>>(), [1_000, 500]);
}

#[test]
fn each_lease_of_a_batch_has_its_own_answer() {
    let mut bench = Bench::new();
    let mut holds = Vec::new();
    for name in ["a", "b", "c"] {
        bench.want(&[name], &fresh(1), KEPT);
        let (ask, _) = bench.call();
        bench.grant(ask, LEASE);
        holds.push(bench.granted().unwrap().hold);
    }
    bench.ring();
    let (renewal, request) = bench.call();
    assert!(matches!(&request, Request::Renew(leases) if leases.len() == 3));
    let kept = Renewed::Kept { left: LEASE };
    let reply = bench.ok(vec![kept, Renewed::Lost, kept]);
    bench.step(Input::Answer(renewal, Answer::Renew(reply)));
    assert_eq!(bench.lost(), [(holds[1], Loss::Gone)]);
    assert!(bench.table.is_held(&named("a"), holds[0]) && bench.table.is_held(&named("c"), holds[2]));
}

/// Counted from when it was sent, for a guard that is renewed and one that asked for it.
#[test]
fn what_an_extension_brings_counts_from_its_sending() {
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), KEPT);
    let id = bench.table.ticket();
    bench.step(Input::Extend(id, hold, named("a"), LEASE * 2));
    let sent = bench.now;
    let (extend, _) = bench.call();
    bench.pass(MS * 50);
    bench.renewed(extend, Renewed::Kept { left: LEASE * 2 });
    assert_eq!(bench.left(hold), Some(lease::deadline(sent, LEASE * 2).since(bench.now)));
    assert_eq!(bench.table.next_timer(), Some(sent + LEASE / 3), "it is renewed for its usual lease");
}

/// A re-entry that the store did not answer tries again after pauses that grow, until its patience is over.
#[test]
fn a_re_entry_has_patience_too() {
    let mut bench = Bench::new();
    let owner = fresh(1);
    let begin = bench.now;
    bench.want(&["a"], &owner, Term::Fixed(LEASE * 20));
    let (ask, _) = bench.call();
    bench.grant(ask, LEASE * 20);
    bench.pass(MS);
    let began = bench.now;
    let id = bench.want(&["a"], &owner, Term::Fixed(LEASE * 20));
    let mut pauses = Vec::new();
    loop {
        let (lengthen, request) = bench.call();
        assert!(matches!(request, Request::Renew(_)), "{request:?}");
        bench.step(Input::Answer(lengthen, Answer::Renew(Err(unknown()))));
        let Some(until) = bench.sleeps_until(id) else { break };
        pauses.push(until.since(bench.now));
        bench.now = until;
        bench.step(Input::Woke(id, named("a")));
    }
    assert!(matches!(&bench.out[..], [Output::To(_, TaskEffect::Failed(_))]), "{:?}", bench.out);
    assert!(bench.now >= began + Duration::from_secs(5) && bench.now < began + Duration::from_secs(7));
    assert!(pauses[0] <= MS * 15 && pauses[3] >= MS * 80 && pauses.len() < 16, "{pauses:?}");
    assert!(bench.now < lease::deadline(begin, LEASE * 20), "it is held all the time");
    // At its end there is none left.
    let began = bench.now;
    bench.want(&["a"], &owner, Term::Fixed(LEASE * 20));
    let (lengthen, _) = bench.call();
    bench.now = began + Duration::from_secs(5);
    bench.step(Input::Answer(lengthen, Answer::Renew(Err(unknown()))));
    assert!(matches!(&bench.out[..], [Output::To(_, TaskEffect::Failed(_))]), "{:?}", bench.out);
    // One who asks once tries once.
    let options = Options { term: Term::Fixed(LEASE * 20), ..Options::default() };
    bench.want_with(&["a"], &owner, options, true);
    let (lengthen, _) = bench.call();
    bench.step(Input::Answer(lengthen, Answer::Renew(Err(unknown()))));
    assert!(matches!(&bench.out[..], [Output::To(_, TaskEffect::Failed(_))]), "{:?}", bench.out);
}

/// The clock stands exactly at the deadline, and the table has not noticed: whoever comes then finds nothing held.
#[test]
fn at_its_deadline_a_lease_is_neither_entered_nor_waited_for() {
    for owner in [fresh(1), fresh(2)] {
        let mut bench = Bench::new();
        let begin = bench.now;
        let hold = bench.hold(&fresh(1), FIXED);
        bench.now = lease::deadline(begin, LEASE);
        bench.want(&["a"], &owner, Term::Fixed(Duration::from_millis(200)));
        assert_eq!(bench.lost(), [(hold, Loss::TimeEnded)]);
        assert!(matches!(bench.call().1, Request::Acquire(_)));
        bench.step(Input::Release(hold, named("a")));
        assert!(matches!(bench.call().1, Request::Release(_)), "it may be in the store");
    }
}

#[test]
fn an_extension_that_comes_at_the_end_of_a_guard_is_too_late() {
    let mut bench = Bench::new();
    let owner = fresh(1);
    bench.hold(&owner, KEPT);
    let short = bench.enter(&owner, Term::Fixed(LEASE / 2)).hold;
    let end = bench.now + bench.left(short).unwrap();
    let id = bench.table.ticket();
    bench.step(Input::Extend(id, short, named("a"), LEASE));
    let (extend, _) = bench.call();
    bench.now = end;
    bench.renewed(extend, Renewed::Kept { left: LEASE });
    assert!(matches!(&bench.out[..], [Output::To(_, TaskEffect::Failed(_))]), "{:?}", bench.out);
    assert_eq!(bench.left(short), None);
}

/// Its own time is over, the lease is not, and nobody has noticed.
#[test]
fn the_release_of_the_last_guard_whose_own_time_is_over_says_that_it_is_lost() {
    let mut bench = Bench::new();
    let options = Options { term: KEPT, max_hold: Some(LEASE / 2), ..Options::default() };
    bench.want_with(&["a"], &fresh(1), options, false);
    let (ask, _) = bench.call();
    bench.grant(ask, LEASE);
    let hold = bench.granted().unwrap().hold;
    bench.pass(LEASE / 2);
    bench.step(Input::Release(hold, named("a")));
    assert!(
        matches!(&bench.out[..], [Output::Released(_, Err(error)), Output::Background(_)] if error.kind() == ErrorKind::Lost),
        "{:?}",
        bench.out
    );
}

#[test]
fn answers_that_come_out_of_order_bring_no_renewal_forward() {
    let mut bench = Bench::new();
    bench.hold(&fresh(1), KEPT);
    bench.ring();
    let (older, _) = bench.call();
    bench.ring();
    let sent = bench.now;
    let (newer, _) = bench.call();
    bench.renewed(newer, Renewed::Kept { left: LEASE });
    assert_eq!(bench.table.next_timer(), Some(sent + LEASE / 3));
    bench.renewed(older, Renewed::Kept { left: LEASE });
    assert_eq!(bench.table.next_timer(), Some(sent + LEASE / 3));
}

/// A lease that was lengthened once is renewed at the pace of what it is kept for.
#[test]
fn a_renewal_that_fails_is_tried_again_at_the_pace_of_the_usual_lease() {
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), KEPT);
    let id = bench.table.ticket();
    bench.step(Input::Extend(id, hold, named("a"), LEASE * 50));
    let (extend, _) = bench.call();
    bench.renewed(extend, Renewed::Kept { left: LEASE * 50 });
    bench.ring();
    let (renewal, _) = bench.call();
    assert_eq!(bench.table.next_timer(), Some(bench.now + LEASE / 6));
    bench.step(Input::Answer(renewal, Answer::Renew(Err(unknown()))));
    assert_eq!(bench.table.next_timer(), Some(bench.now + LEASE / 12));
}

/// The lease is lost while a re-entry waits for a longer one: it may still bring one.
#[test]
fn a_table_does_not_only_wait_while_a_re_entry_asks() {
    let mut bench = Bench::new();
    let owner = fresh(1);
    let hold = bench.hold(&owner, FIXED);
    bench.pass(LEASE / 2);
    bench.want(&["a"], &owner, FIXED);
    let (lengthen, _) = bench.call();
    bench.pass(LEASE);
    bench.step(Input::Tick);
    assert_eq!(bench.lost(), [(hold, Loss::TimeEnded)]);
    bench.given_back_soon();
    assert!(bench.table.is_empty() && !bench.table.only_waits());
    bench.step(Input::Unsent(lengthen));
    assert!(bench.table.only_waits());
}

/// The task that asked wanted it for long, and has gone: the one that takes the grant does not keep others out for as long.
#[test]
fn a_grant_that_a_task_takes_over_is_given_back_when_the_task_ends() {
    let mut bench = Bench::new();
    let long = bench.want(&["a"], &fresh(1), Term::Fixed(LEASE * 100));
    let (ask, _) = bench.call();
    bench.want(&["a"], &fresh(2), FIXED);
    bench.step(Input::Cancel(long, named("a")));
    bench.grant(ask, LEASE * 100);
    let hold = bench.granted().expect("the second takes it").hold;
    bench.ring();
    assert_eq!(bench.lost(), [(hold, Loss::TimeEnded)]);
    bench.given_back_soon();
    assert!(bench.table.is_empty());
}

/// The store may have the longer lease, which nobody here would give back.
#[test]
fn a_lease_is_not_left_after_a_lengthening_whose_answer_is_not_known() {
    let lost = || Error::new(ErrorKind::Unreachable, "renew", "lost").with_outcome(Outcome::Unknown);
    let refused = || Error::new(ErrorKind::Unreachable, "renew", "refused").with_outcome(Outcome::NotApplied);
    let mut bench = Bench::new();
    let hold = bench.hold(&explicit(), FIXED);
    let extend = |bench: &mut Bench, term| {
        let id = bench.table.ticket();
        bench.step(Input::Extend(id, hold, named("a"), term));
        bench.call().0
    };
    let may = |bench: &Bench| bench.table.check_detach(bench.now, hold, &named("a"));
    let (long, longer) = (LEASE * 6000, LEASE * 7000);
    let never_came = extend(&mut bench, long);
    bench.step(Input::Answer(never_came, Answer::Renew(Err(refused()))));
    assert!(may(&bench).is_ok(), "nothing was lengthened");
    let unsent = extend(&mut bench, long);
    bench.step(Input::Unsent(unsent));
    assert!(may(&bench).is_ok(), "nothing was sent");
    let under_way = extend(&mut bench, long);
    assert!(may(&bench).is_err(), "it may be executed by now");
    bench.step(Input::Answer(under_way, Answer::Renew(Err(lost()))));
    let error = may(&bench).unwrap_err();
    assert!(error.kind() == ErrorKind::BadArgument && error.to_string().contains("longer than this guard"), "{error}");
    let never_came = extend(&mut bench, longer);
    bench.step(Input::Answer(never_came, Answer::Renew(Err(refused()))));
    assert!(may(&bench).is_err(), "the earlier one may have been executed");
    let extended = extend(&mut bench, long);
    bench.renewed(extended, Renewed::Kept { left: long });
    assert!(may(&bench).is_ok(), "both end together now");
}

/// As above, where the keeper lengthened it for another guard.
#[test]
fn a_lease_is_not_left_after_a_renewal_for_another_guard_whose_answer_is_not_known() {
    let mut bench = Bench::new();
    let outer = bench.hold(&explicit(), FIXED);
    let inner = bench.enter_longer(&explicit(), Term::Kept(LEASE * 50));
    let id = bench.table.ticket();
    bench.step(Input::Extend(id, outer, named("a"), LEASE * 50));
    let (extend, _) = bench.call();
    bench.renewed(extend, Renewed::Kept { left: LEASE * 50 });
    bench.ring();
    let (renew, _) = bench.call();
    bench.step(Input::Answer(renew, Answer::Renew(Err(unknown()))));
    bench.step(Input::Release(inner, named("a")));
    assert!(bench.table.check_detach(bench.now, outer, &named("a")).is_err());
}
