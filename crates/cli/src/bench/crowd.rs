//! Several processes on one name: `crowd`. Starts this program again as workers, lets them begin together, and puts together what
//! they tell. A worker that ends before it has told all is an error.

use std::time::Duration;

use serde::Serialize;
use tokio::sync::mpsc;

use super::crew::{Crew, WorkerMessage};
use super::said::Said;
use super::stamp::StampFile;
use super::stop::Stop;
use super::tally::{Tally, Times, add, no_times};
use super::{Plan, report};
use crate::exit::{Exit, Failure};
use crate::hints;
use crate::settings::Settings;

/// How long workers have to connect, and to finish when the time is over.
const GRACE: Duration = Duration::from_secs(20);

/// What a crowd has beside the usual.
#[derive(Serialize, Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) processes: usize,
    /// Grants that followed on the release of another process.
    pub(crate) hand_offs: u64,
    /// From the beginning of a release to the grant in another process.
    pub(crate) hand_off_p50_us: f64,
    pub(crate) hand_off_p99_us: f64,
    /// Operations of the slowest process, as a part of the mean.
    pub(crate) smallest_share: f64,
    /// Operations of every process.
    pub(crate) shares: Vec<u64>,
}

/// Everything that the workers told.
pub(crate) struct Gathered {
    pub(crate) times: Times,
    pub(crate) hand_offs: Times,
    pub(crate) calls: u64,
    pub(crate) errors: u64,
    pub(crate) elapsed: Duration,
    pub(crate) shares: Vec<u64>,
}

/// Runs it.
pub(crate) async fn run(plan: &Plan, settings: &Settings, tally: &Tally, stop: &Stop) -> Result<Gathered, Failure> {
    let stamps = StampFile::create(&plan.run)
        .map_err(|error| Failure::new(Exit::BUG, format!("bench: the file of stamps could not be made: {error}")))?;
    let (mut crew, news) = Crew::start(plan, settings, stamps.path())?;
    let mut gathering = Gathering { news, ready: 0, done: 0, gathered: Gathered::new(plan.processes), first: None };
    let connected = gathering.until(GRACE, tally, |gathering| gathering.ready == plan.processes);
    tokio::select! {
        connected = connected => connected?,
        () = stop.wait() => return Ok(gathering.gathered),
    }
    crew.begin(plan.span);
    let done = |gathering: &Gathering| gathering.done == plan.processes;
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

struct Gathering {
    news: mpsc::UnboundedReceiver<WorkerMessage>,
    ready: usize,
    done: usize,
    gathered: Gathered,
    first: Option<Failure>,
}

impl Gathering {
    /// Takes news in until that much is reached.
    async fn until(&mut self, limit: Duration, tally: &Tally, reached: impl Fn(&Self) -> bool) -> Result<(), Failure> {
        let all = async {
            while !reached(self) {
                match self.news.recv().await {
                    Some(WorkerMessage::Said(worker, said)) => self.take_in(worker, said),
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
                .with_hint(format!("does the store answer? {} looks closer", hints::doctor()))),
        }
    }

    fn take_in(&mut self, worker: usize, said: Said) {
        let gathered = &mut self.gathered;
        match said {
            Said::Ready => self.ready += 1,
            Said::Ops(ops) => gathered.shares[worker] = ops,
            Said::Took { nanos, count } => add(&mut gathered.times, nanos, count),
            Said::HandOff { nanos, count } => add(&mut gathered.hand_offs, nanos, count),
            Said::Errors { count, exit, first } => {
                gathered.errors += count;
                self.first.get_or_insert_with(|| Failure::new(Exit::other(exit), first));
            }
            Said::Calls(calls) => gathered.calls += calls,
            Said::Done { nanos } => {
                gathered.elapsed = gathered.elapsed.max(Duration::from_nanos(nanos));
                self.done += 1;
            }
        }
    }
}

impl Gathered {
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

    /// What is told beside the usual.
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
