//! A listener or a layer of the user's panics once: the client goes on, nothing is leaked, and no name is stuck.
#![allow(clippy::unwrap_used, reason = "these are tests, helpers and all")]

mod hooked;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use hooked::{MS, Meets, hooked};
use leasehold::{Client, ErrorKind, Event, Guard};
use tokio::sync::mpsc::unbounded_channel;

/// Less than the lease that is the default.
const LONG: Duration = Duration::from_secs(25);

/// True the first time.
fn once() -> impl Fn() -> bool + Send + Sync + 'static {
    let armed = AtomicBool::new(true);
    move || armed.swap(false, SeqCst)
}

/// A hook that panics at the first call of this kind.
fn panics_at(what: &'static str, late: bool) -> impl Fn(&'static str) -> Meets + Send + Sync + 'static {
    let first = once();
    move |met| match met == what && first() {
        true if late => Meets::LatePanic,
        true => Meets::Panic,
        false => Meets::Nothing,
    }
}

async fn closes(client: &Client) {
    tokio::time::timeout(LONG, client.close()).await.expect("close() hangs").expect("no fork");
    assert_eq!(client.in_use(), 0);
}

async fn others_can_have_it(url: &str) {
    let other = Client::connect(url).await.expect("a store in memory");
    let attempt = other.lock("a").expect("a name").acquire_within(LONG).await.expect("a store that answers");
    assert!(!attempt.is_busy(), "nobody has a guard, and the lock is taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_panics_at_a_grant_leaks_no_lock() {
    let url = "memory:panic-grant";
    let first = once();
    let listener = move |event: &Event<'_>| {
        assert!(!matches!(event, Event::Granted { .. }) || !first(), "the listener panics");
    };
    let client = Client::builder(url).listener(listener).connect().await.unwrap();
    let guard =
        client.lock("a").expect("a name").acquire().await.expect("what the listener does is not the caller's business");
    assert!(guard.is_valid());
    drop(guard);
    others_can_have_it(url).await;
    closes(&client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_panics_at_a_renewal_does_not_end_the_keeper() {
    let (first, (told, mut renewed)) = (once(), unbounded_channel());
    let listener = move |event: &Event<'_>| {
        if matches!(event, Event::Renewed { .. }) {
            let _ = told.send(());
            assert!(!first(), "the listener panics");
        }
    };
    let client = Client::builder("memory:panic-renewed").listener(listener).connect().await.unwrap();
    let guard = client.lock("a").expect("a name").keep(3_000 * MS).acquire().await.unwrap();
    for _ in 0..5 {
        tokio::time::timeout(LONG, renewed.recv()).await.expect("not kept any more").unwrap();
    }
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    closes(&client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_panics_at_a_loss_does_not_end_the_keeper() {
    let first = once();
    let listener = move |event: &Event<'_>| {
        assert!(!matches!(event, Event::Lost { .. }) || !first(), "the listener panics");
    };
    let client = Client::builder("memory:panic-lost").listener(listener).connect().await.unwrap();
    for _ in 0..3 {
        let guard = client.lock("a").expect("a name").lease(50 * MS).acquire().await.unwrap();
        tokio::time::timeout(LONG, guard.lost()).await.expect("nobody says that it is lost");
    }
    closes(&client).await;
}

async fn a_layer_panics_at_an_acquire(url: &str, late: bool) {
    let client = hooked(url, panics_at("acquire", late)).connect().await.unwrap();
    let lock = client.lock("a").expect("a name");
    let panicked = tokio::spawn(async move { drop(lock.acquire().await) }).await;
    assert!(panicked.unwrap_err().is_panic(), "the panic is the caller's");
    let attempt = client.lock("a").expect("a name").acquire_within(LONG).await.unwrap();
    assert!(!attempt.is_busy(), "free in the store, and never to be had here again");
    drop(attempt);
    others_can_have_it(url).await;
    closes(&client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_panics_at_an_acquire_does_not_wedge_the_name() {
    a_layer_panics_at_an_acquire("memory:panic-acquire", false).await;
    a_layer_panics_at_an_acquire("memory:panic-acquire-late", true).await;
}

async fn a_layer_panics_at_a_release(url: &str, late: bool, give: impl AsyncFnOnce(Guard)) {
    let client = hooked(url, panics_at("release", late)).connect().await.unwrap();
    give(client.lock("a").expect("a name").acquire().await.unwrap()).await;
    others_can_have_it(url).await;
    closes(&client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_panics_at_a_release_does_not_keep_the_lock() {
    let release = async |guard: Guard| {
        let panicked = tokio::spawn(guard.release()).await;
        assert!(panicked.unwrap_err().is_panic(), "the panic is the caller's");
    };
    a_layer_panics_at_a_release("memory:panic-release", false, release).await;
    a_layer_panics_at_a_release("memory:panic-release-late", true, release).await;
    // A drop has no caller whom a panic could tell anything.
    a_layer_panics_at_a_release("memory:panic-drop", false, async |guard| drop(guard)).await;
    a_layer_panics_at_a_release("memory:panic-drop-late", true, async |guard| drop(guard)).await;
}

async fn a_layer_panics_at_a_renewal(url: &str, late: bool) {
    let (told, mut renewed) = unbounded_channel();
    let listener = move |event: &Event<'_>| {
        if let Event::Renewed { answered, .. } = event {
            let _ = told.send(*answered);
        }
    };
    let client = hooked(url, panics_at("renew", late)).listener(listener).connect().await.unwrap();
    // Long enough for the panic to be written down, with all its frames, on a slow machine.
    let guard = client.lock("a").expect("a name").keep(3_000 * MS).acquire().await.unwrap();
    for answered in [false, true, true] {
        assert_eq!(tokio::time::timeout(LONG, renewed.recv()).await.expect("not kept any more"), Some(answered));
    }
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    closes(&client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_panics_at_a_renewal_does_not_lose_the_lock() {
    a_layer_panics_at_a_renewal("memory:panic-renew", false).await;
    a_layer_panics_at_a_renewal("memory:panic-renew-late", true).await;
}

/// An executor that runs a task as soon as it is woken: on the waking thread, before `wake` returns.
struct Inline {
    guard: Guard,
    ran: mpsc::Sender<bool>,
}

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        let _ = self.ran.send(self.guard.is_valid());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_may_run_the_watcher_as_it_is_woken() {
    let client = Client::connect("memory:inline").await.unwrap();
    let guard = client.lock("a").expect("a name").lease(2_000 * MS).acquire().await.unwrap();
    let signal = guard.lost_signal();
    let (ran, runs) = mpsc::channel();
    let waker = Waker::from(Arc::new(Inline { guard, ran }));
    let mut lost = Box::pin(signal.wait());
    assert_eq!(lost.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);
    assert_eq!(runs.recv_timeout(LONG), Ok(false), "woken under a mutex that the task needs");
    assert!(lost.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_who_waits_behind_a_panic_is_served() {
    let client = hooked("memory:panic-behind", panics_at("acquire", true)).connect().await.unwrap();
    let (one, two) = (client.lock("a").expect("a name"), client.lock("a").expect("a name"));
    let (one, two) = tokio::join!(
        tokio::spawn(async move { one.acquire().await }),
        tokio::spawn(async move {
            tokio::time::timeout(LONG, two.acquire()).await.expect("stuck behind a call that panicked")
        })
    );
    let panics = [&one, &two].iter().filter(|joined| joined.is_err()).count();
    assert_eq!(panics, 1);
    for guard in [one, two].into_iter().flatten() {
        assert_eq!(guard.map(drop).map_err(|error| error.kind()), Ok::<(), ErrorKind>(()));
    }
    closes(&client).await;
}
