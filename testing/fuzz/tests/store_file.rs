//! Damaged or hostile files of `file:`: whatever is in them, a client gets an error and continues.
#![allow(clippy::unwrap_used, reason = "these are tests, helpers and all")]

use std::path::Path;
use std::time::Duration;

use leasehold::{Client, Error, ErrorKind};
use leasehold_fuzz::{Random, Target};
use rusqlite::Connection;
use rusqlite::types::Value;
use tempfile::TempDir;

/// What every run begins with: some locks that are held, one that lingers, and one that was broken.
fn made() -> Vec<u8> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("locks.db");
    on(async {
        let client = Client::connect(&url(&path)).await?;
        for name in ["a", "b", "jobs/c"] {
            std::mem::forget(client.lock(name)?.label("label").lease(Duration::from_secs(3_600)).acquire().await?);
        }
        client.break_lock("b", leasehold::Break::AtLeaseEnd).await?;
        client.lock("d")?.at_least(Duration::from_secs(3_600)).acquire().await?.release().await
    })
    .unwrap();
    let file = Connection::open(&path).unwrap();
    file.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    std::fs::read(&path).unwrap()
}

fn url(path: &Path) -> String {
    format!("file:{}", path.display())
}

fn on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// What a command would do with it.
async fn used(url: &str) -> Result<(), Error> {
    let client = Client::connect(url).await?;
    let mut done = client.list("").await.map(|_| ());
    for name in ["a", "b", "new"] {
        done = done.and(client.inspect(name).await.map(|_| ()));
        done = done.and(client.lock(name)?.lease(Duration::from_secs(60)).try_acquire().await.map(|_| ()));
    }
    let done = done.and(client.break_lock("a", leasehold::Break::Now).await.map(|_| ()));
    done.and(client.close().await)
}

/// Nothing panics or hangs, and nothing is called a bug of ours.
fn is_told(path: &Path) {
    if let Err(error) = on(used(&url(path))) {
        assert_ne!(error.kind(), ErrorKind::Internal, "{error}");
    }
}

#[test]
fn fuzzed_bytes_of_a_store_file() {
    let folder = TempDir::new().unwrap();
    let mut number = 0;
    Target::with_corpus("store-file", 60, [made()]).run(|input| {
        number += 1;
        let path = folder.path().join(format!("{number}.db"));
        std::fs::write(&path, input).unwrap();
        is_told(&path);
    });
}

/// Values that the tables allow, and that leasehold would not have written.
fn odd(random: &mut Random) -> Value {
    let text = ["", "x", "\u{1b}[2J", "\u{0}", "e:", "🔒", "-1", "99999999999999999999"];
    match random.below(4) {
        0 => Value::Integer(*random.pick(&[i64::MIN, -1, 0, 1, 1 << 53, i64::MAX])),
        1 => Value::Text((*random.pick(&text)).to_owned()),
        2 => Value::Text("x".repeat(1 << 20)),
        _ => Value::Blob(vec![0xff; random.below(40) as usize]),
    }
}

#[test]
fn fuzzed_values_in_a_store_file() {
    let (folder, whole) = (TempDir::new().unwrap(), made());
    let mut number = 0;
    Target::with_corpus("store-values", 60, [vec![0; 8]]).run(|input| {
        number += 1;
        let mut random =
            Random::new(input.iter().fold(number, |seed: u64, byte| seed.wrapping_mul(31) + u64::from(*byte)));
        let path = folder.path().join(format!("{number}.db"));
        std::fs::write(&path, &whole).unwrap();
        let file = Connection::open(&path).unwrap();
        let columns = "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table'";
        let columns: Vec<(String, String)> = {
            let mut query = file.prepare(columns).unwrap();
            query.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
        };
        for _ in 0..3 {
            let (table, column) = random.pick(&columns);
            // A value of the wrong type is refused, and another one is drawn next time.
            let _ = file.execute(&format!("UPDATE OR IGNORE {table} SET {column} = ?1"), [odd(&mut random)]);
        }
        drop(file);
        is_told(&path);
    });
}
