//! Short leases: the lost signal before the next grant, and `at_least` beyond a fixed lease.
#![allow(missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::*;

const MS: Duration = Duration::from_millis(1);

#[test]
fn lost_comes_before_the_next_grant_with_a_lease_of_100_ms() {
    let url = "memory:short-leases";
    let one = blocking::Client::connect(url).unwrap();
    let two = blocking::Client::connect(url).unwrap();
    assert!(one.lock("a").expect("a name").acquire().unwrap().is_valid());
    let pauses = Pauses::watch();
    let (mut late, mut counted) = (0, 0);
    for _ in 0..600 {
        if counted == 30 {
            break;
        }
        pauses.forget();
        let guard = one.lock("a").expect("a name").lease(100 * MS).acquire().unwrap();
        let signal = guard.lost_signal();
        let began = Instant::now();
        let taken = loop {
            if let blocking::Attempt::Granted(taken) = two.lock("a").expect("a name").try_acquire().unwrap() {
                break taken;
            }
            assert!(began.elapsed() < Duration::from_secs(60));
            std::hint::spin_loop();
        };
        let told = signal.is_lost();
        // Where the machine let no thread run for as long as there is to react, nobody can be told in time.
        if told || pauses.longest() < 10 * MS {
            counted += 1;
            late += u32::from(!told);
        }
        drop(taken);
        drop(guard);
    }
    assert_eq!(counted, 30, "the machine paused too often to tell");
    assert_eq!(late, 0, "of {counted} grants came before the former holder was told");
}

/// A thread that only sleeps, and notes for how long it was not let run.
struct Pauses(Arc<AtomicU64>);

impl Pauses {
    fn watch() -> Self {
        let longest = Arc::new(AtomicU64::new(0));
        let noted = Arc::downgrade(&longest);
        std::thread::spawn(move || {
            while let Some(longest) = noted.upgrade() {
                let began = Instant::now();
                std::thread::sleep(MS);
                longest.fetch_max(began.elapsed().as_micros() as u64, Ordering::Relaxed);
            }
        });
        Self(longest)
    }

    fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Up to now: also a pause that has only just ended, and will be noted in a moment.
    fn longest(&self) -> Duration {
        std::thread::sleep(5 * MS);
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_least_holds_also_for_one_who_holds_on_to_the_end_of_a_fixed_lease() {
    let url = "memory:test-at-least";
    let (one, two) = (Client::connect(url).await.unwrap(), Client::connect(url).await.unwrap());
    let began = Instant::now();
    let guard = one.lock("a").expect("a name").lease(100 * MS).at_least(1500 * MS).acquire().await.unwrap();
    let other = two.lock("a").expect("a name").acquire().await.unwrap();
    let after = began.elapsed();
    assert!(after >= 1400 * MS, "others were to be kept out for 1.5 s from the grant, and came after {after:?}");
    drop((guard, other));
}
