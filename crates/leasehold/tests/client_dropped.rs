//! The last handle of a client goes while something is still open with the store: it is brought to its end, and then all ends.
#![allow(clippy::unwrap_used, reason = "these are tests, helpers and all")]

mod hooked;

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use hooked::{MS, Meets, hooked};
use leasehold::{Client, Error, ErrorKind, Event, Listener, Outcome};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Less than the lease that is the default.
const LONG: Duration = Duration::from_secs(25);

fn lost(outcome: Outcome) -> Error {
    Error::new(ErrorKind::Unreachable, "chaos", "lost").with_outcome(outcome)
}

/// A hook that the first call of this kind meets.
fn at_first(
    what: &'static str,
    meets: impl Fn() -> Meets + Send + Sync + 'static,
) -> impl Fn(&'static str) -> Meets + Send + Sync + 'static {
    let armed = AtomicBool::new(true);
    move |met| if met == what && armed.swap(false, SeqCst) { meets() } else { Meets::Nothing }
}

/// A listener goes when all else of its client has gone.
struct Goes(#[allow(dead_code, reason = "dropping it is the news")] UnboundedSender<()>);

impl Listener for Goes {
    fn on(&self, _: &Event<'_>) {}
}

fn goes() -> (Goes, UnboundedReceiver<()>) {
    let (here, gone) = unbounded_channel();
    (Goes(here), gone)
}

async fn has_gone(mut gone: UnboundedReceiver<()>) {
    assert_eq!(tokio::time::timeout(LONG, gone.recv()).await.expect("something of the client is still there"), None);
}

async fn others_can_have_it(url: &str) {
    let other = Client::connect(url).await.expect("a store in memory");
    let attempt = other.lock("a").expect("a name").acquire_within(LONG).await.expect("a store that answers");
    assert!(!attempt.is_busy(), "one lost message, and the lock is held by nobody for 30 s");
}

/// The guard is dropped, then the client; the first release is lost on its way: it must be sent again.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_guard_is_released_though_the_first_release_is_lost() {
    let url = "memory:dropped-release";
    let (listener, gone) = goes();
    let hook = at_first("release", || Meets::Error(lost(Outcome::NotApplied)));
    let client = hooked(url, hook).listener(listener).connect().await.unwrap();
    let guard = client.lock("a").expect("a name").acquire().await.unwrap();
    drop(guard);
    drop(client);
    others_can_have_it(url).await;
    has_gone(gone).await;
}

/// The answer to an acquire is lost, its task goes, and so does the client: the grant is taken back.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_acquire_is_released() {
    let url = "memory:dropped-unknown";
    let (listener, gone) = goes();
    let hook = at_first("acquire", || Meets::Lost(lost(Outcome::Unknown)));
    let client = hooked(url, hook).listener(listener).connect().await.unwrap();
    assert!(client.lock("a").expect("a name").try_acquire().await.is_err());
    drop(client);
    others_can_have_it(url).await;
    has_gone(gone).await;
}

/// The same, where the acquire comes to the store only after its task and its client have gone, yet before its `not_after`.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_acquire_that_comes_late_is_released() {
    let url = "memory:dropped-late";
    let (came, comes) = std::sync::mpsc::channel();
    let (listener, gone) = goes();
    let hook = at_first("acquire", move || Meets::Late(500 * MS, lost(Outcome::Unknown), came.clone()));
    let client = hooked(url, hook).listener(listener).connect().await.unwrap();
    assert!(client.lock("a").expect("a name").try_acquire().await.is_err());
    drop(client);
    tokio::task::spawn_blocking(move || comes.recv_timeout(LONG).unwrap()).await.unwrap();
    others_can_have_it(url).await;
    has_gone(gone).await;
}

/// A client with nothing open goes at once, thread and all; one whose guard is left does not.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_goes_with_its_last_handle() {
    let (listener, gone) = goes();
    let client = Client::builder("memory:dropped-last").listener(listener).connect().await.unwrap();
    let guard = client.lock("a").expect("a name").keep(3_000 * MS).acquire().await.unwrap();
    drop(client);
    let still_kept = tokio::time::timeout(4_000 * MS, guard.lost()).await;
    assert!(still_kept.is_err() && guard.is_valid(), "kept as long as its guard lives");
    guard.release().await.unwrap();
    has_gone(gone).await;
}

/// The task that released goes before the store answers: how the release ended is told all the same, once.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_is_given_up_is_told() {
    let (tell, mut told) = unbounded_channel();
    let listener = move |event: &Event<'_>| {
        if let Event::Released { ok, held, .. } = event {
            let _ = tell.send((*ok, *held));
        }
    };
    let hook = at_first("release", || Meets::Slow(200 * MS));
    let client = hooked("memory:dropped-told", hook).listener(listener).connect().await.unwrap();
    let guard = client.lock("a").expect("a name").acquire().await.unwrap();
    tokio::time::sleep(2 * MS).await;
    let mut release = Box::pin(guard.release());
    let begun = std::future::poll_fn(|task| std::task::Poll::Ready(release.as_mut().poll(task))).await;
    assert!(begun.is_pending(), "the store takes its time");
    drop(release);
    let (ok, held) = tokio::time::timeout(LONG, told.recv()).await.expect("it is told").unwrap();
    assert!(ok && held >= 2 * MS, "{ok} {held:?}");
    drop(client);
    assert_eq!(tokio::time::timeout(LONG, told.recv()).await.expect("the client goes"), None, "it is told once");
}
