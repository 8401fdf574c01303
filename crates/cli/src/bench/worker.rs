//! One worker of `crowd`. It starts on a line on its standard input and reports its measurements on its standard
//! output. When its standard input closes, it releases what it holds and ends.

use std::io::{self, BufRead, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold::{Error, ErrorKind, Lock};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::stamp::{Stamp, Stamps};
use super::stop::Stop;
use super::tally::{Tally, Times, add, no_times};
use super::worker_report::WorkerReport;
use super::{Connected, tasks};
use crate::args::BenchWorkerArgs;
use crate::exit::{Exit, Failure};
use crate::settings::Settings;

/// Interval between two reports of progress.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);

/// What its tasks share.
struct Worker {
    number: u64,
    lock: Lock,
    stamps: Stamps,
    tally: Arc<Tally>,
    hand_offs: Mutex<Times>,
    stop: Arc<Stop>,
}

/// Runs it.
pub(crate) async fn run(args: &BenchWorkerArgs, settings: &Settings) -> Result<Exit, Failure> {
    let stop = Stop::on_signals()?;
    let connected = Connected::new(settings).await?;
    let stamps = Stamps::open(&args.stamps).map_err(|error| broken(&error))?;
    let worker = Arc::new(Worker {
        number: args.number,
        lock: super::with_budget(connected.client.lock(&args.name)?, args.budget),
        stamps,
        tally: Arc::new(Tally::new()),
        hand_offs: Mutex::new(no_times()),
        stop: stop.clone(),
    });
    tell(&WorkerReport::Ready)?;
    // The parent process may be gone: then there is nothing to do.
    let Ok(span) = start(&stop).await else { return Ok(Exit::DONE) };
    let began = Instant::now();
    work(&worker, args.tasks, span).await;
    let took = began.elapsed();
    connected.close().await;
    worker.tell_all(connected.calls.count(), took)?;
    Ok(Exit::DONE)
}

/// Waits for the line with the duration of the work. The end of the input stops the work.
fn start(stop: &Arc<Stop>) -> oneshot::Receiver<Duration> {
    let (begin, begun) = oneshot::channel();
    let stop = stop.clone();
    std::thread::spawn(move || {
        let mut lines = io::stdin().lock().lines();
        if let Some(Ok(line)) = lines.next()
            && let Ok(millis) = line.parse()
        {
            // The receiver is gone if a signal came first.
            let _ = begin.send(Duration::from_millis(millis));
        }
        while let Some(Ok(_)) = lines.next() {}
        stop.set();
    });
    begun
}

async fn work(worker: &Arc<Worker>, count: usize, span: Duration) {
    let mut running = JoinSet::new();
    for task in 0..count {
        let worker = worker.clone();
        running.spawn(async move {
            while !worker.stop.is_set() {
                match worker.take_and_release().await {
                    Ok(took) => worker.tally.op(task, took),
                    Err(error) => tasks::pause_after(&worker.tally, error).await,
                }
                tokio::task::yield_now().await;
            }
        });
    }
    let (tally, stop) = (worker.tally.clone(), worker.stop.clone());
    let telling = tokio::spawn(async move {
        while !stop.is_set() && tell(&WorkerReport::Ops(tally.ops())).is_ok() {
            tokio::time::sleep(REPORT_INTERVAL).await;
        }
    });
    worker.stop.after(span).await;
    telling.abort();
    tasks::finish(running).await;
}

impl Worker {
    async fn take_and_release(&self) -> Result<Duration, Error> {
        let began = Instant::now();
        let guard = self.lock.acquire().await?;
        let granted = leasehold_clock::now().as_nanos();
        let last = self.stamps.read().map_err(|error| unreadable(&error))?;
        let fence = guard.fence().get();
        if fence <= last.fence {
            return Err(Error::new(ErrorKind::Internal, "bench", format!("fence {fence} came after {}", last.fence)));
        }
        if last.worker != 0 && last.worker != self.number {
            let mut hand_offs = self.hand_offs.lock().unwrap_or_else(PoisonError::into_inner);
            add(&mut hand_offs, granted.saturating_sub(last.at), 1);
        }
        let stamp = Stamp { worker: self.number, at: leasehold_clock::now().as_nanos(), fence };
        self.stamps.write(stamp).map_err(|error| unreadable(&error))?;
        guard.release().await?;
        Ok(began.elapsed())
    }

    fn tell_all(&self, calls: u64, took: Duration) -> Result<(), Failure> {
        for step in self.tally.times().iter_recorded() {
            tell(&WorkerReport::Took { nanos: step.value_iterated_to(), count: step.count_since_last_iteration() })?;
        }
        for step in self.hand_offs.lock().unwrap_or_else(PoisonError::into_inner).iter_recorded() {
            tell(&WorkerReport::HandOff { nanos: step.value_iterated_to(), count: step.count_since_last_iteration() })?;
        }
        if let Some(first) = self.tally.take_first_error() {
            tell(&WorkerReport::Errors { count: self.tally.errors(), exit: first.exit.code(), first: first.message })?;
        }
        tell(&WorkerReport::Ops(self.tally.ops()))?;
        tell(&WorkerReport::Calls(calls))?;
        tell(&WorkerReport::Done { nanos: took.as_nanos() as u64 })
    }
}

fn tell(said: &WorkerReport) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{said}").and_then(|()| out.flush()).map_err(|error| broken(&error))
}

fn broken(error: &io::Error) -> Failure {
    Failure::new(Exit::BUG, format!("bench: a worker lost its connection: {error}"))
}

fn unreadable(error: &io::Error) -> Error {
    Error::new(ErrorKind::Internal, "bench", format!("the stamp file: {error}"))
}
