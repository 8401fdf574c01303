//! What is told of a lock that was lost, and of the renewals that failed before.

use super::super::waiters::CHECK_PAUSE;
use super::*;

const MS: Duration = Duration::from_millis(1);

impl Bench {
    fn loss_report(&self) -> Arc<LossReport> {
        let report = self.out.iter().find_map(|output| match output {
            Output::Lost(_, _, report) => Some(report.clone()),
            _ => None,
        });
        report.expect("a guard is lost")
    }

    /// The next renewal fails, or nobody can tell what became of it.
    fn fail_renewal(&mut self, message: &str) {
        self.ring();
        let (renewal, _) = self.call();
        self.pass(MS);
        let reply = match message {
            "" => self.ok(vec![Renewed::Unknown]),
            message => Err(Error::new(ErrorKind::Unreachable, "renew", message).with_outcome(Outcome::Unknown)),
        };
        self.step(Input::Answer(renewal, Answer::Renew(reply)));
    }

    /// Lets a renewal ring and succeed.
    fn renew(&mut self) {
        self.ring();
        let (renewal, _) = self.call();
        self.renewed(renewal, Renewed::Kept { left: LEASE });
    }

    fn failed_renewal(&self) -> Option<(&FailedRenewal, Duration)> {
        self.out.iter().find_map(|output| match output {
            Output::RenewalFailed(_, failed, left) => Some((failed, *left)),
            _ => None,
        })
    }
}

/// Hints about everything come as often as somebody likes to send them.
#[test]
fn a_hint_about_everything_costs_a_name_that_is_just_held_nothing() {
    let mut bench = Bench::new();
    bench.hold(&fresh(1), KEPT);
    bench.step(Input::HintAll);
    assert!(bench.out.is_empty(), "{:?}", bench.out);
    assert!(!bench.table.entries[&named("a")].is_wanted(), "there is room for those who want it, and nobody does");
}

/// A hint about a name that is held has it renewed at once, and the answer tells what became of it.
#[test]
fn a_held_name_that_is_hinted_at_is_renewed_at_once() {
    let mut bench = Bench::new();
    bench.hold(&fresh(1), KEPT);
    bench.pass(MS);
    let renews = |bench: &mut Bench| {
        bench.step(Input::Tick);
        bench.out.iter().any(|output| matches!(output, Output::Background(_)))
    };
    assert!(!renews(&mut bench), "nothing is due yet");
    bench.step(Input::HintHeld(named("another")));
    assert!(!renews(&mut bench), "that is not its name");
    bench.step(Input::HintHeld(named("a")));
    assert!(renews(&mut bench));
    let (renewal, _) = bench.call();
    bench.step(Input::HintHeld(named("a")));
    assert!(!renews(&mut bench), "one is under way");
    bench.renewed(renewal, Renewed::Kept { left: LEASE });
    assert!(!renews(&mut bench), "hints come in numbers");
    bench.pass(CHECK_PAUSE);
    assert!(renews(&mut bench), "the renewal may have left before what the second hint tells of");
    let (renewal, _) = bench.call();
    bench.renewed(renewal, Renewed::Broken);
    assert_eq!(bench.loss_report().loss, Loss::Broken);
}

#[test]
fn a_renewal_that_fails_is_told_with_its_error_and_with_what_is_left_of_the_lease() {
    let mut bench = Bench::new();
    let begin = bench.now;
    bench.hold(&fresh(1), KEPT);
    for message in ["no route", ""] {
        bench.fail_renewal(message);
        let (failed, left) = bench.failed_renewal().expect("it is told");
        assert_eq!((failed.at, failed.took), (bench.now, MS));
        assert_eq!(left, crate::lease::deadline(begin, LEASE).since(bench.now));
        assert!(failed.error.to_string().contains(if message.is_empty() { "too few servers" } else { message }));
    }
    bench.renew();
    assert!(bench.failed_renewal().is_none() && bench.table.remnants() == 0, "one that succeeds makes up for them");
}

#[test]
fn a_loss_names_the_last_renewals_that_failed() {
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), KEPT);
    let begin = bench.now;
    for message in ["first", "second", "third", "fourth"] {
        bench.fail_renewal(message);
    }
    let fourth = bench.now;
    while bench.lost().is_empty() {
        bench.ring();
    }
    let report = bench.loss_report();
    assert_eq!((report.loss, report.at, report.left), (Loss::TimeEnded, bench.now, Duration::ZERO));
    assert_eq!(report.held, bench.now.since(begin));
    let said: Vec<&str> = report.renewals.iter().map(|renewal| renewal.error.message()).collect();
    assert_eq!(said, ["second", "third", "fourth"]);
    assert_eq!(report.renewals[2].at, fourth);
    let kept = bench.table.loss(hold).expect("it is known as long as its guard lives");
    assert!(Arc::ptr_eq(kept, &report));
    bench.step(Input::Release(hold, named("a")));
    assert_eq!(bench.table.remnants(), 0);
}

/// What failed before one that succeeded did not lead to the loss.
#[test]
fn a_loss_after_a_renewal_that_succeeded_names_none() {
    let mut bench = Bench::new();
    bench.hold(&fresh(1), KEPT);
    bench.fail_renewal("no route");
    bench.renew();
    bench.ring();
    let (renewal, _) = bench.call();
    bench.renewed(renewal, Renewed::Lost);
    let report = bench.loss_report();
    assert_eq!((report.loss, report.renewals.len()), (Loss::Gone, 0));
}

#[test]
fn a_lock_that_is_given_back_leaves_no_failures_behind() {
    let mut bench = Bench::new();
    let hold = bench.hold(&fresh(1), KEPT);
    bench.fail_renewal("no route");
    assert_eq!((bench.table.remnants(), bench.table.guards()), (1, 1));
    bench.step(Input::Release(hold, named("a")));
    assert_eq!((bench.table.remnants(), bench.table.guards()), (0, 0));
}

/// The holder may use that time: nobody else gets the lock before.
#[test]
fn a_loss_to_an_operator_says_how_much_of_the_lease_is_left() {
    let mut bench = Bench::new();
    let begin = bench.now;
    let hold = bench.hold(&fresh(1), KEPT);
    bench.ring();
    let (renewal, _) = bench.call();
    bench.renewed(renewal, Renewed::Broken);
    let report = bench.loss_report();
    assert_eq!(report.loss, Loss::Broken);
    assert_eq!(report.left, crate::lease::deadline(begin, LEASE).since(bench.now));
    bench.step(Input::Release(hold, named("a")));
    assert!(matches!(bench.call().1, Request::Release(_)), "others need not wait for the rest of it");
}

#[test]
fn a_renewal_that_is_not_answered_for_long_is_told() {
    let mut bench = Bench::new();
    let begin = bench.now;
    bench.hold(&fresh(1), KEPT);
    bench.ring();
    let late = |bench: &Bench| {
        bench.out.iter().find_map(|output| match output {
            Output::RenewalLate(_, left) => Some(*left),
            _ => None,
        })
    };
    assert_eq!(late(&bench), None);
    bench.ring();
    assert_eq!(late(&bench), Some(crate::lease::deadline(begin, LEASE).since(bench.now)));
}

#[test]
fn a_guard_knows_how_long_it_has_held_its_lock() {
    let mut bench = Bench::new();
    let owner = fresh(1);
    let outer = bench.hold(&owner, KEPT);
    bench.pass(MS * 20);
    let inner = bench.enter(&owner, KEPT).hold;
    bench.pass(MS * 7);
    let held = |hold| bench.table.held_for(bench.now, &named("a"), hold);
    assert_eq!((held(outer), held(inner), bench.table.guards()), (MS * 27, MS * 7, 2));
}
