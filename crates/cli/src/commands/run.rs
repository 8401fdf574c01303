//! `run`: takes the lock, runs a command under it, gives it back. The processes are in `crate::run`.

use std::ffi::OsString;
use std::io;
use std::time::{Duration, Instant};

use leasehold::{Attempt, Client, Guard, Holder, Lock, Name};

use crate::args::RunArgs;
use crate::exit::{Exit, Failure};
use crate::run::{self, Job, Nesting, Outcome, Outer, Report, Signals, Times, Why};
use crate::settings::{self, Settings};
use crate::waiting::Waiting;
use crate::{names, output, store};

pub(crate) fn run(args: &RunArgs, settings: &Settings) -> Result<Exit, Failure> {
    run::without_stops();
    let mut report = Report { name: args.names.clone(), ..Report::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Exit::BUG, format!("no runtime: {error}")))?;
    if let Some(path) = &args.report {
        run::check_report(path)?;
    }
    let done = runtime.block_on(Box::pin(Run { args, settings }.run(&mut report)));
    if let Some(path) = &args.report {
        report.conclude(&done);
        if let Err(error) = report.write(path) {
            output::note(&format!("the report {} could not be written: {error}", path.display()));
        }
    }
    done
}

struct Run<'a> {
    args: &'a RunArgs,
    settings: &'a Settings,
}

/// A lock as it is to be taken.
struct Plan {
    lock: Lock,
    lease: Duration,
    times: Times,
    /// The `run` around this one, where its lock is joined.
    joined: Option<Outer>,
}

impl Run<'_> {
    async fn run(&self, report: &mut Report) -> Result<Exit, Failure> {
        let names = names::parse(&self.args.names)?;
        report.name = names::join(&names);
        self.check()?;
        let mut signals = Signals::passed_on()?;
        let waiting = Waiting::new(&self.args.waiting);
        let began = Instant::now();
        let client = unless_signal(&mut signals, report, store::connect_patiently(self.settings, &waiting)).await?;
        report.store = Some(client.store_label().to_owned());
        let plan = self.plan(&client, &names)?;
        let taken = unless_signal(&mut signals, report, waiting.take(&client, &plan.lock, &names)).await;
        report.waited_ms = Some(millis(began.elapsed()));
        let taken = match taken {
            Ok(Attempt::Granted(guard)) => Ok(guard),
            Ok(Attempt::Busy(holder)) => Err(self.busy(report, &waiting, &client, &holder)),
            Err(failure) => Err(failure),
        };
        let guard = match taken {
            Ok(guard) => guard,
            Err(failure) => {
                store::close(&client).await;
                return Err(failure);
            }
        };
        report.took(&guard);
        let held = Instant::now();
        let done = self.under(plan, &guard, &client, &mut signals, report).await;
        let released = guard.release().await;
        report.held_ms = Some(millis(held.elapsed()));
        if let (Ok(_), Err(error), false) = (&done, &released, report.outcome == "lost") {
            output::note(&format!("the lock could not be given back, and is free when its lease has run out: {error}"));
        }
        done
    }

    /// What can be known to be wrong before anything is asked.
    fn check(&self) -> Result<(), Failure> {
        let leases = [("--keep", self.args.keep), ("--lease", self.args.lease), ("--max-hold", self.args.max_hold)];
        for (flag, given) in leases {
            if let (Some(given), true) = (given, flag != "--max-hold") {
                settings::lease(flag, given)?;
            }
        }
        if let Some(lease) = self.args.lease.or(self.args.keep) {
            self.times(lease)?;
        }
        Ok(())
    }

    fn times(&self, lease: Duration) -> Result<Times, Failure> {
        let lease = lease.min(self.args.max_hold.unwrap_or(Duration::MAX));
        if let Some(grace) = run::grace(lease, self.args.grace) {
            return Ok(Times::new(lease, grace));
        }
        let (grace, lease) = (self.args.grace.unwrap_or_default(), humantime::format_duration(lease));
        let what = format!("a grace of {} is half the lease of {lease} or more", humantime::format_duration(grace));
        Err(Failure::usage(what).with_hint("make --grace shorter, or --keep or --lease longer"))
    }

    fn plan(&self, client: &Client, names: &[Name]) -> Result<Plan, Failure> {
        let args = self.args;
        let mut lock = client.lock_all(names.iter().map(Name::as_str));
        let lease = args.lease.or(args.keep).unwrap_or_else(|| client.defaults().term.lease());
        let times = self.times(lease)?;
        lock = if args.lease.is_some() { lock.lease(lease) } else { lock.keep(lease) };
        if let Some(limit) = args.max_hold {
            lock = lock.max_hold(limit);
        }
        if let Some(span) = args.at_least {
            lock = lock.at_least(span);
        }
        if let Some(label) = &args.who.label {
            lock = lock.label(label);
        }
        let joined = joined(names, client.store_label(), args.who.owner.is_some())?;
        let owner = match (&args.who.owner, &joined) {
            (Some(owner), _) => settings::explicit(owner)?,
            (None, Some(outer)) => settings::explicit(&outer.owner)?,
            // Explicit all the same, so that a `run` inside can be the same owner.
            (None, None) => settings::owner(None)?,
        };
        Ok(Plan { lock: lock.owned_by(&owner), lease, times, joined })
    }

    fn busy(&self, report: &mut Report, waiting: &Waiting, client: &Client, holder: &Holder) -> Failure {
        report.outcome = "busy";
        Failure { exit: Exit::other(self.args.busy_exit), ..waiting.busy(client, holder) }
    }

    /// Runs the command, and says how the process ends.
    async fn under(
        &self,
        plan: Plan,
        guard: &Guard,
        client: &Client,
        signals: &mut Signals,
        report: &mut Report,
    ) -> Result<Exit, Failure> {
        if plan.joined.as_ref().is_some_and(|outer| !outer.is_same_grant(guard)) {
            report.lost(None);
            return Err(self.lost("the lock of the outer run was lost before this one could join it"));
        }
        if let Some(number) = signals.pending() {
            report.outcome = "signal";
            return Err(Failure::new(Exit::signal(number), "a signal came before the command was started"));
        }
        if self.settings.verbose > 0 {
            output::note(&format!("{:?} is ours, with fence {}", guard.name().as_str(), guard.fence()));
        }
        let job = Job {
            words: self.words(),
            variables: run::variables(guard, client.store_label()),
            lease: plan.lease,
            times: plan.times,
            is_joined: plan.joined.is_some(),
            alive: leasehold_file::live_files().map_err(|error| unready(&error))?,
        };
        match run::run(job, guard, signals).await? {
            Outcome::NotStarted(error) => {
                report.outcome = "not_started";
                Err(self.not_started(&error))
            }
            Outcome::Done(ended) => {
                report.outcome = "done";
                report.ended(ended);
                Ok(Exit::other(ended.code()))
            }
            Outcome::CutOff(why, ended) => {
                report.lost(Some(why));
                ended.into_iter().for_each(|ended| report.ended(ended));
                Err(self.lost(self.reason(why)))
            }
        }
    }

    fn words(&self) -> Vec<OsString> {
        match &self.args.line {
            Some(line) => vec!["sh".into(), "-c".into(), line.clone()],
            None => self.args.command.clone(),
        }
    }

    fn not_started(&self, error: &io::Error) -> Failure {
        let name = self.words().into_iter().next().unwrap_or_default();
        let name = name.display();
        match error.kind() {
            io::ErrorKind::NotFound => Failure::new(Exit::other(127), format!("{name}: command not found")),
            _ => Failure::new(Exit::other(126), format!("{name}: cannot be started: {error}")),
        }
    }

    fn reason(&self, why: Why) -> &'static str {
        match why {
            Why::Lost => "the lock was lost, and the command was ended: the store no longer had it",
            Why::NoGuardian => "the command was ended, because its guardian was killed",
            Why::TimeEnded if self.args.lease.is_some() => "the lease ended, and the command was ended with it",
            Why::TimeEnded if self.args.max_hold.is_some() => {
                "the command was ended: --max-hold was over, or the lock could not be renewed in time"
            }
            Why::TimeEnded => {
                "the lock could not be renewed in time, and the command was ended before another could have it"
            }
        }
    }

    fn lost(&self, what: &str) -> Failure {
        Failure::new(Exit::other(self.args.lost_exit), what)
            .with_hint("its work may be half done; 'leasehold show NAME' says who has the lock now")
    }
}

/// The `run` around this one, if it has these locks. One that has only some of them would be waited for, for ever.
fn joined(names: &[Name], store_label: &str, has_owner: bool) -> Result<Option<Outer>, Failure> {
    let Some(outer) = Outer::of_process() else { return Ok(None) };
    match outer.nesting(names, store_label) {
        _ if has_owner => Ok(None),
        Nesting::Apart => Ok(None),
        Nesting::Within => Ok(Some(outer)),
        Nesting::Across(name) => {
            let what = format!("{:?} is held by the run around this one, and the others are not", name.as_str());
            Err(Failure::usage(what).with_hint("leave that name out here, or take all of them in the outer run"))
        }
    }
}

async fn unless_signal<T>(
    signals: &mut Signals,
    report: &mut Report,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::select! {
        number = signals.next() => {
            report.outcome = "signal";
            Err(Failure::new(Exit::signal(number), "a signal came while waiting for the lock"))
        }
        done = work => done,
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn unready(error: &io::Error) -> Failure {
    Failure::new(Exit::BUG, format!("the guardian could not be prepared: {error}"))
}
