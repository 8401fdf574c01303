//! A server that is gone as a `run` ends.

use leasehold_faults::servers::Redis;
use rustix::process::Signal;

use crate::harness::{Case, Checked, Held, run, url};

pub(crate) const CASES: &[Case] = &[
    ("outage_at_end::without_a_server_people_are_told_what_is_waited_for", without_a_server_people_are_told),
    ("outage_at_end::a_signal_ends_the_waiting_for_a_server", a_signal_ends_the_waiting),
    ("outage_at_end::a_lock_that_was_lost_with_its_server_is_told_of_at_once", a_lock_that_was_lost_is_told_of_at_once),
    ("outage_at_end::a_loss_says_why", a_loss_says_why),
    ("outage_at_end::a_server_that_answers_late_gets_its_lock_back", a_server_that_answers_late_gets_its_lock_back),
];

const NOT_GIVEN_BACK: &str = "could not be released";
const WAITING: &str = "which has not answered";

fn without_a_server_people_are_told() -> Checked {
    let mut server = Redis::start()?;
    let held = Held::start(&url(&server), &["run", "a"]);
    server.kill()?;
    let err = held.ends(0);
    for words in [NOT_GIVEN_BACK, WAITING, &url(&server)] {
        assert!(err.contains(words), "{words:?} is missing: {err}");
    }
    Ok(())
}

fn a_signal_ends_the_waiting() -> Checked {
    let mut server = Redis::start()?;
    // Without the signal it would wait for the end of the lease.
    let mut held = Held::start(&url(&server), &["run", "a", "--keep", "1h"]);
    server.kill()?;
    held.let_go();
    assert!(held.error_line().contains(NOT_GIVEN_BACK));
    let told = held.error_line();
    assert!(told.contains(WAITING) && told.contains("a signal"), "{told}");
    held.signal(Signal::TERM);
    held.ended(0);
    Ok(())
}

fn a_lock_that_was_lost_is_told_of_at_once() -> Checked {
    let server = Redis::start()?;
    let mut held = Held::start(&url(&server), &["run", "a", "--keep", "2s"]);
    server.stop()?;
    let warned = held.error_line();
    assert!(warned.contains("warning: \"a\" "), "{warned}");
    let told = held.error_line();
    assert!(told.contains("lost \"a\""), "{told}");
    held.ended(76);
    Ok(())
}

/// The first failed renewal is reported, and so is the next success; a loss says which renewals failed, when, and why.
fn a_loss_says_why() -> Checked {
    let server = Redis::start()?;
    let mut held = Held::start(&url(&server), &["run", "a", "--keep", "9s"]);
    server.stop()?;
    let warned = held.error_line();
    assert!(warned.contains("warning: \"a\" ") && warned.contains("unless it is"), "{warned}");
    server.go_on()?;
    let again = held.error_line();
    assert!(again.contains("the lock is renewed again"), "{again}");
    server.stop()?;
    assert!(held.error_line().contains("warning: "));
    let told = held.error_line();
    assert!(told.contains("lost \"a\"") && told.contains("could not be renewed in time"), "{told}");
    let (_, renewals) = told.split_once("failed ").expect("why");
    assert!(renewals.contains("Z: ") && renewals.contains("answer"), "{told}");
    held.ended(76);
    Ok(())
}

fn a_server_that_answers_late_gets_its_lock_back() -> Checked {
    let server = Redis::start()?;
    let held = Held::start(&url(&server), &["run", "a"]);
    server.command(&["CLIENT", "PAUSE", "2500", "ALL"])?;
    let err = held.ends(0);
    assert!(err.contains("at the latest"), "{err}");
    run(&url(&server), &["acquire", "a", "--no-wait"]).is(0);
    Ok(())
}
