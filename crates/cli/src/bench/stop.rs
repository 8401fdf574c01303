//! Ends a workload: its time is over, a signal came, or it was stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::exit::{Exit, Failure};

/// Set once, seen by all tasks.
#[derive(Debug)]
pub(crate) struct Stop {
    /// For tasks that check it after every operation.
    is_set: AtomicBool,
    /// For tasks that sleep.
    stopped: watch::Sender<bool>,
    /// The signal that came; zero if none.
    signal: AtomicI32,
}

impl Stop {
    /// Is set by a signal that ends processes. Must be called in a runtime.
    pub(crate) fn on_signals() -> Result<Arc<Self>, Failure> {
        let stop = Arc::new(Self {
            is_set: AtomicBool::new(false),
            stopped: watch::Sender::new(false),
            signal: AtomicI32::new(0),
        });
        for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
            let mut signals = signal(kind).map_err(|error| Failure::new(Exit::BUG, format!("no signals: {error}")))?;
            let stop = stop.clone();
            tokio::spawn(async move {
                signals.recv().await;
                stop.signal.store(kind.as_raw_value(), Ordering::Relaxed);
                stop.set();
            });
        }
        Ok(stop)
    }

    pub(crate) fn set(&self) {
        self.is_set.store(true, Ordering::Relaxed);
        self.stopped.send_replace(true);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    /// Sets it when the time is over; returns earlier if it was set already.
    pub(crate) async fn after(&self, span: Duration) {
        // Running out of time is the usual end.
        let _ = tokio::time::timeout(span, self.wait()).await;
        self.set();
    }

    /// Waits until it is set.
    pub(crate) async fn wait(&self) {
        // The sender lives as long as this.
        let _ = self.stopped.subscribe().wait_for(|stopped| *stopped).await;
    }

    /// The exit code if a signal came.
    pub(crate) fn signalled(&self) -> Option<Exit> {
        Some(self.signal.load(Ordering::Relaxed)).filter(|signal| *signal != 0).map(Exit::signal)
    }
}
