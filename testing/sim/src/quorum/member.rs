//! A server as a simulated client sees it: every call is a message to it, and an answer, an error or nothing comes back.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use leasehold_core::port::{
    Acquire, Acquired, BreakOptions, Broken, Call, HintSink, Inspected, Release, Released, Renew, Renewed, Reply, Store,
};
use leasehold_core::quorum::{Ballot, Member, RenewedVote, Vote};
use leasehold_core::{Capability, ClientId, Error, ErrorKind, Identity, Name, Outcome};

use super::machine::lock;

/// What is sent to a server.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Clock,
    Vote(Box<Ballot>),
    Uphold(Vec<Renew>),
    Release(Box<Release>),
}

/// What it answers.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Clock(Reply<()>),
    Vote(Reply<Vote>),
    Uphold(Reply<RenewedVote>),
    Release(Reply<Released>),
}

/// A message that is to be sent.
pub(super) struct Outgoing {
    pub(super) call: u64,
    pub(super) server: usize,
    pub(super) ask: Ask,
}

/// The way of one client to all servers.
#[derive(Default)]
pub(super) struct Link {
    numbers: u64,
    calls: BTreeMap<u64, Arc<Mutex<Slot>>>,
    pub(super) outbox: Vec<Outgoing>,
    /// Servers that it knows to be down: calls fail at once.
    pub(super) refused: Vec<bool>,
}

#[derive(Default)]
struct Slot {
    came: Option<Result<Answer, Error>>,
    waker: Option<Waker>,
}

impl Link {
    pub(super) fn new(servers: usize) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self { refused: vec![false; servers], ..Self::default() }))
    }

    pub(super) fn is_open(&self, call: u64) -> bool {
        self.calls.contains_key(&call)
    }

    /// A call ended: with an answer, or without one in time.
    pub(super) fn ended(&mut self, call: u64, answer: Option<Answer>) {
        let Some(slot) = self.calls.remove(&call) else { return };
        let lost = || Error::new(ErrorKind::Unreachable, "call", "no answer").with_outcome(Outcome::Unknown);
        let waker = {
            let mut slot = lock(&slot);
            slot.came = Some(answer.ok_or_else(lost));
            slot.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    fn send(&mut self, server: usize, ask: Ask) -> Arc<Mutex<Slot>> {
        self.numbers += 1;
        let slot = Arc::<Mutex<Slot>>::default();
        self.calls.insert(self.numbers, slot.clone());
        self.outbox.push(Outgoing { call: self.numbers, server, ask });
        slot
    }
}

/// One server, over a link.
pub(super) struct Remote {
    server: usize,
    label: Arc<str>,
    link: Arc<Mutex<Link>>,
}

impl Remote {
    pub(super) fn all(labels: &[Arc<str>], link: &Arc<Mutex<Link>>) -> Vec<Arc<dyn Member>> {
        let of = |(server, label): (usize, &Arc<str>)| {
            Arc::new(Self { server, label: label.clone(), link: link.clone() }) as Arc<dyn Member>
        };
        labels.iter().enumerate().map(of).collect()
    }

    fn call<T: Unpin + Send + 'static>(&self, ask: Ask, of: fn(Answer) -> Option<Reply<T>>) -> Call<Reply<T>> {
        let mut link = lock(&self.link);
        if link.refused[self.server] {
            let refused = Error::new(ErrorKind::Unreachable, "call", "connection refused");
            return Call::done(Err(refused.with_outcome(Outcome::NotApplied)));
        }
        let slot = link.send(self.server, ask);
        Call::pending(poll_fn(move |task| {
            let mut slot = lock(&slot);
            match slot.came.take() {
                Some(came) => Poll::Ready(came.and_then(|answer| of(answer).expect("an answer to what was asked"))),
                None => {
                    slot.waker = Some(task.waker().clone());
                    Poll::Pending
                }
            }
        }))
    }
}

/// Of a quorum's servers nothing else is asked in these worlds.
fn not_asked<T>() -> Call<Result<T, Error>> {
    Call::done(Err(Error::new(ErrorKind::Unfit, "call", "not in this world").with_outcome(Outcome::NotApplied)))
}

impl Store for Remote {
    fn label(&self) -> &Arc<str> {
        &self.label
    }

    fn capability(&self) -> Capability {
        Capability::NOTHING
    }

    fn identity(&self) -> Call<Result<Identity, Error>> {
        Call::done(Ok(Identity::new("simulated", self.label.clone())))
    }

    fn clock(&self) -> Call<Reply<()>> {
        self.call(Ask::Clock, |answer| if let Answer::Clock(reply) = answer { Some(reply) } else { None })
    }

    fn acquire(&self, _: Acquire) -> Call<Reply<Acquired>> {
        not_asked()
    }

    fn renew(&self, _: Vec<Renew>) -> Call<Reply<Vec<Renewed>>> {
        not_asked()
    }

    fn release(&self, request: Release) -> Call<Reply<Released>> {
        let ask = Ask::Release(Box::new(request));
        self.call(ask, |answer| if let Answer::Release(reply) = answer { Some(reply) } else { None })
    }

    fn watch(&self, _: ClientId, _: Name, _: HintSink) -> Call<Result<(), Error>> {
        not_asked()
    }

    fn watch_held(&self, _: ClientId, _: HintSink) {}

    fn unwatch(&self, _: ClientId, _: Name) -> Call<()> {
        Call::done(())
    }

    fn inspect(&self, _: Name) -> Call<Reply<Inspected>> {
        not_asked()
    }

    fn list(&self, _: String, _: Option<Name>, _: usize) -> Call<Reply<Vec<Inspected>>> {
        not_asked()
    }

    fn break_lock(&self, _: Name, _: BreakOptions) -> Call<Reply<Broken>> {
        not_asked()
    }

    fn close(&self, _: ClientId) -> Call<()> {
        Call::done(())
    }
}

impl Member for Remote {
    fn vote(&self, ballot: Ballot) -> Call<Reply<Vote>> {
        let ask = Ask::Vote(Box::new(ballot));
        self.call(ask, |answer| if let Answer::Vote(reply) = answer { Some(reply) } else { None })
    }

    fn uphold(&self, leases: Vec<Renew>) -> Call<Reply<RenewedVote>> {
        let ask = Ask::Uphold(leases);
        self.call(ask, |answer| if let Answer::Uphold(reply) = answer { Some(reply) } else { None })
    }

    fn withdraw(&self, request: Release) -> Call<Reply<Released>> {
        self.release(request)
    }
}
