//! `schema`: the tables that a SQL store needs.

use crate::exit::{Exit, Failure};
use crate::settings::Settings;

pub(crate) fn run(settings: &Settings) -> Result<Exit, Failure> {
    let scheme = settings.store.url.as_str().split(':').next().unwrap_or_default();
    let what = format!("the store {scheme}: needs no tables of yours: there is nothing to set up");
    Err(Failure::new(Exit::UNFIT, what).with_hint("'schema' is for SQL stores, and none is built in yet"))
}
