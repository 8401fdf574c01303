//! Nothing is left in the file or beside it for ever.

use super::*;
use crate::registry::Registry;

#[test]
fn leases_that_ran_out_and_the_room_they_took_are_given_back() {
    let bench = Bench::new();
    let store = bench.open().unwrap();
    for number in 0..20_000 {
        let once =
            Acquire { lease: Duration::from_millis(1), ..asking(1, number, &format!("once-{number}-{:0200}", 0)) };
        take(&store, &once).unwrap();
    }
    let one = asking(2, 0, "one");
    for _ in 0..200 * 128 {
        take(&store, &one).unwrap();
        give(&store, &one).unwrap();
        if bench.sql("SELECT count(*) FROM holds") == 0 && bench.sql("PRAGMA page_count") < 600 {
            return;
        }
    }
    panic!("{} rows, {} pages are left", bench.sql("SELECT count(*) FROM holds"), bench.sql("PRAGMA page_count"));
}

#[test]
fn a_name_that_was_released_leaves_nothing() {
    let bench = Bench::new();
    let store = bench.open().unwrap();
    for number in 0..1_000 {
        let once = asking(1, number, &format!("once-{number}"));
        take(&store, &once).unwrap();
        give(&store, &once).unwrap();
    }
    assert_eq!(bench.sql("SELECT (SELECT count(*) FROM holds) + (SELECT count(*) FROM names)"), 0);
}

/// What a dead client kept is ended before its files are removed; a live client is left alone.
#[test]
fn the_files_of_the_dead_are_removed_and_what_they_kept_is_ended() {
    let bench = Bench::new();
    let store = bench.open().unwrap();
    let living = Acquire { kept: true, ..asking(1, 1, "living") };
    take(&store, &living).unwrap();
    let dead = Acquire { kept: true, ..asking(2, 1, "dead") };
    let place = Registry::at(&bench.config(), &bench.boot).unwrap();
    take(&store, &dead).unwrap();
    assert!(take(&store, &Acquire { enlist: true, ..asking(2, 3, "living") }).is_none());
    assert_eq!(bench.sql("SELECT count(*) FROM waiters"), 1);
    place.forget(dead.request.client);
    take(&store, &Acquire { kept: false, ..asking(2, 2, "left behind on purpose") }).unwrap();
    assert_eq!(place.dead(), [dead.request.client]);
    let other = bench.open().unwrap();
    assert!(place.dead().is_empty());
    assert_eq!(bench.sql("SELECT count(*) FROM waiters"), 0, "it stays on the waitlist");
    assert!(take(&other, &asking(3, 1, "dead")).is_some());
    assert!(take(&other, &asking(3, 2, "living")).is_none());
    assert!(take(&other, &asking(3, 3, "left behind on purpose")).is_none());
}

/// The folder was removed: nothing is certain any more, and no client counts as dead.
#[test]
fn without_liveness_files_leases_count() {
    let bench = Bench::new();
    let store = bench.open().unwrap();
    take(&store, &Acquire { kept: true, ..asking(1, 1, "a") }).unwrap();
    std::fs::remove_dir_all(bench.folder.path().join("locks.db.d")).unwrap();
    assert!(take(&store, &asking(2, 1, "a")).is_none());
    assert!(take(&bench.open().unwrap(), &asking(2, 2, "a")).is_none());
}

#[test]
fn a_removed_folder_is_created_again() {
    for emptied in [0, 1, 2] {
        let bench = Bench::new();
        let store = bench.open().unwrap();
        let one = Acquire { kept: true, ..asking(1, 1, "a") };
        let steps: [&dyn Fn(); 2] = [&|| assert!(take(&store, &one).is_some()), &|| {
            assert!(matches!(store.watch(one.request.client, name("a"), Arc::new(|_| ())), Call::Done(Some(Ok(())))));
        }];
        for (number, step) in steps.iter().enumerate() {
            if number == emptied {
                std::fs::remove_dir_all(bench.folder.path().join("locks.db.d")).unwrap();
            }
            step();
        }
    }
}

#[test]
fn a_holder_that_died_is_passed_over_at_once_unless_liveness_is_off() {
    for liveness in [true, false] {
        let bench = Bench::new();
        let config = Config { path: bench.path(), liveness, create: true };
        let store = File::open(&config, &bench.boot, config.label().into()).unwrap();
        let dead = Acquire { kept: true, ..asking(1, 1, "a") };
        take(&store, &dead).unwrap();
        Registry::at(&bench.config(), &bench.boot).unwrap().forget(dead.request.client);
        assert_eq!(take(&store, &asking(2, 1, "a")).is_some(), liveness);
    }
}
