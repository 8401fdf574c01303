//! One who asks just once is answered at once, whoever else waits in the same client.
#![allow(missing_docs)]

use std::time::{Duration, Instant};

use leasehold::*;

#[tokio::test(flavor = "multi_thread")]
async fn try_acquire_does_not_wait_behind_a_waiter_of_the_same_client() {
    let url = "memory:test";
    let (one, two) = (Client::connect(url).await.unwrap(), Client::connect(url).await.unwrap());
    let _held = one.lock("a").acquire().await.unwrap();
    let lock = two.lock("a");
    let waiter = tokio::spawn(async move { lock.acquire().await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let began = Instant::now();
    assert!(two.lock("a").try_acquire().await.unwrap().is_busy());
    let took = began.elapsed();
    waiter.abort();
    assert!(took < Duration::from_millis(100), "\"asks once, and does not wait\": it took {took:?} on memory:");
}
