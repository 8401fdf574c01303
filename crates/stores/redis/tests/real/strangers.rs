//! Values of other programs at the name of a lock: every operation leaves them as they are, to the last byte and the expiry.

use std::time::{Duration, Instant};

use leasehold::port::{
    Acquire, BreakOptions, BreakRefusal, ClientId, Mode, Release, ReleaseScope, Released, Renew, Renewed, RequestId,
    StoreOwner,
};
use leasehold::{Break, Client, Error, ErrorKind, Fence, Name, Owner, Store};
use leasehold_core::{Lease, Names};
use leasehold_faults::Failure;
use leasehold_faults::servers::Redis;
use leasehold_redis::Config;
use tokio::task::JoinSet;

use crate::scene::{Case, Checked, MS, S, block_on, number, url};

pub(crate) const CASES: &[Case] = &[
    ("strangers::no_hash_of_another_program_is_touched", || block_on(untouched("redisson"))),
    ("strangers::no_string_of_another_program_is_touched", || block_on(untouched("plain"))),
    ("strangers::no_server_of_a_quorum_touches_another_programs_string", || block_on(untouched("redlock"))),
    ("strangers::a_broken_stranger_is_shown_first", || block_on(a_broken_stranger_is_shown_first())),
    ("strangers::a_plain_lock_of_another_library_is_listed", || block_on(a_plain_lock_is_listed())),
    ("strangers::a_write_lock_beside_ours_is_seen", || block_on(a_write_lock_beside_ours_is_seen())),
    ("strangers::a_break_acts_under_its_fence_alone", || block_on(a_break_acts_under_its_fence_alone())),
];

const UUID: &str = "b9a2c5a0-5f0b-4b8e-9d3c-0a1b2c3d4e5f";
/// The name of the lock in every case.
const NAME: &str = "x";

/// How another program makes its value, and whether it has the type of a lock.
fn values(layout: &str) -> Vec<(Vec<String>, bool)> {
    let words = |line: &str| line.replace("UUID", UUID).split(' ').map(str::to_owned).collect::<Vec<_>>();
    let long = format!("SET x {}", "v".repeat(100_000));
    let many: String = (0..100).map(|at| format!(" {UUID}:{at} 1")).collect();
    let hashes = [
        "HSET x name Ada email ada@example.org",
        "HSET x me 1",
        "HSET x me hello",
        "HSET x mode fast",
        "HSET x UUID:1 data",
        "HSET x UUID:1 0",
        "HSET x UUID:1 1.5",
        "HSET x UUID:1:write 1",
        "HSET x UUID:1 1 UUID:2 1",
        "HSET x UUID:1 1 other 1",
        // Redisson's read-write lock, and its lock of several values.
        "HSET x mode write UUID:1:write 1",
        "HSET x mode read UUID:1 2 UUID:2 1",
        "HSET x h1 UUID:1 h1:UUID:1:expire_time 1763262000000 h1:UUID:1:lock_count 1",
    ];
    let many = format!("HSET x{many}");
    let strings = ["SET x 5", "SET x me", "SET x me/1:2", "SET x 6f1ed002ab5595859014ebf0951522d9", &long];
    let others = ["RPUSH x a b", "SADD x a", "ZADD x 1 a", "XADD x 1-1 a b"];
    let hashes = hashes.into_iter().chain([many.as_str()]).map(|line| (words(line), layout == "redisson"));
    let strings = strings.into_iter().map(|line| (words(line), layout != "redisson"));
    hashes.chain(strings).chain(others.into_iter().map(|line| (words(line), false))).collect()
}

/// What stands at the name: a digest of its dump, and how long it is there for.
fn seen(server: &Redis) -> Result<(String, i64), Failure> {
    let digest = "return redis.sha1hex(redis.call('DUMP', KEYS[1]))";
    let digest = server.command(&["EVAL", digest, "1", NAME])?.text()?.to_owned();
    Ok((digest, number(server, &["PTTL", NAME])?))
}

async fn untouched(layout: &str) -> Checked {
    let servers: Vec<Redis> = match layout {
        "redlock" => vec![Redis::start()?, Redis::start()?, Redis::start()?],
        _ => vec![Redis::start()?],
    };
    let places: Vec<String> = servers.iter().map(|server| server.address().to_string()).collect();
    let at = match layout {
        "redlock" => format!("redlock://{}?quarantine=0s&limit=5s&timeout=10s", places.join(",")),
        _ => format!("{}?layout={layout}", url(&servers[0])),
    };
    let client = Client::connect(&at).await?;
    for (making, is_busy) in values(layout) {
        for expires in [false, true] {
            let mut before = Vec::new();
            for server in &servers {
                server.command(&["DEL", NAME])?;
                server.command(&making.iter().map(String::as_str).collect::<Vec<_>>())?;
                if expires {
                    server.command(&["PEXPIRE", NAME, "3600000"])?;
                }
                before.push((seen(server)?, Instant::now()));
            }
            let what = format!("{layout}, expires: {expires}, {:.80}", making.join(" "));
            let is_unchanged = |after: &str| -> Checked {
                for (server, ((digest, left), began)) in servers.iter().zip(&before) {
                    let (now, now_left) = seen(server)?;
                    assert_eq!(&now, digest, "{what}: changed by {after}");
                    let passed = i64::try_from(began.elapsed().as_millis())? + 10;
                    let is_kept =
                        if *left == -1 { now_left == -1 } else { (left - passed..=*left).contains(&now_left) };
                    assert!(is_kept, "{what}: {left} ms were left, {now_left} ms after {after}");
                }
                Ok(())
            };
            ask_for_it(&client, is_busy, &what, is_unchanged).await?;
            give_it_back(&client, is_busy, &what, is_unchanged).await?;
            look_at_it(&client, is_busy, &what, is_unchanged).await?;
            if layout != "redlock" {
                at_the_port(&Config::new("redis", &format!("//{}", places[0]), &options(layout), None)?).await?;
                is_unchanged("calls of the port")?;
            }
        }
    }
    Ok(())
}

fn options(layout: &str) -> Vec<(String, String)> {
    vec![("layout".to_owned(), layout.to_owned())]
}

fn is_refused<T>(tried: Result<T, Error>, is_busy: bool, busy: impl Fn(&T) -> bool, what: &str) {
    match tried {
        Ok(answer) if !busy(&answer) => panic!("{what}: it is granted"),
        Ok(_) => assert!(is_busy, "{what}: it is busy, and not unfit"),
        Err(error) => assert!(!is_busy && error.kind() == ErrorKind::Unfit, "{what}: {error}"),
    }
}

async fn ask_for_it(client: &Client, is_busy: bool, what: &str, is_unchanged: impl Fn(&str) -> Checked) -> Checked {
    let me = Owner::explicit("me")?;
    let generated = client.lock(NAME)?.try_acquire().await;
    is_refused(generated, is_busy, leasehold::Attempt::is_busy, what);
    is_unchanged("an acquire")?;
    let explicit = client.lock(NAME)?.owned_by(&me).try_acquire().await;
    is_refused(explicit, is_busy, leasehold::Attempt::is_busy, what);
    is_unchanged("an acquire of an explicit owner")?;
    // An unfit value ends a wait at once, however long it may take.
    let wait = if is_busy { 30 * MS } else { 60 * S };
    let waited = client.lock(NAME)?.acquire_within(wait).await;
    is_refused(waited, is_busy, leasehold::Attempt::is_busy, what);
    is_unchanged("a wait")?;
    let several = client.lock_all(["a", NAME, "z"])?.try_acquire().await;
    is_refused(several, is_busy, leasehold::Attempt::is_busy, what);
    is_unchanged("an acquire of several")?;
    // Enough to form batches.
    let asking: JoinSet<_> = (0..40)
        .map(|at| client.lock(if at % 2 == 0 { NAME.to_owned() } else { format!("n{at}") }).expect("a name"))
        .map(|lock| async move { lock.try_acquire().await.map(drop) })
        .collect();
    asking.join_all().await;
    is_unchanged("many acquires")
}

async fn give_it_back(client: &Client, is_busy: bool, what: &str, is_unchanged: impl Fn(&str) -> Checked) -> Checked {
    let not_held = if is_busy { ErrorKind::NotHolder } else { ErrorKind::Unfit };
    for owner in ["me", "name", "h1", "me/1:2"] {
        let lock = client.detached(NAME, &Owner::explicit(owner)?)?;
        for fence in [None, Some(Fence::new(7))] {
            assert!(lock.renew(fence, 60 * S).await.is_err(), "{what}");
            is_unchanged("a renewal")?;
            let error = lock.release(fence).await.expect_err("nothing is held");
            assert!(error.kind() == not_held || error.kind() == ErrorKind::NotHolder, "{what}: {error}");
            is_unchanged("a release")?;
            lock.release_all(fence).await.expect_err("nothing is held");
            is_unchanged("a release of all")?;
        }
    }
    Ok(())
}

async fn look_at_it(client: &Client, is_busy: bool, what: &str, is_unchanged: impl Fn(&str) -> Checked) -> Checked {
    let looked = client.inspect(NAME).await;
    is_refused(looked, is_busy, leasehold::Status::is_held, what);
    client.list("").await?;
    is_unchanged("a look")?;
    // A read-write lock is a lock of Redisson's: to break it needs no further word.
    if !what.contains("HSET x mode write") && !what.contains("HSET x mode read") {
        for how in [Break::AtLeaseEnd, Break::Now] {
            let error = client.break_lock(NAME, how).await.expect_err("it is no lock");
            assert_eq!(error.kind(), ErrorKind::Unfit, "{what}: {error}");
            is_unchanged("a break")?;
        }
    }
    for how in [Break::AtLeaseEnd, Break::Now] {
        let other = client.break_lock(NAME, BreakOptions::from(how).fence(Fence::new(7)).foreign().reset_fence()).await;
        let kind = other.expect_err("that fence does not hold it").kind();
        assert_eq!(kind, if is_busy { ErrorKind::NotHolder } else { ErrorKind::Unfit }, "{what}");
        is_unchanged("a break under a fence")?;
    }
    Ok(())
}

/// What the library itself would not send: owners that look generated.
async fn at_the_port(config: &Config) -> Checked {
    let store = leasehold_redis::Redis::new(config)?;
    let (name, client) = (Name::new(NAME)?, ClientId([0xb9a2_c5a0_5f0b_4b8e, 0x9d3c_0a1b_2c3d_4e5f]));
    for number in [1, 2] {
        let id = RequestId { client, number };
        let owner = StoreOwner::Private(id);
        let lease = Lease { name: name.clone(), owner: owner.clone(), fence: Fence::new(7) };
        for hold in [None, Some(id)] {
            let renewed = store.renew(vec![Renew { lease: lease.clone(), hold, term: 60 * S, kept: false }]).await?;
            assert_eq!(renewed.result, [Renewed::Lost]);
        }
        for (scope, fence, cooldown) in [
            (ReleaseScope::Hold(id), None, Duration::ZERO),
            (ReleaseScope::Hold(id), Some(Fence::new(7)), Duration::ZERO),
            (ReleaseScope::Hold(id), None, 60 * S),
            (ReleaseScope::One(id), None, Duration::ZERO),
            (ReleaseScope::All, None, Duration::ZERO),
        ] {
            let release = Release {
                client,
                name: name.clone(),
                owner: owner.clone(),
                fence,
                scope,
                last_used: None,
                cooldown,
                rejoin: true,
            };
            if let Ok(released) = store.release(release).await {
                assert_eq!(released.result, Released::NotHeld, "{scope:?}");
            }
        }
        let at = store.clock().await?.at;
        let request = Acquire {
            names: Names::One(name.clone()),
            owner,
            request: id,
            mode: Mode::Exclusive,
            lease: 60 * S,
            block: 1,
            seen: Fence::NONE,
            clock: Default::default(),
            not_after: at + 60 * S,
            enlist: true,
            kept: false,
            about: Default::default(),
        };
        if let Ok(acquired) = store.acquire(request).await {
            assert!(matches!(acquired.result, leasehold::port::Acquired::Busy(_)), "{acquired:?}");
        }
    }
    Ok(())
}

async fn a_broken_stranger_is_shown_first() -> Checked {
    for (layout, making, shown) in [
        ("redisson", &["HSET", NAME, "name", "Ada", "e\u{1b}[2Jmail", "ada@example.org"][..], "a hash with 2 fields"),
        ("plain", &["SET", NAME, "session \u{1b}[2J\u{202e}of Ada"][..], "session \u{fffd}[2J\u{fffd}of Ada"),
    ] {
        let server = Redis::start()?;
        let client = Client::connect(&format!("{}?layout={layout}", url(&server))).await?;
        server.command(making)?;
        let refused = client.break_lock(NAME, Break::Now).await.expect_err("it is no lock").to_string();
        assert!(refused.contains(shown) && !refused.contains('\u{1b}'), "{layout}: {refused}");
        let owner = client.inspect(NAME).await?.holders[0].owner.clone().ok_or("nothing is shown")?;
        assert!(owner.contains(shown) && !owner.contains('\u{1b}'), "{layout}: {owner}");
        // Nothing would ever end it.
        let at_end = client.break_lock(NAME, BreakOptions::from(Break::AtLeaseEnd).foreign()).await;
        assert_eq!(at_end.expect_err("it has no end").kind(), ErrorKind::Unfit);
        assert_eq!(number(&server, &["EXISTS", NAME])?, 1, "{layout}");
        client.break_lock(NAME, BreakOptions::from(Break::Now).foreign()).await?;
        assert_eq!(number(&server, &["EXISTS", NAME])?, 0, "{layout}");
        client.lock(NAME)?.try_acquire().await?.granted().ok_or("it is not free")?.release().await?;
    }
    // A lock of another library's with an expiry can be left to that.
    let server = Redis::start()?;
    let client = Client::connect(&format!("{}?layout=plain", url(&server))).await?;
    server.command(&["SET", NAME, "6f1ed002", "PX", "60000"])?;
    client.break_lock(NAME, BreakOptions::from(Break::AtLeaseEnd).foreign()).await?;
    assert!(client.inspect(NAME).await?.holders[0].is_broken());
    assert_ne!(server.command(&["GET", NAME])?.text()?, "6f1ed002", "it can be renewed");
    assert!((50_000..=60_000).contains(&number(&server, &["PTTL", NAME])?));
    Ok(())
}

/// As Redisson's script does it: a plain lock has no mode, so it is no obstacle.
async fn a_write_lock_beside_ours_is_seen() -> Checked {
    for explicit in [false, true] {
        let server = Redis::start()?;
        let client = Client::connect(&url(&server)).await?;
        let lock = client.lock(NAME)?.keep(3 * S);
        let lock = if explicit { lock.owned_by(&Owner::explicit("me")?) } else { lock };
        let held = lock.acquire().await?;
        let theirs = format!("{UUID}:7:write");
        server.command(&["HSET", NAME, "mode", "write", &theirs, "1"])?;
        server.command(&["PEXPIRE", NAME, "60000"])?;
        tokio::time::timeout(60 * S, held.lost()).await?;
        assert!(client.lock(NAME)?.try_acquire().await?.is_busy(), "it is granted beside a write lock");
        assert!(lock.try_acquire().await?.is_busy(), "its owner enters it again");
        let left = number(&server, &["PTTL", NAME])?;
        assert!(left > 3_000, "the write lock was given our lease: {left} ms");
        let released = held.release().await;
        assert!(released.is_err(), "it was lost");
        assert_eq!(server.command(&["HGET", NAME, &theirs])?.text()?, "1", "the write lock is gone");
        let was = client.break_lock(NAME, Break::AtLeaseEnd).await?;
        assert!(was.holders.iter().any(|holder| holder.owner.as_deref() == Some(theirs.as_str())), "{was:?}");
        assert!(number(&server, &["PTTL", NAME])? > 3_000);
        client.break_lock(NAME, Break::Now).await?;
        client.lock(NAME)?.try_acquire().await?.granted().ok_or("it is not free")?.release().await?;
    }
    Ok(())
}

async fn a_break_acts_under_its_fence_alone() -> Checked {
    for layout in ["redisson", "plain"] {
        let server = Redis::start()?;
        let client = Client::connect(&format!("{}?layout={layout}", url(&server))).await?;
        for how in [Break::AtLeaseEnd, Break::Now] {
            let held = client.lock(NAME)?.acquire().await?;
            let older = Fence::new(held.fence().get() - 1);
            let refused = client.break_lock(NAME, BreakOptions::from(how).fence(older)).await;
            assert_eq!(refused.expect_err("another fence holds it").kind(), ErrorKind::NotHolder, "{layout}");
            assert!(!client.inspect(NAME).await?.holders[0].is_broken(), "{layout}");
            client.break_lock(NAME, BreakOptions::from(how).fence(held.fence())).await?;
            let broken = client.inspect(NAME).await?;
            assert!(broken.holders.iter().all(leasehold::Holder::is_broken), "{layout}: {broken:?}");
            drop(held);
            client.break_lock(NAME, Break::Now).await?;
        }
        let config = Config::new("redis", &format!("//{}", server.address()), &options(layout), None)?;
        let store = leasehold_redis::Redis::new(&config)?;
        let making = if layout == "plain" { &["SET", "y", "v"][..] } else { &["HSET", "y", "a", "b"] };
        server.command(making)?;
        let refused = store.break_lock(Name::new("y")?, Break::Now.into()).await?.result;
        assert_eq!(refused.refused, Some(BreakRefusal::Foreign), "{layout}");
    }
    Ok(())
}

async fn a_plain_lock_is_listed() -> Checked {
    let server = Redis::start()?;
    let bare = Client::connect(&format!("{}?layout=plain", url(&server))).await?;
    let behind = Client::connect(&format!("{}?layout=plain&prefix=app1:", url(&server))).await?;
    // As redis-py takes it, at a name that leasehold has used, at one behind the prefix, and elsewhere.
    bare.lock("used")?.acquire().await?.release().await?;
    for name in ["used", "app1:theirs", "session:17"] {
        server.command(&["SET", name, "6f1ed002ab5595859014ebf0951522d9"])?;
    }
    let held = behind.lock("ours")?.acquire().await?;
    let names =
        |listed: Vec<leasehold::Status>| listed.iter().map(|status| status.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(bare.list("").await?), ["used"], "what is no name of ours may be anything");
    assert_eq!(names(behind.list("").await?), ["ours", "theirs"]);
    assert_eq!(names(behind.list("th").await?), ["theirs"]);
    held.release().await?;
    assert_eq!(names(behind.list("").await?), ["theirs"]);
    Ok(())
}
