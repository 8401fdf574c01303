//! `run`: not built yet.

use crate::args::RunArgs;
use crate::exit::{Exit, Failure};
use crate::settings::Settings;

pub(crate) fn run(_args: &RunArgs, _settings: &Settings) -> Result<Exit, Failure> {
    Err(Failure::new(Exit::BUG, "'run' is not built yet"))
}
