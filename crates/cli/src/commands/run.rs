//! `run`: takes the lock, runs a command under it, releases it. The processes are in `crate::run`.

use std::io;
use std::time::{Duration, Instant};

use leasehold::{Attempt, Client, ErrorKind, GroupGuard, Name};
use leasehold_core::Moment;

use crate::args::RunArgs;
use crate::exit::{Exit, Failure};
use crate::run::{self, Destination, Here, Job, NotEnded, OrphanRelease, Outcome, Plan, Report, Signals, Standby, Why};
use crate::settings::Settings;
use crate::wait::{Waiting, unless_signal};
use crate::{events, hints, names, output, runtime, store};

pub(crate) fn run(args: &RunArgs, settings: &Settings) -> Result<Exit, Failure> {
    run::hear_signals();
    run::without_stops();
    let destination = args.report.as_deref().map(Destination::new).transpose()?;
    let mut report = Report::of(&args.names);
    let done = runtime::block_on(Box::pin(Run { args, settings }.run(&mut report)));
    if let (Some(path), Some(destination)) = (&args.report, destination) {
        report.conclude(&done);
        if let Err(error) = report.write(destination) {
            output::note(&format!("the report {} could not be written: {error}", path.display()));
        }
    }
    done
}

struct Run<'a> {
    args: &'a RunArgs,
    settings: &'a Settings,
}

impl Run<'_> {
    async fn run(&self, report: &mut Report) -> Result<Exit, Failure> {
        let names = names::given(&self.args.names)?;
        *report = Report::of(&names::join(&names));
        run::check(self.args)?;
        let mut signals = Signals::passed_on()?;
        let waiting = Waiting::new(&self.args.waiting);
        let client = unless_signal(&mut signals, store::connect_patiently(self.settings, &waiting)).await?;
        report.store = Some(client.store_label().to_owned());
        let outage = waiting.outage.clone();
        let done = async {
            let here = unless_signal(&mut signals, async { Ok(Here::of(&client).await) }).await?;
            let plan = Plan::new(self.args, &client, here, &names)?;
            let waiting = if plan.joined.is_some() { waiting.no_longer() } else { waiting };
            let taken = unless_signal(&mut signals, waiting.take(&client, &plan.lock, &names)).await;
            report.waited_ms = Some(millis(waiting.began.elapsed()));
            match taken? {
                Attempt::Granted(guard) => self.hold(&plan, guard, &client, &mut signals, report).await,
                Attempt::Busy(holder) if plan.joined.is_some() => Err(self.outer_lost(&[holder.name], &client, report)),
                Attempt::Busy(holder) => {
                    report.outcome = "busy";
                    let busy = waiting.busy(&client, &holder, self.args.who.owner.as_deref());
                    Err(Failure { exit: Exit::other(self.args.busy_exit), ..busy })
                }
            }
        };
        let mut done = done.await;
        let is_brief = report.is_lost() || outage.is_away();
        store::close(&client, &mut signals, &mut done, is_brief).await;
        done
    }

    /// Runs the command under the lock, and releases it. A failed release does not change the exit code, unless it
    /// shows that the lock was lost while the command ran.
    async fn hold(
        &self,
        plan: &Plan,
        guard: GroupGuard,
        client: &Client,
        signals: &mut Signals,
        report: &mut Report,
    ) -> Result<Exit, Failure> {
        report.took(&guard);
        let since = Instant::now();
        let mut standby = None;
        let done = self.under(plan, &guard, client, signals, report, &mut standby).await;
        let done = self.give_back(guard, done, client, report, since).await;
        if let Some(standby) = standby {
            standby.finish();
        }
        done
    }

    async fn give_back(
        &self,
        guard: GroupGuard,
        done: Result<Exit, Failure>,
        client: &Client,
        report: &mut Report,
        since: Instant,
    ) -> Result<Exit, Failure> {
        report.held_ms = Some(millis(since.elapsed()));
        if report.is_lost() {
            // What is left is released as the store is closed, without waiting for a silent store.
            drop(guard);
            return done;
        }
        let released = guard.release().await;
        match (done, released) {
            (Ok(_), Err(error)) if error.kind() == ErrorKind::Lost => {
                report.lost(Why::Lost);
                let why = "the store no longer had it when the command was done";
                Err(self.lost(&names::lost_by(&error), client, why, true))
            }
            (Ok(exit), Err(error)) => {
                let until = "it is free when its lease ends, at the latest";
                output::note(&format!("the lock could not be released; {until}: {error}"));
                Ok(exit)
            }
            (done, _) => done,
        }
    }

    async fn under(
        &self,
        plan: &Plan,
        guard: &GroupGuard,
        client: &Client,
        signals: &mut Signals,
        report: &mut Report,
        standby: &mut Option<Standby>,
    ) -> Result<Exit, Failure> {
        let granted = leasehold_clock::now();
        let others = plan.joined.as_ref().map(|outer| outer.other_grants(guard)).unwrap_or_default();
        if !others.is_empty() {
            return Err(self.outer_lost(&others, client, report));
        }
        // Only once this run has certainly joined: it enters once more, to keep others out.
        let mut kept_out = Vec::new();
        for lock in plan.again(self.args, client, guard)? {
            kept_out.push(lock.try_acquire().await?);
        }
        if let Some(number) = signals.pending() {
            return Err(Failure::new(
                Exit::signal(number),
                format!("signal {number} came before the command was started"),
            ));
        }
        let job = self.job(plan, granted, guard, client)?;
        let (outcome, guardian) = run::run(job, client, guard, signals).await?;
        *standby = Some(guardian);
        self.told(&outcome, plan, guard, client, report)
    }

    fn job(&self, plan: &Plan, granted: Moment, guard: &GroupGuard, client: &Client) -> Result<Job, Failure> {
        let unready = |error| Failure::new(Exit::BUG, format!("the guardian could not be prepared: {error}"));
        let mut variables = run::variables(guard, &plan.here, &plan.around)?;
        variables.extend(run::store_variables(&self.settings.store, self.args.pass_secrets));
        let alive = leasehold_file::live_files().map_err(unready)?;
        Ok(Job {
            words: run::words(self.args),
            variables,
            lease: plan.lease,
            is_fixed: self.args.lease.is_some(),
            end: self.args.max_hold.map(|most| granted + most),
            times: plan.times,
            is_joined: plan.joined.is_some(),
            release: self.orphan_release(plan, guard, client, !alive.is_empty()),
            alive,
        })
    }

    /// Empty if the store itself notices that the holder is dead, if the hold may be another's too, or if others are to
    /// be kept out for longer.
    fn orphan_release(&self, plan: &Plan, guard: &GroupGuard, client: &Client, sees_death: bool) -> OrphanRelease {
        let is_shared = self.args.who.owner.is_some() || plan.joined.is_some();
        if sees_death || is_shared || self.args.at_least.is_some() || store::is_alone(client) {
            return OrphanRelease::default();
        }
        OrphanRelease::new(&self.settings.store, guard)
    }

    /// The exit code.
    fn told(
        &self,
        outcome: &Outcome,
        plan: &Plan,
        guard: &GroupGuard,
        client: &Client,
        report: &mut Report,
    ) -> Result<Exit, Failure> {
        match outcome {
            Outcome::NotStarted(error) => {
                report.outcome = "not_started";
                Err(self.not_started(error))
            }
            Outcome::Done(ended) => {
                report.outcome = "done";
                report.ended(*ended);
                Ok(Exit::other(ended.code()))
            }
            Outcome::CutOff(why, ended, not_ended) => {
                report.lost(*why);
                ended.iter().for_each(|ended| report.ended(*ended));
                Err(self.cut_off(*why, *not_ended, plan, guard, client))
            }
        }
    }

    fn not_started(&self, error: &io::Error) -> Failure {
        let words = run::words(self.args);
        let name = words.first().map(|name| name.display().to_string()).unwrap_or_default();
        let lock = match self.args.at_least {
            Some(_) => "The lock stays taken until --at-least is over",
            None => "Nothing is held",
        };
        match error.kind() {
            io::ErrorKind::NotFound => Failure::new(Exit::other(127), format!("{name}: command not found"))
                .with_hint(format!("give its path, or use -c for a shell command line. {lock}")),
            _ => Failure::new(Exit::other(126), format!("{name}: cannot be started: {error}"))
                .with_hint(format!("check that it is a program that you may execute. {lock}")),
        }
    }

    fn cut_off(
        &self,
        why: Why,
        not_ended: Option<NotEnded>,
        plan: &Plan,
        guard: &GroupGuard,
        client: &Client,
    ) -> Failure {
        let what = match why {
            Why::Lost => "the store no longer had it",
            Why::Broken => "an operator took it away",
            Why::NoGuardian => "the guardian was killed",
            Why::TimeEnded if self.args.lease.is_some() => "the lease ended",
            Why::TimeEnded => "it could not be renewed in time",
            Why::MaxHold => "--max-hold was over",
        };
        let then = match (why, not_ended) {
            (_, Some(NotEnded { pid, is_kept: true })) => {
                format!("process {pid} could not be ended, and the lock was kept until it ended by itself")
            }
            (_, Some(NotEnded { pid, is_kept: false })) => {
                format!("process {pid} could not be ended, and continued without the lock")
            }
            (Why::TimeEnded, None) if self.args.lease.is_none() => {
                "the command was ended before another holder could get it".into()
            }
            (Why::TimeEnded | Why::MaxHold, None) => "the command was ended with it".into(),
            (_, None) => "the command was ended".into(),
        };
        let failed = events::failed_renewals(plan.lease).map(|failed| format!("; {failed}")).unwrap_or_default();
        let overlap = matches!(why, Why::Lost | Why::NoGuardian);
        let failure = self.lost(&names::lost(guard), client, &format!("{what}, and {then}{failed}"), overlap);
        match not_ended {
            Some(_) => failure.with_hint(
                "this user could not end a process of another user: use 'sudo leasehold run NAME -- COMMAND' \
                 instead of 'leasehold run NAME -- sudo COMMAND'",
            ),
            None => failure,
        }
    }

    fn outer_lost(&self, names: &[Name], client: &Client, report: &mut Report) -> Failure {
        report.lost(Why::Lost);
        let hint = "if no run is around this one, it has the variables of one that has ended: unset LEASEHOLD_NAME";
        self.lost(names, client, "the outer run had lost it before this one could join", true).with_hint(hint)
    }

    /// `overlap`: whether another holder may have run beside the command.
    fn lost(&self, names: &[Name], client: &Client, why: &str, overlap: bool) -> Failure {
        let what = format!("lost {:?} on {}: {why}", names::join(names), client.store_label());
        let beside = if overlap { ", and another holder may have run at the same time" } else { "" };
        Failure::new(Exit::other(self.args.lost_exit), what).with_hint(format!(
            "the work may be incomplete{beside}; {} shows who has the lock now",
            names.first().map_or_else(hints::show_any, |name| hints::show(name.as_str()))
        ))
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
