//! `doctor` on servers that are fit, and on such as are not.

use std::time::Duration;

use leasehold_faults::proxy::Proxy;
use leasehold_faults::servers::Redis;
use leasehold_faults::servers::redis::Settings;

use crate::harness::{Case, Checked, at, keys, run, run_with, unable_to_save, url, url_of, with_replica};

pub(crate) const CASES: &[Case] = &[
    ("doctor::a_server_of_its_own_is_fit", a_server_of_its_own_is_fit),
    ("doctor::what_a_restart_loses", what_a_restart_loses),
    ("doctor::eviction", eviction),
    ("doctor::replicas", replicas),
    ("doctor::rights", rights),
    ("doctor::rights_behind_a_prefix", rights_behind_a_prefix),
    ("doctor::who_may_not_ask_is_warned", who_may_not_ask_is_warned),
    ("doctor::who_has_few_rights_is_told_which_it_lacks", who_has_few_rights),
    ("doctor::no_scripts", no_scripts),
    ("doctor::locks_without_expiry", locks_without_expiry),
    ("doctor::a_node_of_a_cluster", a_node_of_a_cluster),
    ("doctor::a_slow_connection", a_slow_connection),
    ("doctor::no_server_and_no_login", no_server_and_no_login),
];

const DOCTOR: &[&str] = &["doctor", "--json"];

fn a_server_of_its_own_is_fit() -> Checked {
    let server = Redis::start()?;
    let checks = run(&url(&server), DOCTOR).is(0).checks();
    checks.has("version", "ok", ".");
    checks.has("mode", "ok", "standalone");
    checks.has("persistence", "warn", "forgets every lock");
    checks.has("eviction", "ok", "no memory limit");
    checks.has("replicas", "ok", "none");
    checks.has("clock", "ok", "ours");
    checks.has("permissions", "ok", "");
    checks.has("scripts", "ok", "");
    checks.has("without expiry", "ok", "no lock");
    checks.has("opening", "ok", &url(&server));
    checks.has("take and release", "ok", "");
    checks.has("fences", "ok", "clock");
    checks.has("fence records", "ok", "");
    let left = keys(&server)?;
    assert!(left.is_empty(), "it left {left:?}");
    run(&url(&server), &["doctor"]).is(0);
    Ok(())
}

fn what_a_restart_loses() -> Checked {
    let server = Redis::with(Settings::default().durable())?;
    let persistence =
        |status, words| run(&url(&server), DOCTOR).is(0).checks().has("persistence", status, words).clone();
    persistence("ok", "before it is answered");
    server.command(&["CONFIG", "SET", "appendfsync", "everysec"])?;
    persistence("warn", "last seconds");
    server.command(&["CONFIG", "SET", "appendfsync", "no"])?;
    persistence("warn", "half a minute");
    server.command(&["CONFIG", "SET", "appendonly", "no"])?;
    persistence("warn", "forgets every lock");
    server.command(&["CONFIG", "SET", "save", "3600 1"])?;
    persistence("warn", "save 3600 1");
    let broken = unable_to_save()?;
    let checks = run(&url(&broken), DOCTOR).is(78).checks();
    checks.has("persistence", "fail", "failed to write snapshots");
    checks.has("take and release", "fail", "cannot save");
    Ok(())
}

fn eviction() -> Checked {
    let server = Redis::start()?;
    let set = |what, to: &str| server.command(&["CONFIG", "SET", what, to]);
    set("maxmemory-policy", "allkeys-lru")?;
    run(&url(&server), DOCTOR).is(0).checks().has("eviction", "ok", "no memory limit");
    set("maxmemory", "100mb")?;
    for policy in ["allkeys-lru", "allkeys-random", "volatile-ttl", "volatile-lfu"] {
        set("maxmemory-policy", policy)?;
        let checks = run(&url(&server), DOCTOR).is(78).checks();
        checks.has("eviction", "fail", policy);
        checks.only_fail(&["eviction"]);
    }
    set("maxmemory-policy", "noeviction")?;
    run(&url(&server), DOCTOR).is(0).checks().has("eviction", "ok", "noeviction");
    let used = server.command(&["INFO", "memory"])?;
    let used = used.text()?.lines().find_map(|line| line.strip_prefix("used_memory:")).ok_or("no line")?;
    // Room for some more, or the tried lock is refused as well.
    set("maxmemory", &(used.parse::<u64>()? + 60_000).to_string())?;
    run(&url(&server), DOCTOR).checks().has("eviction", "warn", "when it is full");
    Ok(())
}

fn replicas() -> Checked {
    let (master, replica) = with_replica()?;
    let checks = run(&url(&replica), DOCTOR).is(78).checks();
    let advice = checks.has("replicas", "fail", "itself a replica")["advice"].clone();
    assert!(advice.as_str().is_some_and(|advice| advice.contains("master")), "{advice}");
    checks.has("take and release", "fail", "read-only replica");
    run(&url(&master), DOCTOR).is(0).checks().has("replicas", "warn", "1, which receive a grant only after");
    master.command(&["CONFIG", "SET", "min-replicas-to-write", "1"])?;
    run(&url(&master), DOCTOR).is(0).checks().has("replicas", "warn", "with fewer than 1");
    Ok(())
}

fn rights() -> Checked {
    let lines = "user default on nopass ~* &* +@all\n\
                 user commands on nopass ~* &* +@all -pttl -hset -eval\n\
                 user keys on nopass ~leasehold-doctor* ~leasehold_fence* &* +@all\n\
                 user channels on nopass ~* resetchannels &leasehold_hint:* +@all\n\
                 user publishes on nopass ~* resetchannels +@all\n\
                 user looks on nopass ~* &* +@all -scan";
    let server = Redis::with(Settings::default().users(lines))?;
    let examined = |user| run(&url_of(&server, user, ""), DOCTOR);
    let checks = examined("commands").is(78).checks();
    checks.has("permissions", "fail", "commands +eval +hset +pttl");
    let checks = examined("keys").is(78).checks();
    let lacks = checks.has("permissions", "fail", "keys leasehold_heard:{")["found"].clone();
    for what in ["leasehold_lock:{", "leasehold_line:{", "redisson_lock_token:{"] {
        assert!(lacks.as_str().is_some_and(|found| found.contains(what)), "{what} is missing: {lacks}");
    }
    assert!(!lacks.to_string().contains("leasehold_fence"), "it may use that one: {lacks}");
    let checks = examined("channels").is(78).checks();
    checks.has("permissions", "fail", "channels redisson_lock__channel:{");
    examined("publishes").is(78).checks().has("permissions", "fail", "channels leasehold_hint:");
    let checks = examined("looks").is(0).checks();
    checks.has("looking", "warn", "SCAN");
    checks.has("without expiry", "warn", "not checked");
    // The other layout needs less.
    run(&url_of(&server, "channels", "?layout=plain"), DOCTOR).is(0).checks().has("permissions", "ok", "");
    // A user with the advised rights has all that is needed.
    for layout in ["redisson", "plain"] {
        let url = url_of(&server, "commands", &format!("?layout={layout}"));
        let advice = run(&url, DOCTOR).is(78).checks().has("permissions", "fail", "")["advice"].clone();
        let advised = advice.as_str().and_then(|advice| advice.split_once("ACL SETUSER … ")).ok_or("no advice")?.1;
        let mut words = vec!["ACL", "SETUSER", layout, "on", "nopass"];
        words.extend(advised.split(' '));
        server.command(&words)?;
        let url = url_of(&server, layout, &format!("?layout={layout}"));
        let checks = run(&url, DOCTOR).is(0).checks();
        checks.has("permissions", "ok", "");
        checks.has("take and release", "ok", "");
        checks.has("without expiry", "ok", "");
        // Every command works.
        run(&url, &["acquire", layout, "--owner", "me", "--lease", "1m"]).is(0);
        run(&url, &["acquire", layout, "--wait", "200ms"]).is(75);
        let listed = run(&url, &["list", "--json"]);
        assert_eq!(listed.is(0).json_lines()[0]["name"], layout, "{listed:?}");
        run(&url, &["renew", layout, "--owner", "me"]).is(0);
        run(&url, &["release", layout, "--owner", "me"]).is(0);
        run(&url, &["run", layout, "--", "true"]).is(0);
        run(&url, &["acquire", layout]).is(0);
        run(&url, &["break", layout, "--yes", "--now"]).is(0);
    }
    Ok(())
}

fn rights_behind_a_prefix() -> Checked {
    let lines = "user default off\nuser app on nopass ~app1:* resetchannels &app1:* +@all";
    let server = Redis::with(Settings::default().users(lines))?;
    for layout in ["redisson", "plain"] {
        let examined = |rest: &str| run(&url_of(&server, "app", &format!("?layout={layout}{rest}")), DOCTOR);
        let checks = examined("&prefix=app1:").is(0).checks();
        checks.has("permissions", "ok", "");
        checks.has("take and release", "ok", "");
        let all = examined("").is(78).checks();
        all.has("permissions", "fail", "channels leasehold_hint:");
        let other = examined("&prefix=app2:").is(78).checks();
        let check = other.has("permissions", "fail", "channels app2:leasehold_hint:");
        assert!(check["found"].as_str().is_some_and(|found| found.contains("keys app2:leasehold-doctor")), "{check}");
        assert!(
            check["advice"].as_str().is_some_and(|advice| advice.contains("~app2:* resetchannels &app2:* ")),
            "{check}"
        );
    }
    // Another program's lock without an expiry does not concern this prefix.
    let forever = |key| server.command(&["HSET", key, "b9a2c5a0-5f0b-4b8e-9d3c-0a1b2c3d4e5f:61", "1"]);
    forever("app2:stuck")?;
    let ours = url_of(&server, "app", "?prefix=app1:");
    run(&ours, DOCTOR).is(0).checks().has("without expiry", "ok", "no lock");
    forever("app1:stuck")?;
    run(&ours, DOCTOR).is(0).checks().has("without expiry", "warn", "1 held for ever: stuck");
    Ok(())
}

fn who_may_not_ask_is_warned() -> Checked {
    let lines = "user default on nopass ~* &* +@all\nuser managed on nopass ~* &* +@all -info -config\n\
                 user settings on nopass ~* &* +@all -config";
    let server = Redis::with(Settings::default().durable().users(lines))?;
    let checks = run(&url_of(&server, "managed", ""), DOCTOR).is(0).checks();
    for check in ["persistence", "eviction", "replicas"] {
        checks.has(check, "warn", "unknown: INFO is not allowed");
    }
    // These it learns from the greeting.
    checks.has("version", "ok", ".");
    checks.has("mode", "ok", "standalone");
    let checks = run(&url_of(&server, "settings", ""), DOCTOR).is(0).checks();
    checks.has("persistence", "warn", "how often it is synced");
    checks.has("eviction", "ok", "no memory limit");
    Ok(())
}

fn who_has_few_rights() -> Checked {
    let lines = "user default on nopass ~* &* +@all\nuser nobody on nopass\nuser timeless on nopass ~* &* +@all -time\n\
                 user fenced on nopass ~app1:* &* +@all";
    let server = Redis::with(Settings::default().users(lines))?;
    run(&url(&server), &["acquire", "job", "--owner", "me"]).is(0);
    let checks = run(&url_of(&server, "nobody", ""), DOCTOR).is(78).checks();
    checks.has("permissions", "fail", "+evalsha");
    checks.has("latency", "warn", "cannot be checked");
    let checks = run(&url_of(&server, "timeless", ""), DOCTOR).is(78).checks();
    checks.has("permissions", "fail", "commands +time");
    for layout in ["", "?layout=plain"] {
        let checks = run(&url_of(&server, "fenced", layout), DOCTOR).is(78).checks();
        checks.has("permissions", "fail", "keys ");
        checks.has("without expiry", "warn", "");
    }
    Ok(())
}

fn no_scripts() -> Checked {
    let lines = "user default on nopass ~* &* +@all -evalsha";
    let server = Redis::with(Settings::default().users(lines))?;
    let checks = run(&url(&server), DOCTOR).is(78).checks();
    checks.has("scripts", "fail", "evalsha");
    checks.has("permissions", "fail", "commands +evalsha");
    checks.has("take and release", "fail", "lacks rights");
    let told = run(&url(&server), &["doctor"]);
    assert!(told.is(78).out.contains("see the other checks") && !told.out.contains("leasehold doctor"), "{told:?}");
    Ok(())
}

fn locks_without_expiry() -> Checked {
    let server = Redis::start()?;
    // As Redisson leaves it, where its expiry was taken away; a hash that is no lock, and a lock that will end.
    server.command(&["HSET", "stuck", "b9a2c5a0-5f0b-4b8e-9d3c-0a1b2c3d4e5f:61", "1"])?;
    server.command(&["HSET", "customer:7", "name", "Ada"])?;
    run(&url(&server), &["acquire", "fine", "--lease", "1m"]).is(0);
    let checks = run(&url(&server), DOCTOR).is(0).checks();
    let found = checks.has("without expiry", "warn", "1 held for ever: stuck")["found"].clone();
    assert!(!found.to_string().contains("customer"), "{found}");
    // What it advises helps.
    run(&url(&server), &["break", "stuck", "--yes", "--now"]).is(0);
    run(&url(&server), DOCTOR).is(0).checks().has("without expiry", "ok", "no lock");
    // In the plain layout those are found that leasehold has used.
    let plain = format!("{}?layout=plain", url(&server));
    run(&plain, &["run", "job", "--", "true"]).is(0);
    run(&plain, DOCTOR).is(0).checks().has("without expiry", "ok", "no lock");
    server.command(&["SET", "job", "somebody", "NX"])?;
    run(&plain, DOCTOR).is(0).checks().has("without expiry", "warn", "1 held for ever: job");
    Ok(())
}

fn a_node_of_a_cluster() -> Checked {
    let server = Redis::with(Settings::default().option("cluster-enabled", "yes"))?;
    let checks = run(&url(&server), DOCTOR).is(78).checks();
    checks.has("mode", "fail", "cluster");
    Ok(())
}

fn a_slow_connection() -> Checked {
    let server = Redis::start()?;
    let proxy = Proxy::before(server.address())?;
    proxy.delay(Duration::from_millis(30));
    let checks = run(&at(proxy.address()), DOCTOR).is(0).checks();
    checks.has("latency", "warn", "ms per round trip");
    Ok(())
}

fn no_server_and_no_login() -> Checked {
    let mut server = Redis::with(Settings::default().password("secret"))?;
    let checks = run(&url(&server), DOCTOR).is(78).checks();
    checks.has("opening", "fail", "login refused");
    run_with(&url(&server), Some("wrong"), DOCTOR).is(78).checks().has("opening", "fail", "login refused");
    run_with(&url(&server), Some("secret"), DOCTOR).is(0).checks().has("take and release", "ok", "");
    server.kill()?;
    // What failed is said once, where the other findings are.
    let gone = run(&url(&server), DOCTOR);
    let checks = gone.is(69).checks();
    let check = checks.has("connection", "fail", &url(&server));
    assert!(!check["advice"].to_string().contains("doctor") && gone.err.is_empty(), "{gone:?}");
    checks.only_fail(&["connection"]);
    let text = run(&url(&server), &["doctor"]);
    assert!(text.is(69).out.starts_with(&format!("fail  connection: {}: ", url(&server))), "{text:?}");
    Ok(())
}
