//! Acquires and releases of one moment share a call.
//!
//! While few calls are under way, each is sent by whoever waits for it. When many are, what comes waits for one of them to end, or until enough of them wait,
//! and goes together with all that waits by then. Only ordinary requests are done together: a free name, a hold that nobody waits for. For
//! any other the shared script does nothing, and it is asked again alone.
//!
//! A client that drops an acquire takes it back by a release. That one goes only when no acquire that came before it is left here, and what
//! is taken from here leaves on one thread: so the first such release mostly finds what there is to take back. It is repeated until the
//! acquire is too late all the same.

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

/// So many calls at a time are sent by whoever waits for them, where nothing else is under way.
const ALONE: usize = 4;
/// With so many batches under way, what comes waits for others, ...
const FEW: usize = 8;
/// ... until so many wait. In one call they keep the server from others for about a millisecond.
const TOGETHER: usize = 128;
/// With so many under way, all wait: the server has enough to do for a tenth of the time in which it must answer.
const MANY: usize = 128;

/// What waits to be sent.
#[derive(Default)]
pub(crate) struct Batcher(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    /// How many calls go alone.
    alone: usize,
    /// How many batches are under way.
    batches: usize,
    /// Whether one of them is still to be taken from what waits: whatever comes until then goes with it.
    is_starting: bool,
    /// How many requests have come.
    came: u64,
    acquires: VecDeque<Asked<Acquire>>,
    /// Of what was granted.
    releases: VecDeque<Asked<Release>>,
    /// Of what may have been granted, by an acquire that came before.
    withdrawals: VecDeque<Asked<Release>>,
}

/// A request, and whom to tell.
struct Asked<T> {
    number: u64,
    request: Arc<T>,
    told: oneshot::Sender<Answer>,
}

/// What became of a request.
pub(crate) enum Answer {
    /// What the script says that does one alone.
    Whole(Result<Value, Error>),
    /// It was done together with others, at that time; an acquire has this first fence, or a jump further on just one. So many wait for what
    /// was released, where that is known.
    Done { at: StoreTime, first: Fence, is_jump: bool, waiters: Option<u32> },
    /// Nothing was done: it has to be asked alone.
    Alone(Option<SoloPermit>),
}

/// A call that goes alone. It may end at any time, or be forgotten by whoever waits for it: nobody waits for its place.
pub(crate) struct SoloPermit(Arc<Inner>);

impl Drop for SoloPermit {
    fn drop(&mut self) {
        self.0.sharing.waiting().alone -= 1;
    }
}

/// Requests that go together.
struct Batch {
    acquires: Vec<Asked<Acquire>>,
    releases: Vec<Asked<Release>>,
}

/// Whether that may be an ordinary acquire. One that stands in line is none.
pub(crate) fn may_share_acquire(inner: &Inner, request: &Acquire) -> bool {
    let Names::One(name) = &request.names else { return false };
    let is_new = request.owner == StoreOwner::Private(request.request);
    is_new && !inner.lines().stands(request.request.client, name)
}

/// Whether that may be an ordinary release.
pub(crate) fn may_share_release(request: &Release) -> bool {
    let ReleaseScope::Hold(id) = request.give else { return false };
    let is_plain = request.linger.is_zero() && !request.rejoin && request.last_used.is_none();
    is_plain && request.owner == StoreOwner::Private(id)
}

impl Inner {
    /// Asks for one lock, alone or with others of the same moment.
    pub(crate) async fn share_acquire(self: &Arc<Self>, request: Arc<Acquire>) -> Answer {
        self.share(request, |waiting| &mut waiting.acquires).await
    }

    /// Gives one lock back, alone or with others of the same moment.
    pub(crate) async fn share_release(self: &Arc<Self>, request: Arc<Release>) -> Answer {
        let is_granted = request.fence.is_some();
        self.share(request, |waiting| if is_granted { &mut waiting.releases } else { &mut waiting.withdrawals }).await
    }

    async fn share<T>(
        self: &Arc<Self>,
        request: Arc<T>,
        line: impl FnOnce(&mut Waiting) -> &mut VecDeque<Asked<T>>,
    ) -> Answer {
        let (told, answer) = oneshot::channel();
        let is_due = {
            let mut waiting = self.sharing.waiting();
            if waiting.batches == 0 && waiting.alone < ALONE {
                waiting.alone += 1;
                return Answer::Alone(Some(SoloPermit(self.clone())));
            }
            let number = waiting.came;
            waiting.came += 1;
            line(&mut waiting).push_back(Asked { number, request, told });
            waiting.begins()
        };
        if is_due {
            self.clone().start_batches();
        }
        answer.await.unwrap_or_else(|_| {
            let what = "the thread of the connection failed";
            Answer::Whole(Err(Error::new(ErrorKind::Internal, "call", what).with_outcome(Outcome::Unknown)))
        })
    }

    /// On the connection's own thread. Boxed: a task is moved about, and this one is large.
    fn start_batches(self: Arc<Self>) {
        let thread = self.link.thread;
        thread.behind(Box::pin(self.send_batches()));
    }

    /// Sends what waits, batch by batch, until nothing does.
    async fn send_batches(self: Arc<Self>) {
        let mut under_way = UnderWay { sharing: &self.sharing, ended: false };
        loop {
            // First of all: between the taking and the sending nobody else's turn may come.
            let line = match self.link.line().await {
                Ok(line) => line,
                Err(error) => return under_way.fails(&error),
            };
            let Some((batch, is_another_due)) = under_way.next() else { return };
            if is_another_due {
                self.clone().start_batches();
            }
            tokio::join!(self.all_acquires(&line, batch.acquires), self.releases(&line, batch.releases));
        }
    }

    /// Those that are alike go in one call; most are.
    async fn all_acquires(&self, line: &Session, mut asked: Vec<Asked<Acquire>>) {
        let mut calls = Vec::new();
        while let Some(first) = asked.first().map(|first| first.request.clone()) {
            let alike: Vec<_> = asked.extract_if(.., |asked| is_alike(&asked.request, &first)).collect();
            calls.push(Box::pin(self.acquires(line, alike)));
        }
        all(calls).await;
    }

    async fn acquires(&self, line: &Session, asked: Vec<Asked<Acquire>>) {
        match &asked[..] {
            [] => {}
            [one] => {
                let command = store::acquire_command(self, &one.request);
                tell_one(asked, self.link.send_on(line.clone(), &command).await);
            }
            several => {
                let command = acquire_many_command(self, several);
                let jumped = self.tell_all(line, &self.scripts.acquire_many, &command, asked).await;
                for (asked, at, first) in jumped {
                    asked.tell(Answer::Done { at, first, is_jump: true, waiters: Some(0) });
                }
            }
        }
    }

    async fn releases(&self, line: &Session, asked: Vec<Asked<Release>>) {
        match &asked[..] {
            [] => {}
            [one] => {
                let command = store::release_command(self, &one.request, false);
                tell_one(asked, self.link.send_on(line.clone(), &command).await);
            }
            several => {
                let command = release_many_command(self, several);
                let heard = self.tell_all(line, &self.scripts.release_many, &command, asked).await;
                self.tell_lines(heard).await;
            }
        }
    }

    /// Tells the first in line of what was given back and heard by somebody. That this fails is no failure of a release: whoever waits asks
    /// again before long.
    async fn tell_lines(&self, heard: Vec<(Asked<Release>, StoreTime, Fence)>) {
        if heard.is_empty() {
            return;
        }
        let script = &self.scripts.notify;
        let answer = self.run(script, tell_command(self, &heard)).await;
        let mut waiting = answer.and_then(Parts::of);
        for (asked, at, first) in heard {
            // The clock of the release: what comes through after that one is not given back by it.
            let waiters = waiting.as_mut().ok().and_then(|waiting| waiting.count().ok());
            asked.tell(Answer::Done { at, first, is_jump: false, waiters });
        }
    }

    /// Those are left that were done otherwise: a release that was heard by somebody, an acquire by a jump.
    async fn tell_all<T>(
        &self,
        line: &Session,
        script: &Script,
        command: &Cmd,
        asked: Vec<Asked<T>>,
    ) -> Vec<(Asked<T>, StoreTime, Fence)> {
        let answers = match self.link.send_on(line.clone(), command).await {
            Ok(value) => done(value, asked.len()),
            Err(failed) => {
                let is_unknown = failed.is_no_script();
                let error = failed.into_error();
                if is_unknown {
                    // The next ones find it. That this fails they see for themselves.
                    let _ = self.link.send_on(line.clone(), redis::cmd("EVAL").arg(&script.text).arg(0)).await;
                }
                Err(error)
            }
        };
        match answers {
            Ok((at, first, done)) => {
                let mut otherwise = Vec::new();
                for (asked, became) in asked.into_iter().zip(done) {
                    match became {
                        BatchOutcome::Done => asked.tell(Answer::Done { at, first, is_jump: false, waiters: Some(0) }),
                        BatchOutcome::Otherwise => otherwise.push((asked, at, first)),
                        BatchOutcome::Nothing => asked.tell(Answer::Alone(None)),
                    }
                }
                return otherwise;
            }
            // One among them may be the reason, as where its user has no rights.
            Err(error) if error.outcome() == Outcome::NotApplied => {
                asked.into_iter().for_each(|asked| asked.tell(Answer::Alone(None)));
            }
            Err(error) => asked.into_iter().for_each(|asked| asked.tell(Answer::Whole(Err(error.clone())))),
        }
        Vec::new()
    }
}

fn tell_one<T>(asked: Vec<Asked<T>>, answer: Result<Value, Failed>) {
    let answer = match answer {
        Err(failed) if failed.is_no_script() => Answer::Alone(None),
        answer => Answer::Whole(answer.map_err(Failed::into_error)),
    };
    if let Some(asked) = asked.into_iter().next() {
        asked.tell(answer);
    }
}

/// Whether what a call says of all its acquires is true of both.
fn is_alike(one: &Acquire, other: &Acquire) -> bool {
    let same_about = Arc::ptr_eq(&one.about, &other.about) || one.about == other.about;
    one.lease == other.lease && one.block == other.block && same_about
}

/// Drives all of them to their end.
async fn all<F: Future<Output = ()> + Unpin>(mut calls: Vec<F>) {
    poll_fn(|task| {
        calls.retain_mut(|call| Pin::new(call).poll(task).is_pending());
        if calls.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// What became of one request of a call.
#[derive(Clone, Copy)]
enum BatchOutcome {
    Done,
    /// It was released, and somebody heard it; or granted one fence by a jump.
    Otherwise,
    Nothing,
}

/// The server's clock, the first fence of what was granted, and what became of each request.
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

fn acquire_many_command(inner: &Inner, asked: &[Asked<Acquire>]) -> Cmd {
    let each = if inner.layout == Layout::Redisson { 3 } else { 2 };
    let mut command = store::calling(&inner.scripts.acquire_many, asked.len() * each);
    for Asked { request, .. } in asked {
        command.arg(inner.space.keys(&request.names.as_slice()[0]).fence());
    }
    for Asked { request, .. } in asked {
        let keys = inner.space.keys(&request.names.as_slice()[0]);
        command.arg(keys.lock());
        if inner.layout == Layout::Redisson {
            command.arg(keys.token());
        }
    }
    let first = &asked[0].request;
    let (mut seen, mut not_after) = (first.seen, first.not_after);
    for Asked { request, .. } in asked {
        // As fences they would have to be above this for a clock that was not set back.
        let floor = Fence::at(request.clock.floor - COARSE);
        (seen, not_after) = (seen.max(request.seen).max(floor), not_after.min(request.not_after));
    }
    command.arg(reply::millis(first.lease)).arg(first.block.max(1)).arg(seen.get()).arg(reply::micros(not_after));
    command.arg(reply::about(&first.about));
    for Asked { request, .. } in asked {
        command.arg(keys::request(request.request));
    }
    command
}

fn release_many_command(inner: &Inner, asked: &[Asked<Release>]) -> Cmd {
    let each = if inner.layout == Layout::Redisson { 2 } else { 3 };
    let mut command = store::calling(&inner.scripts.release_many, asked.len() * each);
    for Asked { request, .. } in asked {
        command.arg(inner.space.keys(&request.name).lock());
    }
    for Asked { request, .. } in asked {
        command.arg(inner.space.keys(&request.name).fence());
    }
    if inner.layout == Layout::Plain {
        for Asked { request, .. } in asked {
            command.arg(inner.space.keys(&request.name).line());
        }
    }
    command.arg(asked.len());
    for Asked { request, .. } in asked {
        // Others do not share a call.
        if let ReleaseScope::Hold(id) = request.give {
            command.arg(keys::request(id));
        }
    }
    for Asked { request, .. } in asked {
        command.arg(store::number_of(request.fence));
    }
    if inner.layout == Layout::Redisson {
        for Asked { request, .. } in asked {
            command.arg(inner.space.keys(&request.name).channel());
        }
    }
    command
}

fn tell_command(inner: &Inner, heard: &[(Asked<Release>, StoreTime, Fence)]) -> Cmd {
    let mut command = store::calling(&inner.scripts.notify, heard.len() * 3);
    for (Asked { request, .. }, ..) in heard {
        let keys = inner.space.keys(&request.name);
        command.arg(keys.lock()).arg(keys.line()).arg(keys.heard());
    }
    for (Asked { request, .. }, ..) in heard {
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
    /// Whether one more batch is to be sent now.
    fn begins(&mut self) -> bool {
        let waiting = self.acquires.len().max(self.releases.len());
        let has_room = self.batches < FEW || self.batches < MANY && waiting >= TOGETHER;
        let is_due = has_room && !self.is_starting;
        self.is_starting |= is_due;
        self.batches += usize::from(is_due);
        is_due
    }

    fn is_empty(&self) -> bool {
        self.acquires.is_empty() && self.releases.is_empty() && self.withdrawals.is_empty()
    }

    /// What goes next. An acquire that nobody waits for any more is left out; what follows it may take it back already.
    fn next(&mut self) -> Batch {
        let mut acquires = Vec::new();
        while let Some(next) = self.acquires.front() {
            let is_wanted = !next.told.is_closed();
            if is_wanted && acquires.len() == TOGETHER {
                break;
            }
            acquires.extend(self.acquires.pop_front().filter(|_| is_wanted));
        }
        let before = self.acquires.front().map_or(u64::MAX, |left| left.number);
        let mut releases: Vec<_> = self.releases.drain(..TOGETHER.min(self.releases.len())).collect();
        while releases.len() < TOGETHER && self.withdrawals.front().is_some_and(|next| next.number < before) {
            releases.extend(self.withdrawals.pop_front());
        }
        Batch { acquires, releases }
    }
}

/// A batch that is under way.
struct UnderWay<'a> {
    sharing: &'a Batcher,
    ended: bool,
}

impl UnderWay<'_> {
    /// The next one, and whether one more is to be sent beside it; or none, and this has ended.
    fn next(&mut self) -> Option<(Batch, bool)> {
        let mut waiting = self.sharing.waiting();
        let batch = waiting.next();
        waiting.is_starting = false;
        if batch.acquires.is_empty() && batch.releases.is_empty() {
            self.ends(&mut waiting);
            return None;
        }
        let is_another_due = !waiting.is_empty() && waiting.begins();
        Some((batch, is_another_due))
    }

    /// There is no connection: nobody waits for it to come back.
    fn fails(&mut self, error: &Error) {
        let (acquires, releases, withdrawals) = {
            let mut waiting = self.sharing.waiting();
            self.ends(&mut waiting);
            let Waiting { acquires, releases, withdrawals, .. } = &mut *waiting;
            (std::mem::take(acquires), std::mem::take(releases), std::mem::take(withdrawals))
        };
        acquires.into_iter().for_each(|asked| asked.tell(Answer::Whole(Err(error.clone()))));
        releases.into_iter().chain(withdrawals).for_each(|asked| asked.tell(Answer::Whole(Err(error.clone()))));
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
            self.ends(&mut self.sharing.waiting());
        }
    }
}

impl<T> Asked<T> {
    /// Whoever has gone needs no answer.
    fn tell(self, answer: Answer) {
        let _ = self.told.send(answer);
    }
}
