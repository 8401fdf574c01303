//! Files that somebody wrote into: nothing in them runs, and nothing absurd in them is believed.

use leasehold_core::ErrorKind;
use rusqlite::Connection;

use super::*;

const DAY_IN_UNITS: u64 = 24 * 60 * 60 * 8_000_000;

fn write(bench: &Bench, sql: &str) {
    let other = Connection::open(bench.path()).unwrap();
    other.execute_batch(sql).unwrap();
}

fn is_unfit<T: std::fmt::Debug>(done: Result<T, Error>, words: &str) {
    let error = done.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unfit, "{error}");
    assert!(error.to_string().contains(words) && error.hint().is_some(), "{error}");
}

/// A trigger with an endless query, which every command would have waited for.
const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";

#[test]
fn a_file_with_more_than_our_tables_is_refused() {
    for (sql, words) in [
        (format!("CREATE TRIGGER late AFTER INSERT ON holds BEGIN {ENDLESS}; END"), "has a trigger \"late\""),
        (format!("CREATE VIEW seen AS {ENDLESS}"), "has a view \"seen\""),
        ("CREATE TABLE \"o\u{1b}[2Jther\" (x)".to_owned(), "has a table \"o[2Jther\""),
        ("CREATE INDEX by_owner ON holds (owner)".to_owned(), "has a index \"by_owner\""),
        ("DROP TABLE waiters; CREATE TABLE waiters (name TEXT, client BLOB)".to_owned(), "has a table \"waiters\""),
        ("DROP TABLE waiters".to_owned(), "damaged"),
        ("DELETE FROM meta".to_owned(), "damaged"),
    ] {
        let bench = Bench::new();
        drop(bench.open().unwrap());
        write(&bench, &sql);
        is_unfit(bench.open(), words);
    }
}

/// A journal may name any other file, which SQLite would remove.
#[test]
fn a_journal_beside_the_file_is_refused_and_left() {
    let bench = Bench::new();
    drop(bench.open().unwrap());
    let journal = bench.folder.path().join("locks.db-journal");
    std::fs::write(&journal, [1; 2048]).unwrap();
    is_unfit(bench.open(), "locks.db-journal stands beside the file");
    assert_eq!(std::fs::read(&journal).unwrap(), [1; 2048]);
}

#[test]
fn a_file_whose_log_was_switched_off_has_one_again() {
    let bench = Bench::new();
    drop(bench.open().unwrap());
    let other = Connection::open(bench.path()).unwrap();
    other.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(())).unwrap();
    drop(other);
    take(&bench.open().unwrap(), &asking(1, 1, "a")).unwrap();
    assert!(bench.folder.path().join("locks.db-wal").exists());
}

#[test]
fn a_trigger_that_comes_later_does_not_run() {
    let bench = Bench::new();
    let store = bench.open().unwrap();
    write(&bench, &format!("CREATE TRIGGER late BEFORE INSERT ON holds BEGIN {ENDLESS}; END"));
    let one = asking(1, 1, "a");
    assert!(take(&store, &one).is_some());
    give(&store, &one).unwrap();
}

#[test]
fn fences_that_were_never_given_out_are_not_believed() {
    let held = |bench: &Bench, fence: u64| {
        let store = bench.open().unwrap();
        take(&store, &asking(1, 1, "a")).unwrap();
        write(bench, &format!("UPDATE holds SET first = {fence}"));
        store
    };
    let clock = Fence::at(leasehold_clock::wall()).get();
    for (fence, words) in
        [(0, "fence 0"), (clock + 9 * DAY_IN_UNITS, "8 days ahead"), (i64::MAX as u64, "8 days ahead")]
    {
        let bench = Bench::new();
        let store = held(&bench, fence);
        is_unfit(now(store.acquire(asking(2, 1, "a"))), words);
        assert!(take(&store, &asking(2, 2, "b")).is_some(), "another name is not touched by it");
        now(store.break_lock(name("a"), leasehold_core::port::BreakOptions::from(Break::Now).reset_fence())).unwrap();
        let repaired = take(&store, &asking(2, 3, "a")).unwrap();
        assert!(repaired.block.last().get() < clock + DAY_IN_UNITS);
    }
    let bench = Bench::new();
    let near = clock + 7 * DAY_IN_UNITS;
    let store = held(&bench, near);
    assert!(take(&store, &asking(2, 1, "a")).is_none(), "it is held");
    now(store.break_lock(name("a"), Break::Now.into())).unwrap();
    assert_eq!(take(&store, &asking(2, 2, "a")).unwrap().block.first.get(), near + 1);
}

#[test]
fn a_fence_that_a_client_brings_along_is_not_believed_either() {
    let bench = Bench::new();
    let store = bench.open().unwrap();
    let far = Fence::new(Fence::at(leasehold_clock::wall()).get() + 9 * DAY_IN_UNITS);
    is_unfit(now(store.acquire(Acquire { seen: far, ..asking(1, 1, "a") })), "8 days ahead");
    assert!(take(&store, &asking(1, 2, "a")).is_some());
}

#[test]
fn a_limit_of_fences_that_is_far_ahead_is_damage() {
    let bench = Bench::new();
    drop(bench.open().unwrap());
    write(&bench, "UPDATE meta SET ceiling = 9000000000000000000");
    is_unfit(bench.open(), "limit of fences");
}

#[test]
fn rows_of_another_shape_are_damage() {
    for sql in [
        "UPDATE holds SET client = x'00'",
        "UPDATE holds SET len = -1",
        "UPDATE holds SET len = 0",
        "UPDATE holds SET turn = 9000000000000",
        "UPDATE holds SET owner = char(1) || 'x', since = -9223372036854775807, expires = 9223372036854775807",
    ] {
        let bench = Bench::new();
        let store = bench.open().unwrap();
        let one = asking(1, 1, "a");
        let grant = take(&store, &one).unwrap();
        write(&bench, sql);
        let mut errors = Vec::new();
        errors.extend(now(store.acquire(asking(2, 1, "a"))).err());
        errors.extend(now(store.inspect(name("a"))).err());
        errors.extend(now(store.list(String::new(), None, 10)).err());
        errors.extend(renew(&store, &one, grant.block.first).err());
        errors.extend(give(&store, &one).err());
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Unfit, "{sql}: {error}");
        }
    }
}

#[test]
fn without_create_no_file_is_made() {
    let bench = Bench::new();
    let open = |path: PathBuf| {
        let config = Config { path, liveness: true, create: false };
        File::open(&config, &bench.machine, config.label().into()).map(drop)
    };
    is_unfit(open(bench.path()), "there is no store at");
    is_unfit(open(bench.folder.path().join("new/locks.db")), "there is no store at");
    std::fs::write(bench.path(), "").unwrap();
    is_unfit(open(bench.path()), "there is no store at");
    let there: Vec<_> =
        std::fs::read_dir(bench.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(there, ["locks.db"]);
    drop(bench.open().unwrap());
    open(bench.path()).unwrap();
}
