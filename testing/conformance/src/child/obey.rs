//! A process that executes commands from its standard input: one line per command, and one line for its answer.
//!
//! Commands do not wait for each other. It ends when its input ends, or its parent.

use std::io::BufRead;
use std::sync::Arc;

use leasehold::Client;

use super::planted::Planted;
use super::pupil::Pupil;
use crate::case::{Checked, Failure};
use crate::chaos::{Chaos, Fault, Kind};

/// Obeys until the end.
pub(super) fn obey(url: &str, who: &str, bug: &str) -> Checked {
    end_with_parent()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let chaos = Chaos::new();
    let bug = Planted::named(bug).ok_or("no such bug")?;
    if bug == Planted::HidesRenewals {
        chaos.every(Kind::Renew, Fault::Hide);
    }
    let client = runtime.block_on(Client::builder(url).layer(chaos.clone()).connect())?;
    let pupil = Arc::new(Pupil::new(client, chaos, who.parse()?, bug));
    for line in std::io::stdin().lock().lines() {
        let (line, pupil) = (line?, pupil.clone());
        pupil.hear(&line);
        runtime.spawn(async move { answer(&pupil, &line).await });
    }
    std::process::exit(0);
}

async fn answer(pupil: &Pupil, line: &str) {
    let words: Vec<&str> = line.split('\t').collect();
    let Some((number, words)) = words.split_first() else { return };
    let began = leasehold_clock::now().as_nanos();
    let said = Box::pin(pupil.perform(words)).await.unwrap_or_else(|error| said_of(&error));
    println!("{number}\t{began}\t{}\t{said}", leasehold_clock::now().as_nanos());
}

/// An error of the library by its kind, any other by its words.
fn said_of(error: &Failure) -> String {
    match error.downcast_ref::<leasehold::Error>() {
        Some(error) => format!("error\t{:?}", error.kind()),
        None => format!("failed\t{}", error.to_string().replace(['\t', '\n'], " ")),
    }
}

/// Also while it is stopped, and when the test is killed.
#[cfg(target_os = "linux")]
fn end_with_parent() -> Checked {
    use rustix::process::{Signal, set_parent_process_death_signal};
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

#[cfg(not(target_os = "linux"))]
fn end_with_parent() -> Checked {
    Ok(())
}
