//! Servers that cannot be used, and keys that are not locks: each has its own message, hint and exit code, and nothing
//! is overwritten.

use std::io::{Read, Write};
use std::net::TcpListener;

use leasehold_faults::servers::Redis;
use leasehold_faults::servers::redis::Settings;
use leasehold_faults::servers::resp::Reply;

use crate::harness::{Case, Checked, Held, at, keys, run, run_with, unable_to_save, url, url_of, with_replica};

pub(crate) const CASES: &[Case] = &[
    ("bad_input::a_wrong_password", a_wrong_password),
    ("bad_input::no_rights_for_scripts", no_rights_for_scripts),
    ("bad_input::a_read_only_replica", a_read_only_replica),
    ("bad_input::out_of_memory", out_of_memory),
    ("bad_input::a_wrong_type_at_the_name", a_wrong_type_at_the_name),
    ("bad_input::a_wrong_type_beside_the_name", a_wrong_type_beside_the_name),
    ("bad_input::still_loading", still_loading),
    ("bad_input::no_such_layout_or_option", no_such_layout_or_option),
    ("bad_input::too_few_replicas", too_few_replicas),
    ("bad_input::it_cannot_save", it_cannot_save),
    ("bad_input::a_node_of_a_cluster", a_node_of_a_cluster),
    ("bad_input::no_such_database", no_such_database),
    ("bad_input::no_redis_at_all", no_redis_at_all),
];

const ACQUIRE: &[&str] = &["acquire", "a", "--no-wait"];

fn a_wrong_password() -> Checked {
    let lines = "user default off\nuser ada on >secret ~* &* +@all";
    let server = Redis::with(Settings::default().users(lines))?;
    let ada = url_of(&server, "ada", "");
    for (url, password) in [
        (url(&server), None),
        (url_of(&server, "ada:wrong", ""), None),
        (ada.clone(), None),
        (ada.clone(), Some("wrong")),
        (url_of(&server, "bob:secret", ""), None),
        // What stands in the URL counts.
        (url_of(&server, "ada:wrong", ""), Some("secret")),
    ] {
        let ran = run_with(&url, password, ACQUIRE);
        ran.fails(78, "login refused", "password");
        assert!(!ran.err.contains("secret") && !ran.err.contains(":wrong"), "{ran:?}");
        // In words of ours.
        assert!(!["NOAUTH", "WRONGPASS", "HELLO", "AUTH"].iter().any(|word| ran.err.contains(word)), "{ran:?}");
    }
    // An empty one counts as none.
    for password in [None, Some("")] {
        run_with(&url(&server), password, ACQUIRE).fails(
            78,
            "requires a password, and none was given",
            "counts as none",
        );
    }
    run_with(&ada, Some("wrong"), ACQUIRE).fails(78, "user or password is wrong", "check user and password");
    run(&url_of(&server, "ada:secret", ""), ACQUIRE).is(0);
    run_with(&ada, Some("secret"), &["show", "a"]).is(0);
    run_with(&ada, Some("secret"), &["run", "b", "--", "true"]).is(0);
    // A server that wants none does not mind.
    run_with(&url(&Redis::start()?), Some("secret"), ACQUIRE).is(0);
    Ok(())
}

fn no_rights_for_scripts() -> Checked {
    let lines = "user default on nopass ~* &* +@all\n\
                 user calls on nopass ~* &* +@all -evalsha\n\
                 user loads on nopass ~* &* +@all -eval\n\
                 user inside on nopass ~* &* +@all -set\n\
                 user keys on nopass ~b* &* +@all";
    let server = Redis::with(Settings::default().users(lines))?;
    for user in ["calls", "loads", "inside", "keys"] {
        for layout in ["redisson", "plain"] {
            let url = url_of(&server, user, &format!("?layout={layout}"));
            run(&url, ACQUIRE).fails(78, "lacks rights", "doctor");
            run(&url, &["run", "a", "--no-wait", "--", "touch", "/never"]).fails(78, "lacks rights", "doctor");
        }
    }
    assert_eq!(keys(&server)?, [""; 0], "something was left behind");
    Ok(())
}

fn a_read_only_replica() -> Checked {
    let (master, replica) = with_replica()?;
    for layout in ["redisson", "plain"] {
        let url = format!("{}?layout={layout}", url(&replica));
        run(&url, ACQUIRE).fails(78, "read-only replica", "master");
        run(&url, &["run", "a", "--wait", "5s", "--", "true"]).fails(78, "read-only replica", "master");
        run(&url, &["show", "a"]).is(0);
    }
    assert_eq!(keys(&master)?, [""; 0]);
    Ok(())
}

fn out_of_memory() -> Checked {
    for layout in ["redisson", "plain"] {
        let server = Redis::start()?;
        let url = format!("{}?layout={layout}", url(&server));
        let hold = |owner: &'static str| ["acquire", "held", "--lease", "1m", "--no-wait", "--owner", owner];
        run(&url, &hold("me")).is(0);
        run(&url, &["acquire", "doomed", "--lease", "1m"]).is(0);
        let lingering = Held::start(&url, &["run", "lingers", "--at-least", "10m"]);
        if layout == "redisson" {
            run(&url, &hold("me")).is(0);
        }
        let before = keys(&server)?;
        server.command(&["CONFIG", "SET", "maxmemory", "1"])?;
        run(&url, ACQUIRE).fails(78, "out of memory", "free");
        run(&url, &["run", "a", "--", "true"]).fails(78, "out of memory", "free");
        assert_eq!(keys(&server)?, before, "a refused lock left something behind");
        run(&url, &hold("you")).is(75);
        // Held locks stay, are shown, and can be released.
        run(&url, &["renew", "held", "--owner", "me", "--lease", "2m"]).is(0);
        assert!(server.command(&["PTTL", "held"])?.number()? > 60_000, "it was not renewed");
        run(&url, &["show", "held"]).is(0);
        if layout == "redisson" {
            run(&url, &["release", "held", "--owner", "me"]).is(0);
            run(&url, &hold("you")).is(75);
        }
        run(&url, &["release", "held", "--owner", "me"]).is(0);
        run(&url, &["release", "held", "--owner", "me"]).is(77);
        run(&url, &["break", "doomed", "--yes"]).is(0);
        lingering.ends(0);
        assert!(server.command(&["PTTL", "lingers"])?.number()? > 60_000, "it does not linger");
        run(&url, &["break", "doomed", "--yes", "--now"]).is(0);
        server.command(&["CONFIG", "SET", "maxmemory", "0"])?;
        run(&url, &hold("you")).is(0);
    }
    Ok(())
}

fn a_wrong_type_at_the_name() -> Checked {
    let server = Redis::start()?;
    let (redisson, plain) = (url(&server), format!("{}?layout=plain", url(&server)));
    server.command(&["SET", "text", "of mine"])?;
    server.command(&["RPUSH", "list", "one"])?;
    server.command(&["HSET", "hash", "field", "value"])?;
    for (url, name) in [(&redisson, "text"), (&redisson, "list"), (&plain, "hash"), (&plain, "list")] {
        for args in [
            &["acquire", name, "--no-wait"][..],
            &["run", name, "--wait", "5s", "--", "true"],
            &["run", &format!("free,{name}"), "--no-wait", "--", "true"],
            &["hold", name, "--no-wait"],
            &["show", name],
            &["break", name, "--yes"],
            &["break", name, "--yes", "--now"],
            &["release", name, "--owner", "me"],
            &["renew", name, "--owner", "me"],
        ] {
            let ran = run(url, args);
            ran.fails(78, "not a lock of this layout", "left unchanged");
            assert!(!ran.err.contains("WRONGTYPE") && !ran.err.contains("script"), "{ran:?}");
        }
    }
    // As JSON, too, it reports what it found; and the key stays as it is, whatever command is run.
    for (url, name) in [(&redisson, "text"), (&redisson, "list"), (&plain, "hash")] {
        let ran = run(url, &["break", name, "--yes", "--now", "--foreign", "--json"]);
        ran.fails(78, "not a lock of this layout", "?layout=plain or ?layout=redisson");
        let row = ran.json();
        assert_eq!((&row["broke"], &row["name"]), (&false.into(), &name.into()), "{row}");
        assert!(row["held"].is_null() && row["owner"].is_null(), "nobody knows: {row}");
        assert!(row["error"].as_str().is_some_and(|error| error.contains("not a lock of this layout")), "{row}");
    }
    let both = run(&redisson, &["break", "text,free", "--yes", "--json"]).is(78).json();
    assert_eq!((&both["locks"][0]["held"], &both["locks"][1]["name"]), (&false.into(), &"text".into()), "{both}");
    // A hash of fields, and a string without an expiry, look like locks that are held for ever.
    run(&redisson, &["acquire", "hash", "--no-wait"]).is(75);
    run(&plain, &["acquire", "text", "--no-wait"]).is(75);
    assert_eq!(server.command(&["GET", "text"])?, Reply::Text("of mine".into()));
    assert_eq!(server.command(&["LRANGE", "list", "0", "-1"])?.texts()?, ["one"]);
    assert_eq!(server.command(&["HGETALL", "hash"])?.texts()?, ["field", "value"]);
    assert_eq!(keys(&server)?, ["hash", "list", "text"]);
    Ok(())
}

fn a_wrong_type_beside_the_name() -> Checked {
    for layout in ["redisson", "plain"] {
        for beside in ["leasehold_fence:{a}", "leasehold_lock:{a}", "leasehold_line:{a}"] {
            let server = Redis::start()?;
            let url = format!("{}?layout={layout}", url(&server));
            run(&url, &["acquire", "a", "--owner", "me", "--lease", "1m"]).is(0);
            server.command(&["DEL", beside])?;
            server.command(&["SADD", beside, "of mine"])?;
            // Whatever happens, it is reported, and another program's key stays.
            let waits = run(&url, &["acquire", "a", "--wait", "300ms"]);
            assert!(matches!(waits.code, Some(75 | 78)), "{waits:?}");
            assert_eq!(server.command(&["SMEMBERS", beside])?.texts()?, ["of mine"], "{layout} {beside}");
            // On a free name it is granted whole, or not at all.
            server.command(&["DEL", "a"])?;
            let takes = run(&url, &["acquire", "a", "--owner", "you", "--no-wait"]);
            let taken = server.command(&["EXISTS", "a"])?.number()? == 1;
            assert!(takes.code == Some(if taken { 0 } else { 78 }), "{layout} {beside}: {taken} {takes:?}");
            if taken {
                run(&url, &["acquire", "a", "--no-wait"]).is(75);
            }
        }
    }
    Ok(())
}

fn still_loading() -> Checked {
    // Older servers do not know the option, and do not need it.
    let server = Redis::with(Settings::default().option("enable-debug-command", "yes")).or_else(|_| Redis::start())?;
    server.command(&["CONFIG", "SET", "key-load-delay", "1000"])?;
    server.command(&["CONFIG", "SET", "rdbcompression", "no"])?;
    // While it loads it answers now and then. Older servers cannot do so more often than every two megabytes.
    let often = server.command(&["CONFIG", "SET", "loading-process-events-interval-bytes", "1024"]).is_ok();
    let size = if often { "100" } else { "20000" };
    let fill = "for at = 1, tonumber(ARGV[1]) do redis.call('SET', 'key ' .. at, string.rep('x', ARGV[2])) end";
    server.command(&["EVAL", fill, "0", "4000", size])?;
    std::thread::scope(|scope| {
        let (mut reloading, mut asking) = (server.connection()?, server.connection()?);
        let reload = scope.spawn(move || reloading.command(&["DEBUG", "RELOAD"]));
        // It loads as soon as it refuses.
        while asking.command(&["GET", "a"]).is_ok() {
            assert!(!reload.is_finished(), "it was too fast");
        }
        run(&url(&server), ACQUIRE).fails(69, "still loading", "when it is done");
        assert!(!reload.is_finished(), "it was too fast");
        // The waiter gets it in the end.
        run(&url(&server), &["acquire", "a", "--wait", "2m"]).is(0);
        reload.join().expect("no panic")?;
        Ok(())
    })
}

fn no_such_layout_or_option() -> Checked {
    let server = Redis::start()?;
    for (rest, why) in [
        ("?layout=mine", "redisson or plain"),
        ("?colour=red", "layout, prefix and timeout"),
        ("?timeout=soon", "500ms"),
        ("?prefix=leasehold_lock:", "cannot be used as a prefix"),
    ] {
        for args in [ACQUIRE, &["list"], &["doctor"]] {
            run(&format!("{}{rest}", url(&server)), args).fails(64, why, "");
        }
    }
    run("redis://", ACQUIRE).fails(64, "redis://[user:password@]host", "");
    run("redis:host", ACQUIRE).fails(64, "redis://[user:password@]host", "");
    Ok(())
}

fn too_few_replicas() -> Checked {
    let server = Redis::with(Settings::default().option("min-replicas-to-write", "1"))?;
    run(&url(&server), ACQUIRE).fails(69, "too few replicas", "min-replicas-to-write");
    assert_eq!(keys(&server)?, [""; 0]);
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"])?;
    run(&url(&server), ACQUIRE).is(0);
    Ok(())
}

fn it_cannot_save() -> Checked {
    let server = unable_to_save()?;
    run(&url(&server), ACQUIRE).fails(78, "cannot save", "disk");
    assert_eq!(keys(&server)?, [""; 0]);
    Ok(())
}

fn a_node_of_a_cluster() -> Checked {
    let server = Redis::with(Settings::default().option("cluster-enabled", "yes"))?;
    run(&url(&server), ACQUIRE).fails(78, "node of a cluster", "not part of a cluster");
    let slots: Vec<String> = (0..8_192).map(|slot| slot.to_string()).collect();
    let mut words = vec!["CLUSTER", "ADDSLOTS"];
    words.extend(slots.iter().map(String::as_str));
    server.command(&words)?;
    run(&url(&server), ACQUIRE).fails(78, "node of a cluster", "not part of a cluster");
    Ok(())
}

fn no_such_database() -> Checked {
    let server = Redis::start()?;
    run(&format!("{}/99", url(&server)), ACQUIRE).fails(78, "no such database", "databases");
    run(&format!("{}/99999999999", url(&server)), ACQUIRE).fails(64, "from 0 to 2147483647", "databases");
    run(&format!("{}/3", url(&server)), ACQUIRE).is(0);
    assert_eq!(keys(&server)?, [""; 0], "it stands in the wrong database");
    Ok(())
}

/// Something else answers there.
fn no_redis_at_all() -> Checked {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut asked = [0; 64];
            let _ = stream.read(&mut asked);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        }
    });
    run(&at(address), ACQUIRE).fails(78, "not a Redis server", "host and port");
    Ok(())
}
