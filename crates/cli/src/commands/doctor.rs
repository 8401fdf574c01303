//! `doctor`: checks whether the store is fit for locks.

use anstyle::{AnsiColor, Style};
use leasehold::{Check, Error, ErrorKind, Verdict};
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::exit::{Exit, Failure};
use crate::settings::Settings;
use crate::{hints, human, output, runtime, store};

/// One line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    check: &'a str,
    status: &'static str,
    found: &'a str,
    advice: Option<&'a str>,
}

pub(crate) fn run(args: &DoctorArgs, settings: &Settings) -> Result<Exit, Failure> {
    runtime::block_on(async {
        let (mut checks, unreachable) = match store::builder(settings).examine().await {
            Err(error) if error.is_retryable() => (vec![connection(&error)], Some(Exit::of(error.kind()))),
            Err(error) => return Err(examined_in_vain(error)),
            Ok(checks) => (checks, None),
        };
        for check in &mut checks {
            let advice = check.advice.take().map(|advice| hints::on_the_command_line(&advice, None));
            check.advice = advice.map(|advice| if is_of_doctor(&advice) { SEE_OTHERS.to_owned() } else { advice });
        }
        if settings.store.is_default {
            checks.insert(0, per_user());
        }
        match args.json {
            Some(form) => output::objects(&checks.iter().map(line).collect::<Vec<_>>(), form)?,
            None => checks.iter().try_for_each(|check| output::styled(&text(check)))?,
        }
        // A quorum without enough servers, or enough that vote yet. Other commands end with the same code.
        let is_without_quorum =
            |check: &Check| check.check == "reaching" || check.error.is_some_and(|kind| kind == ErrorKind::NoQuorum);
        let no_quorum = checks.iter().any(|check| check.verdict == Verdict::Fail && is_without_quorum(check));
        let unreachable = unreachable.or(no_quorum.then(|| Exit::of(ErrorKind::NoQuorum)));
        let fails = checks.iter().any(|check| check.verdict == Verdict::Fail);
        Ok(unreachable.unwrap_or(if fails { Exit::UNFIT } else { Exit::DONE }))
    })
}

/// Replaces advice to run `doctor`.
const SEE_OTHERS: &str = "see the other checks";

fn is_of_doctor(advice: &str) -> bool {
    advice.contains(&hints::doctor())
}

fn examined_in_vain(error: Error) -> Failure {
    let failure = Failure::from(error);
    match failure.hint.as_deref().is_some_and(is_of_doctor) {
        true => failure.with_hint("--store URL or LEASEHOLD_STORE names another store"),
        false => failure,
    }
}

/// An unreachable store is a finding like any other.
fn connection(error: &Error) -> Check {
    let found = match error.store() {
        Some(label) => format!("{label}: {}", error.message()),
        None => error.message().to_owned(),
    };
    let advice = error
        .hint()
        .unwrap_or("check that it is up and its URL is right; --store URL or LEASEHOLD_STORE names another store");
    Check::new("connection", Verdict::Fail, found).with_advice(advice)
}

fn per_user() -> Check {
    let advice = "to share locks between users, give all of them the same --store, such as file:/var/lib/leasehold/locks.db \
                  in a folder with group rights";
    Check::new("sharing", Verdict::Ok, "the default store, which is yours alone").with_advice(advice)
}

fn line(check: &Check) -> Line<'_> {
    Line { check: check.check, status: status(check.verdict), found: &check.found, advice: check.advice.as_deref() }
}

fn status(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Ok => "ok",
        Verdict::Warn => "warn",
        Verdict::Fail => "fail",
    }
}

fn text(check: &Check) -> String {
    let style = Style::new().fg_color(Some(match check.verdict {
        Verdict::Ok => AnsiColor::Green.into(),
        Verdict::Warn => AnsiColor::Yellow.into(),
        Verdict::Fail => AnsiColor::Red.into(),
    }));
    let advice = check.advice.as_ref().map(|advice| format!("\n      {}", human::plain(advice))).unwrap_or_default();
    format!("{style}{:<4}{style:#}  {}: {}{advice}", status(check.verdict), check.check, human::plain(&check.found))
}
