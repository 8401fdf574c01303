//! A `run` inside a `run`, on a server that wants a password.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use leasehold_faults::servers::Redis;
use leasehold_faults::servers::redis::Settings;

use crate::harness::{Case, Checked, Ran, keys, run, run_with, url, url_of};

pub(crate) const CASES: &[Case] = &[
    ("nested_logins::where_holds_are_not_counted_it_is_refused", where_holds_are_not_counted_it_is_refused),
    ("nested_logins::one_inside_logs_in_by_the_password_file", one_inside_logs_in_by_the_password_file),
    ("nested_logins::behind_another_prefix_it_is_another_lock", behind_another_prefix_it_is_another_lock),
    ("nested_logins::in_another_layout_it_is_another_lock", in_another_layout_it_is_another_lock),
    ("nested_logins::a_server_is_one_by_whichever_address", a_server_is_one_by_whichever_address),
];

const LEASEHOLD: &str = crate::program::PATH;

/// A `run` of a name around another that says its fence; and what stands at `LEASEHOLD_STORE`.
fn nested(url: &str, password: Option<&str>, inside: &str) -> Ran {
    let line = format!(r#"echo $LEASEHOLD_FENCE; {LEASEHOLD} {inside} -c 'echo $LEASEHOLD_FENCE'; echo $?"#);
    run_with(url, password, &["run", "a", "-c", &line])
}

/// Where a store does not count the holds of an owner, the inner one would wait for the outer one.
fn is_refused(url: &str) {
    for inside in ["run a", "run a --no-wait", "run b -- LEASEHOLD run a", "run a --owner $LEASEHOLD_OWNER"] {
        let ran = nested(url, None, &inside.replace("LEASEHOLD run", &format!("{LEASEHOLD} run")));
        assert!(ran.is(0).out.ends_with("\n64\n"), "{inside}: {ran:?}");
        ran.fails(0, "\"a\" is held by an outer run", "leave the lock out here");
    }
    // Its own owner would be waited for as well, where the outer one has some of the names.
    let some = nested(url, None, "run a,b --owner $LEASEHOLD_OWNER --no-wait");
    assert!(some.is(0).out.ends_with("\n64\n"), "{some:?}");
    let other = nested(url, None, "run b --no-wait");
    assert!(other.is(0).out.ends_with("\n0\n") && other.err.is_empty(), "{other:?}");
}

/// A run with the holder's owner learns why the lock is busy.
fn an_owner_does_not_re_enter(url: &str) {
    run(url, &["acquire", "o", "--owner", "me"]).is(0);
    for again in [&["acquire", "o", "--no-wait", "--owner"][..], &["run", "o", "--no-wait", "-c", "true", "--owner"]] {
        run(url, &[again, &["me"]].concat()).fails(75, "held by \"me\"", "does not count holds");
        run(url, &[again, &["you"]].concat()).fails(75, "held by \"me\"", "drop --no-wait");
    }
    run(url, &["release", "o", "--owner", "me"]).is(0);
}

fn where_holds_are_not_counted_it_is_refused() -> Checked {
    let server = Redis::start()?;
    is_refused(&format!("{}?layout=plain", url(&server)));
    an_owner_does_not_re_enter(&format!("{}?layout=plain", url(&server)));
    let servers = [server, Redis::start()?, Redis::start()?];
    let places = servers.each_ref().map(|server| server.address().to_string());
    is_refused(&format!("redlock://{}?quarantine=0s", places.join(",")));
    Ok(())
}

fn one_inside_logs_in_by_the_password_file() -> Checked {
    let server = Redis::with(Settings::default().password("secret"))?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("password");
    std::fs::write(&file, "secret\n")?;
    std::fs::set_permissions(&file, Permissions::from_mode(0o600))?;
    let by_file = |inside: &str| {
        let line = format!(r#"echo $LEASEHOLD_FENCE; {LEASEHOLD} {inside} -c 'echo $LEASEHOLD_FENCE'; echo $?"#);
        let file = file.to_str().expect("UTF-8");
        run(&url(&server), &["--password-file", file, "run", "a", "-c", &line])
    };
    let joined = |ran: &Ran| {
        let lines: Vec<&str> = ran.is(0).out.lines().collect();
        assert!(lines.len() == 3 && lines[2] == "0" && !ran.err.contains("secret"), "{ran:?}");
        lines[0] == lines[1]
    };
    assert!(joined(&by_file("run a --no-wait")));
    assert!(joined(&by_file("--store $LEASEHOLD_STORE run a --no-wait")));
    assert!(!joined(&by_file("run b --no-wait")), "another name is another lock");
    // Otherwise it gets no password, unless that is wanted.
    for (url, password) in [(url(&server), Some("secret")), (url_of(&server, ":secret", ""), None)] {
        let untold = nested(&url, password, "run a --no-wait");
        assert!(untold.is(0).out.ends_with("\n78\n") && !untold.err.contains("secret"), "{untold:?}");
        let line = format!(r#"echo $LEASEHOLD_FENCE; {LEASEHOLD} run a -c 'echo $LEASEHOLD_FENCE'; echo $?"#);
        assert!(joined(&run_with(&url, password, &["run", "a", "--pass-secrets", "-c", &line])));
    }
    assert!(keys(&server)?.iter().all(|key| key.starts_with("leasehold_fence:")), "something is left");
    Ok(())
}

fn behind_another_prefix_it_is_another_lock() -> Checked {
    let server = Redis::start()?;
    let (one, other) = (format!("{}?prefix=app1:", url(&server)), format!("{}?prefix=app2:", url(&server)));
    let apart = nested(&one, None, &format!("--store '{other}' run a --no-wait"));
    let lines: Vec<&str> = apart.is(0).out.lines().collect();
    assert!(lines.len() == 3 && lines[0] != lines[1] && lines[2] == "0", "it joined: {apart:?}");
    let joined = nested(&one, None, "run a --no-wait");
    let lines: Vec<&str> = joined.is(0).out.lines().collect();
    assert!(lines.len() == 3 && lines[0] == lines[1] && lines[2] == "0", "it did not join: {joined:?}");
    Ok(())
}

/// The default may be written out or left out.
fn in_another_layout_it_is_another_lock() -> Checked {
    let server = Redis::start()?;
    let default = url(&server);
    let written = nested(&default, None, &format!("--store '{default}?layout=redisson' run a --no-wait"));
    let lines: Vec<&str> = written.is(0).out.lines().collect();
    assert!(lines.len() == 3 && lines[0] == lines[1] && lines[2] == "0", "it did not join: {written:?}");
    // What stands at the name is a lock of the other layout: it is neither joined nor waited for.
    let other = nested(&default, None, &format!("--store '{default}?layout=plain' run a,b --no-wait"));
    assert!(other.is(0).out.ends_with("\n78\n"), "{other:?}");
    let apart = nested(&default, None, &format!("--store '{default}?layout=plain' run b --no-wait"));
    assert!(apart.is(0).out.ends_with("\n0\n"), "{apart:?}");
    Ok(())
}

/// Otherwise the inner one would wait for itself.
fn a_server_is_one_by_whichever_address() -> Checked {
    let server = Redis::with(Settings::default().socket())?;
    let socket = format!("redis+unix://{}", server.socket().display());
    for (outer, inner) in [
        (url(&server), format!("redis://localhost:{}", server.address().port())),
        (url(&server), socket.clone()),
        (socket, url(&server)),
    ] {
        let joined = nested(&outer, None, &format!("--store '{inner}' run a --no-wait"));
        let lines: Vec<&str> = joined.is(0).out.lines().collect();
        assert!(lines.len() == 3 && lines[0] == lines[1] && lines[2] == "0", "it did not join: {joined:?}");
        let across = nested(&outer, None, &format!("--store '{inner}' run a,b"));
        assert!(across.is(0).out.ends_with("\n64\n"), "{across:?}");
        let uncounted =
            nested(&format!("{outer}?layout=plain"), None, &format!("--store '{inner}?layout=plain' run a"));
        assert!(uncounted.is(0).out.ends_with("\n64\n"), "{uncounted:?}");
    }
    let second = Redis::start()?;
    let other = nested(&url(&server), None, &format!("--store '{}' run a --no-wait", url(&second)));
    let lines: Vec<&str> = other.is(0).out.lines().collect();
    assert!(lines.len() == 3 && lines[0] != lines[1] && lines[2] == "0", "another server was joined: {other:?}");
    Ok(())
}
