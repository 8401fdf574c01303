//! Notices when a store stops answering those who wait for a lock, or answers that too few of its servers vote yet, and when that is
//! over; says each once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold::port::{Acquire, Acquired, Call, Reply};
use leasehold::{Error, ErrorKind, Layer, Store};
use tokio::sync::watch;

use crate::exit::{Exit, Failure};
use crate::{human, output, store};

/// A store that answers again sooner is not worth a word.
const TELL_AFTER: Duration = Duration::from_secs(2);

/// Whether a store grants anything to those who wait for a lock.
#[derive(Clone, Debug)]
pub(crate) struct Outage(Arc<State>);

#[derive(Debug)]
struct State {
    /// None while it answers.
    away: watch::Sender<Option<Away>>,
    /// What people know, where they know that it is away.
    told: Mutex<Option<Why>>,
    /// It has answered an acquire: from then on, an outage does not end a wait without a limit.
    has_answered: AtomicBool,
}

/// Why nothing is granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    Silent,
    /// It answers, but too few of its servers vote before then.
    TooFewVote(Instant),
}

#[derive(Clone, Debug)]
struct Away {
    since: Instant,
    why: Why,
    /// What it said last.
    error: Error,
}

impl Away {
    fn new(since: Instant, error: Error) -> Self {
        let until = error.retry_after().and_then(|left| Instant::now().checked_add(left));
        Self { since, why: until.map_or(Why::Silent, Why::TooFewVote), error }
    }

    /// What to say of a store: that it does not answer, or does not vote.
    fn text(&self, store: &str) -> String {
        match self.why {
            Why::Silent => format!("{store} has not answered for {}", human::span(self.since.elapsed())),
            Why::TooFewVote(until) => {
                let left = human::span(until.saturating_duration_since(Instant::now()));
                format!("{store} answers, but too few of its servers vote yet: enough of them do in {left}")
            }
        }
    }
}

impl Away {
    /// A `--wait` that probably outlasts it, in whole minutes.
    fn long_enough(&self) -> Duration {
        let left = match self.why {
            Why::Silent => Duration::ZERO,
            Why::TooFewVote(until) => until.saturating_duration_since(Instant::now()),
        };
        Duration::from_secs((left.as_secs() / 60 + 2) * 60)
    }
}

impl Why {
    fn is_like(self, other: Self) -> bool {
        matches!((self, other), (Self::Silent, Self::Silent) | (Self::TooFewVote(_), Self::TooFewVote(_)))
    }
}

impl Outage {
    /// As far as is known, it answers.
    pub(crate) fn new() -> Self {
        Self(Arc::new(State {
            away: watch::Sender::new(None),
            told: Mutex::new(None),
            has_answered: AtomicBool::new(false),
        }))
    }

    /// Whether it does not answer now.
    pub(crate) fn is_away(&self) -> bool {
        self.0.away.borrow().is_some()
    }

    /// What it said to a call that began then.
    fn answered<T>(&self, reply: &Reply<T>, began: Instant) {
        let away = match reply {
            Err(error) if matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::NoQuorum) => Some(error.clone()),
            _ => None,
        };
        if away.is_none() {
            self.0.has_answered.store(true, Ordering::Relaxed);
        }
        self.0.away.send_if_modified(|before| match (before.as_mut(), away) {
            (None, None) => false,
            (Some(_), None) => before.take().is_some(),
            (None, Some(error)) => {
                *before = Some(Away::new(began, error));
                true
            }
            (Some(before), Some(error)) => {
                let now = Away::new(before.since, error);
                let is_other = !now.why.is_like(before.why);
                *before = now;
                is_other
            }
        });
    }

    /// Tells people of outages with `say`, until one is longer than `patience`: then it is why to give up. The wait ends by itself at `end`.
    pub(crate) async fn watch(
        &self,
        store: &str,
        patience: Option<Duration>,
        end: Option<Instant>,
        say: impl Fn(&str),
    ) -> Failure {
        let mut changes = self.0.away.subscribe();
        loop {
            let away = changes.borrow_and_update().clone();
            let Some(away) = away else {
                self.is_back(store, &say);
                // Its sender is part of this.
                let _ = changes.changed().await;
                continue;
            };
            let since = away.since;
            let is_told = self.told().is_some_and(|told| told.is_like(away.why));
            let tell = async {
                match is_told {
                    true => std::future::pending().await,
                    false => tokio::time::sleep_until((since + TELL_AFTER).into()).await,
                }
            };
            let give_up = async {
                match patience {
                    None => std::future::pending().await,
                    Some(patience) => tokio::time::sleep_until((since + patience).into()).await,
                }
            };
            tokio::select! {
                _ = changes.changed() => {}
                () = give_up => {
                    let away = self.latest(away);
                    let text = away.text(store);
                    let error = Failure::from(away.error);
                    let what = format!("gave up waiting: {text}: {}", error.message);
                    return Failure { hint: error.hint, ..Failure::new(Exit::UNREACHABLE, what) };
                }
                () = tell => {
                    let away = self.latest(away);
                    *self.0.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(away.why);
                    let then = match (patience, end) {
                        (Some(patience), end) if end.is_none_or(|end| since + patience < end) => {
                            let lasts = if away.why == Why::Silent { "it has not" } else { "that has lasted" };
                            format!("the wait ends when {lasts} for {}", human::span(patience))
                        }
                        (_, Some(end)) => {
                            let left = end.saturating_duration_since(Instant::now());
                            format!("the wait ends in {} at the latest", human::span(left))
                        }
                        _ if self.0.has_answered.load(Ordering::Relaxed) => "still waiting".to_owned(),
                        _ => format!(
                            "the wait ends after {} of this at its start; --wait {} waits longer",
                            human::span(store::PATIENCE),
                            human::span(away.long_enough()).replace(' ', "")
                        ),
                    };
                    say(&format!("{}; {then}: {}", away.text(store), away.error.message()));
                }
            }
        }
    }

    /// What it said last; `before` where it is back by now.
    fn latest(&self, before: Away) -> Away {
        self.0.away.borrow().clone().unwrap_or(before)
    }

    fn told(&self) -> Option<Why> {
        *self.0.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that it answers again, where people know that it did not; or that enough of its servers vote.
    pub(crate) fn is_back(&self, store: &str, say: &impl Fn(&str)) {
        if self.0.away.borrow().is_some() {
            return;
        }
        match self.0.told.lock().unwrap_or_else(PoisonError::into_inner).take() {
            None => {}
            Some(Why::Silent) => say(&format!("{store} answers again")),
            Some(Why::TooFewVote(_)) => say(&format!("enough servers of {store} vote now")),
        }
    }

    /// The same, for a wait that is over.
    pub(crate) fn is_over(&self, store: &str) {
        self.is_back(store, &output::note);
    }
}

impl Layer for Outage {
    fn layer(&self, inner: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(Watched { inner, outage: self.clone() })
    }

    fn hands_hints_on(&self) -> bool {
        true
    }
}

struct Watched {
    inner: Arc<dyn Store>,
    outage: Outage,
}

impl Store for Watched {
    leasehold::port::forward_store!(self => self.inner;
        label, capability, identity, clock, renew, release, watch, watch_held, unwatch, inspect, list, break_lock, close);

    fn acquire(&self, request: Acquire) -> Call<Reply<Acquired>> {
        let (call, outage) = (self.inner.acquire(request), self.outage.clone());
        Call::pending(async move {
            let began = Instant::now();
            let reply = call.await;
            outage.answered(&reply, began);
            reply
        })
    }
}
