//! Interference by other programs with the file, its log, its folder and its processes, at the worst moment.

use std::fs;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::*;

fn wait<T: Unpin>(mut call: Call<T>) -> T {
    loop {
        match Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn beside(bench: &Bench, suffix: &str) -> PathBuf {
    bench.folder.path().canonicalize().unwrap().join(format!("locks.db{suffix}"))
}

/// The newer format is still only in the log, as after every migration (no checkpoint on close).
#[test]
fn newer_format_in_the_log_is_refused() {
    let bench = Bench::new();
    drop(bench.open().unwrap());
    let newer = rusqlite::Connection::open(bench.path()).unwrap();
    newer.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    newer
        .execute_batch("BEGIN IMMEDIATE; ALTER TABLE holds ADD COLUMN shared INTEGER; PRAGMA user_version = 99; COMMIT")
        .unwrap();
    newer.close().unwrap();
    let opened = bench.open();
    assert!(opened.is_err(), "a file of format {} was opened", bench.sql("PRAGMA user_version"));
}

/// The header says 1 (older), the log says 99: the migration must not lower it to 2.
#[test]
fn a_newer_format_is_not_set_down() {
    let bench = Bench::new();
    drop(bench.open().unwrap());
    let c = rusqlite::Connection::open(bench.path()).unwrap();
    c.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    c.execute_batch("DROP TABLE waiters; PRAGMA user_version = 1; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    // A newer version migrates it; everything is in the log.
    c.execute_batch("BEGIN IMMEDIATE; CREATE TABLE waiters (x); PRAGMA user_version = 99; COMMIT").unwrap();
    c.close().unwrap();
    let opened = bench.open();
    assert_eq!(bench.sql("PRAGMA user_version"), 99, "opened: {:?}", opened.map(drop));
}

/// The file alone is removed; its log stays.
#[test]
fn file_removed_without_its_log() {
    let bench = Bench::new();
    let store = bench.open().unwrap();
    for number in 0..3_000 {
        take(&store, &asking(1, number, &format!("n-{number}-{:0300}", 0))).unwrap();
    }
    drop(store);
    fs::remove_file(bench.path()).unwrap();
    let store = bench.open().unwrap();
    let check = rusqlite::Connection::open(bench.path())
        .unwrap()
        .query_row("PRAGMA integrity_check(3)", [], |row| row.get::<_, String>(0));
    let held = rusqlite::Connection::open(bench.path())
        .unwrap()
        .query_row("SELECT count(*) FROM holds", [], |row| row.get::<_, i64>(0));
    let took = now(store.acquire(asking(2, 1, "fresh")));
    assert!(check.as_deref() == Ok("ok") && held == Ok(0), "check {check:?}, rows {held:?}, acquire {took:?}");
}

/// The same with a process that has it open, and the file only truncated.
#[test]
fn file_truncated() {
    let bench = Bench::new();
    let store = bench.open().unwrap();
    for number in 0..3_000 {
        take(&store, &asking(1, number, &format!("n-{number}-{:0300}", 0))).unwrap();
    }
    drop(store);
    fs::OpenOptions::new().write(true).truncate(true).open(bench.path()).unwrap();
    let store = bench.open();
    let took = store.map(|store| now(store.acquire(asking(2, 1, "fresh"))));
    let check = rusqlite::Connection::open(bench.path())
        .unwrap()
        .query_row("PRAGMA integrity_check(3)", [], |row| row.get::<_, String>(0));
    assert!(check.as_deref() == Ok("ok"), "check {check:?}, acquire {took:?}");
}

/// `conf.d` belongs to another program.
#[test]
fn another_programs_folder_is_left_alone() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new();
    let root = bench.folder.path().canonicalize().unwrap();
    let folder = root.join("conf.d");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o2750)).unwrap();
    let old = std::time::SystemTime::now() - Duration::from_secs(7_200);
    for precious in ["new-site.conf", "site.conf.new"] {
        fs::write(folder.join(precious), "server {}").unwrap();
        fs::File::options().write(true).open(folder.join(precious)).unwrap().set_modified(old).unwrap();
    }
    let config = Config { path: root.join("conf"), liveness: true, create: true };
    let error = File::connect(&config).map(drop).unwrap_err();
    assert!(error.to_string().contains("is not leasehold's"), "{error}");
    let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    let mode = fs::metadata(&folder).unwrap().permissions().mode() & 0o7777;
    assert!(
        left.len() == 2
            && folder.join("new-site.conf").exists()
            && folder.join("site.conf.new").exists()
            && mode == 0o2750,
        "left: {left:?}, mode {mode:o}"
    );
}

/// Left by a process that was killed while it created the folder. What another process is creating, or another user's,
/// stays.
#[test]
fn what_was_left_beside_the_file_is_cleared_up() {
    use rustix::fs::{FlockOperation, flock};
    let bench = Bench::new();
    let root = bench.folder.path().canonicalize().unwrap();
    let aside = |digit: char| root.join(format!(".leasehold.{}.new", digit.to_string().repeat(32)));
    for digit in ['a', 'b', 'c'] {
        fs::create_dir_all(aside(digit).join("it")).unwrap();
        fs::write(aside(digit).join("it/opening"), "").unwrap();
    }
    // A process is creating this one, however long that takes.
    let old = std::time::SystemTime::now() - Duration::from_secs(7_200);
    let making = fs::File::open(aside('b')).unwrap();
    making.set_modified(old).unwrap();
    flock(&making, FlockOperation::LockExclusive).unwrap();
    // This one has another user's file in it.
    fs::write(aside('c').join("precious"), "mine").unwrap();
    fs::write(aside('d'), "a file").unwrap();
    fs::create_dir(root.join(".leasehold.short.new")).unwrap();
    drop(bench.open().unwrap());
    assert!(!aside('a').exists(), "it is left");
    assert!(aside('b').join("it/opening").exists(), "another process was creating it");
    assert_eq!(fs::read_to_string(aside('c').join("precious")).unwrap(), "mine");
    assert!(aside('d').is_file() && root.join(".leasehold.short.new").is_dir());
    drop(making);
    drop(bench.open().unwrap());
    assert!(!aside('b').exists(), "no process creates it any more");
}

/// A link whose target does not exist yet.
#[test]
fn a_link_without_a_target_is_followed() {
    let bench = Bench::new();
    let root = bench.folder.path().canonicalize().unwrap();
    fs::create_dir(root.join("data")).unwrap();
    let link = root.join("link.db");
    std::os::unix::fs::symlink(root.join("data/locks.db"), &link).unwrap();
    let by_link = File::connect(&Config { path: link.clone(), liveness: true, create: true }).unwrap();
    let by_target = File::connect(&Config { path: root.join("data/locks.db"), liveness: true, create: true }).unwrap();
    let (one, two) = (take(&by_link, &asking(1, 1, "a")), take(&by_target, &asking(2, 1, "a")));
    assert!(
        fs::symlink_metadata(&link).unwrap().is_symlink() && two.is_none(),
        "link still a link: {}; both granted: {one:?} {two:?}",
        fs::symlink_metadata(&link).unwrap().is_symlink()
    );
}

/// The folder was removed, and the next process creates it again: its access rights.
#[test]
fn a_cleared_folder_keeps_rights() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new();
    fs::write(bench.path(), "").unwrap();
    fs::set_permissions(bench.path(), fs::Permissions::from_mode(0o660)).unwrap();
    drop(bench.open().unwrap());
    let mode = || fs::metadata(beside(&bench, ".d")).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(), 0o2770);
    fs::remove_dir_all(beside(&bench, ".d")).unwrap();
    drop(bench.open().unwrap());
    assert_eq!(format!("{:o}", mode()), "2770");
}

/// Each process writes once, and sweeps with a probability of 1 in 128. That none of 10,000 does has a probability of 1
/// in 10^34.
#[test]
fn short_lived_processes_leave_nothing() {
    let bench = Bench::new();
    let is_swept = |number: u64| {
        let store = bench.open().unwrap();
        take(&store, &Acquire { lease: Duration::from_millis(1), ..asking(1, number, &format!("job-{number}")) })
            .unwrap();
        bench.sql("SELECT count(*) FROM holds") <= i64::try_from(number).unwrap()
    };
    assert!((0..10_000).any(is_swept), "no lease that ran out was deleted");
}

/// Calls end even if another process writes all the time.
#[test]
fn every_call_ends() {
    let bench = Bench::new();
    let store = bench.open().unwrap();
    let other = rusqlite::Connection::open(bench.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let calls: Vec<_> = (0..6).map(|n| store.acquire(asking(1, n, &format!("n{n}")))).collect();
    for call in calls {
        wait(call).unwrap_err();
    }
}

/// The caller's thread is not blocked: its call returns while the other process still writes.
#[test]
fn no_callers_thread_is_held_up() {
    let bench = Bench::new();
    let store = bench.open().unwrap();
    let other = rusqlite::Connection::open(bench.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let store = store.clone();
            std::thread::spawn(move || matches!(store.acquire(asking(1, n, &format!("n{n}"))), Call::Pending(_)))
        })
        .collect();
    let pending = threads.into_iter().all(|thread| thread.join().unwrap());
    other.execute_batch("COMMIT").unwrap();
    assert!(pending, "a caller's thread was blocked until the answer came");
}

/// Fences after the file was removed, within an hour after a restart, with a correct wall clock.
#[test]
fn fences_grow_over_a_removed_file() {
    let mut bench = Bench::new();
    drop(bench.open().unwrap());
    bench.reboot(None);
    let store = bench.open().unwrap();
    let before = take(&store, &asking(1, 1, "a")).unwrap();
    for suffix in ["", "-wal", "-shm"] {
        fs::remove_file(beside(&bench, suffix)).unwrap();
    }
    // The same store in the same process: it knows the latest time of the file.
    let after = take(&store, &asking(2, 1, "a")).unwrap();
    assert!(
        after.block.first > before.block.first,
        "{:?} after {:?}: {} s back",
        after.block.first,
        before.block.first,
        (before.block.first.get() - after.block.first.get()) / 8_000_000
    );
}

/// The file is replaced while it is being opened.
#[test]
fn a_file_that_is_replaced_while_it_is_opened_is_noticed() {
    let mut bench = Bench::new();
    drop(bench.open().unwrap());
    bench.reboot(None); // so that entering needs a write
    let other = rusqlite::Connection::open(bench.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (path, boot) = (bench.path(), bench.boot.clone());
    let opening = std::thread::spawn(move || {
        let config = Config { path, liveness: true, create: true };
        File::open(&config, &boot, config.label().into())
    });
    std::thread::sleep(Duration::from_millis(300));
    for suffix in ["-wal", "-shm", ""] {
        fs::rename(beside(&bench, suffix), beside(&bench, &format!("{suffix}.old"))).unwrap();
    }
    let second = bench.open().unwrap(); // makes a new one
    other.execute_batch("COMMIT").unwrap();
    let first = opening.join().unwrap().unwrap();
    let (a, b) = (take(&first, &asking(1, 1, "a")), take(&second, &asking(2, 1, "a")));
    assert!(a.is_none() || b.is_none(), "both granted, and for ever apart: {a:?} {b:?}");
}

/// A socket without its liveness file: the process was killed between the two removals.
#[test]
fn a_socket_without_its_client_is_removed() {
    let bench = Bench::new();
    drop(bench.open().unwrap());
    let sock = beside(&bench, ".d").join(format!("{}.sock", ClientId([9, 9])));
    drop(std::os::unix::net::UnixDatagram::bind(&sock).unwrap());
    for _ in 0..3 {
        drop(bench.open().unwrap());
    }
    assert!(!sock.exists(), "left for ever");
}

/// Many dead clients with many holds: the holds are scanned once for all of them, not once for each. Otherwise the
/// second opening takes hundreds of times as long as the first, and blocks others meanwhile.
#[test]
fn many_dead_are_cleared_up_in_one_look() {
    const DEAD: u64 = 200;
    let bench = Bench::new();
    let store = bench.open().unwrap();
    let place = crate::registry::Registry::at(&bench.config(), &bench.boot).unwrap();
    let die = |client: u64| {
        take(&store, &Acquire { kept: true, ..asking(client, 1, &format!("dead-{client}")) }).unwrap();
        place.forget(ClientId([7, client]));
    };
    {
        let c = rusqlite::Connection::open(bench.path()).unwrap();
        c.execute_batch("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 100000) \
          INSERT INTO holds SELECT 'held-'||i, '', zeroblob(16), i, 0, 0, 9000000000000000000, 1, 1, 30000000000, 0, 0, 1, 'host', 1, NULL FROM n").unwrap();
    }
    let opening = || {
        let began = leasehold_clock::now();
        drop(bench.open().unwrap());
        assert!(place.dead().is_empty());
        leasehold_clock::now().since(began)
    };
    die(1);
    let of_one = opening();
    (0..DEAD).for_each(|dead| die(10_000 + dead));
    let of_many = opening();
    assert!(of_many < of_one * 50, "one is removed in {of_one:?}, and {DEAD} in {of_many:?}");
}

/// A dead client loses its file even if its row cannot be removed yet.
#[test]
fn a_row_that_stays_keeps_its_liveness_file() {
    let bench = Bench::new();
    let store = bench.open().unwrap();
    let ahead = Fence::at(StoreTime::from_nanos(store_now(&store).as_nanos() + 60_000_000_000));
    let dead = Acquire { kept: true, seen: ahead, ..asking(1, 1, "a") };
    take(&store, &dead).unwrap();
    crate::registry::Registry::at(&bench.config(), &bench.boot).unwrap().forget(dead.request.client);
    let other = bench.open().unwrap();
    assert!(take(&other, &asking(2, 1, "a")).is_some(), "its holder is dead, and was certain to be");
}

fn store_now(store: &File) -> StoreTime {
    match store.clock() {
        Call::Done(Some(Ok(answered))) => answered.at,
        _ => panic!(),
    }
}

/// Another machine must not end the lingering early.
#[test]
fn lingering_goes_on_on_another_machine() {
    let mut bench = Bench::new();
    let store = bench.open().unwrap();
    let one = asking(1, 1, "a");
    take(&store, &one).unwrap();
    now(store.release(Release {
        client: one.request.client,
        name: name("a"),
        owner: one.owner.clone(),
        fence: None,
        scope: ReleaseScope::Hold(one.request),
        last_used: None,
        cooldown: Duration::from_secs(120),
        rejoin: false,
    }))
    .unwrap();
    assert!(take(&store, &asking(2, 1, "a")).is_none());
    drop(store);
    bench.boot.boot_id = "elsewhere".into();
    bench.boot.machine_id = "another".into();
    assert!(take(&bench.open().unwrap(), &asking(2, 2, "a")).is_none(), "it was to stay taken for two minutes");
}

/// A dead process of the same owner: its hold does not count any more.
#[test]
fn a_dead_hold_of_the_same_owner_does_not_count() {
    let bench = Bench::new();
    let store = bench.open().unwrap();
    let owner = StoreOwner::Shared("x".into());
    let dead = Acquire { kept: true, owner: owner.clone(), ..asking(1, 1, "a") };
    take(&store, &dead).unwrap();
    crate::registry::Registry::at(&bench.config(), &bench.boot).unwrap().forget(dead.request.client);
    let mine = Acquire { kept: true, owner, ..asking(2, 1, "a") };
    let granted = take(&store, &mine).unwrap();
    let released = give(&store, &mine).unwrap();
    assert!(matches!(released, Released::Released { .. }), "holds {}, then {released:?}", granted.holds);
}

#[test]
fn a_client_that_stops_watching_leaves_the_waitlist() {
    let bench = Bench::new();
    let store = bench.open().unwrap();
    take(&store, &asking(1, 1, "a")).unwrap();
    let waiting = Acquire { enlist: true, ..asking(2, 1, "a") };
    let watched = store.watch(waiting.request.client, name("a"), Arc::new(|_| ()));
    assert!(matches!(watched, Call::Done(Some(Ok(())))));
    assert!(take(&store, &waiting).is_none());
    assert_eq!(bench.sql("SELECT count(*) FROM waiters"), 1);
    wait(store.unwatch(waiting.request.client, name("a")));
    assert_eq!(bench.sql("SELECT count(*) FROM waiters"), 0);
}
