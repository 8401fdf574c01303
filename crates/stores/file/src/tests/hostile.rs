//! Files that a hostile user wrote: nothing in them runs, and implausible values are refused.

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

/// A trigger with an endless query, which would block every command.
const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";

#[test]
fn a_file_with_more_than_our_tables_is_refused() {
    for (sql, words) in [
        (format!("CREATE TRIGGER late AFTER INSERT ON holds BEGIN {ENDLESS}; END"), "contains the trigger \"late\""),
        (format!("CREATE VIEW seen AS {ENDLESS}"), "contains the view \"seen\""),
        ("CREATE TABLE \"o\u{1b}[2Jther\" (x)".to_owned(), "contains the table \"o[2Jther\""),
        ("CREATE INDEX by_owner ON holds (owner)".to_owned(), "contains the index \"by_owner\""),
        (
            "DROP TABLE waiters; CREATE TABLE waiters (name TEXT, client BLOB)".to_owned(),
            "contains the table \"waiters\"",
        ),
        ("DROP TABLE waiters".to_owned(), "damaged"),
        ("DELETE FROM meta".to_owned(), "damaged"),
    ] {
        let bench = Bench::new();
        drop(bench.open().unwrap());
        write(&bench, &sql);
        is_unfit(bench.open(), words);
    }
}

/// A journal can name any other file, which SQLite would remove.
#[test]
fn a_journal_beside_the_file_is_refused_and_left() {
    let bench = Bench::new();
    drop(bench.open().unwrap());
    let journal = bench.folder.path().join("locks.db-journal");
    std::fs::write(&journal, [1; 2048]).unwrap();
    is_unfit(bench.open(), "locks.db-journal exists beside the file");
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
    is_unfit(bench.open(), "fence ceiling");
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
        File::open(&config, &bench.boot, config.label().into()).map(drop)
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

/// Turns the table of holds into a tree of a few pages whose branches all lead to the same page: walking it never ends.
fn plant_endless_tree(bench: &Bench) {
    let other = Connection::open(bench.path()).unwrap();
    let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400) INSERT INTO holds (name, \
         owner, client, number, given, turn, expires, first, len, lease, since, broken, kept, label) SELECT \
         printf('n%05d', i), 'o', zeroblob(16), i, 0, 1, 1, 9000000000000000, 1, 1, 1, 0, 0, printf('%.200c', 'L') FROM n";
    other.execute_batch(fill).unwrap();
    let number = |sql: &str| other.query_row(sql, [], |row| row.get::<_, u16>(0)).map(usize::from).unwrap();
    let root = number("SELECT rootpage FROM sqlite_schema WHERE name = 'holds'");
    let size = number("PRAGMA page_size");
    assert_eq!(number("PRAGMA wal_checkpoint(TRUNCATE)"), 0);
    drop(other);
    let mut file = std::fs::read(bench.path()).unwrap();
    let short = |page: &[u8], at: usize| usize::from(u16::from_be_bytes([page[at], page[at + 1]]));
    let first_below = |page: &[u8]| -> [u8; 4] { page[short(page, 12)..][..4].try_into().unwrap() };
    let at = |number: usize| (number - 1) * size..number * size;
    // The root has few branches; the page below it has many.
    let many = usize::try_from(u32::from_be_bytes(first_below(&file[at(root)]))).unwrap();
    let mut page = file[at(many)].to_vec();
    assert!(page[0] == 2 && short(&page, 3) > 5, "{} with {} branches", page[0], short(&page, 3));
    let mut below = first_below(&page);
    for level in 0..11 {
        for cell in 0..short(&page, 3) {
            let at = short(&page, 12 + 2 * cell);
            page[at..at + 4].copy_from_slice(&below);
        }
        page[8..12].copy_from_slice(&below);
        if level < 10 {
            file.extend(&page);
            below = u32::try_from(file.len() / size).unwrap().to_be_bytes();
        }
    }
    file[at(root)].copy_from_slice(&page);
    file[28..32].copy_from_slice(&below);
    std::fs::write(bench.path(), file).unwrap();
}

#[test]
fn a_tree_that_takes_for_ever_to_walk_is_given_up() {
    let bench = Bench::new();
    drop(bench.open().unwrap());
    plant_endless_tree(&bench);
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let store = bench.open().unwrap();
        let listed = now(store.list(String::new(), None, 10));
        // Enough writes that one of them sweeps.
        for number in 1..=130 {
            let _ = now(store.acquire(asking(1, number, "zz")));
        }
        done.send(listed.map(drop))
    });
    let error = ended.recv_timeout(Duration::from_secs(120)).unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(error.to_string().contains("reading the file takes too long") && error.hint().is_some(), "{error}");
}
