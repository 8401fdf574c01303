//! Short leases: the lost signal before the next grant, and `at_least` beyond a fixed lease.
#![allow(missing_docs)]

use std::time::{Duration, Instant};

use leasehold::*;

const MS: Duration = Duration::from_millis(1);

#[test]
fn lost_comes_before_the_next_grant_with_a_lease_of_100_ms() {
    let url = "memory:short-leases";
    let one = blocking::Client::connect(url).unwrap();
    let two = blocking::Client::connect(url).unwrap();
    assert!(one.lock("a").acquire().unwrap().is_valid());
    let (mut late, rounds) = (0, 30);
    for _ in 0..rounds {
        let guard = one.lock("a").lease(100 * MS).acquire().unwrap();
        let signal = guard.lost_signal();
        let began = Instant::now();
        let taken = loop {
            if let blocking::Attempt::Granted(taken) = two.lock("a").try_acquire().unwrap() {
                break taken;
            }
            assert!(began.elapsed() < Duration::from_secs(2));
            std::hint::spin_loop();
        };
        late += u32::from(!signal.is_lost());
        drop(taken);
        drop(guard);
    }
    assert_eq!(late, 0, "of {rounds} grants came before the former holder was told");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_least_holds_also_for_one_who_holds_on_to_the_end_of_a_fixed_lease() {
    let url = "memory:test-at-least";
    let (one, two) = (Client::connect(url).await.unwrap(), Client::connect(url).await.unwrap());
    let began = Instant::now();
    let guard = one.lock("a").lease(100 * MS).at_least(1500 * MS).acquire().await.unwrap();
    let other = two.lock("a").acquire().await.unwrap();
    let after = began.elapsed();
    assert!(after >= 1400 * MS, "others were to be kept out for 1.5 s from the grant, and came after {after:?}");
    drop((guard, other));
}
