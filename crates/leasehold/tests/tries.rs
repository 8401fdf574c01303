//! One who asks just once is answered at once, whoever else waits in the same client.
#![allow(missing_docs)]

use std::time::{Duration, Instant};

use leasehold::*;

#[tokio::test(flavor = "multi_thread")]
async fn try_acquire_does_not_wait_behind_a_waiter_of_the_same_client() {
    let url = "memory:test";
    let (one, two) = (Client::connect(url).await.unwrap(), Client::connect(url).await.unwrap());
    let _held = one.lock("a").expect("a name").acquire().await.unwrap();
    let lock = two.lock("a").expect("a name");
    let waiter = tokio::spawn(async move { lock.acquire().await });
    while one.inspect("a").await.unwrap().waiters != Some(1) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // One who waited behind it would be answered when it asks again, after nine tenths of a second: so the quickest of some tells.
    let mut quickest = Duration::MAX;
    for _ in 0..5 {
        let began = Instant::now();
        assert!(two.lock("a").expect("a name").try_acquire().await.unwrap().is_busy());
        quickest = quickest.min(began.elapsed());
    }
    assert!(!waiter.is_finished());
    waiter.abort();
    assert!(quickest < Duration::from_millis(400), "\"asks once, and does not wait\": it took {quickest:?} on memory:");
}
