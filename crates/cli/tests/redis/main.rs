//! The command line on real Redis servers: what `doctor` finds, and what becomes of bad input. Each trial has servers of its own.
//!
//! Without `redis-server` they show as ignored, unless LEASEHOLD_TEST_ALL is set: then that is a failure.

mod bad_input;
mod doctor;
mod harness;
mod nested_logins;
mod outage;
mod outage_at_end;
mod places;
#[path = "../program/mod.rs"]
mod program;
mod redlock;
mod secrets;

use std::process::ExitCode;

use leasehold_faults::servers::{Missing, Redis};
use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let missing = Redis::is_there().err();
    let cases = [
        doctor::CASES,
        bad_input::CASES,
        places::CASES,
        nested_logins::CASES,
        outage_at_end::CASES,
        redlock::CASES,
        secrets::CASES,
        outage::CASES,
    ];
    let trials = cases.into_iter().flatten().map(|(name, run)| match &missing {
        Some(error) if Missing::may_be_ignored(error) => {
            Trial::test(format!("{name} [ignored: {error}]"), || Ok(())).with_ignored_flag(true)
        }
        _ => Trial::test(*name, || Ok(run()?)),
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}
