//! `schema`: the tables that a SQL store needs.

use crate::exit::{Exit, Failure};
use crate::settings::Settings;

pub(crate) fn run(settings: &Settings) -> Result<Exit, Failure> {
    leasehold::without_password(settings.store.url.as_str())?;
    // Only the scheme: the rest may hold a password.
    let what = match settings.store.url.as_str().split_once(':') {
        Some((scheme, _)) => format!("the store {scheme}: needs no tables: there is nothing to set up"),
        None => return Err(Failure::usage("the store has no scheme").with_hint("write it like file:/path/to/locks.db")),
    };
    Err(Failure::new(Exit::UNFIT, what).with_hint("'schema' is for SQL stores, and none is built in yet"))
}
