//! Progress while a workload runs: a bar on a terminal, nothing elsewhere.

use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinHandle;

use super::summary::count;
use super::tally::Tally;

const TICK: Duration = Duration::from_millis(100);
const TEMPLATE: &str = "{prefix:>8} {wide_bar:.cyan/dim} {msg}";

/// Drawn as long as it lives.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    drawing: JoinHandle<()>,
}

impl Progress {
    /// Draws on standard error, where that is a terminal.
    pub(crate) fn start(workload: &'static str, span: Duration, tally: &Arc<Tally>) -> Self {
        let bar = ProgressBar::new(span.as_millis() as u64).with_prefix(workload);
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style.progress_chars("━╸─"));
        }
        let drawing = tokio::spawn(draw(bar.clone(), tally.clone()));
        Self { bar, drawing }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.drawing.abort();
        self.bar.finish_and_clear();
    }
}

async fn draw(bar: ProgressBar, tally: Arc<Tally>) {
    if bar.is_hidden() {
        return;
    }
    let began = Instant::now();
    let (mut ops, mut at) = (0, began);
    loop {
        tokio::time::sleep(TICK).await;
        let (now, done) = (Instant::now(), tally.ops());
        let rate = (done - ops) as f64 / (now - at).as_secs_f64();
        (ops, at) = (done, now);
        bar.set_position(((now - began).as_millis() as u64).min(bar.length().unwrap_or(u64::MAX)));
        bar.set_message(match tally.held() {
            0 => format!("{:>12} ops/s", count(rate as u64)),
            held => format!("{:>12} held", count(held.saturating_sub(done))),
        });
    }
}
