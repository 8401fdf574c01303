//! The mutexes of the shell: std's, or those of a scheduler that tries interleavings (`scripts/test shuttle`).

use std::sync::PoisonError;

#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};
#[cfg(not(shuttle))]
pub(crate) use std::sync::{Mutex, MutexGuard};

/// Locks a mutex. A panic under one would be a bug of ours, and what it guards is whole between two steps.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, shuttle))]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use leasehold_core::table::{Settings, Table};
    use leasehold_core::{ClientId, Store, StoreClock};
    use shuttle::sync::atomic::{AtomicU32, Ordering};

    use crate::Client;
    use crate::runtime::handle::ShellHandle;
    use crate::runtime::keeper::KeeperWaker;
    use crate::runtime::shell::Shell;

    /// A client whose keeper never comes: leases are long, and nothing here waits for a timer.
    fn client(background: &tokio::runtime::Runtime) -> Client {
        let store: Arc<dyn Store> =
            Arc::new(leasehold_memory::Memory::new(&leasehold_memory::Config { name: "shuttle".into() }));
        let sent = leasehold_clock::now();
        let at = leasehold_clock::wall();
        let client = ClientId([1, 2]);
        let table = Table::new(Settings {
            client,
            hints: true,
            unlayered: true,
            call_limit: Duration::from_secs(3600),
            patience: Duration::from_secs(10),
            clock: StoreClock::new(sent, sent, at),
            seed: 7,
        });
        let handle = background.handle().clone();
        let waker = Arc::new(KeeperWaker::default());
        let shell = Shell::new(client, store.clone(), store, handle, None, waker, table);
        Client { shell: ShellHandle::new(Arc::new(shell)), options: Arc::default(), about: Arc::default() }
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    /// Three threads count with a read and a write that are not one step: what was written before a release is seen after the
    /// next grant, or a count is lost.
    #[test]
    fn shuttle_what_was_written_before_a_release_is_seen_after_the_next_grant() {
        let background = runtime();
        shuttle::check_random(
            move || {
                let client = client(&background);
                let counter = Arc::new(AtomicU32::new(0));
                let threads: Vec<_> = (0..3)
                    .map(|_| {
                        let (lock, counter) = (client.lock("counter").expect("a name"), counter.clone());
                        shuttle::thread::spawn(move || {
                            for _ in 0..3 {
                                let guard = shuttle::future::block_on(lock.acquire()).unwrap();
                                let before = counter.load(Ordering::Relaxed);
                                shuttle::thread::yield_now();
                                counter.store(before + 1, Ordering::Relaxed);
                                drop(guard);
                            }
                        })
                    })
                    .collect();
                threads.into_iter().for_each(|thread| thread.join().unwrap());
                assert_eq!(counter.load(Ordering::Relaxed), 9);
                assert!(client.shell.state().table.is_empty());
            },
            3_000,
        );
    }

    /// Waiters that are dropped at any moment leave no other waiter stranded, and nothing behind.
    #[test]
    fn shuttle_a_waiter_that_goes_away_strands_nobody() {
        let background = runtime();
        shuttle::check_random(
            move || {
                let client = client(&background);
                let threads: Vec<_> = (0..3)
                    .map(|number| {
                        let lock = client.lock("counter").expect("a name");
                        shuttle::thread::spawn(move || {
                            if number == 0 {
                                let mut acquire = Box::pin(lock.acquire());
                                let waker = std::task::Waker::noop();
                                let mut task = std::task::Context::from_waker(waker);
                                let polled = acquire.as_mut().poll(&mut task);
                                shuttle::thread::yield_now();
                                drop(polled);
                            } else {
                                drop(shuttle::future::block_on(lock.acquire()).unwrap());
                            }
                        })
                    })
                    .collect();
                threads.into_iter().for_each(|thread| thread.join().unwrap());
                let state = client.shell.state();
                assert!(state.table.is_empty(), "{:?}", state.table);
                assert!(state.mailboxes.is_empty());
            },
            3_000,
        );
    }
}
