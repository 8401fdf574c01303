//! The work of one connection: to write what is sent, and to read what is answered. It is done on our thread.
//!
//! What a lone call sends may be written by the caller instead, as it takes longer to wake our thread than to write.
//! Nothing is read there: nobody's answer and nobody's hint is ever told on the thread of another.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::task::{AbortHandle, unconstrained};
use tokio::time::{Sleep, sleep};

use crate::thread::Thread;

/// A caller that writes for longer is not being served. Nobody else is to wait for it.
const STALLED: Duration = Duration::from_millis(10);

thread_local! {
    /// The connection that this thread sends on, and whether that has something to do.
    static SENDING: Cell<(*const Shared, bool)> = const { Cell::new((ptr::null(), false)) };
}

/// Whether this thread is a caller's that writes what it sends.
pub(crate) fn is_sending() -> bool {
    !SENDING.get().0.is_null()
}

/// A connection's work, until this is dropped.
pub(crate) struct Driver {
    thread: Thread,
    /// How many calls are under way.
    calls: AtomicUsize,
    /// Where callers may write.
    shared: Option<Arc<Shared>>,
    /// None where there is no thread: then nothing can be under way.
    task: Option<AbortHandle>,
}

/// The work, for whoever does it.
struct Shared {
    work: Mutex<Option<Work>>,
    /// Our thread may have come while a caller wrote.
    came: AtomicBool,
    /// How often callers have written.
    writes: AtomicU64,
    /// Wakes our thread.
    task: OnceLock<Waker>,
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Driver {
    /// Begins the work on that thread.
    pub(crate) fn start(thread: Thread, work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { thread, calls: AtomicUsize::new(0), shared: None, task: thread.spawn(work) }
    }

    /// The same, where callers may write. `stalled` is called where one does not come to the end of its writing.
    pub(crate) fn start_shared(
        thread: Thread,
        work: impl Future<Output = ()> + Send + 'static,
        stalled: impl Fn() + Send + 'static,
    ) -> Self {
        let work: Work = Box::pin(work);
        let shared = Arc::new(Shared {
            work: Mutex::new(Some(work)),
            came: AtomicBool::new(false),
            writes: AtomicU64::new(0),
            task: OnceLock::new(),
        });
        let mut working = Working { shared: shared.clone(), waiting: None };
        let task = thread.spawn(poll_fn(move |task| working.go_on(task, &stalled)));
        Self { thread, calls: AtomicUsize::new(0), shared: Some(shared), task }
    }

    /// Does a call on this connection: with the first poll it is on its way.
    ///
    /// Where others are under way our thread is awake, and writes what comes in one moment at once.
    pub(crate) async fn call<T>(&self, call: impl Future<Output = T>) -> T {
        let (mut call, under_way) = (pin!(call), UnderWay::begin(self));
        let writes = self.shared.as_ref().filter(|_| under_way.is_alone);
        poll_fn(|task| {
            let _context = self.thread.enter();
            match writes {
                Some(shared) => shared.send(|| call.as_mut().poll(task)),
                None => call.as_mut().poll(task),
            }
        })
        .await
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// One of a connection's calls.
struct UnderWay<'a> {
    calls: &'a AtomicUsize,
    is_alone: bool,
}

impl<'a> UnderWay<'a> {
    fn begin(driver: &'a Driver) -> Self {
        let is_alone = driver.calls.fetch_add(1, Ordering::Relaxed) == 0;
        Self { calls: &driver.calls, is_alone }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// This thread sends on a connection: to wake that only makes a note of it.
struct Marked<'a> {
    on: &'a Arc<Shared>,
    before: (*const Shared, bool),
}

impl<'a> Marked<'a> {
    fn on(on: &'a Arc<Shared>) -> Self {
        Self { on, before: SENDING.replace((Arc::as_ptr(on), false)) }
    }

    fn take_woken(&self) -> bool {
        SENDING.replace((Arc::as_ptr(self.on), false)).1
    }
}

impl Drop for Marked<'_> {
    fn drop(&mut self) {
        let (_, is_woken) = SENDING.replace(self.before);
        // There is more to do, or a call panicked after it had sent.
        if is_woken {
            self.on.wake_task();
        }
    }
}

/// Our thread's part of it. With it the work ends; it would keep itself otherwise, as what it waits for keeps what
/// wakes it.
struct Working {
    shared: Arc<Shared>,
    /// A caller writes: which of their writes that is, and until when it may take.
    waiting: Option<(u64, Pin<Box<Sleep>>)>,
}

impl Working {
    fn go_on(&mut self, task: &mut Context<'_>, stalled: &impl Fn()) -> Poll<()> {
        if let Some(polled) = self.shared.go_on(task) {
            self.waiting = None;
            return polled;
        }
        let write = self.shared.writes.load(Ordering::Relaxed);
        let (waits_for, until) = self.waiting.get_or_insert_with(|| (write, Box::pin(sleep(STALLED))));
        if *waits_for != write {
            *waits_for = write;
            until.set(sleep(STALLED));
        }
        if until.as_mut().poll(task).is_ready() {
            self.waiting = None;
            stalled();
        }
        Poll::Pending
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let work = self.shared.work.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(work);
    }
}

impl Shared {
    /// Polls a call, and writes what it sends.
    fn send<T>(self: &Arc<Self>, poll: impl FnOnce() -> Poll<T>) -> Poll<T> {
        let marked = Marked::on(self);
        let polled = poll();
        if marked.take_woken() {
            self.write();
        }
        polled
    }

    /// Our thread's turn; none while a caller writes. That looks afterwards whether we came, and wakes us.
    fn go_on(self: &Arc<Self>, task: &mut Context<'_>) -> Option<Poll<()>> {
        self.task.get_or_init(|| task.waker().clone());
        self.came.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let mut work = self.try_work()?;
        self.came.store(false, Ordering::Relaxed);
        Some(self.poll(&mut work))
    }

    /// A caller's turn.
    fn write(self: &Arc<Self>) {
        let Some(mut work) = self.try_work() else { return self.wake_task() };
        self.writes.fetch_add(1, Ordering::Relaxed);
        // However much this caller's task has done: a runtime that puts it off keeps what would wake us, and may lose
        // it.
        let turn = pin!(unconstrained(poll_fn(|_| self.poll(&mut work))));
        // A panic of the work's is no matter of this caller's.
        let ended = catch_unwind(AssertUnwindSafe(|| turn.poll(&mut Context::from_waker(Waker::noop())).is_ready()));
        let ended = ended.unwrap_or(true);
        drop(work);
        fence(Ordering::SeqCst);
        if ended || self.came.load(Ordering::Relaxed) {
            self.wake_task();
        }
    }

    /// Nobody waits for another: one that writes may not be served for a long time.
    fn try_work(&self) -> Option<MutexGuard<'_, Option<Work>>> {
        match self.work.try_lock() {
            Ok(work) => Some(work),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Goes on with the work; work that panics is over.
    fn poll(self: &Arc<Self>, place: &mut Option<Work>) -> Poll<()> {
        let Some(mut work) = place.take() else { return Poll::Ready(()) };
        let waker = Waker::from(self.clone());
        let polled = work.as_mut().poll(&mut Context::from_waker(&waker));
        if polled.is_pending() {
            *place = Some(work);
        }
        polled
    }

    /// Before its first turn our thread need not be woken: it comes.
    fn wake_task(&self) {
        if let Some(task) = self.task.get() {
            task.wake_by_ref();
        }
    }
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        match SENDING.get() {
            (on, _) if ptr::eq(on, Arc::as_ptr(self)) => SENDING.set((on, true)),
            _ => self.wake_task(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread::{self, ThreadId};

    use tokio::runtime::{Builder, Runtime};
    use tokio::sync::{mpsc, oneshot};

    use super::*;

    /// Who is told which thread did the work for it; none: the work panics.
    type Asked = Option<oneshot::Sender<ThreadId>>;

    fn start() -> (Driver, mpsc::UnboundedSender<Asked>) {
        let (sender, mut receiver) = mpsc::unbounded_channel::<Asked>();
        let work = poll_fn(move |task| {
            while let Poll::Ready(asked) = receiver.poll_recv(task) {
                let Some(asked) = asked else { return Poll::Ready(()) };
                let _ = asked.expect("work that does not panic").send(thread::current().id());
            }
            // Who comes now comes too late for this turn.
            (0..500).for_each(|_| std::hint::spin_loop());
            Poll::Pending
        });
        Thread::Callers.start().expect("a thread");
        (Driver::start_shared(Thread::Callers, work, || {}), sender)
    }

    async fn worker(sender: &mpsc::UnboundedSender<Asked>) -> ThreadId {
        let (asked, told) = oneshot::channel();
        sender.send(Some(asked)).expect("a driver");
        told.await.expect("an answer")
    }

    /// Waits until nobody is at work.
    fn rest(driver: &Driver) {
        drop(driver.shared.as_ref().expect("what is shared").work.lock().expect("work"));
    }

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_time().build().expect("a runtime")
    }

    #[test]
    fn a_lone_call_is_written_by_its_caller_and_others_by_our_thread() {
        let (driver, sender) = start();
        runtime().block_on(async {
            let ours = worker(&sender).await;
            rest(&driver);
            assert_eq!(driver.call(worker(&sender)).await, thread::current().id());
            let both = driver.call(async { driver.call(worker(&sender)).await });
            assert_eq!(both.await, thread::current().id(), "the outer one is alone, and writes for both");
            let first = UnderWay::begin(&driver);
            assert_eq!(driver.call(worker(&sender)).await, ours);
            drop(first);
            rest(&driver);
            assert_eq!(driver.call(worker(&sender)).await, thread::current().id());
        });
    }

    #[test]
    fn nothing_is_left_undone_where_a_caller_and_our_thread_meet() {
        const ROUNDS: usize = 50_000;
        let (driver, sender) = start();
        let (begin, undone) = (Barrier::new(2), AtomicBool::new(false));
        let calls = || {
            let runtime = runtime();
            for _ in 0..ROUNDS {
                begin.wait();
                if undone.load(Ordering::Relaxed) {
                    return;
                }
                let call = async { tokio::time::timeout(Duration::from_secs(5), driver.call(worker(&sender))).await };
                undone.fetch_or(runtime.block_on(call).is_err(), Ordering::Relaxed);
            }
        };
        thread::scope(|scope| {
            scope.spawn(calls);
            scope.spawn(calls);
        });
        assert!(!undone.into_inner(), "a call was sent, and nobody wrote it");
    }

    #[test]
    fn work_ends_with_its_driver() {
        let (driver, sender) = start();
        runtime().block_on(async {
            worker(&sender).await;
            drop(driver);
            sender.closed().await;
        });
    }

    #[test]
    fn work_that_panics_is_over_and_its_caller_goes_on() {
        let (driver, sender) = start();
        runtime().block_on(async {
            worker(&sender).await;
            rest(&driver);
            driver.call(async { sender.send(None).expect("a driver") }).await;
            sender.closed().await;
        });
    }

    /// Its runtime keeps what would wake us until the task's next turn, and there is none.
    #[test]
    fn a_caller_that_has_used_up_its_turn_leaves_nothing_unwritten() {
        let (driver, sender) = start();
        runtime().block_on(worker(&sender));
        rest(&driver);
        for used in 0..=128 {
            runtime().block_on(async {
                for _ in 0..used {
                    tokio::task::consume_budget().await;
                }
                let mut call = pin!(driver.call(worker(&sender)));
                poll_fn(|task| Poll::Ready(call.as_mut().poll(task).is_ready())).await;
            });
            let next = async { tokio::time::timeout(Duration::from_secs(5), driver.call(worker(&sender))).await };
            assert!(runtime().block_on(next).is_ok(), "with {used} used, the next call was not written");
        }
    }

    #[test]
    fn a_call_that_panics_after_it_has_sent_leaves_nothing_unwritten() {
        let (driver, sender) = start();
        runtime().block_on(async {
            worker(&sender).await;
            rest(&driver);
            let (asked, told) = oneshot::channel();
            let panics = async {
                sender.send(Some(asked)).expect("a driver");
                panic!("as a caller's waker may");
            };
            let mut call = Box::pin(driver.call::<()>(panics));
            let poll = poll_fn(|task| {
                Poll::Ready(catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(task).is_ready())).is_err())
            });
            assert!(poll.await, "it panics");
            assert!(tokio::time::timeout(Duration::from_secs(5), told).await.is_ok(), "nobody wrote it");
        });
    }

    #[test]
    fn a_caller_that_does_not_come_to_the_end_of_its_writing_is_told_of() {
        let (ours, stall) = (thread::current().id(), Arc::new(Barrier::new(2)));
        let (has_stalled, stalls) = (Arc::new(AtomicBool::new(false)), stall.clone());
        let (tell, told) = std::sync::mpsc::channel();
        let stalled = has_stalled.clone();
        let work = poll_fn(move |task| {
            if thread::current().id() == ours && !stalled.swap(true, Ordering::Relaxed) {
                stalls.wait();
            }
            // Our thread comes again and again.
            task.waker().wake_by_ref();
            Poll::Pending
        });
        Thread::Callers.start().expect("a thread");
        let driver = Driver::start_shared(Thread::Callers, work, move || {
            let _ = tell.send(());
        });
        let watching = thread::spawn(move || {
            let told = told.recv_timeout(Duration::from_secs(5));
            stall.wait();
            told
        });
        while !has_stalled.load(Ordering::Relaxed) {
            driver.shared.as_ref().expect("what is shared").write();
        }
        assert!(watching.join().expect("a thread").is_ok(), "our thread waits for a caller that is not served");
    }
}
