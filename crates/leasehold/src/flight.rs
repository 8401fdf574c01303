//! A call to the store on its way, together with what the table wants back with its answer.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use leasehold_core::port::{Acquired, Call, Released, Renewed, Reply};
use leasehold_core::table::{Answer, Context};

/// A call on its way. It is finished by whoever holds it: the caller, or the background after the caller has gone.
pub(crate) struct Flight {
    context: Option<Context>,
    call: Kind,
}

enum Kind {
    Acquire(Call<Reply<Acquired>>),
    Release(Call<Reply<Released>>),
    Renew(Call<Reply<Vec<Renewed>>>),
    Watch(Call<Reply<()>>),
}

impl Flight {
    pub(crate) fn acquire(context: Context, call: Call<Reply<Acquired>>) -> Self {
        Self { context: Some(context), call: Kind::Acquire(call) }
    }

    pub(crate) fn release(context: Context, call: Call<Reply<Released>>) -> Self {
        Self { context: Some(context), call: Kind::Release(call) }
    }

    pub(crate) fn renew(context: Context, call: Call<Reply<Vec<Renewed>>>) -> Self {
        Self { context: Some(context), call: Kind::Renew(call) }
    }

    pub(crate) fn watch(context: Context, call: Call<Reply<()>>) -> Self {
        Self { context: Some(context), call: Kind::Watch(call) }
    }

    /// The answer, when it is there.
    pub(crate) fn poll(&mut self, task: &mut TaskContext<'_>) -> Poll<(Context, Answer)> {
        let answer = match &mut self.call {
            Kind::Acquire(call) => Pin::new(call).poll(task).map(Answer::Acquire),
            Kind::Release(call) => Pin::new(call).poll(task).map(Answer::Release),
            Kind::Renew(call) => Pin::new(call).poll(task).map(Answer::Renew),
            Kind::Watch(call) => Pin::new(call).poll(task).map(Answer::Watch),
        };
        answer.map(|answer| (self.context.take().expect("a flight lands once"), answer))
    }

    /// The answer, if the call was finished as soon as it was made.
    #[allow(clippy::result_large_err, reason = "not an error: the flight goes on")]
    pub(crate) fn finished(self) -> Result<(Context, Answer), Self> {
        let Self { context, call } = self;
        let context = context.expect("a flight lands once");
        match call {
            Kind::Acquire(Call::Done(Some(reply))) => Ok((context, Answer::Acquire(reply))),
            Kind::Release(Call::Done(Some(reply))) => Ok((context, Answer::Release(reply))),
            Kind::Renew(Call::Done(Some(reply))) => Ok((context, Answer::Renew(reply))),
            Kind::Watch(Call::Done(Some(reply))) => Ok((context, Answer::Watch(reply))),
            call => Err(Self { context: Some(context), call }),
        }
    }

    /// Waits for the answer. Dropped before it is there, the flight is still whole.
    pub(crate) async fn land(&mut self) -> (Context, Answer) {
        poll_fn(|task| self.poll(task)).await
    }
}
