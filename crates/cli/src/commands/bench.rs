//! `bench`: not built yet.

use crate::args::BenchArgs;
use crate::exit::{Exit, Failure};
use crate::settings::Settings;

pub(crate) fn run(_args: &BenchArgs, _settings: &Settings) -> Result<Exit, Failure> {
    Err(Failure::new(Exit::BUG, "'bench' is not built yet"))
}
