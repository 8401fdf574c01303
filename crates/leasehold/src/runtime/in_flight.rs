//! A call to the store on its way, together with what the table wants back with its answer.
//!
//! Whatever becomes of it, the table gets its one answer: a call that panics, when it is made or while it is under way, answers that
//! nobody knows its outcome.

use std::future::poll_fn;
use std::task::{Context as TaskContext, Poll};

use leasehold_core::port::{Acquired, Call, Released, Renewed, Reply};
use leasehold_core::table::{Answer, Context};
use leasehold_core::{Error, ErrorKind, Outcome};

use crate::runtime::panic_guard::{Panic, caught};

/// A call on its way. It is finished by whoever holds it: the caller, or the background after the caller has gone. Whoever drops
/// it unfinished owes the table its [`InFlight::lost`].
pub(crate) struct InFlight {
    context: Option<Context>,
    call: Kind,
    panic: Option<Panic>,
}

/// A call that ended.
pub(crate) struct Completed {
    pub(crate) context: Context,
    pub(crate) answer: Answer,
    /// With which panic it ended: to go on to the caller when the table has its answer, or to be logged where there is none.
    pub(crate) panic: Option<Panic>,
}

enum Kind {
    Acquire(Call<Reply<Acquired>>),
    Release(Call<Reply<Released>>),
    Renew(Call<Reply<Vec<Renewed>>>),
    Watch(Call<Result<(), Error>>),
}

impl InFlight {
    #[inline]
    pub(crate) fn acquire(context: Context, call: impl FnOnce() -> Call<Reply<Acquired>>) -> Self {
        Self::start(context, "acquire", Kind::Acquire, call)
    }

    #[inline]
    pub(crate) fn release(context: Context, call: impl FnOnce() -> Call<Reply<Released>>) -> Self {
        Self::start(context, "release", Kind::Release, call)
    }

    pub(crate) fn renew(context: Context, call: impl FnOnce() -> Call<Reply<Vec<Renewed>>>) -> Self {
        Self::start(context, "renew", Kind::Renew, call)
    }

    pub(crate) fn watch(context: Context, call: impl FnOnce() -> Call<Result<(), Error>>) -> Self {
        Self::start(context, "watch", Kind::Watch, call)
    }

    #[inline]
    fn start<T>(
        context: Context,
        operation: &'static str,
        kind: impl FnOnce(Call<Result<T, Error>>) -> Kind,
        call: impl FnOnce() -> Call<Result<T, Error>>,
    ) -> Self {
        let (call, panic) = match caught(call) {
            Ok(call) => (call, None),
            Err(panic) => (Call::done(Err(panicked(operation))), Some(panic)),
        };
        Self { context: Some(context), call: kind(call), panic }
    }

    /// The answer, when it is there.
    pub(crate) fn poll(&mut self, task: &mut TaskContext<'_>) -> Poll<Completed> {
        let panic = &mut self.panic;
        let answer = match &mut self.call {
            Kind::Acquire(call) => poll_call(call, "acquire", panic, task).map(Answer::Acquire),
            Kind::Release(call) => poll_call(call, "release", panic, task).map(Answer::Release),
            Kind::Renew(call) => poll_call(call, "renew", panic, task).map(Answer::Renew),
            Kind::Watch(call) => poll_call(call, "watch", panic, task).map(Answer::Watch),
        };
        answer.map(|answer| Completed {
            context: self.context.take().expect("a flight lands once"),
            answer,
            panic: self.panic.take(),
        })
    }

    /// Whether the call was finished as soon as it was made.
    pub(crate) fn is_finished(&self) -> bool {
        match &self.call {
            Kind::Acquire(call) => matches!(call, Call::Done(_)),
            Kind::Release(call) => matches!(call, Call::Done(_)),
            Kind::Renew(call) => matches!(call, Call::Done(_)),
            Kind::Watch(call) => matches!(call, Call::Done(_)),
        }
    }

    /// The answer, if the call was finished as soon as it was made.
    #[allow(clippy::result_large_err, reason = "not an error: the flight goes on")]
    pub(crate) fn finished(self) -> Result<Completed, Self> {
        let Self { context, call, panic } = self;
        let answer = match call {
            Kind::Acquire(Call::Done(Some(reply))) => Answer::Acquire(reply),
            Kind::Release(Call::Done(Some(reply))) => Answer::Release(reply),
            Kind::Renew(Call::Done(Some(reply))) => Answer::Renew(reply),
            Kind::Watch(Call::Done(Some(reply))) => Answer::Watch(reply),
            call => return Err(Self { context, call, panic }),
        };
        Ok(Completed { context: context.expect("a flight lands once"), answer, panic })
    }

    /// Waits for the answer. Dropped before it is there, the flight is still whole.
    pub(crate) async fn land(&mut self) -> Completed {
        poll_fn(|task| self.poll(task)).await
    }

    /// What the table is told of a flight that nobody will finish.
    pub(crate) fn lost(self) -> Option<Completed> {
        let error = |operation| unknown(operation, "the call was given up under way");
        let answer = match &self.call {
            Kind::Acquire(_) => Answer::Acquire(Err(error("acquire"))),
            Kind::Release(_) => Answer::Release(Err(error("release"))),
            Kind::Renew(_) => Answer::Renew(Err(error("renew"))),
            Kind::Watch(_) => Answer::Watch(Err(error("watch"))),
        };
        self.context.map(|context| Completed { context, answer, panic: self.panic })
    }
}

#[inline]
fn poll_call<T>(
    call: &mut Call<Result<T, Error>>,
    operation: &'static str,
    panic: &mut Option<Panic>,
    task: &mut TaskContext<'_>,
) -> Poll<Result<T, Error>> {
    match call {
        Call::Done(reply) => Poll::Ready(reply.take().expect("a call is not polled after its end")),
        Call::Pending(future) => caught(|| future.as_mut().poll(task)).unwrap_or_else(|payload| {
            *panic = Some(payload);
            Poll::Ready(Err(panicked(operation)))
        }),
    }
}

#[cold]
fn panicked(operation: &'static str) -> Error {
    unknown(operation, "the store, or a layer around it, panicked")
}

#[cold]
pub(crate) fn unknown(operation: &'static str, what: &str) -> Error {
    Error::new(ErrorKind::Internal, operation, what).with_outcome(Outcome::Unknown)
}
