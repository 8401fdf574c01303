//! A store with a hook in front of it, for tests of what goes wrong there.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::sync::Arc;
use std::time::Duration;

use leasehold::port::{Acquire, Acquired, Call, Release, Released, Renew, Renewed, Reply, forward_store};
use leasehold::{Client, ClientBuilder, Error, Store};

pub(crate) const MS: Duration = Duration::from_millis(1);

/// What the hook makes of a call.
pub(crate) enum Meets {
    /// It goes on to the store.
    Nothing,
    /// It is not made, and fails.
    Error(Error),
    /// It is made, and its answer is lost.
    Lost(Error),
    /// It is made after this long, and answered.
    Slow(Duration),
    /// It is made when it was polled so often, and answered when it was polled so often again.
    Polls(u32),
    /// It is made only after this long, when it has failed already; then the word is given.
    Late(Duration, Error, std::sync::mpsc::Sender<()>),
    /// It panics when it is made.
    Panic,
    /// It panics when it is polled, and is not made.
    LatePanic,
}

pub(crate) type Hook = Arc<dyn Fn(&'static str) -> Meets + Send + Sync>;

/// A store whose calls to acquire, renew and release first meet a hook.
pub(crate) struct Hooked {
    inner: Arc<dyn Store>,
    hook: Hook,
}

impl Hooked {
    fn met<T: Send + Unpin + 'static>(
        &self,
        what: &'static str,
        call: impl FnOnce(&dyn Store) -> Call<Reply<T>> + Send + 'static,
    ) -> Call<Reply<T>> {
        match (self.hook)(what) {
            Meets::Nothing => call(&*self.inner),
            Meets::Error(error) => Call::pending(async move { Err(error) }),
            Meets::Lost(error) => {
                let made = call(&*self.inner);
                Call::pending(async move {
                    drop(made.await);
                    Err(error)
                })
            }
            Meets::Slow(after) => {
                let inner = self.inner.clone();
                Call::pending(async move {
                    tokio::time::sleep(after).await;
                    call(&*inner).await
                })
            }
            Meets::Polls(often) => {
                let inner = self.inner.clone();
                Call::pending(async move {
                    polled(often).await;
                    let made = call(&*inner).await;
                    polled(often).await;
                    made
                })
            }
            Meets::Late(after, error, made) => {
                let inner = self.inner.clone();
                std::thread::spawn(move || {
                    std::thread::sleep(after);
                    drop(call(&*inner));
                    made.send(())
                });
                Call::pending(async move { Err(error) })
            }
            Meets::Panic => panic!("the layer panics at {what}"),
            Meets::LatePanic => Call::pending(async move { panic!("the layer panics during {what}") }),
        }
    }
}

impl Store for Hooked {
    forward_store!(self => self.inner;
        label, capability, identity, clock, watch, watch_held, unwatch, inspect, list, break_lock, close);

    fn acquire(&self, request: Acquire) -> Call<Reply<Acquired>> {
        self.met("acquire", |inner| inner.acquire(request))
    }
    fn renew(&self, leases: Vec<Renew>) -> Call<Reply<Vec<Renewed>>> {
        self.met("renew", |inner| inner.renew(leases))
    }
    fn release(&self, request: Release) -> Call<Reply<Released>> {
        self.met("release", |inner| inner.release(request))
    }
}

/// Is ready when it was polled so often.
async fn polled(mut often: u32) {
    std::future::poll_fn(|task| {
        if often == 0 {
            return std::task::Poll::Ready(());
        }
        often -= 1;
        task.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

/// A client whose calls meet the hook.
pub(crate) fn hooked(url: &str, hook: impl Fn(&'static str) -> Meets + Send + Sync + 'static) -> ClientBuilder {
    let hook: Hook = Arc::new(hook);
    Client::builder(url).layer(move |inner| Arc::new(Hooked { inner, hook: hook.clone() }) as Arc<dyn Store>)
}
