//! Unfit files: each has its own error and stays unchanged. Also files that are removed or of an older format.

use std::fs;

use leasehold_core::ErrorKind;

use super::*;

/// Opening fails with this text, and neither the file nor its folder has changed.
fn is_refused(bench: &Bench, words: &str) {
    let listing = || {
        let mut all: Vec<_> =
            fs::read_dir(bench.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();

        all.sort();
        all
    };
    let (bytes, names) = (fs::read(bench.path()).ok(), listing());
    let error = bench.open().map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unfit, "{error}");
    assert!(error.to_string().contains(words) && error.hint().is_some(), "{error}");
    assert_eq!(fs::read(bench.path()).ok(), bytes, "the file was changed");
    assert_eq!(listing(), names, "something was made beside the file");
}

#[test]
fn a_foreign_file_is_refused_and_stays_unchanged() {
    let bench = Bench::new();
    fs::write(bench.path(), "a letter to my landlord").unwrap();
    is_refused(&bench, "not a leasehold store");
    fs::remove_file(bench.path()).unwrap();
    let other = rusqlite::Connection::open(bench.path()).unwrap();
    other
        .execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE precious (x); INSERT INTO precious VALUES (1)")
        .unwrap();
    other.close().unwrap();
    is_refused(&bench, "not a leasehold store");
    fs::remove_file(bench.path()).unwrap();
    fs::create_dir(bench.path()).unwrap();
    is_refused(&bench, "is a folder");
}

#[test]
fn a_newer_file_is_refused_and_stays_unchanged() {
    let bench = Bench::new();
    drop(bench.open().unwrap());
    let connection = rusqlite::Connection::open(bench.path()).unwrap();
    connection.execute_batch("PRAGMA user_version = 99; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    connection.close().unwrap();
    is_refused(&bench, "newer leasehold (format 99");
}

#[test]
fn a_file_with_two_names_is_refused() {
    let bench = Bench::new();
    drop(bench.open().unwrap());
    fs::hard_link(bench.path(), bench.folder.path().join("twin.db")).unwrap();
    is_refused(&bench, "several hard links");
}

#[test]
fn damage_is_reported_and_the_file_stays_unchanged() {
    let bench = Bench::new();
    let store = bench.open().unwrap();
    take(&store, &asking(1, 1, "a")).unwrap();
    drop(store);
    rusqlite::Connection::open(bench.path())
        .unwrap()
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    let mut bytes = fs::read(bench.path()).unwrap();
    // After SQLite's header: the tables themselves.
    bytes[200..].fill(0xa5);
    fs::write(bench.path(), &bytes).unwrap();
    let error = bench.open().map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unfit);
    assert!(error.to_string().contains("damaged"), "{error}");
    assert_eq!(fs::read(bench.path()).unwrap(), bytes);
}

#[test]
fn an_empty_file_becomes_a_store_with_the_rights_it_had() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new();
    fs::write(bench.path(), "").unwrap();
    fs::set_permissions(bench.path(), fs::Permissions::from_mode(0o660)).unwrap();
    take(&bench.open().unwrap(), &asking(1, 1, "a")).unwrap();
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(bench.path()), 0o660);
    assert_eq!(mode(bench.folder.path().join("locks.db.d")), 0o2770);
}

/// SQLite truncates the index of its log to three bytes when the first process opens it; a kill then leaves that
/// behind.
#[test]
fn an_index_that_was_cut_short_is_opened() {
    for length in [0, 3] {
        let bench = Bench::new();
        let one = asking(1, 1, "a");
        take(&bench.open().unwrap(), &one).unwrap();
        let index = bench.folder.path().join("locks.db-shm");
        fs::OpenOptions::new().write(true).open(&index).unwrap().set_len(length).unwrap();
        assert!(take(&bench.open().unwrap(), &asking(2, 1, "a")).is_none(), "what was held is still held");
    }
}

/// Format 1 had no waiters, and stored less about a lingering name.
const BACK_TO_FORMAT_1: &str = "DROP TABLE waiters; DROP TABLE names; \
    CREATE TABLE names (name TEXT PRIMARY KEY, last INTEGER NOT NULL, lingers_until INTEGER NOT NULL) STRICT, WITHOUT ROWID; \
    PRAGMA user_version = 1; PRAGMA wal_checkpoint(TRUNCATE)";

/// Its locks stay held.
#[test]
fn an_older_file_is_migrated_with_all_that_is_in_it() {
    let bench = Bench::new();
    let one = asking(1, 1, "a");
    let grant = take(&bench.open().unwrap(), &one).unwrap();
    let connection = rusqlite::Connection::open(bench.path()).unwrap();
    connection.execute_batch(BACK_TO_FORMAT_1).unwrap();
    connection.close().unwrap();
    let store = bench.open().unwrap();
    assert!(take(&store, &Acquire { enlist: true, ..asking(2, 1, "a") }).is_none());
    assert!(matches!(renew(&store, &one, grant.block.first).unwrap(), Renewed::Kept { .. }));
    assert_eq!(bench.sql("SELECT count(*) FROM waiters"), 1);
}

/// A client that asks why a name is not free sees who left it lingering, even from another process; and it is on the
/// waitlist.
#[test]
fn a_name_that_lingers_is_shown_with_who_held_it_last() {
    let bench = Bench::new();
    let store = bench.open().unwrap();
    let about = Arc::new(About { host: Some("host7".into()), pid: Some(4711), label: Some("nightly".into()) });
    for (number, owner) in [(1, None), (2, Some(StoreOwner::Shared("me".into())))] {
        let mut one = Acquire { about: about.clone(), ..asking(1, number, "a") };
        one.owner = owner.unwrap_or(one.owner);
        let grant = take(&store, &one).unwrap();
        let cooldown = Release { cooldown: LEASE, ..giving(&one) };
        assert!(matches!(now(store.release(cooldown)).unwrap(), Released::Released { .. }));
        let other = bench.open().unwrap();
        let shown = now(other.inspect(name("a"))).unwrap();
        let cooldown = shown.cooldown.clone().unwrap();
        assert!(shown.holders.is_empty() && cooldown.left > LEASE / 2, "{shown:?}");
        let last = cooldown.last.unwrap();
        assert_eq!((&last.owner, last.fence, last.holds), (&one.owner, Some(grant.block.first), 0));
        assert_eq!(last.about, about);
        take(&store, &asking(2, number, "b")).unwrap();
        let listed = now(other.list(String::new(), None, 10)).unwrap();
        assert_eq!(listed.iter().map(|listed| listed.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        now(other.break_lock(name("a"), Break::Now.into())).unwrap();
        now(other.break_lock(name("b"), Break::Now.into())).unwrap();
        assert_eq!(now(other.inspect(name("a"))).unwrap().cooldown, None);
    }
}

/// A removed file is like a server that came back empty: its locks are lost, and their holders are notified.
#[test]
fn a_file_that_is_removed_or_replaced_is_noticed() {
    let bench = Bench::new();
    let store = bench.open().unwrap();
    let one = asking(1, 1, "a");
    let grant = take(&store, &one).unwrap();
    for suffix in ["", "-wal", "-shm"] {
        fs::remove_file(bench.folder.path().join(format!("locks.db{suffix}"))).unwrap();
    }
    assert_eq!(renew(&store, &one, grant.block.first).unwrap(), Renewed::Lost);
    let next = take(&bench.open().unwrap(), &asking(2, 1, "a")).unwrap();
    assert!(next.block.first > grant.block.first);
    assert!(take(&store, &asking(3, 1, "a")).is_none(), "both are on the file that stands there now");
}

/// Without its log the file has another content: a process with the old log open must not continue with it.
#[test]
fn a_log_that_is_removed_is_noticed() {
    let bench = Bench::new();
    let store = bench.open().unwrap();
    let one = asking(1, 1, "a");
    let grant = take(&store, &one).unwrap();
    for suffix in ["-wal", "-shm"] {
        fs::remove_file(bench.folder.path().join(format!("locks.db{suffix}"))).unwrap();
    }
    let error = renew(&store, &one, grant.block.first).unwrap_err();
    assert!(error.kind() == ErrorKind::Unfit && error.to_string().contains("log"), "{error}");
}

#[test]
fn a_link_and_its_target_are_one_store() {
    let bench = Bench::new();
    let store = bench.open().unwrap();
    take(&store, &asking(1, 1, "a")).unwrap();
    let link = bench.folder.path().join("link.db");
    std::os::unix::fs::symlink(bench.path(), &link).unwrap();
    let linked = File::connect(&Config { path: link, liveness: true, create: true }).unwrap();
    assert!(take(&linked, &asking(2, 1, "a")).is_none());
    assert_eq!(linked.label(), store.label());
}

#[test]
fn a_renewal_says_how_much_is_left() {
    let bench = Bench::new();
    let store = bench.open().unwrap();
    let held = Acquire { kept: true, ..asking(1, 1, "a") };
    let grant = take(&store, &held).unwrap();
    assert_eq!(renew(&store, &held, grant.block.first).unwrap(), Renewed::Kept { left: LEASE });
}

/// Waiters behind a lease that is no longer kept must wait for its end, even if its process ends.
#[test]
fn a_renewal_that_keeps_no_longer_is_on_the_disk() {
    let bench = Bench::new();
    let store = bench.open().unwrap();
    let held = Acquire { kept: true, ..asking(1, 1, "a") };
    let fence = take(&store, &held).unwrap().block.first;
    assert_eq!(bench.sql("SELECT kept FROM holds"), 1);
    let lease = Lease { name: name("a"), owner: held.owner.clone(), fence };
    now(store.renew(vec![Renew { lease, hold: Some(held.request), term: LEASE, kept: false }])).unwrap();
    assert_eq!(bench.sql("SELECT kept FROM holds"), 0);
}

#[test]
fn a_hold_that_is_given_back_leaves_the_others_of_its_client() {
    let bench = Bench::new();
    let store = bench.open().unwrap();
    let owner = StoreOwner::Shared("me".into());
    let [first, second] = [1, 2].map(|number| Acquire { owner: owner.clone(), ..asking(1, number, "a") });
    for hold in [&first, &second] {
        take(&store, hold).unwrap();
    }
    assert_eq!(give(&store, &second).unwrap(), Released::StillHeld(1));
    assert!(take(&store, &asking(2, 1, "a")).is_none(), "one hold of its owner is left");
    assert_eq!(give(&store, &first).unwrap(), Released::Released { waiters: Some(0) });
}
