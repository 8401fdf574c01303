//! A granted request is sent again while its servers are slow, gone, or held by other clients.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::port::*;
use leasehold_core::quorum::epoch::Facts;
use leasehold_core::quorum::{Ballot, Member, RenewedVote, Server, Vote};
use leasehold_core::reference::{FENCES_KEPT_FOR, Reference};
use leasehold_core::{
    Capability, ClientId, Error, Fence, Identity, Name, Names, Outcome, RequestId, StoreOwner, StoreTime,
};
use leasehold_quorum::{Quorum, Settings};
use tokio::sync::watch;

/// How long a server is waited for.
const LIMIT: Duration = Duration::from_millis(20);
const LEASE: Duration = Duration::from_secs(60);
const FACTS: Facts = Facts { run: 1, started: StoreTime::from_nanos(0), untouched: true, synced: false };

/// A server that executes calls while it is open; earlier calls wait.
struct Slow {
    label: Arc<str>,
    server: Mutex<Server>,
    is_open: watch::Sender<bool>,
    ballots: AtomicUsize,
    /// How often it was asked to release.
    given_back: AtomicUsize,
}

/// A quorum's handle of it.
struct Handle(Arc<Slow>);

impl Slow {
    fn new(number: usize) -> Arc<Self> {
        let store = Reference::new(1, FENCES_KEPT_FOR);
        Arc::new(Self {
            label: format!("redis://{number}").into(),
            server: Mutex::new(Server::new(store)),
            is_open: watch::Sender::new(true),
            ballots: AtomicUsize::new(0),
            given_back: AtomicUsize::new(0),
        })
    }

    fn when_open<T: Send + 'static>(
        self: &Arc<Self>,
        execute: impl FnOnce(&mut Server, StoreTime) -> Result<T, Error> + Send + 'static,
    ) -> Call<Reply<T>> {
        let slow = self.clone();
        Call::pending(async move {
            let mut is_open = slow.is_open.subscribe();
            is_open.wait_for(|open| *open).await.expect("it is not dropped");
            let at = leasehold_clock::wall();
            let result = execute(&mut slow.server.lock().unwrap(), at)?;
            Ok(Answered { at, result })
        })
    }

    fn give_back(self: &Arc<Self>, request: Release) -> Call<Reply<Released>> {
        self.given_back.fetch_add(1, Ordering::SeqCst);
        self.when_open(move |server, at| Ok(server.store.release(at, &request).0))
    }

    fn is_free(&self) -> bool {
        self.server.lock().unwrap().store.inspect(leasehold_clock::wall(), &name()).holders.is_empty()
    }
}

impl Store for Handle {
    fn label(&self) -> &Arc<str> {
        &self.0.label
    }
    fn capability(&self) -> Capability {
        Capability::NOTHING
    }
    fn identity(&self) -> Call<Result<Identity, Error>> {
        Call::done(Ok(Identity::unknown("slow")))
    }
    fn clock(&self) -> Call<Reply<()>> {
        Call::done(Ok(Answered { at: leasehold_clock::wall(), result: () }))
    }
    fn release(&self, request: Release) -> Call<Reply<Released>> {
        self.0.give_back(request)
    }
    fn acquire(&self, _: Acquire) -> Call<Reply<Acquired>> {
        unreachable!("a quorum asks for votes")
    }
    fn renew(&self, _: Vec<Renew>) -> Call<Reply<Vec<Renewed>>> {
        unreachable!("a quorum upholds")
    }
    fn watch(&self, _: ClientId, _: Name, _: HintSink) -> Call<Result<(), Error>> {
        unreachable!("nobody waits")
    }
    fn watch_held(&self, _: ClientId, _: HintSink) {}

    fn unwatch(&self, _: ClientId, _: Name) -> Call<()> {
        Call::done(())
    }
    fn inspect(&self, _: Name) -> Call<Reply<Inspected>> {
        unreachable!("nobody looks")
    }
    fn list(&self, _: String, _: Option<Name>, _: usize) -> Call<Reply<Vec<Inspected>>> {
        unreachable!("nobody looks")
    }
    fn break_lock(&self, _: Name, _: BreakOptions) -> Call<Reply<Broken>> {
        unreachable!("it is broken behind the quorum's back")
    }
    fn close(&self, _: ClientId) -> Call<()> {
        Call::done(())
    }
}

impl Member for Handle {
    fn vote(&self, ballot: Ballot) -> Call<Reply<Vote>> {
        self.0.ballots.fetch_add(1, Ordering::SeqCst);
        self.0.when_open(move |server, at| server.vote(at, FACTS, Duration::ZERO, &ballot))
    }
    fn uphold(&self, leases: Vec<Renew>) -> Call<Reply<RenewedVote>> {
        self.0.when_open(move |server, at| server.uphold(at, FACTS, Duration::ZERO, &leases))
    }
    fn withdraw(&self, request: Release) -> Call<Reply<Released>> {
        self.0.give_back(request)
    }
}

/// Three servers, and a quorum over them.
struct Scene {
    servers: [Arc<Slow>; 3],
    quorum: Quorum,
}

impl Scene {
    fn new() -> Self {
        let servers = [0, 1, 2].map(Slow::new);
        let members = || servers.iter().map(|slow| Arc::new(Handle(slow.clone())) as Arc<dyn Member>).collect();
        let mut settings = Settings::default();
        (settings.quarantine, settings.limit) = (Duration::ZERO, Some(LIMIT));
        let (quorum, _) = Quorum::new(members(), members(), &settings).unwrap();
        Self { servers, quorum }
    }

    /// Opens these servers; the others stand still.
    fn open(&self, open: [bool; 3]) {
        for (slow, open) in self.servers.iter().zip(open) {
            slow.is_open.send_replace(open);
        }
    }

    async fn acquire(&self, request: &Acquire) -> Result<Acquired, Error> {
        Ok(self.quorum.acquire(request.clone()).await?.result)
    }

    /// A grant by all servers.
    async fn take(&self, request: &Acquire) -> Granted {
        let granted = granted(self.acquire(request).await.unwrap());
        assert!(self.servers.iter().all(|slow| !slow.is_free()));
        granted
    }

    /// That long from now, on the quorum's clock.
    async fn after(&self, span: Duration) -> StoreTime {
        self.quorum.clock().await.unwrap().at + span
    }

    fn count(&self, of: impl Fn(&Slow) -> &AtomicUsize) -> usize {
        self.servers.iter().map(|slow| of(slow).load(Ordering::SeqCst)).sum()
    }

    fn given_back(&self) -> usize {
        self.count(|slow| &slow.given_back)
    }
}

fn name() -> Name {
    Name::new("a").unwrap()
}

fn asking(number: u64) -> Acquire {
    let request = RequestId { client: ClientId([7, 7]), number };
    Acquire {
        names: Names::One(name()),
        owner: StoreOwner::Private(request),
        request,
        mode: Mode::Exclusive,
        lease: LEASE,
        block: 1,
        seen: Fence::NONE,
        clock: Default::default(),
        not_after: StoreTime::NEVER,
        enlist: false,
        kept: false,
        about: Arc::default(),
    }
}

fn granted(acquired: Acquired) -> Granted {
    match acquired {
        Acquired::Granted(grants) => grants[0],
        other => panic!("not granted: {other:?}"),
    }
}

/// Servers that answer after the limit have the lease all the same.
#[tokio::test]
async fn servers_that_are_slow_have_it() {
    let scene = Scene::new();
    let request = asking(1);
    let first = scene.take(&request).await;
    scene.open([true, false, false]);
    let slow = async {
        tokio::time::sleep(LIMIT * 5).await;
        assert_eq!(scene.given_back(), 0, "it was released because two servers were slow");
        scene.open([true; 3]);
    };
    let (again, ()) = tokio::join!(scene.acquire(&request), slow);
    let again = granted(again.unwrap());
    assert_eq!(again.block, first.block);
    assert!(again.left <= first.left, "a repeat lengthened the lease");
    assert_eq!(scene.given_back(), 0);
}

/// When the caller's time is over nothing is known: the lock is neither released nor refused, and can be requested
/// again.
#[tokio::test]
async fn silence_says_nothing() {
    let scene = Scene::new();
    let request = asking(1);
    let first = scene.take(&request).await;
    scene.open([false; 3]);
    let error =
        scene.acquire(&Acquire { not_after: scene.after(LIMIT * 3).await, ..request.clone() }).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
    assert_eq!(scene.given_back(), 0);
    scene.open([true; 3]);
    assert_eq!(scene.take(&request).await.block, first.block);
    let release = Release {
        client: request.request.client,
        name: name(),
        owner: request.owner,
        fence: Some(first.block.first),
        scope: ReleaseScope::Hold(request.request),
        last_used: None,
        cooldown: Duration::ZERO,
        rejoin: false,
    };
    let released = scene.quorum.release(release).await.unwrap().result;
    assert!(matches!(released, Released::Released { .. }), "{released:?}");
    assert!(scene.servers.iter().filter(|slow| slow.is_free()).count() >= 2);
}

/// A minority on which another client holds the lock says nothing about the other two servers.
#[tokio::test]
async fn a_minority_that_is_busy_says_nothing() {
    let scene = Scene::new();
    let request = asking(1);
    let first = scene.take(&request).await;
    {
        let (at, other) = (leasehold_clock::wall(), asking(2));
        let store = &mut scene.servers[2].server.lock().unwrap().store;
        store.break_lock(at, &name(), leasehold_core::port::Break::Now.into());
        assert!(matches!(store.acquire(at, &other).unwrap(), Acquired::Granted(_)));
    }
    scene.open([false, false, true]);
    let error =
        scene.acquire(&Acquire { not_after: scene.after(LIMIT * 3).await, ..request.clone() }).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
    scene.open([true; 3]);
    assert_eq!(granted(scene.acquire(&request).await.unwrap()).block, first.block);
    assert_eq!(scene.given_back(), 0);
}

/// If a majority has lost it, it is requested again, without waiting for a server that stands still.
#[tokio::test]
async fn what_is_gone_is_granted_afresh() {
    let scene = Scene::new();
    let request = asking(1);
    let first = scene.take(&request).await;
    for slow in &scene.servers[..2] {
        slow.server.lock().unwrap().store.break_lock(
            leasehold_clock::wall(),
            &name(),
            leasehold_core::port::Break::Now.into(),
        );
    }
    scene.open([true, true, false]);
    let again = granted(scene.acquire(&request).await.unwrap());
    assert!(again.block.first > first.block.last(), "{:?} after {:?}", again.block, first.block);
    assert_eq!(again.left.as_secs(), LEASE.as_secs());
}

/// The repeat is dropped: what was granted before stays granted.
#[tokio::test]
async fn a_repeat_that_is_dropped_gives_nothing_back() {
    let scene = Scene::new();
    let request = asking(1);
    let first = scene.take(&request).await;
    let before = scene.count(|slow| &slow.ballots);
    scene.open([false; 3]);
    let mut again: Pin<Box<dyn Future<Output = _>>> = Box::pin(scene.acquire(&request));
    std::future::poll_fn(|task| {
        assert!(again.as_mut().poll(task).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
    assert_eq!(scene.count(|slow| &slow.ballots), before + 3, "it was not asked");
    drop(again);
    scene.open([true; 3]);
    assert_eq!(scene.take(&request).await.block, first.block);
    assert_eq!(scene.given_back(), 0);
}
