//! `crowd`: several processes compete for one name. Starts this program again as workers, lets them begin together, and
//! combines their results. A worker that ends before it reported everything is an error.

use std::time::Duration;

use serde::Serialize;
use tokio::sync::mpsc;

use super::stamp::StampFile;
use super::stop::Stop;
use super::tally::{Tally, Times, add, no_times};
use super::worker_pool::{WorkerMessage, WorkerPool};
use super::worker_report::WorkerReport;
use super::{Plan, report};
use crate::exit::{Exit, Failure};
use crate::hints;
use crate::settings::Settings;

/// How long workers have to connect, and to finish when the time is over.
const GRACE: Duration = Duration::from_secs(20);

/// The extra results of a crowd.
#[derive(Serialize, Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) processes: usize,
    /// Grants that followed a release by another process.
    pub(crate) hand_offs: u64,
    /// Time from the start of a release to the grant in another process.
    pub(crate) hand_off_p50_us: f64,
    pub(crate) hand_off_p99_us: f64,
    /// Operations of the slowest process, as a fraction of the mean.
    pub(crate) smallest_share: f64,
    /// Operations of every process.
    pub(crate) shares: Vec<u64>,
}

/// Everything that the workers reported.
pub(crate) struct CrowdResult {
    pub(crate) times: Times,
    pub(crate) hand_offs: Times,
    pub(crate) calls: u64,
    pub(crate) errors: u64,
    pub(crate) elapsed: Duration,
    pub(crate) shares: Vec<u64>,
}

/// Runs the workload.
pub(crate) async fn run(plan: &Plan, settings: &Settings, tally: &Tally, stop: &Stop) -> Result<CrowdResult, Failure> {
    let stamps = StampFile::create(&plan.run)
        .map_err(|error| Failure::new(Exit::BUG, format!("bench: could not create the stamp file: {error}")))?;
    let (mut crew, news) = WorkerPool::start(plan, settings, stamps.path())?;
    let mut gathering = Collector { news, ready: 0, done: 0, gathered: CrowdResult::new(plan.processes), first: None };
    let connected = gathering.until(GRACE, tally, |gathering| gathering.ready == plan.processes);
    tokio::select! {
        connected = connected => connected?,
        () = stop.wait() => return Ok(gathering.gathered),
    }
    crew.begin(plan.span);
    let done = |gathering: &Collector| gathering.done == plan.processes;
    tokio::select! {
        worked = gathering.until(plan.span + GRACE, tally, done) => worked?,
        () = stop.wait() => {
            crew.stop();
            gathering.until(GRACE, tally, done).await?;
        }
    }
    if let Some(first) = gathering.first {
        tally.error(first);
    }
    Ok(gathering.gathered)
}

struct Collector {
    news: mpsc::UnboundedReceiver<WorkerMessage>,
    ready: usize,
    done: usize,
    gathered: CrowdResult,
    first: Option<Failure>,
}

impl Collector {
    /// Processes messages until the condition holds.
    async fn until(&mut self, limit: Duration, tally: &Tally, reached: impl Fn(&Self) -> bool) -> Result<(), Failure> {
        let all = async {
            while !reached(self) {
                match self.news.recv().await {
                    Some(WorkerMessage::WorkerReport(worker, said)) => self.take_in(worker, said),
                    Some(WorkerMessage::Failed(failure)) => return Err(failure),
                    None => return Err(Failure::new(Exit::BUG, "bench: the workers are gone")),
                }
                tally.set_ops(self.gathered.shares.iter().sum());
            }
            Ok(())
        };
        match tokio::time::timeout(limit, all).await {
            Ok(done) => done,
            Err(_) => Err(Failure::new(Exit::UNREACHABLE, "bench: the workers did not answer in time")
                .with_hint(format!("check that the store answers: {}", hints::doctor()))),
        }
    }

    fn take_in(&mut self, worker: usize, said: WorkerReport) {
        let gathered = &mut self.gathered;
        match said {
            WorkerReport::Ready => self.ready += 1,
            WorkerReport::Ops(ops) => gathered.shares[worker] = ops,
            WorkerReport::Took { nanos, count } => add(&mut gathered.times, nanos, count),
            WorkerReport::HandOff { nanos, count } => add(&mut gathered.hand_offs, nanos, count),
            WorkerReport::Errors { count, exit, first } => {
                gathered.errors += count;
                self.first.get_or_insert_with(|| Failure::new(Exit::other(exit), first));
            }
            WorkerReport::Calls(calls) => gathered.calls += calls,
            WorkerReport::Done { nanos } => {
                gathered.elapsed = gathered.elapsed.max(Duration::from_nanos(nanos));
                self.done += 1;
            }
        }
    }
}

impl CrowdResult {
    fn new(processes: usize) -> Self {
        Self {
            times: no_times(),
            hand_offs: no_times(),
            calls: 0,
            errors: 0,
            elapsed: Duration::ZERO,
            shares: vec![0; processes],
        }
    }

    /// The extra results.
    pub(crate) fn shared(&self) -> Shared {
        let mean = self.shares.iter().sum::<u64>() as f64 / self.shares.len() as f64;
        let smallest = self.shares.iter().min().copied().unwrap_or(0) as f64;
        Shared {
            processes: self.shares.len(),
            hand_offs: self.hand_offs.len(),
            hand_off_p50_us: report::us(&self.hand_offs, 0.5),
            hand_off_p99_us: report::us(&self.hand_offs, 0.99),
            smallest_share: report::rounded(smallest / mean.max(1.0)),
            shares: self.shares.clone(),
        }
    }
}
