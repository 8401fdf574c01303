//! Restarts of the machine, power loss, and files from another machine.

use leasehold_core::ErrorKind;

use super::*;

#[test]
fn a_restart_of_the_machine_frees_everything_and_fences_go_on() {
    let mut bench = Bench::new();
    let one = asking(1, 1, "a");
    let before = take(&bench.open().unwrap(), &one).unwrap();
    bench.reboot(None);
    let store = bench.open().unwrap();
    let after = take(&store, &asking(2, 1, "a")).expect("its holder is dead");
    assert!(after.block.first > before.block.last());
    assert_eq!(renew(&store, &one, before.block.first).unwrap(), Renewed::Lost);
}

/// After a power loss everything that was not synced is gone, and the wall clock starts in 2020.
#[test]
fn fences_grow_over_a_loss_of_power_with_a_lost_clock() {
    let mut bench = Bench::new();
    let store = bench.open().unwrap();
    let files = ["locks.db", "locks.db-wal", "locks.db-shm"];
    let synced: Vec<_> = files.iter().map(|file| std::fs::read(bench.folder.path().join(file)).ok()).collect();
    let mut largest = Fence::NONE;
    for number in 1..200 {
        let one = Acquire { block: 1_000, ..asking(1, number, "a") };
        largest = largest.max(take(&store, &one).unwrap().block.last());
        give(&store, &one).unwrap();
    }
    drop(store);
    for (file, bytes) in files.iter().zip(synced) {
        let path = bench.folder.path().join(file);
        match bytes {
            Some(bytes) => std::fs::write(path, bytes).unwrap(),
            None => drop(std::fs::remove_file(path)),
        }
    }
    bench.reboot(Some(StoreTime::from_nanos(1)));
    let after = take(&bench.open().unwrap(), &asking(2, 1, "a")).unwrap();
    assert!(after.block.first > largest, "{:?} after {largest:?}", after.block.first);
}

#[test]
fn the_ceiling_is_raised_before_a_fence_passes_it() {
    let bench = Bench::new();
    let store = bench.open().unwrap();
    let ceiling = || u64::try_from(bench.sql("SELECT ceiling FROM meta")).unwrap();
    let ahead = Fence::new(ceiling() + 5);
    let one = Acquire { seen: ahead, ..asking(1, 1, "a") };
    let grant = take(&store, &one).unwrap();
    assert_eq!(grant.block.first, ahead.plus(1));
    assert!(ceiling() > grant.block.last().get(), "{} under {:?}", ceiling(), grant.block);
    give(&store, &one).unwrap();
    // Ahead of the clock: the clock alone would give smaller fences now.
    assert!(take(&store, &asking(2, 1, "a")).unwrap().block.first > grant.block.last());
}

#[test]
fn another_machine_waits_out_the_lease_and_the_first_one_is_notified() {
    let mut bench = Bench::new();
    let first = bench.open().unwrap();
    let one = Acquire { lease: Duration::from_millis(400), ..asking(1, 1, "a") };
    let grant = take(&first, &one).unwrap();
    bench.boot.boot_id = "elsewhere".into();
    bench.boot.machine_id = "another".into();
    let began = leasehold_clock::now();
    let second = bench.open().unwrap();
    let mut number = 0;
    while take(
        &second,
        &asking(
            2,
            {
                number += 1;
                number
            },
            "a",
        ),
    )
    .is_none()
    {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(leasehold_clock::now().since(began) >= one.lease, "the whole lease, from when the other machine came");
    for error in [renew(&first, &one, grant.block.first).unwrap_err(), give(&first, &one).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Unfit);
        assert!(error.to_string().contains("taken over"), "{error}");
    }
}

#[test]
fn a_machine_without_an_id_is_never_the_same() {
    let mut bench = Bench::new();
    bench.boot.machine_id.clear();
    take(&bench.open().unwrap(), &asking(1, 1, "a")).unwrap();
    bench.reboot(None);
    assert!(take(&bench.open().unwrap(), &asking(2, 1, "a")).is_none());
}

/// The wall clock is set while locks are held: no lease ends early or late.
#[test]
fn the_wall_clock_decides_nothing_within_a_boot() {
    let mut bench = Bench::new();
    let one = asking(1, 1, "a");
    let grant = take(&bench.open().unwrap(), &one).unwrap();
    for wall in [1, u64::MAX / 4] {
        bench.boot.wall = Some(StoreTime::from_nanos(wall));
        let store = bench.open().unwrap();
        assert!(take(&store, &asking(2, wall, "a")).is_none());
        assert!(matches!(renew(&store, &one, grant.block.first).unwrap(), Renewed::Kept { left } if left <= LEASE));
    }
}
