//! A program that blocks its runtime for longer than a lease keeps its lock: the keeper has a thread of its own.

use std::time::Duration;

use leasehold::Client;

/// The whole of it: a lease of 30 s, a runtime that does nothing else for 40 s.
#[test]
fn a_runtime_blocked_for_40_s_does_not_lose_a_kept_lease_of_30_s() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::connect("memory:blocked-for-40-s").await.unwrap();
        let guard = client.lock("kept").expect("a name").keep(Duration::from_secs(30)).acquire().await.unwrap();
        let signal = guard.lost_signal();
        std::thread::sleep(Duration::from_secs(40));
        assert!(guard.is_valid(), "the lock was lost");
        assert!(!signal.is_lost());
        let status = client.inspect("kept").await.unwrap();
        assert_eq!(status.holders[0].fence, Some(guard.fence()), "the store gave it to another");
        guard.release().await.unwrap();
    });
}
