//! From what Redis says to the kinds of error there are, whether it took effect, and what to do.

use std::time::Duration;

use leasehold_core::{Error, ErrorKind, Outcome};
use redis::{RedisError, ServerErrorKind};

pub(crate) fn no_such_option(option: &str) -> Error {
    bad(format!(
        "redis: has no option {option:?}; it has layout and timeout (and db and user on a socket), and every store has keep and budget"
    ))
}

pub(crate) fn no_such_layout(layout: &str) -> Error {
    bad(format!("there is no layout {layout:?}; known are redisson and plain"))
}

pub(crate) fn bad_limit(limit: &str) -> Error {
    bad(format!("timeout={limit} is not a time limit between 10ms and 1m; write it like 500ms or 2s"))
}

pub(crate) fn bad_database(db: &str) -> Error {
    bad(format!("db={db} is not the number of a database"))
}

pub(crate) fn bad_place(scheme: &str, cause: &RedisError) -> Error {
    let form = match scheme {
        "redis" => "redis://[user:password@]host[:port][/database]",
        _ => "redis+unix:///path/to/socket",
    };
    // Only the category: details may repeat the URL, and with it a password.
    bad(format!("this is not the URL of a Redis server ({}); write it like {form}", cause.category()))
}

fn bad(what: String) -> Error {
    Error::new(ErrorKind::BadArgument, "connect", what)
}

/// Connecting failed: nothing was sent.
pub(crate) fn unconnected(cause: RedisError) -> Error {
    of(cause).with_outcome(Outcome::NotApplied)
}

/// Connecting took too long.
pub(crate) fn connects_too_long(limit: Duration) -> Error {
    Error::new(ErrorKind::Unreachable, "connect", format!("the server did not let us in within {limit:?}"))
        .with_hint("is it up, and is it the right host and port?")
}

/// A call failed.
pub(crate) fn of(cause: RedisError) -> Error {
    let said = |kind, what: &str| Error::new(kind, "call", format!("{what}: {}", shortened(&cause)));
    let error = match cause.kind() {
        redis::ErrorKind::AuthenticationFailed => {
            said(ErrorKind::Unfit, "the server does not let us in").with_hint("check user and password")
        }
        redis::ErrorKind::RESP3NotSupported => {
            said(ErrorKind::Unfit, "the server is too old").with_hint("Redis 6.2 or newer is needed, or Valkey")
        }
        redis::ErrorKind::Server(kind) => of_server(kind, &said),
        redis::ErrorKind::Extension => of_code(&cause, &said),
        redis::ErrorKind::Io if cause.is_timeout() => {
            let what = "the server did not answer in time";
            Error::new(ErrorKind::Unreachable, "call", what).with_outcome(Outcome::Unknown)
        }
        redis::ErrorKind::Io => said(ErrorKind::Unreachable, "the connection failed").with_outcome(Outcome::Unknown),
        _ => said(ErrorKind::Internal, "an answer that was not expected").with_outcome(Outcome::Unknown),
    };
    error.with_source(cause)
}

fn of_server(kind: ServerErrorKind, said: &dyn Fn(ErrorKind, &str) -> Error) -> Error {
    match kind {
        ServerErrorKind::BusyLoading => said(ErrorKind::Unreachable, "the server is still loading its data"),
        ServerErrorKind::ReadOnly => {
            said(ErrorKind::Unfit, "this server is a read-only replica").with_hint("connect to its master")
        }
        ServerErrorKind::NoPerm => said(ErrorKind::Unfit, "this user lacks rights")
            .with_hint("'leasehold doctor' says which rights are needed"),
        ServerErrorKind::MasterDown | ServerErrorKind::ClusterDown | ServerErrorKind::TryAgain => {
            said(ErrorKind::Unreachable, "the server cannot serve at the moment")
        }
        ServerErrorKind::Moved | ServerErrorKind::Ask | ServerErrorKind::CrossSlot => {
            said(ErrorKind::Unfit, "this is a node of a cluster, which redis: cannot use")
        }
        _ => of_text(said),
    }
}

fn of_code(cause: &RedisError, said: &dyn Fn(ErrorKind, &str) -> Error) -> Error {
    match cause.code() {
        Some("WRONGTYPE") => wrong_type(said),
        Some("NOAUTH" | "WRONGPASS") => {
            said(ErrorKind::Unfit, "the server does not let us in").with_hint("check user and password")
        }
        Some("OOM") => out_of_memory(said),
        Some("BUSY") => said(ErrorKind::Unreachable, "the server is busy with somebody's script"),
        Some("MISCONF") => said(ErrorKind::Unfit, "the server refuses to write, because it cannot save its data")
            .with_hint("see to the server's disk"),
        Some("NOREPLICAS") => said(ErrorKind::Unreachable, "the server has too few replicas to write"),
        _ => of_text(said),
    }
}

/// Old servers put the code into the text of a script's error.
fn of_text(said: &dyn Fn(ErrorKind, &str) -> Error) -> Error {
    let error = said(ErrorKind::Unfit, "the server refused");
    let has = |word| error.message().contains(word);
    if has("WRONGTYPE") {
        wrong_type(said)
    } else if has("OOM ") {
        out_of_memory(said)
    } else if has("NOPERM") || has("ACL") || has("permission") {
        said(ErrorKind::Unfit, "this user lacks rights").with_hint("'leasehold doctor' says which rights are needed")
    } else if has("READONLY") {
        said(ErrorKind::Unfit, "this server is a read-only replica").with_hint("connect to its master")
    } else {
        error
    }
}

fn wrong_type(said: &dyn Fn(ErrorKind, &str) -> Error) -> Error {
    said(ErrorKind::Unfit, "a key that is no lock of this layout stands at the name").with_hint(
        "choose another name, or ?layout=plain or ?layout=redisson as the others do; the key was left as it is",
    )
}

fn out_of_memory(said: &dyn Fn(ErrorKind, &str) -> Error) -> Error {
    said(ErrorKind::Unfit, "the server is out of memory").with_hint("give it more, or free some")
}

fn shortened(cause: &RedisError) -> String {
    let mut text = cause.to_string();
    // What a script's error says of itself is of no use to people.
    if let Some(at) = text.find(", script: ").or_else(|| text.find(" script: ")) {
        text.truncate(at);
    }
    text
}

/// An answer that cannot be read: it did happen, but not as far as is known.
pub(crate) fn unreadable(what: &str) -> Error {
    Error::new(ErrorKind::Internal, "call", format!("the server's answer cannot be read: {what}"))
        .with_outcome(Outcome::Unknown)
}
