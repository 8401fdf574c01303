//! The result of `bench`: the fields of its JSON.

use std::time::Duration;

use serde::Serialize;

use super::Plan;
use super::crowd::Shared;
use super::hold::HoldResult;
use super::tally::Times;

/// The fields are a public contract: add, do not change.
#[derive(Serialize, Debug)]
pub(crate) struct Report {
    pub(crate) workload: &'static str,
    pub(crate) store: String,
    /// One operation: acquired and released.
    pub(crate) ops: u64,
    pub(crate) seconds: f64,
    pub(crate) ops_per_s: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) max_us: f64,
    pub(crate) store_calls: u64,
    pub(crate) errors: u64,
    pub(crate) tasks: usize,
    #[serde(flatten)]
    pub(crate) more: More,
}

/// Fields of some workloads only.
#[derive(Serialize, Debug)]
#[serde(untagged)]
pub(crate) enum More {
    Nothing {},
    Crowd(Shared),
    Hold(HoldResult),
}

impl Report {
    /// With everything but the times.
    pub(crate) fn new(plan: &Plan, store: &str, store_calls: u64, errors: u64, more: More) -> Self {
        Self {
            workload: plan.label(),
            store: store.to_owned(),
            ops: 0,
            seconds: 0.0,
            ops_per_s: 0.0,
            p50_us: 0.0,
            p99_us: 0.0,
            p999_us: 0.0,
            max_us: 0.0,
            store_calls,
            errors,
            tasks: plan.tasks,
            more,
        }
    }

    /// Adds the measured times.
    pub(crate) fn with_times(mut self, times: &Times, elapsed: Duration) -> Self {
        self.ops = times.len();
        self.seconds = seconds(elapsed);
        self.ops_per_s = rounded(times.len() as f64 / elapsed.as_secs_f64().max(1e-9));
        self.p50_us = us(times, 0.5);
        self.p99_us = us(times, 0.99);
        self.p999_us = us(times, 0.999);
        self.max_us = rounded(times.max() as f64 / 1_000.0);
        self
    }
}

/// A quantile in microseconds; zero if nothing was measured.
pub(crate) fn us(times: &Times, quantile: f64) -> f64 {
    // A histogram returns the end of a bucket, which may be above its largest value.
    rounded(times.value_at_quantile(quantile).min(times.max()) as f64 / 1_000.0)
}

pub(crate) fn seconds(span: Duration) -> f64 {
    rounded(span.as_secs_f64())
}

/// Rounds to three decimals.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}
