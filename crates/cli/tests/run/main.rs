//! `run` with real processes: what goes in and out, flags, signals, nesting, terminals.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod harness;

mod flags;
#[cfg(target_os = "linux")]
mod gate;
#[cfg(target_os = "linux")]
mod hindered_guardian;
mod lock_loss;
mod nested_runs;
#[cfg(target_os = "linux")]
mod others;
#[path = "../program/mod.rs"]
mod program;
mod signals;
#[cfg(target_os = "linux")]
mod startup;
mod streams;
#[cfg(target_os = "linux")]
mod terminal;
