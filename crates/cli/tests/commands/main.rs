//! Every flag, exit code and JSON field of the commands that look after locks, as their users meet them: in processes of their own.
#![allow(clippy::unwrap_used, reason = "these are tests, helpers and all")]

mod acquire;
mod bad_input;
mod r#break;
mod doctor;
mod harness;
mod hints;
mod hold;
mod hostile;
mod json;
mod list_and_show;
mod output;
mod owners;
#[path = "../program/mod.rs"]
mod program;
mod terminal;
mod wait_flags;
