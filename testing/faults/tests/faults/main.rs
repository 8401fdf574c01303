//! Locks of real processes while their server dies, stops, forgets or is cut off: `cargo test -p leasehold-faults --test faults`.
//!
//! Every case is run on every way of keeping locks; and with a bug planted, so that its checks are seen to object.

mod checks;
mod connection;
mod fences;
mod many;
mod redlock;
mod scene;
mod server;
mod several;

use std::process::ExitCode;

use leasehold_conformance::child;
use leasehold_faults::Failure;
use leasehold_faults::servers::{Missing, Redis};
use libtest_mimic::{Arguments, Failed, Trial};

type Checked = Result<(), Failure>;

/// A way of keeping locks in Redis.
type Layout = &'static str;

const LAYOUTS: [Layout; 2] = ["redisson", "plain"];
/// The cases wait for most of their time.
const AT_A_TIME: usize = 4;

fn main() -> ExitCode {
    if let Some(ended) = child::run() {
        return ended;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(AT_A_TIME));
    let missing = Redis::is_there().err();
    let redis = |name: String, run: Box<dyn FnOnce() -> Checked + Send>| match &missing {
        Some(error) if Missing::may_be_ignored(error) => {
            Trial::test(format!("{name} [ignored: {error}]"), || Ok(())).with_ignored_flag(true)
        }
        _ => Trial::test(name, || run().map_err(Failed::from)),
    };
    let mut trials = Vec::new();
    for (name, run) in server::CASES.iter().chain(connection::CASES).chain(many::CASES).chain(fences::CASES) {
        for layout in LAYOUTS {
            trials.push(redis(format!("redis-{layout}::{name}"), Box::new(move || run(layout))));
        }
    }
    for (name, run) in server::PLANTED {
        trials.push(redis(format!("planted::{name}"), Box::new(run)));
    }
    for (name, run) in several::WITH_REDIS {
        trials.push(redis(format!("several::{name}"), Box::new(run)));
    }
    for (name, run) in redlock::cases() {
        trials.push(redis(format!("redlock::{name}"), Box::new(run)));
    }
    trials.extend(several::CASES.iter().map(|(name, run)| Trial::test(format!("several::{name}"), || Ok(run()?))));
    trials.extend(checks::CASES.iter().map(|(name, run)| Trial::test(format!("file::{name}"), || Ok(run()?))));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A case, and its name.
type Case = (&'static str, fn(Layout) -> Checked);
/// A test that chooses its own servers.
type Proof = (&'static str, fn() -> Checked);

/// Runs a case of several tasks.
fn wait<T>(case: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(case)
}

/// Where a server's locks are, by how it keeps them.
fn url(address: std::net::SocketAddr, layout: Layout) -> String {
    format!("redis://{address}?layout={layout}")
}

/// That a check objects, in these words.
fn objects(checked: Checked, words: &str) -> Checked {
    match checked {
        Ok(()) => Err(format!("the check saw nothing wrong, where it should say {words:?}").into()),
        Err(error) if error.to_string().contains(words) => Ok(()),
        Err(error) => Err(format!("the check says {error}, not {words:?}").into()),
    }
}
