//! Acquires and releases of one moment share a call.
//!
//! While few calls are under way, each goes by itself. When many are, what comes waits for one of them to end, and goes together with all
//! that waits by then. Only ordinary requests go together: a free name, a hold that nobody waits for. For any other the shared script does
//! nothing, and it is asked again alone.
//!
//! A request and what takes it back never change places: a client that drops an acquire sends a release after it, and a release goes only
//! when no acquire that came before it is left. Calls leave on one thread, in the order in which they were put together.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::port::{Acquire, Give, Release};
use leasehold_core::{Error, ErrorKind, Fence, Names, Outcome, StoreOwner, StoreTime};
use redis::{Cmd, Value};
use tokio::sync::oneshot;

use crate::config::Layout;
use crate::keys;
use crate::link::{Failed, Line};
use crate::reply::{self, Parts};
use crate::script::Script;
use crate::store::{self, Inner};

/// So many calls are under way at a time.
const CALLS: usize = 16;
/// Up to so many, each is for one request.
const CALLS_ALONE: usize = 4;
/// So many requests share a call: it keeps the server from others for less than a millisecond.
const TOGETHER: usize = 64;

/// What waits to be sent.
#[derive(Default)]
pub(crate) struct Sharing(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    /// Calls that are under way.
    calls: usize,
    /// How many requests have come.
    came: u64,
    acquires: VecDeque<Asked<Acquire>>,
    releases: VecDeque<Asked<Release>>,
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
    /// It was done together with others, at that time; an acquire has this first fence.
    Done(StoreTime, Fence),
    /// Nothing was done: it has to be asked alone.
    Alone,
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
    let enlisted = inner.enlisted();
    is_new && (enlisted.is_empty() || !enlisted.contains(&(request.request.client, name.clone())))
}

/// Whether that may be an ordinary release.
pub(crate) fn may_share_release(request: &Release) -> bool {
    let Give::Hold(id) = request.give else { return false };
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
        self.share(request, |waiting| &mut waiting.releases).await
    }

    async fn share<T>(
        self: &Arc<Self>,
        request: Arc<T>,
        line: impl FnOnce(&mut Waiting) -> &mut VecDeque<Asked<T>>,
    ) -> Answer {
        let (told, answer) = oneshot::channel();
        let is_due = {
            let mut waiting = self.sharing.waiting();
            let number = waiting.came;
            waiting.came += 1;
            line(&mut waiting).push_back(Asked { number, request, told });
            waiting.begins_call()
        };
        if is_due {
            let inner = self.clone();
            self.link.thread.behind(async move { inner.calls().await });
        }
        answer.await.unwrap_or_else(|_| {
            let what = "the thread of the connection failed";
            Answer::Whole(Err(Error::new(ErrorKind::Internal, "call", what).with_outcome(Outcome::Unknown)))
        })
    }

    /// Sends what waits, call by call, until nothing does.
    async fn calls(self: Arc<Self>) {
        let mut under_way = UnderWay { sharing: &self.sharing, ended: false };
        loop {
            // First of all: between the taking and the sending nobody else's turn may come.
            let line = match self.link.line().await {
                Ok(line) => line,
                Err(error) => return under_way.fails(&error),
            };
            let Some(batch) = under_way.next() else { return };
            let (acquires, releases) = (batch.acquires, batch.releases);
            let (acquired, released) = tokio::join!(self.acquires(&line, acquires), self.releases(&line, releases));
            if let Some(error) = acquired.or(released) {
                // What waits was not sent.
                return under_way.fails(&error.with_outcome(Outcome::NotApplied));
            }
        }
    }

    async fn acquires(&self, line: &Line, asked: Vec<Asked<Acquire>>) -> Option<Error> {
        match &asked[..] {
            [] => None,
            [one] => {
                let command = store::acquire_command(self, &one.request);
                tell_one(asked, self.link.send_on(line.clone(), &command).await)
            }
            several => {
                let command = acquire_many_command(self, several);
                self.tell_all(line, &self.scripts.acquire_many, &command, asked).await
            }
        }
    }

    async fn releases(&self, line: &Line, asked: Vec<Asked<Release>>) -> Option<Error> {
        match &asked[..] {
            [] => None,
            [one] => {
                let command = store::release_command(self, &one.request, false);
                tell_one(asked, self.link.send_on(line.clone(), &command).await)
            }
            several => {
                let command = release_many_command(self, several);
                self.tell_all(line, &self.scripts.release_many, &command, asked).await
            }
        }
    }

    async fn tell_all<T>(&self, line: &Line, script: &Script, command: &Cmd, asked: Vec<Asked<T>>) -> Option<Error> {
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
                for (asked, done) in asked.into_iter().zip(done) {
                    asked.tell(if done { Answer::Done(at, first) } else { Answer::Alone });
                }
                None
            }
            // One among them may be the reason, as where its user has no rights.
            Err(error) if error.outcome() == Outcome::NotApplied => {
                asked.into_iter().for_each(|asked| asked.tell(Answer::Alone));
                None
            }
            Err(error) => {
                asked.into_iter().for_each(|asked| asked.tell(Answer::Whole(Err(error.clone()))));
                Some(error).filter(|error| error.kind() == ErrorKind::Unreachable)
            }
        }
    }
}

fn tell_one<T>(asked: Vec<Asked<T>>, answer: Result<Value, Failed>) -> Option<Error> {
    let (answer, error) = match answer {
        Ok(value) => (Answer::Whole(Ok(value)), None),
        Err(failed) if failed.is_no_script() => (Answer::Alone, None),
        Err(failed) => {
            let error = failed.into_error();
            let is_gone = error.kind() == ErrorKind::Unreachable && error.outcome() == Outcome::Unknown;
            (Answer::Whole(Err(error.clone())), is_gone.then_some(error))
        }
    };
    if let Some(asked) = asked.into_iter().next() {
        asked.tell(answer);
    }
    error
}

/// The server's clock, the first fence of what was granted, and whether each request was done.
fn done(value: Value, requests: usize) -> Result<(StoreTime, Fence, Vec<bool>), Error> {
    let mut parts = Parts::of(value)?;
    let at = parts.time()?;
    let first = if parts.left() > requests { parts.fence()? } else { Fence::NONE };
    let done = (0..requests).map(|_| Ok(parts.number()? == 1)).collect::<Result<_, Error>>()?;
    Ok((at, first, done))
}

fn acquire_many_command(inner: &Inner, asked: &[Asked<Acquire>]) -> Cmd {
    let each = if inner.layout == Layout::Redisson { 4 } else { 3 };
    let mut command = store::calling(&inner.scripts.acquire_many, asked.len() * each);
    for asked in asked {
        let keys = inner.space.keys(&asked.request.names.as_slice()[0]);
        command.arg(keys.lock()).arg(keys.fence()).arg(keys.line());
        if inner.layout == Layout::Redisson {
            command.arg(keys.token());
        }
    }
    let first = &asked[0].request;
    let (mut seen, mut not_after) = (first.seen, first.not_after);
    for Asked { request, .. } in asked {
        (seen, not_after) = (seen.max(request.seen), not_after.min(request.not_after));
    }
    command.arg(reply::millis(first.lease)).arg(first.block.max(1)).arg(seen.get()).arg(reply::micros(not_after));
    command.arg(reply::about(&first.about));
    for Asked { request, .. } in asked {
        command.arg(keys::request(request.request));
    }
    command
}

fn release_many_command(inner: &Inner, asked: &[Asked<Release>]) -> Cmd {
    let mut command = store::calling(&inner.scripts.release_many, asked.len() * 2);
    for asked in asked {
        let keys = inner.space.keys(&asked.request.name);
        command.arg(keys.lock()).arg(keys.line());
    }
    for Asked { request, .. } in asked {
        let Give::Hold(id) = request.give else { unreachable!("it may not share a call") };
        let keys = inner.space.keys(&request.name);
        let channel = if inner.layout == Layout::Redisson { keys.channel() } else { String::new() };
        command.arg(keys::request(id)).arg(channel);
    }
    command
}

impl Sharing {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn begins_call(&mut self) -> bool {
        let is_due = self.calls < CALLS;
        self.calls += usize::from(is_due);
        is_due
    }

    /// What goes next. An acquire that nobody waits for any more is left out; what follows it may take it back already.
    fn next(&mut self) -> Batch {
        let most = if self.calls > CALLS_ALONE { TOGETHER } else { 1 };
        let (mut acquires, mut releases) = (Vec::new(), Vec::new());
        while let Some(next) = self.acquires.front() {
            let is_wanted = !next.told.is_closed();
            if is_wanted && (acquires.len() == most || acquires.first().is_some_and(|first| !next.goes_with(first))) {
                break;
            }
            acquires.extend(self.acquires.pop_front().filter(|_| is_wanted));
        }
        let before = self.acquires.front().map_or(u64::MAX, |left| left.number);
        while releases.len() < most && self.releases.front().is_some_and(|next| next.number < before) {
            releases.extend(self.releases.pop_front());
        }
        Batch { acquires, releases }
    }
}

/// A call that is under way.
struct UnderWay<'a> {
    sharing: &'a Sharing,
    ended: bool,
}

impl UnderWay<'_> {
    /// The next requests; or none, and this call has ended.
    fn next(&mut self) -> Option<Batch> {
        let mut waiting = self.sharing.waiting();
        let batch = waiting.next();
        if batch.acquires.is_empty() && batch.releases.is_empty() {
            self.ends(&mut waiting);
            return None;
        }
        Some(batch)
    }

    /// The server is not there: nobody waits for it to come back.
    fn fails(&mut self, error: &Error) {
        let (acquires, releases) = {
            let mut waiting = self.sharing.waiting();
            self.ends(&mut waiting);
            (std::mem::take(&mut waiting.acquires), std::mem::take(&mut waiting.releases))
        };
        acquires.into_iter().for_each(|asked| asked.tell(Answer::Whole(Err(error.clone()))));
        releases.into_iter().for_each(|asked| asked.tell(Answer::Whole(Err(error.clone()))));
    }

    fn ends(&mut self, waiting: &mut Waiting) {
        waiting.calls -= 1;
        self.ended = true;
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.sharing.waiting().calls -= 1;
        }
    }
}

impl Asked<Acquire> {
    /// Whether what a shared call says of all is true of both.
    fn goes_with(&self, other: &Self) -> bool {
        let (one, other) = (&self.request, &other.request);
        let same_about = Arc::ptr_eq(&one.about, &other.about) || one.about == other.about;
        one.lease == other.lease && one.block == other.block && same_about
    }
}

impl<T> Asked<T> {
    /// Whoever has gone needs no answer.
    fn tell(self, answer: Answer) {
        let _ = self.told.send(answer);
    }
}
