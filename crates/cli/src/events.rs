//! Prints a client's events on standard error: with `-v` the notable ones, with `-vv` every step, and always failed
//! renewals.
//!
//! Events arrive on the keeper's thread, which must never wait for a reader. A separate thread prints, and lines that
//! do not fit its queue are dropped.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use leasehold::{Event, How, Loss, Name};

use crate::output::row::rfc3339;
use crate::{human, output};

/// Maximum number of lines that wait to be printed.
const LINES_MAX: usize = 1_000;
/// How long a process that ends waits for its last lines.
const FLUSH_MAX: Duration = Duration::from_millis(500);
/// Maximum number of failed renewals that are remembered.
const FAILURES_MAX: usize = 3;

/// A listener for the events of a client, as many as `verbose` asks for.
pub(crate) fn listener(verbose: u8) -> impl Fn(&Event<'_>) + Send + Sync + 'static {
    move |event| {
        let warning = State::lock().hear(event);
        if verbose > u8::from(!is_notable(event)) {
            print(stamped(&sentence(event)));
        } else if let Some(warning) = warning {
            print(format!("warning: {warning}"));
        }
    }
}

/// A note with the time of the day, for `-v`.
pub(crate) fn note(text: &str) {
    print(stamped(text));
}

/// The last failed renewals within `span`, for people: when, and why.
pub(crate) fn failed_renewals(span: Duration) -> Option<String> {
    let state = State::lock();
    let since = SystemTime::now().checked_sub(span)?;
    let recent: Vec<&(SystemTime, String)> = state.failures.iter().filter(|(at, _)| *at >= since).collect();
    let each: Vec<String> = recent.chunk_by(|(_, one), (_, next)| one == next).map(failed_alike).collect();
    (!each.is_empty()).then(|| each.join("; "))
}

/// Consecutive failures with the same reason.
fn failed_alike(failures: &[&(SystemTime, String)]) -> String {
    let (at, why) = failures[0];
    let at = rfc3339(*at).unwrap_or_default();
    match failures.len() {
        1 => format!("a renewal failed at {at}: {why}"),
        count => format!("{count} renewals failed since {at}: {why}"),
    }
}

/// Waits until everything is printed, but not for a reader that does not read.
pub(crate) fn flush() {
    let (done, printed) = channel();
    if PRINTER.try_send(Line::Flush(done)).is_ok() {
        let _ = printed.recv_timeout(FLUSH_MAX);
    }
}

enum Line {
    Text(String),
    Flush(Sender<()>),
}

static PRINTER: LazyLock<SyncSender<Line>> = LazyLock::new(|| {
    let (sender, lines) = sync_channel(LINES_MAX);
    // Without a thread nothing is printed, and nothing else changes.
    let _ = std::thread::Builder::new().name("events".into()).spawn(move || print_all(&lines));
    sender
});

fn print_all(lines: &Receiver<Line>) {
    for line in lines {
        match line {
            Line::Text(text) => output::note(&text),
            Line::Flush(done) => drop(done.send(())),
        }
    }
}

fn print(text: String) {
    let _ = PRINTER.try_send(Line::Text(text));
}

fn stamped(text: &str) -> String {
    format!("{} {text}", rfc3339(SystemTime::now()).unwrap_or_default())
}

/// What is remembered of renewals.
#[derive(Default)]
struct State {
    /// A failure was reported.
    is_told: bool,
    failures: VecDeque<(SystemTime, String)>,
}

impl State {
    fn lock() -> MutexGuard<'static, Self> {
        static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);
        STATE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an event. Returns what must be printed at any verbosity.
    fn hear(&mut self, event: &Event<'_>) -> Option<String> {
        match event {
            Event::RenewalFailed { error, .. } => self.failed(error.message().to_owned()),
            Event::RenewalLate { .. } => self.failed("no answer yet".to_owned()),
            Event::Renewed { answered: true, .. } if self.is_told => {
                self.is_told = false;
                return Some("the lock is renewed again".to_owned());
            }
            _ => return None,
        }
        let is_first = !std::mem::replace(&mut self.is_told, true);
        is_first.then(|| sentence(event))
    }

    fn failed(&mut self, why: String) {
        self.failures.push_back((SystemTime::now(), why));
        if self.failures.len() > FAILURES_MAX {
            self.failures.pop_front();
        }
    }
}

/// Whether it is printed with the first `-v`.
fn is_notable(event: &Event<'_>) -> bool {
    !matches!(event, Event::Asked { .. } | Event::Renewed { answered: true, .. })
}

fn sentence(event: &Event<'_>) -> String {
    match event {
        Event::Asked { names } => {
            let names: Vec<String> = names.iter().map(quoted).collect();
            format!("asks the store for {}", names.join(", "))
        }
        Event::Waits { name } => format!("waits for {}, which is not free", quoted(name)),
        Event::Granted { name, fence, how, waited, .. } => {
            let how = match how {
                How::HandedOff => ", from another task of this process",
                How::Reentered => ", which its owner held already",
                _ => "",
            };
            format!("acquired {} with fence {fence}{how}, after {}", quoted(name), human::span(*waited))
        }
        Event::Busy { name, waited, holder } => {
            format!("did not get {} in {}: it is {}", quoted(name), human::span(*waited), human::taken(holder))
        }
        Event::Cancelled { name, waited, .. } => {
            format!("no longer waits for {}, after {}", quoted(name), human::span(*waited))
        }
        Event::Failed { name, waited, error } => {
            format!("could not get {} in {}: {}", quoted(name), human::span(*waited), error.message())
        }
        Event::Renewed { leases, took, answered: true } => match leases {
            1 => format!("renewed a lease in {}", human::span(*took)),
            _ => format!("renewed {leases} leases in {}", human::span(*took)),
        },
        Event::Renewed { took, .. } => format!("a renewal was not answered in {}", human::span(*took)),
        Event::RenewalFailed { name, error, left, .. } => {
            let (name, left) = (quoted(name), human::span(*left));
            format!("{name} could not be renewed, and is lost in {left} unless it is: {}", error.message())
        }
        Event::RenewalLate { name, left } => {
            let (name, left) = (quoted(name), human::span(*left));
            format!("{name} has not been renewed yet, and is lost in {left} unless it is: the store has not answered")
        }
        Event::Lost { name, loss, report, .. } => {
            let why = match loss {
                Loss::Gone => "the store no longer had it",
                Loss::Broken => "an operator took it away",
                Loss::Closed => "the client was closed",
                _ => "its time ended",
            };
            format!("lost {}, held for {}: {why}", quoted(name), human::span(report.held))
        }
        Event::Released { name, ok, held, .. } => {
            let lost = if *ok { "" } else { ", but it was lost before" };
            format!("released {} after {}{lost}", quoted(name), human::span(*held))
        }
        Event::Detached { name, held, .. } => {
            format!("left {} to its owner after {}", quoted(name), human::span(*held))
        }
        other => other.kind().replace('_', " "),
    }
}

fn quoted(name: &Name) -> String {
    format!("{:?}", name.as_str())
}

#[cfg(test)]
mod tests {
    use leasehold::{Error, ErrorKind};

    use super::*;

    #[test]
    fn renewals_that_fail_are_told_once_and_so_is_that_they_succeed() {
        let name = Name::new("a").unwrap();
        let error = Error::new(ErrorKind::Unreachable, "renew", "nobody answers");
        let left = Duration::from_secs(9);
        let failed = Event::RenewalFailed { name: &name, error: &error, took: left, left };
        let late = Event::RenewalLate { name: &name, left };
        let renewed = Event::Renewed { leases: 1, took: left, answered: true };
        let mut state = State::default();
        assert_eq!(state.hear(&renewed), None);
        let told = state.hear(&failed).unwrap();
        assert_eq!(told, "\"a\" could not be renewed, and is lost in 9s unless it is: nobody answers");
        assert_eq!((state.hear(&failed), state.hear(&late), state.hear(&failed)), (None, None, None));
        assert_eq!(state.failures.len(), FAILURES_MAX);
        assert_eq!(state.hear(&renewed).as_deref(), Some("the lock is renewed again"));
        assert!(state.hear(&renewed).is_none() && state.hear(&late).is_some());
    }
}
