//! Shown on a terminal while waiting: the lock, its holder, and how long that has held it.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use leasehold::{Client, Name};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::exit::Failure;
use crate::wait::Waiting;
use crate::{human, output, run};

/// A wait that ends sooner shows no spinner.
const AFTER: Duration = Duration::from_secs(1);
const FRAME: Duration = Duration::from_millis(100);
/// Interval between two reads of the holder.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Shows it until the future is dropped, or until the store has been unreachable for too long. If standard error is not
/// a terminal, only warns of a wait for oneself, and that the store is unreachable.
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
    let (mut frames, mut looks) = (interval(FRAME), interval(CHECK_INTERVAL));
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
