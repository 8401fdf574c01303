//! The command line over several servers: exit codes, and what `doctor` finds at each and beside the others.

use std::time::{Duration, Instant};

use leasehold_faults::Failure;
use leasehold_faults::proxy::Proxy;
use leasehold_faults::servers::Redis;
use leasehold_faults::servers::redis::Settings;

use crate::harness::{Case, Checked, Held, run, until_info, url};

pub(crate) const CASES: &[Case] = &[
    ("redlock::two_of_five_may_be_gone_and_three_may_not", two_of_five_may_be_gone_and_three_may_not),
    ("redlock::wrong_servers_and_settings", wrong_servers_and_settings),
    ("redlock::a_release_that_a_majority_did_not_hear_is_none", a_release_that_a_majority_did_not_hear_is_none),
    ("redlock::a_release_goes_on_to_servers_that_are_late", a_release_goes_on_to_servers_that_are_late),
    ("redlock::what_is_left_is_on_servers_far_away_too", what_is_left_is_on_servers_far_away_too),
    ("redlock::whoever_waits_outlasts_a_quarantine", whoever_waits_outlasts_a_quarantine),
    ("redlock::a_quarantine_ends_every_command_alike", a_quarantine_ends_every_command_alike),
    ("redlock::doctor_finds_servers_fit", doctor_finds_servers_fit),
    ("redlock::doctor_sees_who_does_not_vote", doctor_sees_who_does_not_vote),
    ("redlock::doctor_sees_one_server_twice", doctor_sees_one_server_twice),
    ("redlock::doctor_sees_replicas", doctor_sees_replicas),
    ("redlock::doctor_sees_who_is_gone", doctor_sees_who_is_gone),
    ("redlock::doctor_sees_clocks_apart", doctor_sees_clocks_apart),
];

/// How long a server is waited for: longer than by default, because the machine is busy.
const LIMIT: &str = "limit=400ms";
const DOCTOR: &[&str] = &["doctor", "--json"];
const ACQUIRE: &[&str] = &["acquire", "a", "--no-wait"];

fn start(many: usize) -> Result<Vec<Redis>, Failure> {
    (0..many).map(|_| Redis::start()).collect()
}

fn over(servers: &[Redis], options: &str) -> String {
    let places: Vec<String> = servers.iter().map(|server| server.address().to_string()).collect();
    format!("redlock://{}?{LIMIT}&{options}", places.join(","))
}

fn two_of_five_may_be_gone_and_three_may_not() -> Checked {
    let mut servers = start(5)?;
    let url = over(&servers, "quarantine=0s");
    servers[0].kill()?;
    servers[3].kill()?;
    let held = Held::start(&url, &["run", "a"]);
    run(&url, ACQUIRE).is(75);
    held.ends(0);
    run(&url, ACQUIRE).is(0);
    servers[4].kill()?;
    for args in [ACQUIRE, &["run", "b", "--wait", "1s", "--", "true"]] {
        let ran = run(&url, args);
        ran.fails(69, "no quorum", "");
        for server in &servers {
            assert!(ran.err.contains(&server.address().to_string()), "{} is missing: {ran:?}", server.address());
        }
    }
    Ok(())
}

/// Two of five gave it back: for others it is as busy as before.
fn a_release_that_a_majority_did_not_hear_is_none() -> Checked {
    let servers = start(5)?;
    let held = Held::start(&over(&servers, "quarantine=0s"), &["run", "a"]);
    for server in &servers[2..] {
        server.stop()?;
    }
    let err = held.ends(0);
    assert!(err.contains("could not be released") && err.contains("no quorum"), "{err}");
    assert_eq!(err.matches("gave it back").count(), 2, "{err}");
    Ok(())
}

/// The process that releases has no background to speak of.
fn a_release_goes_on_to_servers_that_are_late() -> Checked {
    let servers = start(5)?;
    // A busy machine is late as well.
    let url = over(&servers, "quarantine=0s").replace(LIMIT, "limit=10s");
    run(&url, &["acquire", "a", "--owner", "me"]).is(0);
    for server in &servers[3..] {
        server.command(&["CLIENT", "PAUSE", "200", "ALL"])?;
    }
    run(&url, &["release", "a", "--owner", "me"]).is(0);
    for server in &servers {
        assert_eq!(server.command(&["EXISTS", "a"])?.number()?, 0, "{}", server.address());
    }
    Ok(())
}

/// It is not renewed, and the process that took it is gone: a server that does not have it by then never will.
fn what_is_left_is_on_servers_far_away_too() -> Checked {
    let servers = start(5)?;
    let far: Vec<Proxy> =
        servers[3..].iter().map(|server| Proxy::before(server.address())).collect::<Result<_, _>>()?;
    for proxy in &far {
        proxy.delay(Duration::from_millis(8));
    }
    let places = servers[..3].iter().map(Redis::address).chain(far.iter().map(Proxy::address));
    let places: Vec<String> = places.map(|address| address.to_string()).collect();
    let url = format!("redlock://{}?quarantine=0s&limit=10s", places.join(","));
    run(&url, &["acquire", "a", "--owner", "me"]).is(0);
    for server in &servers {
        assert_eq!(server.command(&["EXISTS", "a"])?.number()?, 1, "{}", server.address());
    }
    Ok(())
}

fn wrong_servers_and_settings() -> Checked {
    let servers = start(4)?;
    run(&over(&servers[..2], ""), ACQUIRE).fails(64, "three servers or more", "");
    run(&over(&servers, ""), ACQUIRE).fails(64, "even=yes", "");
    run(&over(&servers, "even=maybe"), ACQUIRE).fails(64, "even=maybe", "even=yes");
    let places = servers[0].address();
    let twice = format!("redlock://{places},{places},{}", servers[1].address());
    run(&twice, ACQUIRE).fails(64, "named twice", "");
    let three = &servers[..3];
    run(&over(three, "quarantine=2s"), &["acquire", "a", "--lease", "3s"]).fails(64, "2s", "?quarantine=");
    // Those that were never used vote when they are a quarantine old.
    run(&over(three, "quarantine=2s"), &["run", "a", "--wait", "30s", "--", "true"]).is(0);
    // A default lease is as long as it may be.
    run(&over(three, "quarantine=2s"), &["acquire", "b", "--owner", "me"]).is(0);
    run(&over(three, "quarantine=2s"), &["renew", "b", "--owner", "me"]).is(0);
    let shorter = ["acquire", "a", "--no-wait", "--lease", "2s"];
    run(&over(three, "quarantine=3s"), &shorter).fails(78, "a quarantine of 2s, not 3s", "quarantine");
    Ok(())
}

/// Longer than a command waits that gave no limit.
fn whoever_waits_outlasts_a_quarantine() -> Checked {
    for flag in ["--wait", "--patience"] {
        let servers = start(3)?;
        let began = Instant::now();
        let ran = run(&over(&servers, "quarantine=14s"), &["run", "a", "--keep", "10s", flag, "1m", "--", "true"]);
        ran.is(0);
        // They answer all the time.
        assert!(ran.err.contains("too few of its servers vote yet: enough of them do in "), "{ran:?}");
        assert!(ran.err.contains("vote now") && !ran.err.contains("answered"), "{ran:?}");
        assert!(began.elapsed() > Duration::from_secs(10), "it did not have to wait: {:?}", began.elapsed());
    }
    Ok(())
}

/// Whether they do not vote yet or do not answer, no lock is to be had: the code is that of a store without a quorum.
fn a_quarantine_ends_every_command_alike() -> Checked {
    let mut servers = start(3)?;
    let store = over(&servers, "quarantine=1h");
    run(&store, ACQUIRE).fails(69, "does not vote for another", "quarantine");
    let checks = run(&store, DOCTOR).is(69).checks();
    checks.has("take and release", "fail", "does not vote for another");
    let given_up = run(&store, &["run", "a", "--patience", "3s", "--", "true"]);
    given_up.fails(69, "gave up waiting", "quarantine");
    let of_last = given_up.err.lines().rev().find(|line| line.contains("gave up")).ok_or("it did not give up")?;
    assert!(of_last.contains("too few of its servers vote yet: enough of them do in 59m"), "{of_last}");
    // It does not report a longer wait that does not happen.
    let ended = run(&store, &["run", "a", "--", "true"]);
    assert!(ended.is(69).err.contains("the wait ends after 10s of this at its start; --wait 1h"), "{ended:?}");
    // With one that is silent, two that do not vote yet are still a majority; with two, it is an outage.
    servers[0].kill()?;
    let waits = run(&store, &["run", "a", "--patience", "3s", "--", "true"]);
    assert!(waits.is(69).err.contains("enough of them do in 59m"), "{waits:?}");
    servers[1].kill()?;
    let waits = run(&store, &["run", "a", "--patience", "3s", "--", "true"]);
    assert!(!waits.is(69).err.contains("enough of them"), "{waits:?}");
    Ok(())
}

fn doctor_finds_servers_fit() -> Checked {
    let servers = start(3)?;
    let store = over(&servers, "quarantine=1s");
    run(&store, &["run", "a", "--wait", "30s", "--", "true"]).is(0);
    let checks = run(&store, DOCTOR).is(0).checks();
    for server in &servers {
        let at = checks.at(&url(server));
        at.has("version", "ok", ".");
        at.has("mode", "ok", "standalone");
        at.has("persistence", "ok", "does not vote for 1s after a restart");
        at.has("uptime", "ok", "s");
        at.has("eviction", "ok", "no memory limit");
        at.has("replicas", "ok", "none");
        at.has("permissions", "ok", "");
        at.has("scripts", "ok", "");
        at.has("voting", "ok", "it votes");
    }
    checks.has("different servers", "ok", "3");
    checks.has("clocks", "ok", "apart");
    checks.has("opening", "ok", "redlock://");
    checks.has("take and release", "ok", "");
    checks.only_fail(&[]);
    let without = start(3)?;
    let store = over(&without, "quarantine=0s");
    run(&store, ACQUIRE).is(0);
    run(&store, DOCTOR).is(0).checks().at(&url(&without[0])).has("voting", "warn", "no quarantine");
    Ok(())
}

fn doctor_sees_who_does_not_vote() -> Checked {
    let mut servers = start(3)?;
    let store = over(&servers, "quarantine=20s");
    run(&store, &["run", "a", "--wait", "90s", "--", "true"]).is(0);
    servers[0].restart_empty()?;
    // A call to all of them leaves the record of their epoch.
    let began = Instant::now();
    while servers[0].command(&["EXISTS", "leasehold_birth"])?.number()? == 0 {
        run(&store, &["run", "a", "--wait", "30s", "--", "true"]).is(0);
        assert!(began.elapsed() < Duration::from_secs(18), "it was never asked");
    }
    let checks = run(&store, DOCTOR).is(0).checks();
    checks.at(&url(&servers[0])).has("voting", "warn", "does not vote for another");
    checks.at(&url(&servers[1])).has("voting", "ok", "it votes");
    checks.has("take and release", "ok", "");
    let other = over(&servers, "quarantine=7s");
    let checks = run(&other, DOCTOR).is(78).checks();
    checks.at(&url(&servers[1])).has("voting", "fail", "of 20s, not 7s");
    checks.has("take and release", "fail", "of 20s, not 7s");
    Ok(())
}

fn doctor_sees_one_server_twice() -> Checked {
    let servers = start(2)?;
    let (port, other) = (servers[0].address().port(), servers[1].address());
    let twice = format!("redlock://127.0.0.1:{port},localhost:{port},{other}?quarantine=0s");
    let checks = run(&twice, DOCTOR).is(78).checks();
    let found = checks.has("different servers", "fail", "one server")["found"].to_string();
    for name in [format!("127.0.0.1:{port}"), format!("localhost:{port}")] {
        assert!(found.contains(&name), "{name} is missing: {found}");
    }
    Ok(())
}

fn doctor_sees_replicas() -> Checked {
    let servers = start(4)?;
    let port = servers[0].address().port().to_string();
    servers[3].command(&["REPLICAOF", "127.0.0.1", &port])?;
    until_info(&servers[3], "replication", "master_link_status:up")?;
    let masters = run(&over(&servers[..3], "quarantine=0s"), DOCTOR).is(78).checks();
    masters.at(&url(&servers[0])).has("replicas", "fail", "1, which receive a grant only after");
    masters.only_fail(&["replicas"]);
    let replica = run(&over(&servers[1..], "quarantine=0s"), DOCTOR).is(78).checks();
    replica.at(&url(&servers[3])).has("replicas", "fail", "itself a replica");
    replica.has("take and release", "ok", "");
    Ok(())
}

fn doctor_sees_who_is_gone() -> Checked {
    let mut servers = start(3)?;
    let store = over(&servers, "quarantine=0s");
    servers[1].kill()?;
    let checks = run(&store, DOCTOR).is(0).checks();
    checks.at(&url(&servers[1])).has("reaching", "warn", "");
    checks.has("take and release", "ok", "");
    servers[2].kill()?;
    let checks = run(&store, DOCTOR).is(69).checks();
    for server in &servers[1..] {
        checks.at(&url(server)).has("reaching", "fail", "");
    }
    checks.at(&url(&servers[0])).has("version", "ok", ".");
    servers[0].kill()?;
    let checks = run(&store, DOCTOR).is(69).checks();
    for server in &servers {
        checks.has("connection", "fail", &url(server));
    }
    Ok(())
}

fn doctor_sees_clocks_apart() -> Checked {
    if Redis::clock_is_settable().is_err() {
        // Without a compiler there is no such clock; the verdict itself is tried beside its code.
        return Ok(());
    }
    let servers = [Redis::with(Settings::default().settable_clock())?, Redis::start()?, Redis::start()?];
    servers[0].set_clock(5)?;
    let checks = run(&over(&servers, "quarantine=0s"), DOCTOR).is(78).checks();
    let found = checks.has("clocks", "fail", "apart")["found"].to_string();
    assert!(found.contains(&format!("{} is ahead of", url(&servers[0]))), "{found}");
    Ok(())
}
