//! What is shown on a terminal while waiting: that we wait, for whom, and how long that one has held the lock.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use leasehold::{Client, Name};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::exit::Failure;
use crate::waiting::Waiting;
use crate::{human, output, run};

/// Who gets the lock sooner sees no spinner.
const AFTER: Duration = Duration::from_secs(1);
const FRAME: Duration = Duration::from_millis(100);
/// How often the store is asked who holds it.
const LOOK: Duration = Duration::from_secs(1);

/// Shows it until the future is dropped, or until the store has been away for too long. Where standard error is no terminal it says only
/// that we may wait for ourselves, and that the store is away.
pub(crate) async fn show(client: &Client, names: &[Name], waiting: &Waiting) -> Failure {
    sleep(AFTER).await;
    if let Some(name) = run::held_around(names, client).await {
        let name = name.as_str();
        output::note(&format!(
            "waiting for {name:?}, which a run around this one took: while that has it, this waits for itself; \
             if none is around, unset LEASEHOLD_NAME"
        ));
    }
    let (label, patience, end) = (client.store_label(), waiting.patience, waiting.end());
    if !std::io::stderr().is_terminal() {
        return waiting.outage.watch(label, patience, end, output::note).await;
    }
    let bar = Cleared(ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()));
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
        bar.0.set_style(style);
    }
    let (mut frames, mut looks) = (interval(FRAME), interval(LOOK));
    frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
    looks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut away =
        std::pin::pin!(waiting.outage.watch(label, patience, end, |text| bar.0.suspend(|| output::note(text))));
    loop {
        tokio::select! {
            given_up = &mut away => return given_up,
            _ = frames.tick() => bar.0.tick(),
            _ = looks.tick() => bar.0.set_message(human::plain(&message(client, names).await)),
        }
    }
}

async fn message(client: &Client, names: &[Name]) -> String {
    for name in names {
        match client.inspect(name.as_str()).await {
            Ok(status) => {
                if let Some(holder) = status.holders.first().or(status.cooldown.as_ref()) {
                    return format!("waiting for {:?} ({})", name.as_str(), human::taken_for(holder));
                }
            }
            Err(_) => return format!("waiting for {:?}; the store does not answer", name.as_str()),
        }
    }
    format!("waiting for {:?}", names[0].as_str())
}

/// Leaves the terminal as it was.
struct Cleared(ProgressBar);

impl Drop for Cleared {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
