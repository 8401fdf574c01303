//! Groups of one client let another client have its turns, though it is further away from the store.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use leasehold::port::{
    Acquire, Acquired, Call, ClientId, HintSink, Release, Released, Renew, Renewed, Reply, forward_store,
};
use leasehold::*;

struct Far(Arc<dyn Store>, Duration);
impl Far {
    fn go<T: Send + Unpin + 'static>(
        &self,
        f: impl FnOnce(&dyn Store) -> Call<Result<T, Error>> + Send + 'static,
    ) -> Call<Result<T, Error>> {
        let (inner, way) = (self.0.clone(), self.1);
        Call::pending(async move {
            tokio::time::sleep(way).await;
            let call = f(&*inner);
            let reply = call.await;
            tokio::time::sleep(way).await;
            reply
        })
    }
}
impl Store for Far {
    forward_store!(self => self.0; label, capability, identity, clock, watch_held, unwatch, inspect, list, break_lock, close);

    fn acquire(&self, r: Acquire) -> Call<Reply<Acquired>> {
        self.go(move |s| s.acquire(r))
    }
    fn renew(&self, l: Vec<Renew>) -> Call<Reply<Vec<Renewed>>> {
        self.go(move |s| s.renew(l))
    }
    fn release(&self, r: Release) -> Call<Reply<Released>> {
        self.go(move |s| s.release(r))
    }
    fn watch(&self, c: ClientId, n: Name, k: HintSink) -> Call<Result<(), Error>> {
        self.go(move |s| s.watch(c, n, k))
    }
}

async fn far(url: &str, ms: u64) -> Client {
    let way = Duration::from_millis(ms);
    Client::builder(url).layer(move |s| Arc::new(Far(s, way)) as Arc<dyn Store>).connect().await.unwrap()
}

async fn share(url: &str, names: &[&str]) -> (u32, u32) {
    let (one, two) = (far(url, 1).await, far(url, 6).await);
    let (near, away) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut tasks = Vec::new();
    for _ in 0..8 {
        for (lock, count) in
            [(one.lock_all(names).expect("a name"), near.clone()), (two.lock_all(["a"]).expect("a name"), away.clone())]
        {
            tasks.push(tokio::spawn(async move {
                loop {
                    let guard = lock.clone().budget(Duration::ZERO).acquire().await.unwrap();
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    count.fetch_add(1, SeqCst);
                    guard.release().await.unwrap();
                }
            }));
        }
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    tasks.iter().for_each(|task| task.abort());
    (near.load(SeqCst), away.load(SeqCst))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_of_one_client_do_not_starve_another() {
    let (groups, others) = share("memory:test", &["a", "b"]).await;
    let (singles, control) = share("memory:test-control", &["a"]).await;
    println!("groups {groups} : {others}; the same with single names {singles} : {control}");
    assert!(
        others * 100 >= 35 * (groups + others),
        "groups had {groups} turns, the other process {others} (single names: {singles} : {control})"
    );
}
