//! Turns the errors of Redis into the store's errors: a kind, whether the call took effect, and a hint.

use std::time::Duration;

use leasehold_core::port::Inspected;
use leasehold_core::reference::RESET_FENCE;
use leasehold_core::{Error, ErrorKind, Name, Outcome};
use redis::RedisError;

use crate::legible::{ERROR_MAX, legible};

pub(crate) fn no_such_option(option: &str) -> Error {
    bad(format!("redis: has no option {option:?}")).with_hint(
        "it has layout, prefix and timeout (and db and user on a socket), and every store has keep and budget",
    )
}

pub(crate) fn no_such_layout(layout: &str) -> Error {
    bad(format!("there is no layout {layout:?}")).with_hint("use redisson or plain")
}

pub(crate) fn bad_prefix(prefix: &str) -> Error {
    bad(format!("prefix={prefix:?} cannot be used as a prefix of keys")).with_hint(
        "use at most 256 bytes, without control characters and '%'; it must not begin with 'redisson_lock_' or contain 'leasehold_'",
    )
}

pub(crate) fn reserved(name: &Name) -> Error {
    let what = "this name is reserved: keys that begin like it belong to other locks";
    Error::new(ErrorKind::BadArgument, "acquire", what).on_lock(name).with_hint("choose another name")
}

pub(crate) fn reserved_owner(during: &'static str) -> Error {
    let what = "this owner is reserved: it is 'mode', begins with 'leasehold:', or looks like a generated owner \
                ('<uuid>:<number>')";
    Error::new(ErrorKind::BadArgument, during, what).with_hint("choose another owner")
}

pub(crate) fn another_quarantine(kept: Duration, ours: Duration) -> Error {
    let spoken = humantime::format_duration;
    let what = format!("this server is used with a quarantine of {}, not {}", spoken(kept), spoken(ours));
    Error::new(ErrorKind::Unfit, "acquire", what)
        .with_hint("give every client the same `quarantine`: the server's key leasehold_birth has the one in use")
}

/// Another program's value is at the key of the server's epoch.
pub(crate) fn foreign_epoch() -> Error {
    let what = "the server's key leasehold_birth has another program's value; it was left unchanged";
    Error::new(ErrorKind::Unfit, "acquire", what)
        .with_hint("use a `prefix` for locks, or delete that key: the server then votes after a quarantine")
}

/// Another program's value, or a damaged record, is at the key of a shared owner's record.
pub(crate) fn foreign_record(key: &str) -> Error {
    let key = legible(key, KEY_MAX);
    let what = format!("the value at the key {key} is not a record of an owner's holds; it was left unchanged");
    Error::new(ErrorKind::Unfit, "acquire", what)
        .with_hint("break it with `reset_fence` to delete a damaged record; move another program's value")
}

/// The longest key that is shown.
const KEY_MAX: usize = 256;

/// No clock produced the last fence of a name.
pub(crate) fn unfit_fence(last: &str, key: &str) -> Error {
    let what = match last {
        WRONG_TYPE_OF_FENCE => return foreign_fence(key),
        "" => format!("the value at the key {} of this lock's fence is not a fence", legible(key, KEY_MAX)),
        last => format!(
            "the last fence of this lock, {}, is more than 8 days ahead of the server's clock",
            legible(last, FENCE_DIGITS)
        ),
    };
    Error::new(ErrorKind::Unfit, "acquire", what).with_hint(RESET_FENCE)
}

/// How a script reports that the value at a fence's key is not a string.
pub(crate) const WRONG_TYPE_OF_FENCE: &str = "WRONGTYPE";

/// A value that cannot be a damaged record, so no command of leasehold deletes it.
pub(crate) fn foreign_fence(key: &str) -> Error {
    let key = legible(key, KEY_MAX);
    let what = format!("the key {key} of this lock's fence has another program's value; it was left unchanged");
    Error::new(ErrorKind::Unfit, "acquire", what)
        .with_hint("move or delete that key with the server's own tools, or keep locks behind a `prefix`")
}

/// The longest number that is shown of a fence.
const FENCE_DIGITS: usize = 24;

/// Another program's value has no lease that could end.
pub(crate) fn endless(found: &Inspected) -> Error {
    let what = format!("the value at this name has no lease that could end: {}", described(found));
    Error::new(ErrorKind::Unfit, "break", what).with_hint("it was left unchanged; break it now to delete it")
}

fn described(found: &Inspected) -> String {
    found.holders.first().map(|holder| holder.owner.to_string()).unwrap_or_default()
}

pub(crate) fn bad_limit(limit: &str) -> Error {
    bad(format!("timeout={limit} is not a time limit between 10ms and 1m")).with_hint("write it like 500ms or 2s")
}

pub(crate) fn bad_database(db: &str) -> Error {
    bad(format!("db={db} is not the number of a database")).with_hint("write it like ?db=2")
}

/// The number is too large, or not a number.
pub(crate) fn no_database() -> Error {
    let what = format!("the part of the URL after the server is not the number of a database, from 0 to {}", i32::MAX);
    bad(what).with_hint("write it like redis://host:6379/2; the server's setting 'databases' says how many it has")
}

pub(crate) fn bad_port() -> Error {
    bad("the part of the URL after the host is not a port, from 1 to 65535".to_owned())
        .with_hint("write it like redis://host:6379, and an IPv6 address in brackets: redis://[::1]:6379")
}

pub(crate) fn several_servers() -> Error {
    bad("redis: names one server, but several are in its URL".to_owned()).with_hint(
        "name one of them; for a majority of independent servers write redlock://one:6379,two:6379,three:6379",
    )
}

pub(crate) fn bad_place(scheme: &str, cause: &RedisError) -> Error {
    let form = match scheme {
        "redis" => "write it like redis://[user:password@]host[:port][/database]",
        _ => "write it like redis+unix:///path/to/socket",
    };
    // Only the category: details may repeat the URL, and with it a password.
    bad(format!("this is not the URL of a Redis server ({})", cause.category())).with_hint(form)
}

fn bad(what: String) -> Error {
    Error::new(ErrorKind::BadArgument, "connect", what)
}

/// A scan that was given up.
pub(crate) fn too_many_keys(found: usize) -> Error {
    let what = format!("the server has too many keys to scan; {found} possible locks were found before the limit");
    Error::new(ErrorKind::Unfit, "list", what)
        .with_hint("list by a prefix of the names, or keep locks on a server of their own")
}

/// The process can have no more threads or files.
pub(crate) fn no_thread(cause: std::io::Error) -> Error {
    let what = format!("could not start the thread of the connection: {cause}");
    Error::new(ErrorKind::Internal, "connect", what)
        .with_source(cause)
        .with_hint("check the limits of this process: threads (ulimit -u), open files (ulimit -n), memory")
}

/// Connecting failed: only the login was sent. A server may repeat it in its answer, whole or in part, so with a
/// password no part of the server's text is shown or kept.
pub(crate) fn unconnected(cause: RedisError, has_password: bool) -> Error {
    let error = match cause.kind() {
        redis::ErrorKind::Parse | redis::ErrorKind::UnexpectedReturnType => {
            let what = format!("the peer is not a Redis server ({})", cause.category());
            let error = Error::new(ErrorKind::Unfit, "connect", what);
            error.with_hint("check host and port; servers that require TLS are not supported yet")
        }
        redis::ErrorKind::Io => of(cause),
        _ if has_password => explained(&cause, known_code(&cause).unwrap_or_default()),
        _ => of(cause),
    };
    error.during("connect").with_outcome(Outcome::NotApplied)
}

/// The code of a server's error, if it is a known one: any other word may be part of the login.
fn known_code(cause: &RedisError) -> Option<&'static str> {
    let code = cause.code()?;
    CODES.iter().map(|(known, _)| *known).find(|known| *known == code)
}

/// Connecting took too long.
pub(crate) fn connects_too_long(limit: Duration) -> Error {
    Error::new(ErrorKind::Unreachable, "connect", format!("no connection within {limit:?}"))
        .with_hint("check that the server is up, and that host and port are right")
}

/// A call failed.
pub(crate) fn of(cause: RedisError) -> Error {
    explained(&cause, &shortened(&cause)).with_source(cause)
}

/// The meaning of a failure, with as much of the server's text as may be shown.
fn explained(cause: &RedisError, words: &str) -> Error {
    let said = |kind, what: &str| match words {
        "" => Error::new(kind, "call", what),
        words => Error::new(kind, "call", format!("{what}: {words}")),
    };
    match cause.kind() {
        redis::ErrorKind::AuthenticationFailed => of_login(cause),
        redis::ErrorKind::RESP3NotSupported => of_reason(&TOO_OLD, &said),
        redis::ErrorKind::Server(_) | redis::ErrorKind::Extension => of_server(cause, &said),
        redis::ErrorKind::Io if cause.is_timeout() => {
            let what = "the server did not answer in time";
            Error::new(ErrorKind::Unreachable, "call", what).with_outcome(Outcome::Unknown)
        }
        // The answer was cut off or malformed.
        redis::ErrorKind::Parse => said(ErrorKind::Unreachable, "the connection failed in the middle of an answer")
            .with_outcome(Outcome::Unknown),
        redis::ErrorKind::Io => said(ErrorKind::Unreachable, "the connection failed").with_outcome(Outcome::Unknown),
        _ => said(ErrorKind::Internal, "unexpected answer").with_outcome(Outcome::Unknown),
    }
}

/// Whether the user may not call this command, or the server does not have it.
pub(crate) fn lacks_rights(cause: &RedisError) -> bool {
    cause.code() == Some("NOPERM") || cause.to_string().contains("unknown command")
}

/// Why a server refuses: the kind of error, the message, and the hint.
#[derive(PartialEq, Eq)]
struct Reason(ErrorKind, &'static str, &'static str);

const NO_LOGIN: Reason = Reason(
    ErrorKind::Unfit,
    "login refused: the server requires a password, and none was given",
    "a password that is not in the URL is given with ClientBuilder::password; an empty one counts as none",
);
const BAD_LOGIN: Reason = Reason(
    ErrorKind::Unfit,
    "login refused: the user or password is wrong, or the user is disabled",
    "check user and password; a password that is not in the URL is given with ClientBuilder::password",
);
const TOO_OLD: Reason = Reason(ErrorKind::Unfit, "the server is too old", "use Redis 6.2 or newer, or Valkey");
const WRONG_TYPE: Reason = Reason(
    ErrorKind::Unfit,
    "the key at this name is not a lock of this layout",
    "choose another name, or the layout that other clients use (?layout=plain or ?layout=redisson); the key was left unchanged",
);
const NO_RIGHTS: Reason =
    Reason(ErrorKind::Unfit, "this user lacks rights", "leasehold::examine says which rights are needed");
const READ_ONLY: Reason = Reason(ErrorKind::Unfit, "this server is a read-only replica", "connect to its master");
const NO_MASTER: Reason =
    Reason(ErrorKind::Unreachable, "this server is a replica that has lost its master", "connect to its master");
const FULL: Reason = Reason(
    ErrorKind::Unfit,
    "the server is out of memory",
    "raise its maxmemory, or free some; held locks stay and can be released",
);
const CANNOT_SAVE: Reason = Reason(
    ErrorKind::Unfit,
    "the server refuses to write, because it cannot save its data",
    "check the server's disk; its log says more",
);
const LOADING: Reason =
    Reason(ErrorKind::Unreachable, "the server is still loading its data", "try again when it is done");
const BUSY: Reason = Reason(
    ErrorKind::Unreachable,
    "the server is busy with a script",
    "SCRIPT KILL ends a script that has not written anything yet",
);
const NO_REPLICAS: Reason = Reason(
    ErrorKind::Unreachable,
    "the server has too few replicas to write",
    "its setting min-replicas-to-write requires more replicas than are connected",
);
const CLUSTER: Reason = Reason(
    ErrorKind::Unfit,
    "this is a node of a cluster, which redis: cannot use",
    "use a server that is not part of a cluster",
);
const PROTECTED: Reason = Reason(
    ErrorKind::Unfit,
    "the server accepts connections only from its own machine",
    "set a password, or turn its protected-mode off",
);
const TOO_MANY: Reason =
    Reason(ErrorKind::Unreachable, "the server has too many clients", "raise its maxclients, or close some");
const NO_SUCH_COMMAND: Reason = Reason(
    ErrorKind::Unfit,
    "the server lacks a command that locks need",
    "leasehold::examine says which commands are needed",
);
const NO_SUCH_DATABASE: Reason =
    Reason(ErrorKind::Unfit, "the server has no such database", "its setting 'databases' says how many it has");

/// By code.
const CODES: &[(&str, &Reason)] = &[
    ("WRONGTYPE", &WRONG_TYPE),
    ("NOAUTH", &NO_LOGIN),
    ("WRONGPASS", &BAD_LOGIN),
    ("NOPERM", &NO_RIGHTS),
    ("READONLY", &READ_ONLY),
    ("MASTERDOWN", &NO_MASTER),
    ("OOM", &FULL),
    ("MISCONF", &CANNOT_SAVE),
    ("LOADING", &LOADING),
    ("BUSY", &BUSY),
    ("UNKILLABLE", &BUSY),
    ("NOREPLICAS", &NO_REPLICAS),
    ("MOVED", &CLUSTER),
    ("ASK", &CLUSTER),
    ("CROSSSLOT", &CLUSTER),
    ("CLUSTERDOWN", &CLUSTER),
    ("TRYAGAIN", &CLUSTER),
    ("DENIED", &PROTECTED),
    ("NOPROTO", &TOO_OLD),
];

/// By words, where there is no code.
const WORDS: &[(&str, &Reason)] = &[
    // Servers of different ages, each about a command inside of a script.
    ("ACL failure in script", &NO_RIGHTS),
    ("The user executing the script can't", &NO_RIGHTS),
    ("no permissions", &NO_RIGHTS),
    ("max number of clients", &TOO_MANY),
    ("unknown command", &NO_SUCH_COMMAND),
    ("DB index is out of range", &NO_SUCH_DATABASE),
    ("invalid DB index", &NO_SUCH_DATABASE),
];

fn of_server(cause: &RedisError, said: &dyn Fn(ErrorKind, &str) -> Error) -> Error {
    let code = cause.code().and_then(reason_of);
    let text = cause.to_string();
    // Old servers put the code into the text of a script's error.
    let in_text = || text.split(|c: char| !c.is_ascii_uppercase()).find_map(reason_of);
    let by_words = || WORDS.iter().find(|(words, _)| text.contains(words)).map(|(_, reason)| *reason);
    match code.or_else(by_words).or_else(in_text) {
        // The position in a script is of no use to people.
        Some(reason) if *reason == WRONG_TYPE => of_reason(reason, &without_words),
        Some(reason) if [NO_LOGIN, BAD_LOGIN].contains(reason) => of_reason(reason, &without_words),
        Some(reason) => of_reason(reason, said),
        None => said(ErrorKind::Unfit, "the server refused").with_hint("its log may say more"),
    }
}

/// The login was refused. The server's text adds nothing.
fn of_login(cause: &RedisError) -> Error {
    let is_missing = cause.code() == Some("NOAUTH") || cause.to_string().contains("NOAUTH");
    of_reason(if is_missing { &NO_LOGIN } else { &BAD_LOGIN }, &without_words)
}

/// A key of another type is not a lock of this layout: `foreign` does not apply to it.
pub(crate) fn of_break(error: Error) -> Error {
    match error.message() == WRONG_TYPE.1 {
        true => error.with_hint(
            "it was left unchanged. If it is a lock of the other layout, break it with ?layout=plain or ?layout=redisson in \
             the URL; otherwise delete it with the server's own tools",
        ),
        false => error,
    }
}

fn without_words(kind: ErrorKind, what: &str) -> Error {
    Error::new(kind, "call", what)
}

fn reason_of(code: &str) -> Option<&'static Reason> {
    CODES.iter().find(|(known, _)| *known == code).map(|(_, reason)| *reason)
}

fn of_reason(Reason(kind, what, hint): &Reason, said: &dyn Fn(ErrorKind, &str) -> Error) -> Error {
    said(*kind, what).with_hint(hint)
}

fn shortened(cause: &RedisError) -> String {
    let mut text = cause.to_string();
    // The digest and position in a script's error are of no use to people.
    if let Some(at) = text.find(", script: ").or_else(|| text.find(" script: ")) {
        text.truncate(at);
    }
    legible(&text, ERROR_MAX)
}

/// A reply that cannot be parsed: the call may have taken effect. A Redis server that runs our scripts never sends one.
pub(crate) fn unreadable(what: &str) -> Error {
    let what = legible(what, ERROR_MAX);
    Error::new(ErrorKind::Unfit, "call", format!("cannot parse the server's answer: {what}"))
        .with_outcome(Outcome::Unknown)
        .with_hint("check that it is a Redis or Valkey server, without a proxy that changes answers")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a connection reads it.
    fn said(line: &str) -> Error {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).expect("a reply");
        of(value.extract_error().expect_err("an error"))
    }

    #[test]
    fn what_servers_say_is_understood_inside_and_outside_of_scripts() {
        let cases = [
            ("WRONGTYPE Operation against a key", &WRONG_TYPE),
            ("ERR Error running script (call to f_1): @user_script:3: WRONGTYPE Operation against a key", &WRONG_TYPE),
            ("READONLY You can't write against a read only replica. script: 12ab, on @user_script:3.", &READ_ONLY),
            ("ERR Error running script (call to f_1): @user_script:3: -READONLY You can't write", &READ_ONLY),
            ("NOPERM this user has no permissions to run the 'evalsha' command", &NO_RIGHTS),
            ("ERR The user executing the script can't run this command or subcommand script: 12ab", &NO_RIGHTS),
            ("ERR ACL failure in script: User x has no permissions to run the 'pttl' command", &NO_RIGHTS),
            ("OOM command not allowed when used memory > 'maxmemory'. script: 12ab", &FULL),
            ("ERR Error running script (call to f_1): @user_script:3: OOM command not allowed", &FULL),
            ("MISCONF Redis is configured to save RDB snapshots", &CANNOT_SAVE),
            ("NOREPLICAS Not enough good replicas to write.", &NO_REPLICAS),
            ("LOADING Redis is loading the dataset in memory", &LOADING),
            ("BUSY Redis is busy running a script.", &BUSY),
            ("MOVED 15495 127.0.0.1:7002", &CLUSTER),
            ("WRONGPASS invalid username-password pair or user is disabled.", &BAD_LOGIN),
            ("NOAUTH Authentication required.", &NO_LOGIN),
            ("DENIED Redis is running in protected mode", &PROTECTED),
            ("ERR max number of clients reached", &TOO_MANY),
            ("ERR unknown command 'EVALSHA', with args beginning with:", &NO_SUCH_COMMAND),
        ];
        for (line, Reason(kind, what, hint)) in cases {
            let error = said(line);
            assert_eq!((error.kind(), error.hint()), (*kind, Some(*hint)), "{line}: {error}");
            assert!(error.message().starts_with(what), "{line}: {error}");
            assert_eq!(error.outcome(), Outcome::NotApplied, "{line}");
            assert!(!error.message().contains("12ab"), "a digest tells people nothing: {error}");
            assert!(!error.message().contains("WRONGTYPE"), "the server's own words tell nothing more: {error}");
        }
        assert_eq!(said("ERR something else").kind(), ErrorKind::Unfit);
    }

    #[test]
    fn a_login_that_the_server_repeats_is_not_shown() {
        let lines = [
            "ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'me' 'SECRET'",
            "ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `me`, `SECR",
            "WRONGPASS HELLO 3 AUTH me SECRET",
            "NOAUTH HELLO 3 AUTH me SECRET",
            "DENIED HELLO 3 AUTH me SECRET",
            "NOPROTO HELLO 3 AUTH me SECRET",
            "MOVED SECRET",
            "ERR proxy: HELLO 3 AUTH me SECRET",
            "SECRET",
            "SECRET me",
        ];
        for line in lines {
            let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).expect("a reply");
            let error = unconnected(value.extract_error().expect_err("an error"), true);
            let all = format!("{error} {error:?} {error:#?} {}", error.hint().unwrap_or_default());
            assert!(!all.contains("SECR") && !all.contains("HELLO"), "{line}: {all}");
            assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unfit, Outcome::NotApplied), "{line}: {error}");
            assert!(error.hint().is_some(), "{line}: {error}");
        }
    }
}
