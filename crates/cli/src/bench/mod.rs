//! The workloads of `bench`. Their names are unique to the run, so no other lock is touched, and all are released.

mod calls;
mod chart;
mod crowd;
mod hold;
mod plan;
mod progress;
mod report;
mod stamp;
mod stop;
mod summary;
mod tally;
mod tasks;
pub(crate) mod worker;
mod worker_pool;
mod worker_report;

use std::sync::Arc;
use std::time::Duration;

use leasehold::{Break, BreakOptions, Client, Lock};

use self::calls::Calls;
use self::progress::Progress;
use self::stop::Stop;
use self::tally::{Tally, Times};
use crate::args::Workload;
use crate::exit::{Exit, Failure};
use crate::settings::Settings;

pub(crate) use self::plan::Plan;
pub(crate) use self::report::{More, Report};
pub(crate) use self::summary::text;

/// How long the end waits until all is released; what is left then ends with its lease.
const GRACE: Duration = Duration::from_secs(10);
/// Number of names whose fences are removed at a time.
const FENCES_PER_BATCH: usize = 64;

/// Result of a workload.
pub(crate) struct BenchResult {
    pub(crate) report: Report,
    pub(crate) times: Times,
    /// The exit code and message of a workload that failed.
    pub(crate) failure: Option<Failure>,
}

/// Runs a workload.
pub(crate) async fn measure(plan: &Plan, settings: &Settings) -> Result<BenchResult, Failure> {
    let stop = Stop::on_signals()?;
    let connected = Connected::new(settings).await?;
    let tally = Arc::new(Tally::new());
    let progress = Progress::start(plan.label(), plan.span, &tally);
    let ran = connected.run(plan, settings, &tally, &stop).await;
    drop(progress);
    connected.forget_fences(plan).await;
    connected.close().await;
    let RunResult { times, elapsed, errors, calls, more } = ran?;
    let lost = matches!(&more, More::Hold(hold) if hold.lost > 0);
    let report = Report::new(plan, connected.client.store_label(), calls, errors, more).with_times(&times, elapsed);
    let failure = stop.signalled().map(|exit| Failure::new(exit, "bench: ended by a signal; all locks were released"));
    let failure = failure.or_else(|| tally.take_first_error()).map(|failure| match lost {
        true => Failure { exit: Exit::LOST, ..failure },
        false => failure,
    });
    Ok(BenchResult { report, times, failure })
}

/// A client that counts its calls to the store.
pub(crate) struct Connected {
    pub(crate) client: Client,
    pub(crate) calls: Calls,
}

struct RunResult {
    times: Times,
    elapsed: Duration,
    errors: u64,
    calls: u64,
    more: More,
}

impl Connected {
    pub(crate) async fn new(settings: &Settings) -> Result<Self, Failure> {
        let calls = Calls::default();
        let client = crate::store::builder(settings).layer(calls.clone()).connect().await?;
        Ok(Self { client, calls })
    }

    async fn run(
        &self,
        plan: &Plan,
        settings: &Settings,
        tally: &Arc<Tally>,
        stop: &Arc<Stop>,
    ) -> Result<RunResult, Failure> {
        let lock = |name: String| self.client.lock(name).map(|lock| with_budget(lock, plan.budget));
        let same = |count: usize| Ok::<_, leasehold::Error>(vec![lock(plan.name(plan.label()))?; count]);
        let (elapsed, more) = match plan.workload {
            Workload::Solo => (tasks::run(same(1)?, false, tally, stop, plan.span).await, More::Nothing {}),
            Workload::Hot => (tasks::run(same(plan.tasks)?, true, tally, stop, plan.span).await, More::Nothing {}),
            Workload::Fleet => {
                let names = (0..plan.tasks).map(|number| plan.name(&format!("fleet-{number}")));
                let locks = names.map(lock).collect::<Result<_, _>>()?;
                (tasks::run(locks, false, tally, stop, plan.span).await, More::Nothing {})
            }
            Workload::Hold => {
                let hold = hold::run(&self.client, &plan.name("hold-"), plan, tally, stop, &self.calls).await;
                (hold.elapsed(), More::Hold(hold))
            }
            Workload::Crowd => {
                let crowd = crowd::run(plan, settings, tally, stop).await?;
                let more = More::Crowd(crowd.shared());
                let (times, elapsed, errors, calls) = (crowd.times, crowd.elapsed, crowd.errors, crowd.calls);
                return Ok(RunResult { times, elapsed, errors, calls, more });
            }
        };
        Ok(RunResult { times: tally.times(), elapsed, errors: tally.errors(), calls: self.calls.count(), more })
    }

    /// The names of this run are never used again: their last fences need not be stored for days.
    async fn forget_fences(&self, plan: &Plan) {
        let names: Vec<String> = match plan.workload {
            Workload::Fleet => (0..plan.tasks).map(|number| plan.name(&format!("fleet-{number}"))).collect(),
            Workload::Hold => (0..plan.tasks).map(|number| plan.name(&format!("hold-{number}"))).collect(),
            Workload::Solo | Workload::Hot | Workload::Crowd => vec![plan.name(plan.label())],
        };
        let options = BreakOptions::from(Break::Now).reset_fence();
        let (client, names) = (&self.client, Arc::new(names));
        let mut hands = tokio::task::JoinSet::new();
        for hand in 0..FENCES_PER_BATCH {
            let (client, names) = (client.clone(), names.clone());
            hands.spawn(async move {
                for name in names.iter().skip(hand).step_by(FENCES_PER_BATCH) {
                    // A store that does not answer stores them as long as any others.
                    if client.break_lock(name, options).await.is_err() {
                        return;
                    }
                }
            });
        }
        let _ = tokio::time::timeout(GRACE, hands.join_all()).await;
    }

    /// Releases what is left.
    pub(crate) async fn close(&self) {
        // What is not released in time ends with its lease.
        let _ = tokio::time::timeout(GRACE, self.client.close()).await;
    }
}

/// A lock with the budget of the arguments.
pub(crate) fn with_budget(lock: Lock, budget: Option<Duration>) -> Lock {
    match budget {
        Some(budget) => lock.budget(budget),
        None => lock,
    }
}
