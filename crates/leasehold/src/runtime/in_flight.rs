//! A call to the store that is under way, with what the table wants back with its answer.
//!
//! The table gets exactly one answer to every call. A call that panics, when it is made or while it is under way, ends with an
//! error whose outcome is unknown.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use leasehold_core::port::{Acquired, Call, Released, Renewed, Reply};
use leasehold_core::table::{Answer, Context, Request, Sending};
use leasehold_core::{Error, ErrorKind, Outcome, Store};

use crate::client::event::Event;
use crate::runtime::panic_guard::{Panic, caught};
use crate::runtime::shell::Shell;

/// A call that was sent. Its caller polls it until it is completed, or hands it to [`Shell::adopt`]. If that is not possible either,
/// the table is owed [`InFlight::lost`].
pub(crate) struct InFlight {
    /// None once it is completed.
    context: Option<Context>,
    call: StoreCall,
    panic: Option<Panic>,
}

/// A call that ended.
pub(crate) struct Completed {
    pub(crate) context: Context,
    pub(crate) answer: Answer,
    /// The panic that it ended with. It goes on to the caller after the table has its answer; without a caller it is logged.
    pub(crate) panic: Option<Panic>,
}

/// The answer to a call, or the future that it comes from.
enum StoreCall {
    /// The call was finished as soon as it was made.
    Answered(Option<Answer>),
    Acquire(Pending<Reply<Acquired>>),
    Release(Pending<Reply<Released>>),
    Renew(Pending<Reply<Vec<Renewed>>>),
    Watch(Pending<Result<(), Error>>),
}

type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl InFlight {
    /// Sends a call to `store`, which is the callers' or the keeper's.
    pub(crate) fn start(shell: &Arc<Shell>, store: &Arc<dyn Store>, sending: Sending) -> Self {
        let Sending { context, request } = sending;
        let (call, panic) = match request {
            Request::Acquire(request) => {
                shell.emit(|| Event::Asked { names: request.names.as_slice() });
                StoreCall::of("acquire", || store.acquire(request), Answer::Acquire, StoreCall::Acquire)
            }
            Request::Release(request) => {
                StoreCall::of("release", || store.release(request), Answer::Release, StoreCall::Release)
            }
            Request::Renew(leases) => StoreCall::of("renew", || store.renew(leases), Answer::Renew, StoreCall::Renew),
            Request::Watch(name) => {
                let hints = shell.hint_sink();
                let watch = || store.watch(shell.client, name, hints);
                StoreCall::of("watch", watch, Answer::Watch, StoreCall::Watch)
            }
        };
        Self { context: Some(context), call, panic }
    }

    /// Whether the call was finished as soon as it was made.
    pub(crate) fn is_answered(&self) -> bool {
        matches!(self.call, StoreCall::Answered(_))
    }

    /// The answer, when it is there. Not to be polled after that.
    pub(crate) fn poll(&mut self, task: &mut TaskContext<'_>) -> Poll<Completed> {
        let polled = caught(|| match &mut self.call {
            StoreCall::Answered(answer) => Poll::Ready(answer.take().expect("a call is completed once")),
            StoreCall::Acquire(future) => future.as_mut().poll(task).map(Answer::Acquire),
            StoreCall::Release(future) => future.as_mut().poll(task).map(Answer::Release),
            StoreCall::Renew(future) => future.as_mut().poll(task).map(Answer::Renew),
            StoreCall::Watch(future) => future.as_mut().poll(task).map(Answer::Watch),
        });
        let answer = match polled {
            Ok(Poll::Ready(answer)) => answer,
            Ok(Poll::Pending) => return Poll::Pending,
            Err(panic) => {
                self.panic = Some(panic);
                self.call.unanswered(PANICKED)
            }
        };
        let context = self.context.take().expect("a call is completed once");
        Poll::Ready(Completed { context, answer, panic: self.panic.take() })
    }

    /// The table's answer for a call that nothing will finish; none if it was completed.
    pub(crate) fn lost(mut self) -> Option<Completed> {
        let context = self.context?;
        let answer = self.call.unanswered("the call was given up under way");
        Some(Completed { context, answer, panic: self.panic })
    }
}

impl StoreCall {
    /// Makes a call, and says which answer it brings. Also the panic that making it ended with.
    fn of<T>(
        operation: &'static str,
        call: impl FnOnce() -> Call<Result<T, Error>>,
        answer: fn(Result<T, Error>) -> Answer,
        pending: fn(Pending<Result<T, Error>>) -> Self,
    ) -> (Self, Option<Panic>) {
        match caught(call) {
            Ok(Call::Done(reply)) => {
                let reply = reply.unwrap_or_else(|| Err(unknown(operation, "the call was polled to its end before")));
                (Self::Answered(Some(answer(reply))), None)
            }
            Ok(Call::Pending(future)) => (pending(future), None),
            Err(panic) => (Self::Answered(Some(answer(Err(unknown(operation, PANICKED))))), Some(panic)),
        }
    }

    /// The answer where the store's will not come: its outcome is unknown.
    #[cold]
    fn unanswered(&mut self, what: &str) -> Answer {
        match self {
            Self::Answered(answer) => answer.take().expect("a call is completed once"),
            Self::Acquire(_) => Answer::Acquire(Err(unknown("acquire", what))),
            Self::Release(_) => Answer::Release(Err(unknown("release", what))),
            Self::Renew(_) => Answer::Renew(Err(unknown("renew", what))),
            Self::Watch(_) => Answer::Watch(Err(unknown("watch", what))),
        }
    }
}

const PANICKED: &str = "the store, or a layer around it, panicked";

#[cold]
pub(crate) fn unknown(operation: &'static str, what: &str) -> Error {
    Error::new(ErrorKind::Internal, operation, what).with_outcome(Outcome::Unknown)
}
