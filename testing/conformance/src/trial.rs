//! Every case on every deployment, as trials of libtest-mimic.

use std::collections::HashSet;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold::Capability;
use leasehold_faults::servers::Missing;
use libtest_mimic::{Failed, Trial};
use tokio::runtime::{Builder, Runtime};

use crate::case::{Case, Checked, Failure, Run};
use crate::deployment::Deployment;
use crate::world::World;
use crate::{cases, deployments};

/// A case that runs longer than this hangs, also on a machine that does many other things meanwhile.
const LIMIT: Duration = Duration::from_secs(1_800);
/// Set to run with the random numbers of an earlier run.
const SEED: &str = "LEASEHOLD_SEED";
/// Name prefix of the library's threads; a panic there belongs to no test thread.
const OURS: &str = "leasehold-";

/// The threads that panicked.
static PANICKED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Every case on every deployment.
pub fn all() -> Vec<Trial> {
    watch_panics();
    let mut trials = Vec::new();
    for deployment in deployments::all() {
        match capability(&*deployment) {
            Ok(capability) => trials.extend(of(&deployment, &capability)),
            Err(reason) if Missing::may_be_ignored(&reason) => {
                let name = format!("{}::* [ignored: {reason}]", deployment.name());
                trials.push(Trial::test(name, || Ok(())).with_ignored_flag(true));
            }
            Err(reason) => {
                let name = format!("{}::*", deployment.name());
                trials.push(Trial::test(name, move || Err(reason.to_string().into())));
            }
        }
    }
    let names: HashSet<&str> = trials.iter().map(Trial::name).collect();
    assert_eq!(names.len(), trials.len(), "two cases have the same name");
    trials
}

fn of(deployment: &Arc<dyn Deployment>, capability: &Capability) -> Vec<Trial> {
    let topics = cases::TOPICS.iter();
    let all = topics.flat_map(|(topic, cases)| cases.iter().map(move |case| (topic, case)));
    all.map(|(topic, case)| {
        let name = format!("{}::{topic}::{}", deployment.name(), case.name);
        let missing = case.needs.iter().find_map(|need| need.missing(capability, &**deployment));
        match missing {
            Some(reason) => {
                Trial::test(format!("{name} [ignored: {reason}]"), move || Err(reason.into())).with_ignored_flag(true)
            }
            None => {
                let deployment = deployment.clone();
                Trial::test(name.clone(), move || run(&name, deployment, *case))
            }
        }
    })
    .collect()
}

fn capability(deployment: &dyn Deployment) -> Result<Capability, Failure> {
    let runtime = runtime("capability")?;
    runtime.block_on(async { Ok(World::new(deployment.open().await?, 0).await?.capability) })
}

/// Runs one case on a thread of its own, so that one that hangs is noticed.
fn run(name: &str, deployment: Arc<dyn Deployment>, case: Case) -> Result<(), Failed> {
    let seed = seed();
    let (done, wait) = channel();
    let thread = {
        let name = name.to_owned();
        let body = move || {
            let result = on_this_thread(&name, &*deployment, case, seed);
            let _ = done.send(());
            result
        };
        std::thread::Builder::new().name(name_of(case)).spawn(body)?
    };
    let result = match wait.recv_timeout(LIMIT) {
        Err(RecvTimeoutError::Timeout) => Err(format!("it still runs after {LIMIT:?}")),
        _ => match thread.join() {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(panic) => Err(message(&*panic)),
        },
    };
    let result = result.and_then(|()| panics_of(name));
    result.map_err(|error| Failed::from(format!("{error}\nonce more with {SEED}={seed}")))
}

fn on_this_thread(name: &str, deployment: &dyn Deployment, case: Case, seed: u64) -> Checked {
    let runtime = runtime(name)?;
    let world = runtime.block_on(async { World::new(deployment.open().await?, seed).await })?;
    match case.run {
        Run::Async(run) => runtime.block_on(run(world)),
        Run::Blocking(run) => {
            drop(runtime);
            run(&world)
        }
    }
}

fn name_of(case: Case) -> String {
    case.name.to_owned()
}

/// A runtime whose threads bear the name of the trial.
fn runtime(name: &str) -> Result<Runtime, Failure> {
    Ok(Builder::new_multi_thread().worker_threads(2).thread_name(name).enable_all().build()?)
}

fn seed() -> u64 {
    let given = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| getrandom::u64().unwrap_or_default())
}

fn watch_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        PANICKED.lock().unwrap_or_else(PoisonError::into_inner).push(name);
        before(info);
    }));
}

/// A panic on another thread of the trial, or of the library, that was not propagated.
fn panics_of(name: &str) -> Result<(), String> {
    let mut panicked = PANICKED.lock().unwrap_or_else(PoisonError::into_inner);
    match panicked.iter().position(|thread| thread == name || thread.starts_with(OURS)) {
        Some(at) => Err(format!("the thread {:?} panicked", panicked.swap_remove(at))),
        None => Ok(()),
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned()
}
