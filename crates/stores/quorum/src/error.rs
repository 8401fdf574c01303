//! Errors of a quorum as a whole. An error of one server is that store's own.

use std::io;
use std::sync::Arc;

use leasehold_core::quorum::Rules;
use leasehold_core::{Error, ErrorKind, Outcome};

fn bad(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::BadArgument, "connect", what.into())
}

pub(crate) fn too_few_servers(servers: usize) -> Error {
    let are = if servers == 1 { "is" } else { "are" };
    let what =
        format!("a quorum needs three servers or more, but only {servers} {are} given: with fewer, none may fail");
    bad(what).with_hint("name at least three, or use a single server with redis://")
}

pub(crate) fn even_servers(servers: usize) -> Error {
    let what = format!("{servers} servers tolerate no more failures than {}", servers - 1);
    bad(what).with_hint("leave one out, or set even=yes to allow it")
}

pub(crate) fn named_twice(label: &str) -> Error {
    bad(format!("{label} is named twice: its vote would count twice")).with_hint("name every server once")
}

pub(crate) fn same_server(one: &str, other: &str) -> Error {
    bad(format!("{one} and {other} are one server: its vote would count twice")).with_hint("name every server once")
}

pub(crate) fn keeper_unconnected() -> Error {
    bad("the keeper needs a connection to each server")
}

pub(crate) fn no_thread(cause: io::Error) -> Error {
    let what = format!("cannot start the thread of the quorum: {cause}");
    Error::new(ErrorKind::Internal, "connect", what)
        .with_source(cause)
        .with_hint("check the limits of this process: threads (ulimit -u), open files (ulimit -n), memory")
}

/// Too few servers answered: reports the state of each.
pub(crate) fn no_quorum(rules: &Rules, operation: &'static str, heard: &[usize], errors: &[Option<Error>]) -> Error {
    let state = |(server, label): (usize, &Arc<str>)| match &errors[server] {
        _ if heard.contains(&server) => format!("{label} answers"),
        Some(error) => format!("{label}: {}", error.message()),
        None => format!("{label} does not answer"),
    };
    let states: Vec<String> = rules.servers.iter().enumerate().map(state).collect();
    let what =
        format!("no quorum: {} of {} servers must agree; {}", rules.majority(), rules.servers(), states.join("; "));
    Error::new(ErrorKind::NoQuorum, operation, what).with_outcome(Outcome::NotApplied)
}

#[cfg(feature = "redis")]
pub(crate) use of_url::*;

/// Errors in a URL, or of all the servers that it names.
#[cfg(feature = "redis")]
mod of_url {
    use super::{Error, bad};

    pub(crate) fn none_reached<'a>(first: &Error, errors: impl Iterator<Item = (&'a str, &'a Error)>) -> Error {
        let each: Vec<String> = errors.map(|(label, error)| format!("{label}: {}", error.message())).collect();
        Error::new(first.kind(), first.operation(), format!("cannot reach any server: {}", each.join("; ")))
    }

    pub(crate) fn bad_duration(key: &str, value: &str, cause: &humantime::DurationError) -> Error {
        bad(format!("{key}={value} is not a duration ({cause})")).with_hint("write it like 250ms, 10s or 5m")
    }

    pub(crate) fn bad_even(value: &str) -> Error {
        bad(format!("even={value}: the only value is yes")).with_hint("write even=yes, or leave it out")
    }

    pub(crate) fn bad_layout(value: &str) -> Error {
        bad(format!("layout={value}: a quorum supports only layout=plain")).with_hint("leave the option out")
    }

    pub(crate) fn no_such_option(key: &str) -> Error {
        let known = "its options are prefix, timeout, quarantine, limit, even=yes, layout=plain, keep, budget";
        bad(format!("there is no option {key:?} for redlock:")).with_hint(known)
    }

    pub(crate) fn short_quarantine() -> Error {
        bad("the quarantine is too short: no lease can be longer than it")
            .with_hint("use at least 200ms, or 0s to turn it off")
    }

    pub(crate) fn bad_limit() -> Error {
        bad("limit is out of range").with_hint("use a value from 1ms to 10s")
    }

    pub(crate) fn login_with_comma() -> Error {
        bad("the login must appear once, before the first server, with %2C for a comma")
            .with_hint("write redlock://user:password@host:port,host:port,host:port")
    }

    pub(crate) fn missing_server() -> Error {
        bad("a server is missing").with_hint("write redlock://host:port,host:port,host:port")
    }
}
