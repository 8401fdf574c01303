//! No descendant works on beside the next holder, whatever happens to the runner: real processes, real faults, one clock.
//!
//! The command and all that it starts write the time to a file, again and again. The next holder waits meanwhile, and reads the same
//! clock when it is granted the lock: no stamp may be later. Every kind of command is tried with every fault, many times.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[cfg(target_os = "linux")]
mod compiled;
#[cfg(target_os = "linux")]
mod crowd;
#[cfg(target_os = "linux")]
mod heartbeat;
#[cfg(target_os = "linux")]
#[path = "../program/mod.rs"]
mod program;
#[cfg(target_os = "linux")]
mod trial;
#[cfg(target_os = "linux")]
mod wall;

/// There is no subreaper elsewhere: what leaves its process group cannot be found.
#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() {
    use heartbeat::Kind;
    use trial::Fault;

    let words: Vec<String> = std::env::args().collect();
    if words.get(1).is_some_and(|word| word == heartbeat::WORD) {
        return heartbeat::beat(&words[2], &words[3]);
    }
    let mut arguments = libtest_mimic::Arguments::from_args();
    // They mostly wait: more of them than there are cores.
    arguments.test_threads.get_or_insert(6);
    let mut trials = Vec::new();
    for round in 0..8 {
        for fault in Fault::ALL {
            for kind in Kind::ALL {
                let run = move || trial::run(fault, kind, round).map_err(Into::into);
                trials.push(libtest_mimic::Trial::test(format!("{fault:?}::{kind:?}::{round}"), run));
            }
        }
    }
    for fault in [Fault::RunnerStopped, Fault::RunnerKilled, Fault::GuardianKilled, Fault::Broken] {
        let run = move || trial::run(fault, Kind::Crowd, 0).map_err(Into::into);
        trials.push(libtest_mimic::Trial::test(format!("{fault:?}::Crowd"), run));
    }
    trials.push(libtest_mimic::Trial::test("the_check_finds_a_guardian_that_does_nothing", || {
        is_found(&trial::run(Fault::NobodyGuards, Kind::Plain, 0))
    }));
    libtest_mimic::run(&arguments, trials).exit();
}

/// Whether the check found a process that ran beside the next holder.
#[cfg(target_os = "linux")]
fn is_found(checked: &Result<(), String>) -> Result<(), libtest_mimic::Failed> {
    match checked {
        Err(found) if found.contains(trial::BESIDE) => Ok(()),
        other => Err(format!("not found: {other:?}").into()),
    }
}
