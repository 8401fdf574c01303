//! Records as rows: what the reference store leaves is loaded again, and nothing else.

use std::collections::VecDeque;

use leasehold_core::backoff::Rng;
use leasehold_core::reference::{Hold, LeftBy, Record, Row, Waiter};
use leasehold_core::{Block, StoreTime};
use rusqlite::Connection;

use super::*;
use crate::rows;

const NOW: StoreTime = StoreTime::from_nanos(1_000_000_000);

fn request(rng: &mut Rng) -> RequestId {
    RequestId { client: ClientId([rng.below(3) << 60, rng.below(3)]), number: rng.below(3) }
}

fn about(rng: &mut Rng) -> Arc<About> {
    let text = |rng: &mut Rng| (rng.below(2) == 0).then(|| Arc::from(format!("text {}", rng.below(9))));
    let pid = (rng.below(2) == 0).then(|| u32::MAX - rng.below(2) as u32);
    Arc::new(About { host: text(rng), pid, label: text(rng) })
}

fn owner(rng: &mut Rng) -> StoreOwner {
    if rng.below(2) == 0 { StoreOwner::Private(request(rng)) } else { StoreOwner::Shared("shared".into()) }
}

fn time(rng: &mut Rng) -> StoreTime {
    StoreTime::from_nanos(NOW.as_nanos() - 3 + rng.below(7))
}

fn row(rng: &mut Rng) -> Row {
    let mut requests: Vec<RequestId> = (0..6).map(|_| request(rng)).collect();
    requests.sort_by_key(|_| rng.draw());
    requests.dedup();
    let (mut holds, mut given) = (Vec::<Hold>::new(), VecDeque::new());
    for request in requests {
        if holds.iter().any(|hold| hold.request == request) || given.contains(&request) {
            continue;
        }
        if holds.is_empty() || rng.below(2) == 0 {
            holds.push(Hold { request, expires: time(rng) });
        } else {
            given.push_back(request);
        }
    }
    Row {
        owner: owner(rng),
        block: Block { first: Fence::new(NOW.as_nanos() / 125 - 3 + rng.below(7)), len: 1 + rng.below(3) as u32 },
        expires: holds.iter().map(|hold| hold.expires).max().unwrap(),
        holds: holds.into_iter().collect(),
        given,
        lease: Duration::from_nanos(rng.below(1_000)),
        since: time(rng),
        broken: rng.below(2) == 0,
        fenced: true,
        kept: rng.below(2) == 0,
        about: about(rng),
    }
}

fn left_by(rng: &mut Rng) -> LeftBy {
    LeftBy {
        owner: owner(rng),
        fence: Fence::new(rng.below(1_000)),
        lease: Duration::from_nanos(rng.below(1_000)),
        since: time(rng),
        about: about(rng),
    }
}

/// Changes that the rules may make to a record: one holder more, less or changed, and of the waiters some gone, some
/// renewed, some new. A client that releases and waits again goes to the end of the waitlist.
fn changed(rng: &mut Rng, before: &Record) -> Record {
    let mut after = before.clone();
    match rng.below(4) {
        0 => after.rows.clear(),
        1 => after.rows = std::iter::once(row(rng)).collect(),
        2 => {
            if let Some(row) = after.rows.first_mut() {
                row.holds.iter_mut().for_each(|hold| hold.expires = time(rng));
                row.expires = row.holds.iter().map(|hold| hold.expires).max().unwrap();
                row.broken = true;
            }
        }
        _ => {}
    }
    after.waiters.retain(|_| rng.below(3) > 0);
    for waiter in &mut after.waiters {
        waiter.until = if rng.below(2) == 0 { time(rng) } else { waiter.until };
    }
    let client = ClientId([9, rng.below(5)]);
    if after.waiters.iter().all(|waiter| waiter.client != client) {
        after.waiters.push_back(Waiter { client, until: time(rng) });
    }
    after.last = Fence::new(NOW.as_nanos() / 125 - 3 + rng.below(7)).max(last_of_rows(&after));
    after.cooldown_until = if rng.below(2) == 0 { StoreTime::default() } else { time(rng) };
    after.left_by = (rng.below(2) == 0).then(|| Box::new(left_by(rng)));
    after
}

fn last_of_rows(record: &Record) -> Fence {
    record.rows.iter().map(|row| row.block.last()).max().unwrap_or_default()
}

/// What is kept for later: no fence that the clock has passed, and no releaser of a name that no longer lingers.
fn remembered(record: &Record) -> Record {
    let mut kept = record.clone();
    let shown = last_of_rows(record);
    let ahead = record.last > shown && record.last >= Fence::at(NOW);
    let cooldown = record.cooldown_until > NOW;
    kept.last = if ahead { record.last } else { shown };
    kept.cooldown_until = if ahead || cooldown { record.cooldown_until } else { StoreTime::default() };
    kept.left_by = record.left_by.clone().filter(|_| cooldown);
    kept
}

#[test]
fn what_is_saved_is_loaded_again() {
    let bench = Bench::new();
    bench.open().unwrap();
    let connection = Connection::open(bench.path()).unwrap();
    connection.execute_batch("BEGIN").unwrap();
    let (a, b) = (name("a"), name("b"));
    let other = changed(&mut Rng::new(7), &Record::default());
    let nothing = rows::load(&connection, &b).unwrap().1;
    rows::save(&connection, NOW, &b, &nothing, &other).unwrap();
    let mut rng = Rng::new(1);
    for turn in 0..3_000 {
        let before = rows::load(&connection, &a).unwrap().1;
        let after = changed(&mut rng, &before.record);
        rows::save(&connection, NOW, &a, &before, &after).unwrap();
        let (meta, loaded) = rows::load(&connection, &a).unwrap();
        assert_eq!(loaded.record, remembered(&after), "turn {turn}");
        assert!(meta.epoch > 0 && meta.ceiling > Fence::NONE, "{meta:?}");
        let client = ClientId([9, rng.below(5)]);
        let seen = rows::load_for(&connection, client, &a).unwrap().1;
        let alone = |record: &Record| record.waiters.iter().filter(|w| w.client == client).copied().collect();
        assert_eq!(seen, Record { waiters: alone(&loaded.record), ..loaded.record.clone() }, "turn {turn}");
    }
    assert_eq!(rows::load(&connection, &b).unwrap().1.record, remembered(&other), "another name is left alone");
}

#[test]
fn the_first_waiter_of_a_free_name_has_its_turn() {
    let bench = Bench::new();
    bench.open().unwrap();
    let connection = Connection::open(bench.path()).unwrap();
    let a = name("a");
    let at = |nanos: u64| StoreTime::from_nanos(NOW.as_nanos() + nanos);
    let waiter = |client, until| Waiter { client: ClientId([9, client]), until };
    let waits: Vec<_> = [1, 2, 3].map(|client| (ClientId([9, client]), a.clone())).into();
    let whose = |record: &Record, now| {
        connection.execute_batch("DELETE FROM holds; DELETE FROM names; DELETE FROM waiters").unwrap();
        rows::save(&connection, NOW, &a, &rows::load(&connection, &a).unwrap().1, record).unwrap();
        let turns = rows::turns(&connection, now, &waits).unwrap();
        turns.into_iter().map(|(client, _)| client.0[1]).collect::<Vec<_>>()
    };
    let mut record =
        Record { waiters: [waiter(1, at(5)), waiter(2, at(9)), waiter(3, at(9))].into(), ..Record::default() };
    assert_eq!((whose(&record, at(4)), whose(&record, at(5)), whose(&record, at(9))), (vec![1], vec![2], vec![]));
    record.cooldown_until = at(3);
    assert_eq!((whose(&record, at(2)), whose(&record, at(3))), (vec![], vec![1]));
    let mut held = row(&mut Rng::new(1));
    (held.holds, held.expires) =
        ([Hold { request: held.holds[0].request, expires: at(6) }].into_iter().collect(), at(6));
    record.rows.push(held);
    assert_eq!((whose(&record, at(5)), whose(&record, at(6))), (vec![], vec![2]));
}

#[test]
fn numbers_and_clients_are_the_same_after_the_file() {
    for number in [0, 1, 1 << 40, i64::MAX as u64] {
        assert_eq!(rows::unsigned(rows::signed(number)), number);
    }
    assert_eq!(rows::signed(u64::MAX), i64::MAX);
    let client = ClientId([0x0102_0304_0506_0708, 0x1112_1314_1516_1718]);
    assert_eq!(rows::client(rows::client_bytes(client)), client);
    assert_eq!(rows::client_bytes(client)[..9], [1, 2, 3, 4, 5, 6, 7, 8, 0x11]);
}
