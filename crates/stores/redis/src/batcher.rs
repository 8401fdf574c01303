//! Sends concurrent acquires and releases in batches.
//!
//! While few calls are in flight, each caller sends its own. Beyond that, requests queue until a call ends or a batch
//! is full, and then go together. A batch handles only ordinary requests: a free name, a hold without waiters. It skips
//! any other, which is then sent alone.
//!
//! A client that drops an acquire withdraws it by a release. That release is sent only after every earlier acquire has
//! left the queue, and all batches are sent from one thread, so the first such release usually finds the grant. It is
//! repeated until the acquire is too late in any case.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use leasehold_core::fence::COARSE;
use leasehold_core::port::{Acquire, Release, ReleaseScope};
use leasehold_core::{Error, ErrorKind, Fence, Names, Outcome, StoreOwner, StoreTime};
use redis::{Cmd, Value};
use tokio::sync::oneshot;

use crate::config::Layout;
use crate::connection::{Failed, Session};
use crate::error;
use crate::keys;
use crate::reply::{self, Parts};
use crate::script::Script;
use crate::store::{self, Inner};

/// Maximum number of calls that callers send themselves while no batch is in flight.
const MAX_SOLO_CALLS: usize = 4;
/// Up to this many batches are sent without waiting for more requests.
const EAGER_BATCHES: usize = 8;
/// Maximum number of requests in a batch. A full batch occupies the server for about a millisecond.
const MAX_BATCH: usize = 128;
/// Maximum number of batches in flight: work for a tenth of the time-out of a call.
const MAX_BATCHES: usize = 128;

/// Requests that wait to be sent.
#[derive(Default)]
pub(crate) struct Batcher(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    /// Calls in flight that callers sent themselves.
    alone: usize,
    /// Batches in flight.
    batches: usize,
    /// Whether one of them has not taken its requests yet: requests that arrive until then go with it.
    is_starting: bool,
    /// Sequence number of the next request.
    next_number: u64,
    acquires: VecDeque<Queued<Acquire>>,
    /// Releases of granted locks.
    releases: VecDeque<Queued<Release>>,
    /// Releases of locks that an earlier acquire may have been granted.
    withdrawals: VecDeque<Queued<Release>>,
}

/// A request, and the sender of its answer.
struct Queued<T> {
    number: u64,
    request: Arc<T>,
    reply_to: oneshot::Sender<Answer>,
}

/// The outcome of a request.
pub(crate) enum Answer {
    /// The reply of the script for a single request.
    Whole(Result<Value, Error>),
    /// Done in a batch, at that time. An acquire has this first fence; after a jump, a single one further ahead.
    /// `waiters` is the number of clients that wait for a released lock, if known.
    Done { at: StoreTime, first: Fence, is_jump: bool, waiters: Option<u32> },
    /// Nothing was done: the request has to be sent alone.
    Alone(Option<SoloPermit>),
}

/// Permission to send a call alone, until it is dropped.
pub(crate) struct SoloPermit(Arc<Inner>);

impl Drop for SoloPermit {
    fn drop(&mut self) {
        self.0.batcher.waiting().alone -= 1;
    }
}

/// Requests that are sent together.
struct Batch {
    acquires: Vec<Queued<Acquire>>,
    releases: Vec<Queued<Release>>,
}

/// Whether this may be an ordinary acquire. A client on the waitlist does not send one.
pub(crate) fn can_batch_acquire(inner: &Inner, request: &Acquire) -> bool {
    let Names::One(name) = &request.names else { return false };
    let is_new = request.owner == StoreOwner::Private(request.request);
    is_new && !inner.waitlists().contains(request.request.client, name)
}

/// Whether this may be an ordinary release.
pub(crate) fn can_batch_release(request: &Release) -> bool {
    let ReleaseScope::Hold(id) = request.scope else { return false };
    let is_plain = request.cooldown.is_zero() && !request.rejoin && request.last_used.is_none();
    is_plain && request.owner == StoreOwner::Private(id)
}

impl Inner {
    /// Acquires one lock, alone or in a batch.
    pub(crate) async fn batch_acquire(self: &Arc<Self>, request: Arc<Acquire>) -> Answer {
        self.enqueue(request, |waiting| &mut waiting.acquires).await
    }

    /// Releases one lock, alone or in a batch.
    pub(crate) async fn batch_release(self: &Arc<Self>, request: Arc<Release>) -> Answer {
        let is_granted = request.fence.is_some();
        self.enqueue(request, |waiting| if is_granted { &mut waiting.releases } else { &mut waiting.withdrawals }).await
    }

    async fn enqueue<T>(
        self: &Arc<Self>,
        request: Arc<T>,
        queue: impl FnOnce(&mut Waiting) -> &mut VecDeque<Queued<T>>,
    ) -> Answer {
        let (reply_to, answer) = oneshot::channel();
        let is_due = {
            let mut waiting = self.batcher.waiting();
            if waiting.batches == 0 && waiting.alone < MAX_SOLO_CALLS {
                waiting.alone += 1;
                return Answer::Alone(Some(SoloPermit(self.clone())));
            }
            let number = waiting.next_number;
            waiting.next_number += 1;
            queue(&mut waiting).push_back(Queued { number, request, reply_to });
            waiting.starts_batch()
        };
        if is_due {
            self.clone().start_batches();
        }
        answer.await.unwrap_or_else(|_| {
            let what = "the thread of the connection failed";
            Answer::Whole(Err(Error::new(ErrorKind::Internal, "call", what).with_outcome(Outcome::Unknown)))
        })
    }

    /// On the connection's own thread. Boxed, because a task is moved and this one is large.
    fn start_batches(self: Arc<Self>) {
        let thread = self.connection.thread;
        thread.spawn_detached(Box::pin(self.send_batches()));
    }

    /// Sends batch after batch until the queues are empty.
    async fn send_batches(self: Arc<Self>) {
        let mut under_way = UnderWay { batcher: &self.batcher, ended: false };
        loop {
            // Before a batch is taken: no other task may run between taking and sending it.
            let session = match self.connection.session().await {
                Ok(session) => session,
                Err(error) => return under_way.fails(&error),
            };
            let Some((batch, is_another_due)) = under_way.next() else { return };
            if is_another_due {
                self.clone().start_batches();
            }
            tokio::join!(self.all_acquires(&session, batch.acquires), self.releases(&session, batch.releases));
        }
    }

    /// Acquires with the same options go in one call; most have the same.
    async fn all_acquires(&self, session: &Session, mut queued: Vec<Queued<Acquire>>) {
        let mut calls = Vec::new();
        while let Some(first) = queued.first().map(|first| first.request.clone()) {
            let alike: Vec<_> = queued.extract_if(.., |queued| is_alike(&queued.request, &first)).collect();
            calls.push(Box::pin(self.acquires(session, alike)));
        }
        all(calls).await;
    }

    async fn acquires(&self, session: &Session, queued: Vec<Queued<Acquire>>) {
        match &queued[..] {
            [] => {}
            [one] => {
                let command = store::acquire_command(self, &one.request);
                reply_one(queued, self.connection.send_on(session.clone(), &command).await);
            }
            several => {
                let command = acquire_many_command(self, several);
                let jumped = self.reply_all(session, &self.scripts.acquire_many, &command, queued).await;
                for (queued, at, first) in jumped {
                    queued.reply(Answer::Done { at, first, is_jump: true, waiters: Some(0) });
                }
            }
        }
    }

    async fn releases(&self, session: &Session, queued: Vec<Queued<Release>>) {
        match &queued[..] {
            [] => {}
            [one] => {
                let command = store::release_command(self, &one.request, false);
                reply_one(queued, self.connection.send_on(session.clone(), &command).await);
            }
            several => {
                let command = release_many_command(self, several);
                let published = self.reply_all(session, &self.scripts.release_many, &command, queued).await;
                self.notify_waiters(published).await;
            }
        }
    }

    /// Notifies the first waiter of each released lock that has subscribers. A failure here does not fail the release:
    /// waiters ask again before long.
    async fn notify_waiters(&self, published: Vec<(Queued<Release>, StoreTime, Fence)>) {
        if published.is_empty() {
            return;
        }
        let script = &self.scripts.notify;
        let answer = self.run(script, notify_command(self, &published)).await;
        let mut waiting = answer.and_then(Parts::of);
        for (queued, at, first) in published {
            // The clock of the release: it does not release a grant that is made after it.
            let waiters = waiting.as_mut().ok().and_then(|waiting| waiting.count().ok());
            queued.reply(Answer::Done { at, first, is_jump: false, waiters });
        }
    }

    /// Returns the requests with another outcome: a release that subscribers received, an acquire by a jump.
    async fn reply_all<T>(
        &self,
        session: &Session,
        script: &Script,
        command: &Cmd,
        queued: Vec<Queued<T>>,
    ) -> Vec<(Queued<T>, StoreTime, Fence)> {
        let answers = match self.connection.send_on(session.clone(), command).await {
            Ok(value) => done(value, queued.len()),
            Err(failed) => {
                let is_unknown = failed.is_no_script();
                let error = failed.into_error();
                if is_unknown {
                    // Loads the script for the next batches; they see for themselves if this fails.
                    let _ = self.connection.send_on(session.clone(), redis::cmd("EVAL").arg(&script.text).arg(0)).await;
                }
                Err(error)
            }
        };
        match answers {
            Ok((at, first, done)) => {
                let mut otherwise = Vec::new();
                for (queued, became) in queued.into_iter().zip(done) {
                    match became {
                        BatchOutcome::Done => {
                            queued.reply(Answer::Done { at, first, is_jump: false, waiters: Some(0) });
                        }
                        BatchOutcome::Otherwise => otherwise.push((queued, at, first)),
                        BatchOutcome::Nothing => queued.reply(Answer::Alone(None)),
                    }
                }
                return otherwise;
            }
            // A single request may be the reason, such as a key that the user has no rights to.
            Err(error) if error.outcome() == Outcome::NotApplied => {
                queued.into_iter().for_each(|queued| queued.reply(Answer::Alone(None)));
            }
            Err(error) => queued.into_iter().for_each(|queued| queued.reply(Answer::Whole(Err(error.clone())))),
        }
        Vec::new()
    }
}

fn reply_one<T>(queued: Vec<Queued<T>>, answer: Result<Value, Failed>) {
    let answer = match answer {
        Err(failed) if failed.is_no_script() => Answer::Alone(None),
        answer => Answer::Whole(answer.map_err(Failed::into_error)),
    };
    if let Some(queued) = queued.into_iter().next() {
        queued.reply(answer);
    }
}

/// Whether both acquires have the options that a call states once for all.
fn is_alike(one: &Acquire, other: &Acquire) -> bool {
    let same_about = Arc::ptr_eq(&one.about, &other.about) || one.about == other.about;
    one.lease == other.lease && one.block == other.block && same_about
}

/// Polls all calls until each has ended.
async fn all<F: Future<Output = ()> + Unpin>(mut calls: Vec<F>) {
    poll_fn(|task| {
        calls.retain_mut(|call| Pin::new(call).poll(task).is_pending());
        if calls.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// The outcome of one request of a batch.
#[derive(Clone, Copy)]
enum BatchOutcome {
    Done,
    /// Released, and subscribers received it; or granted a single fence by a jump.
    Otherwise,
    Nothing,
}

/// The server's clock, the first fence of every grant, and the outcome of each request.
fn done(value: Value, requests: usize) -> Result<(StoreTime, Fence, Vec<BatchOutcome>), Error> {
    let mut parts = Parts::of(value)?;
    let (at, first, looked_at) = (parts.time()?, parts.fence()?, parts.count::<usize>()?);
    let mut done = vec![BatchOutcome::Nothing; requests];
    done.iter_mut().take(looked_at).for_each(|became| *became = BatchOutcome::Done);
    while parts.left() > 0 {
        let place = parts.number()?;
        let became = usize::try_from(place.unsigned_abs()).ok().and_then(|place| done.get_mut(place.checked_sub(1)?));
        *became.ok_or_else(|| error::unreadable("a place that was not asked for"))? =
            if place < 0 { BatchOutcome::Otherwise } else { BatchOutcome::Nothing };
    }
    Ok((at, first, done))
}

fn acquire_many_command(inner: &Inner, queued: &[Queued<Acquire>]) -> Cmd {
    let each = if inner.layout == Layout::Redisson { 3 } else { 2 };
    let mut command = store::calling(&inner.scripts.acquire_many, queued.len() * each);
    for Queued { request, .. } in queued {
        command.arg(inner.space.keys(&request.names.as_slice()[0]).fence());
    }
    for Queued { request, .. } in queued {
        let keys = inner.space.keys(&request.names.as_slice()[0]);
        command.arg(keys.lock());
        if inner.layout == Layout::Redisson {
            command.arg(keys.token());
        }
    }
    let first = &queued[0].request;
    let (mut seen, mut not_after) = (first.seen, first.not_after);
    for Queued { request, .. } in queued {
        // If the clock was not set back, new fences are above this one.
        let floor = Fence::at(request.clock.floor - COARSE);
        (seen, not_after) = (seen.max(request.seen).max(floor), not_after.min(request.not_after));
    }
    command.arg(reply::millis(first.lease)).arg(first.block.max(1)).arg(seen.get()).arg(reply::micros(not_after));
    command.arg(reply::about(&first.about));
    for Queued { request, .. } in queued {
        command.arg(keys::request(request.request));
    }
    command
}

fn release_many_command(inner: &Inner, queued: &[Queued<Release>]) -> Cmd {
    let each = if inner.layout == Layout::Redisson { 2 } else { 3 };
    let mut command = store::calling(&inner.scripts.release_many, queued.len() * each);
    for Queued { request, .. } in queued {
        command.arg(inner.space.keys(&request.name).lock());
    }
    for Queued { request, .. } in queued {
        command.arg(inner.space.keys(&request.name).fence());
    }
    if inner.layout == Layout::Plain {
        for Queued { request, .. } in queued {
            command.arg(inner.space.keys(&request.name).waitlist());
        }
    }
    command.arg(queued.len());
    for Queued { request, .. } in queued {
        // No other scope is sent in a batch.
        if let ReleaseScope::Hold(id) = request.scope {
            command.arg(keys::request(id));
        }
    }
    for Queued { request, .. } in queued {
        command.arg(store::number_of(request.fence));
    }
    if inner.layout == Layout::Redisson {
        for Queued { request, .. } in queued {
            command.arg(inner.space.keys(&request.name).channel());
        }
    }
    command
}

fn notify_command(inner: &Inner, published: &[(Queued<Release>, StoreTime, Fence)]) -> Cmd {
    let mut command = store::calling(&inner.scripts.notify, published.len() * 3);
    for (Queued { request, .. }, ..) in published {
        let keys = inner.space.keys(&request.name);
        command.arg(keys.lock()).arg(keys.waitlist()).arg(keys.waiter_expiries());
    }
    for (Queued { request, .. }, ..) in published {
        command.arg(request.name.as_str());
    }
    command
}

impl Batcher {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Whether to send one more batch now.
    fn starts_batch(&mut self) -> bool {
        let waiting = self.acquires.len().max(self.releases.len());
        let has_room = self.batches < EAGER_BATCHES || self.batches < MAX_BATCHES && waiting >= MAX_BATCH;
        let is_due = has_room && !self.is_starting;
        self.is_starting |= is_due;
        self.batches += usize::from(is_due);
        is_due
    }

    fn is_empty(&self) -> bool {
        self.acquires.is_empty() && self.releases.is_empty() && self.withdrawals.is_empty()
    }

    /// The next batch. An acquire whose caller is gone is left out; its withdrawal may be sent already.
    fn next(&mut self) -> Batch {
        let mut acquires = Vec::new();
        while let Some(next) = self.acquires.front() {
            let is_wanted = !next.reply_to.is_closed();
            if is_wanted && acquires.len() == MAX_BATCH {
                break;
            }
            acquires.extend(self.acquires.pop_front().filter(|_| is_wanted));
        }
        let before = self.acquires.front().map_or(u64::MAX, |left| left.number);
        let mut releases: Vec<_> = self.releases.drain(..MAX_BATCH.min(self.releases.len())).collect();
        while releases.len() < MAX_BATCH && self.withdrawals.front().is_some_and(|next| next.number < before) {
            releases.extend(self.withdrawals.pop_front());
        }
        Batch { acquires, releases }
    }
}

/// A task that sends batches.
struct UnderWay<'a> {
    batcher: &'a Batcher,
    ended: bool,
}

impl UnderWay<'_> {
    /// The next batch, and whether to send another one concurrently; none if this task has ended.
    fn next(&mut self) -> Option<(Batch, bool)> {
        let mut waiting = self.batcher.waiting();
        let batch = waiting.next();
        waiting.is_starting = false;
        if batch.acquires.is_empty() && batch.releases.is_empty() {
            self.ends(&mut waiting);
            return None;
        }
        let is_another_due = !waiting.is_empty() && waiting.starts_batch();
        Some((batch, is_another_due))
    }

    /// There is no connection: every queued request fails.
    fn fails(&mut self, error: &Error) {
        let (acquires, releases, withdrawals) = {
            let mut waiting = self.batcher.waiting();
            self.ends(&mut waiting);
            let Waiting { acquires, releases, withdrawals, .. } = &mut *waiting;
            (std::mem::take(acquires), std::mem::take(releases), std::mem::take(withdrawals))
        };
        acquires.into_iter().for_each(|queued| queued.reply(Answer::Whole(Err(error.clone()))));
        releases.into_iter().chain(withdrawals).for_each(|queued| queued.reply(Answer::Whole(Err(error.clone()))));
    }

    fn ends(&mut self, waiting: &mut Waiting) {
        waiting.batches -= 1;
        waiting.is_starting = false;
        self.ended = true;
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.ends(&mut self.batcher.waiting());
        }
    }
}

impl<T> Queued<T> {
    /// A caller that is gone needs no answer.
    fn reply(self, answer: Answer) {
        let _ = self.reply_to.send(answer);
    }
}
