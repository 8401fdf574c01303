//! The store that meets the faults.

use std::future::{Future, poll_fn};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use leasehold::port::{
    Acquire, Acquired, Answered, BreakOptions, Broken, Call, ClientId, HintSink, Inspected, Release, Released, Renew,
    Renewed, Reply, forward_store,
};
use leasehold::{Error, ErrorKind, Name, Outcome, Store};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch::Receiver;
use tokio::time::Sleep;

use super::{Chaos, Fault, Kind};

/// A store behind a layer of chaos.
pub(super) struct Stormy {
    pub(super) chaos: Chaos,
    pub(super) inner: Arc<dyn Store>,
}

impl Stormy {
    fn call<T: Send + Unpin + 'static>(
        &self,
        kind: Kind,
        call: impl FnOnce(&Arc<dyn Store>) -> Call<Result<T, Error>> + Send + 'static,
    ) -> Call<Result<T, Error>> {
        self.met(self.chaos.meet(kind), call)
    }

    fn met<T: Send + Unpin + 'static>(
        &self,
        fault: Option<(Fault, Receiver<u64>)>,
        call: impl FnOnce(&Arc<dyn Store>) -> Call<Result<T, Error>> + Send + 'static,
    ) -> Call<Result<T, Error>> {
        match fault {
            None => call(&self.inner),
            Some((fault, calmed)) => Call::pending(meet(fault, calmed, self.inner.clone(), call)),
        }
    }
}

async fn meet<T: Unpin>(
    fault: Fault,
    mut calmed: Receiver<u64>,
    inner: Arc<dyn Store>,
    call: impl FnOnce(&Arc<dyn Store>) -> Call<Result<T, Error>> + Send,
) -> Result<T, Error> {
    match fault {
        Fault::LoseReply => {
            drop(call(&inner).await);
            Err(lost("the reply was lost", Outcome::Unknown))
        }
        Fault::LoseRequest(outcome) => Err(lost("the request was lost", outcome)),
        Fault::Hide => call(&inner).await,
        Fault::Park => Err(lost("the request sits in a dead socket", Outcome::Unknown)),
        Fault::Delay(late) => {
            sleep(late).await;
            call(&inner).await
        }
        Fault::DelayReply(late) => {
            let reply = call(&inner).await;
            sleep(late).await;
            reply
        }
        Fault::Hang => {
            // An error means that the layer is gone, and cannot be calmed any more.
            let _ = calmed.changed().await;
            call(&inner).await
        }
        Fault::Polls(times) => {
            pending(times).await;
            let reply = call(&inner).await;
            pending(times).await;
            reply
        }
    }
}

fn lost(what: &str, outcome: Outcome) -> Error {
    Error::new(ErrorKind::Unreachable, "chaos", what).with_outcome(outcome)
}

fn pending(times: u32) -> impl Future<Output = ()> {
    let mut left = times;
    poll_fn(move |task| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        task.waker().wake_by_ref();
        Poll::Pending
    })
}

/// On a runtime that outlives every runtime of a case's: a call may be finished elsewhere than it was begun.
fn sleep(span: Duration) -> Sleep {
    static TIMERS: OnceLock<Runtime> = OnceLock::new();
    let make = || Builder::new_multi_thread().worker_threads(1).enable_time().build().expect("a runtime for timers");
    let _context = TIMERS.get_or_init(make).enter();
    tokio::time::sleep(span)
}

impl Store for Stormy {
    forward_store!(self => self.inner; label, capability, identity, watch_held, close);

    fn clock(&self) -> Call<Reply<()>> {
        self.call(Kind::Clock, |inner| inner.clock())
    }

    fn acquire(&self, request: Acquire) -> Call<Reply<Acquired>> {
        let fault = self.chaos.meet(Kind::Acquire);
        if matches!(fault, Some((Fault::Park, _))) {
            self.chaos.state().parked.push((self.inner.clone(), request.clone()));
        }
        let chaos = self.chaos.clone();
        let call = self.met(fault, move |inner| inner.acquire(request));
        match call {
            Call::Done(reply) => Call::Done(reply.inspect(|reply| chaos.answered(reply))),
            Call::Pending(call) => Call::pending(async move {
                let reply = call.await;
                chaos.answered(&reply);
                reply
            }),
        }
    }

    fn renew(&self, leases: Vec<Renew>) -> Call<Reply<Vec<Renewed>>> {
        let fault = self.chaos.meet(Kind::Renew);
        if matches!(fault, Some((Fault::Hide, _))) {
            let kept = leases.iter().map(|renew| Renewed::Kept { left: renew.term }).collect();
            let reply = self.inner.renew(leases);
            return Call::pending(async {
                let at = reply.await.map_or_else(|_| leasehold_clock::wall(), |answered| answered.at);
                Ok(Answered { at, result: kept })
            });
        }
        self.met(fault, move |inner| inner.renew(leases))
    }

    fn release(&self, request: Release) -> Call<Reply<Released>> {
        self.call(Kind::Release, move |inner| inner.release(request))
    }

    fn watch(&self, client: ClientId, name: Name, sink: HintSink) -> Call<Result<(), Error>> {
        let chaos = self.chaos.clone();
        let sink: HintSink = Arc::new(move |hint| {
            if chaos.hints() {
                sink(hint);
            }
        });
        self.call(Kind::Watch, move |inner| inner.watch(client, name, sink))
    }

    fn unwatch(&self, client: ClientId, name: Name) -> Call<()> {
        self.chaos.meet(Kind::Unwatch);
        self.inner.unwatch(client, name)
    }

    fn inspect(&self, name: Name) -> Call<Reply<Inspected>> {
        self.call(Kind::Operate, move |inner| inner.inspect(name))
    }

    fn list(&self, prefix: String, after: Option<Name>, limit: usize) -> Call<Reply<Vec<Inspected>>> {
        self.call(Kind::Operate, move |inner| inner.list(prefix, after, limit))
    }

    fn break_lock(&self, name: Name, options: BreakOptions) -> Call<Reply<Broken>> {
        self.call(Kind::Operate, move |inner| inner.break_lock(name, options))
    }
}
