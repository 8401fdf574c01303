//! Where a server is: databases, and sockets of the file system.

use leasehold_faults::servers::Redis;
use leasehold_faults::servers::redis::Settings;

use crate::harness::{Case, Checked, keys, run, run_with, url, url_of};

pub(crate) const CASES: &[Case] = &[
    ("places::a_socket", a_socket),
    ("places::databases_are_apart", databases_are_apart),
    ("places::layouts_are_named", layouts_are_named),
    ("places::a_few_held_names_among_many_are_found", a_few_held_names_among_many_are_found),
    ("places::a_broken_lock_is_shown_as_broken", a_broken_lock_is_shown_as_broken),
];

fn a_socket() -> Checked {
    let lines = "user default on nopass ~* &* +@all\nuser ada on >secret ~* &* +@all";
    let server = Redis::with(Settings::default().socket().users(lines))?;
    let socket = format!("redis+unix://{}", server.socket().display());
    run(&socket, &["acquire", "a", "--lease", "1m"]).is(0);
    // The same server, the same lock.
    run(&url(&server), &["acquire", "a", "--no-wait"]).is(75);
    run(&format!("{socket}?db=2"), &["acquire", "a", "--no-wait"]).is(0);
    run_with(&format!("{socket}?user=ada"), Some("secret"), &["show", "a"]).is(0);
    run_with(&format!("{socket}?user=ada"), Some("wrong"), &["show", "a"]).fails(78, "login refused", "password");
    run(&format!("{socket}?user=ada"), &["show", "a"]).fails(78, "login refused", "password");
    run(&format!("{socket}?db=two"), &["show", "a"]).fails(64, "db=two", "");
    run(&socket, &["doctor", "--json"]).is(0).checks().has("opening", "ok", &socket);
    run(&format!("{socket}.gone"), &["acquire", "a", "--no-wait"]).fails(69, "connection failed", "");
    Ok(())
}

fn databases_are_apart() -> Checked {
    let server = Redis::start()?;
    let in_three = format!("{}/3", url(&server));
    run(&in_three, &["acquire", "a", "--lease", "1m"]).is(0);
    assert_eq!(keys(&server)?, [""; 0], "it stands in the wrong database");
    run(&url(&server), &["acquire", "a", "--no-wait"]).is(0);
    run(&in_three, &["acquire", "a", "--no-wait"]).is(75);
    Ok(())
}

/// The output says where it looked.
fn layouts_are_named() -> Checked {
    let server = Redis::start()?;
    let (redisson, plain) = (url(&server), format!("{}?layout=plain", url(&server)));
    run(&plain, &["acquire", "a", "--lease", "1m"]).is(0);
    let label = |url: &str, args: &[&str]| {
        let row: serde_json::Value = serde_json::from_str(&run(url, args).is(0).out).expect("JSON");
        row["store"].as_str().map(str::to_owned)
    };
    assert_eq!(label(&plain, &["list", "--json"]).as_ref(), Some(&plain));
    assert_eq!(label(&format!("{redisson}?layout=redisson"), &["show", "b", "--json"]).as_ref(), Some(&redisson));
    let both = format!("{redisson}?prefix=app1:&layout=plain");
    assert_eq!(label(&both, &["show", "b", "--json"]), Some(format!("{redisson}?layout=plain&prefix=app1:")));
    let empty = run(&redisson, &["list"]);
    assert!(
        empty.is(0).out.is_empty() && empty.err.contains(&format!("held on {redisson} in the layout redisson")),
        "{empty:?}"
    );
    assert!(empty.err.contains("?layout=plain"), "{empty:?}");
    let empty = run(&plain, &["list", "none"]);
    assert!(empty.is(0).err.contains(&format!("begins with \"none\" is held on {plain}")), "{empty:?}");
    Ok(())
}

fn a_broken_lock_is_shown_as_broken() -> Checked {
    let server = Redis::start()?;
    for layout in ["redisson", "plain"] {
        let url = format!("{}?layout={layout}", url(&server));
        run(&url, &["acquire", layout, "--owner", "me", "--lease", "1m"]).is(0);
        let shown = || -> serde_json::Value {
            serde_json::from_str(&run(&url, &["show", layout, "--json"]).is(0).out).expect("JSON")
        };
        let fence = shown()["fence"].to_string();
        assert_eq!(shown()["broken"], false);
        run(&url, &["break", layout, "--yes"]).is(0);
        assert_eq!(shown()["broken"], true);
        assert!(run(&url, &["show", layout]).is(0).out.contains("was broken"));
        assert!(run(&url, &["list"]).is(0).out.contains(", broken"));
        let renewed = run(&url, &["renew", layout, "--owner", "me", "--fence", &fence]);
        renewed.fails(77, "was broken", "");
        assert!(!renewed.err.contains(&fence), "it is its own fence: {renewed:?}");
    }
    Ok(())
}

/// In the plain layout locks are found by their fences, most of which belong to released locks.
fn a_few_held_names_among_many_are_found() -> Checked {
    let server = Redis::with(
        Settings::default().users("user default on nopass ~* &* +@all\nuser few on nopass ~* &* +@all -exists"),
    )?;
    let given_back = "for at = 1, 5000 do redis.call('SET', ARGV[1] .. 'leasehold_fence:{' .. ARGV[1] .. at .. '}', at, 'EX', 600) end";
    for prefix in ["", "app1:"] {
        server.command(&["EVAL", given_back, "0", prefix])?;
        let store = |user: &str| url_of(&server, user, &format!("?layout=plain&prefix={prefix}"));
        // What looks like a pattern, or has a hash tag of its own.
        let held = ["*", "2500", "[a]", "a{b", "{a}", "}"];
        for name in held {
            run(&store("default"), &["acquire", name, "--lease", "1m"]).is(0);
        }
        server.command(&["HSET", &format!("{prefix}17"), "no", "lock"])?;
        let names = |user: &str, beginning: &str| -> Vec<String> {
            let listed = run(&store(user), &["list", beginning, "--json"]);
            let row = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["name"].clone();
            listed.is(0).out.lines().map(|line| row(line).as_str().expect("text").to_owned()).collect()
        };
        for user in ["default", "few"] {
            assert_eq!(names(user, ""), held, "{user} behind {prefix:?}");
            assert_eq!(names(user, "{"), ["{a}"]);
            assert_eq!(names(user, "["), ["[a]"]);
        }
    }
    Ok(())
}
