//! One multiplexed connection to a server, with its subscriptions. It reconnects after a failure.
//!
//! Work that several callers may wait for (connecting, subscribing) runs on our own thread, never in a caller's future.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::backoff::{self, Rng};
use leasehold_core::{Error, ErrorKind, Moment};
use redis::aio::MultiplexedConnection;
use redis::{Arg, AsyncConnectionConfig, Cmd, PushInfo, PushKind, RedisError, ServerErrorKind, Value};

use crate::config::Config;
use crate::driver::Driver;
use crate::error;
use crate::script::Script;
use crate::socket::Socket;
use crate::subscriptions::Subscriptions;
use crate::thread::Thread;

/// The attempt at which pauses between attempts to connect stop growing, at a quarter of a second. A waiter adds a
/// pause of up to 1.5 seconds, and must not sleep for longer than two once the server is back.
const SLOWEST_ATTEMPT: u32 = 4;
/// Maximum number of calls that the connection buffers. Concurrent calls go into one write.
const CALLS_AT_ONCE: usize = 1_024;
/// Maximum number of channels in one SUBSCRIBE.
const CHANNELS_AT_ONCE: usize = 1_000;

/// A connection that reconnects.
pub(crate) struct Connection {
    config: Config,
    /// Whether callers write their commands to the socket themselves.
    callers_write: bool,
    limit: Duration,
    /// The thread that it lives on.
    pub(crate) thread: Thread,
    current: Mutex<Option<Session>>,
    /// Held while connecting.
    connecting: tokio::sync::Mutex<Attempts>,
    /// Unsubscribing excludes subscribing.
    subscribing: tokio::sync::RwLock<()>,
    pub(crate) subscriptions: Arc<Subscriptions>,
    healing: AtomicBool,
}

/// One connection for as long as it lasts.
#[derive(Clone)]
pub(crate) struct Session {
    multiplexed: MultiplexedConnection,
    driver: Arc<Driver>,
    state: Arc<SessionState>,
}

/// Identifies a session: equal only for the same one.
pub(crate) struct ConnectionEpoch(Arc<SessionState>);

impl PartialEq for ConnectionEpoch {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[derive(Default)]
struct SessionState {
    gone: AtomicBool,
    /// Time of the last answer, on the clock of [`Moment`]: a slow server need not be dead.
    last_answer: AtomicU64,
    subscribed: Mutex<HashSet<String>>,
    /// The server's run id; none if the server does not report one.
    server: OnceLock<Option<Arc<str>>>,
}

/// The outcome of the last attempts to connect.
struct Attempts {
    failed: u32,
    error: Option<Error>,
    not_before: Moment,
    rng: Rng,
}

/// Receives push messages. It is dropped with the session's driver, however that ends.
struct Listener {
    connection: Weak<Connection>,
    state: Arc<SessionState>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.state.gone.store(true, Ordering::Release);
    }
}

/// Marks a session as gone; the next call opens another.
fn is_gone(connection: &Weak<Connection>, state: &SessionState) {
    state.gone.store(true, Ordering::Release);
    if let Some(connection) = connection.upgrade() {
        connection.heal();
    }
}

impl Listener {
    fn hear(&self, info: &PushInfo) {
        match info.kind {
            PushKind::Disconnection => is_gone(&self.connection, &self.state),
            PushKind::Message => {
                if let (Some(connection), [Value::BulkString(channel), Value::BulkString(payload)]) =
                    (self.connection.upgrade(), info.data.as_slice())
                {
                    connection.subscriptions.hear(channel, payload);
                }
            }
            _ => {}
        }
    }
}

impl Connection {
    pub(crate) fn new(config: &Config, thread: Thread, subscriptions: Arc<Subscriptions>) -> Arc<Self> {
        let seed = leasehold_clock::now().as_nanos();
        let attempts = Attempts { failed: 0, error: None, not_before: Moment::default(), rng: Rng::new(seed) };
        Arc::new(Self {
            config: config.clone(),
            callers_write: config.is_member,
            limit: config.limit,
            thread,
            current: Mutex::new(None),
            connecting: tokio::sync::Mutex::new(attempts),
            subscribing: tokio::sync::RwLock::new(()),
            subscriptions,
            healing: AtomicBool::new(false),
        })
    }

    /// Calls a script by its digest, or with its text if the server does not have it.
    pub(crate) async fn call(self: &Arc<Self>, script: &Script, command: Cmd) -> Result<Value, Error> {
        match self.send(&command).await {
            Err(failed) if failed.is_no_script() => self.query(&by_text(script, &command)).await,
            answer => answer.map_err(Failed::into_error),
        }
    }

    /// Sends one command.
    pub(crate) async fn query(self: &Arc<Self>, command: &Cmd) -> Result<Value, Error> {
        self.send(command).await.map_err(Failed::into_error)
    }

    async fn send(self: &Arc<Self>, command: &Cmd) -> Result<Value, Failed> {
        let session = self.session().await.map_err(Failed::Unconnected)?;
        self.send_on(session, command).await
    }

    /// The run id of the connected server, if it reports one. Read once per session.
    pub(crate) async fn server(self: &Arc<Self>) -> Result<Option<Arc<str>>, Error> {
        let session = self.session().await?;
        if let Some(server) = session.state.server.get() {
            return Ok(server.clone());
        }
        let state = session.state.clone();
        let server = match self.send_on(session, redis::cmd("INFO").arg("server")).await {
            Ok(Value::VerbatimString { text, .. }) => run_id(&text),
            Ok(answer) => run_id(&redis::from_redis_value::<String>(answer).unwrap_or_default()),
            Err(Failed::Answered(cause)) if error::lacks_rights(&cause) => None,
            Err(failed) => return Err(failed.into_error()),
        };
        Ok(state.server.get_or_init(|| server).clone())
    }

    /// Sends one command on this session. The first poll sends it.
    pub(crate) async fn send_on(&self, mut session: Session, command: &Cmd) -> Result<Value, Failed> {
        let sent = leasehold_clock::now();
        let answer = session.driver.call(session.multiplexed.send_packed_command(command)).await;
        let answer = answer.and_then(Value::extract_error);
        match answer {
            Err(cause) if cause.is_timeout() && session.state.answered_after(sent) => Err(Failed::Answered(cause)),
            Err(cause) => Err(self.failed(&session, cause)),
            Ok(answer) => {
                session.state.note_answer();
                Ok(answer)
            }
        }
    }

    fn failed(&self, session: &Session, cause: RedisError) -> Failed {
        // A server that became a replica keeps its connections; another may be at the address by now.
        let demoted = || cause.to_string().contains("READONLY");
        let is_garbled = cause.kind() == redis::ErrorKind::Parse;
        if is_garbled || cause.is_io_error() || cause.is_unrecoverable_error() || demoted() {
            self.forget(session);
        }
        Failed::Answered(cause)
    }

    /// The next call reconnects. A session that left a call unanswered may be dead without notice.
    fn forget(&self, session: &Session) {
        session.state.gone.store(true, Ordering::Release);
        self.heal();
    }

    fn current(&self) -> MutexGuard<'_, Option<Session>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live(&self) -> Option<Session> {
        self.current().as_ref().filter(|session| !session.state.gone.load(Ordering::Acquire)).cloned()
    }

    /// The current session, or a new one.
    pub(crate) async fn session(self: &Arc<Self>) -> Result<Session, Error> {
        match self.live() {
            Some(session) => Ok(session),
            None => self.thread.run_to_end(self.clone().connect()).await,
        }
    }

    /// One caller connects, and the others wait for the outcome.
    #[cold]
    async fn connect(self: Arc<Self>) -> Result<Session, Error> {
        let mut attempts = self.connecting.lock().await;
        if let Some(session) = self.live() {
            return Ok(session);
        }
        let now = leasehold_clock::now();
        if let Some(error) = attempts.error.as_ref().filter(|_| now < attempts.not_before) {
            return Err(error.clone());
        }
        match self.open().await {
            Ok(session) => {
                (attempts.failed, attempts.error) = (0, None);
                *self.current() = Some(session.clone());
                let (connection, new) = (self.clone(), session.clone());
                self.thread.spawn_detached(async move { connection.resubscribe(&new).await });
                Ok(session)
            }
            Err(error) => {
                let attempt = attempts.failed.min(SLOWEST_ATTEMPT);
                let pause = backoff::retry_pause(&mut attempts.rng, attempt);
                attempts.failed = attempt + 1;
                attempts.not_before = leasehold_clock::now() + pause;
                attempts.error = Some(error.clone());
                Err(error)
            }
        }
    }

    async fn open(self: &Arc<Self>) -> Result<Session, Error> {
        let state = Arc::new(SessionState::default());
        let listener = Listener { connection: Arc::downgrade(self), state: state.clone() };
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(Some(self.limit))
            .set_pipeline_buffer_size(CALLS_AT_ONCE)
            .set_push_sender(move |info: PushInfo| {
                listener.hear(&info);
                Ok::<(), redis::aio::SendError>(())
            });
        let login = self.config.login()?;
        let opening = async {
            let socket = Socket::connect(self.config.info.addr()).await?;
            MultiplexedConnection::new_with_config(&login, socket, config).await
        };
        let (multiplexed, work) = tokio::time::timeout(self.limit, opening)
            .await
            .map_err(|_| error::connects_too_long(self.limit))?
            .map_err(|cause| error::unconnected(cause, login.password().is_some()))?;
        let (connection, session) = (Arc::downgrade(self), state.clone());
        let driver = match self.callers_write {
            true => Driver::start_shared(self.thread, work, move || is_gone(&connection, &session)),
            false => Driver::start(self.thread, work),
        };
        let driver = Arc::new(driver);
        Ok(Session { multiplexed, driver, state })
    }

    /// After a reconnect, hints may have been missed, so every waiter asks again.
    async fn resubscribe(self: &Arc<Self>, session: &Session) {
        let channels = self.subscriptions.channels();
        if channels.is_empty() {
            return;
        }
        // Waiters also poll, so a failure here only costs time.
        let _ = self.subscribe_on(session, channels).await;
        self.subscriptions.hint_all();
    }

    /// Subscribes, and returns when the server has confirmed it.
    pub(crate) async fn subscribe(self: &Arc<Self>, channels: Vec<String>) -> Result<(), Error> {
        let session = self.session().await?;
        let connection = self.clone();
        self.thread.run_to_end(async move { connection.subscribe_on(&session, channels).await }).await
    }

    async fn subscribe_on(self: &Arc<Self>, session: &Session, mut channels: Vec<String>) -> Result<(), Error> {
        let _beginning = self.subscribing.read().await;
        {
            let subscribed = session.state.subscribed();
            channels.retain(|channel| !subscribed.contains(channel));
        }
        let mut multiplexed = session.multiplexed.clone();
        for some in channels.chunks(CHANNELS_AT_ONCE) {
            multiplexed.subscribe(some).await.map_err(|cause| self.failed(session, cause).into_error())?;
            session.state.subscribed().extend(some.iter().cloned());
        }
        Ok(())
    }

    /// Ends unused subscriptions.
    pub(crate) async fn unsubscribe(self: &Arc<Self>, channels: &[String]) {
        let _ending = self.subscribing.write().await;
        let Some(session) = self.live() else { return };
        // A new waiter registers before it checks the subscription; here the order is reversed.
        let is_unneeded = |channel: &&String| {
            let removed = session.state.subscribed().remove(*channel);
            let needed = removed && self.subscriptions.needs(channel);
            if needed {
                session.state.subscribed().insert((*channel).clone());
            }
            removed && !needed
        };
        let unneeded: Vec<String> = channels.iter().filter(is_unneeded).cloned().collect();
        let mut multiplexed = session.multiplexed.clone();
        for some in unneeded.chunks(CHANNELS_AT_ONCE) {
            if let Err(cause) = multiplexed.unsubscribe(some).await {
                // The subscriptions end with the session.
                drop(self.failed(&session, cause));
                return;
            }
        }
    }

    /// The session on which the server has confirmed all these subscriptions, if it has.
    pub(crate) fn subscribed(&self, channels: &[String]) -> Option<ConnectionEpoch> {
        let session = self.live()?;
        let all = channels.iter().all(|channel| session.state.subscribed().contains(channel));
        all.then(|| ConnectionEpoch(session.state.clone()))
    }

    /// Reconnects in the background if a client waits for hints.
    fn heal(&self) {
        let Some(connection) = self.subscriptions.connection() else { return };
        if !self.subscriptions.anybody_waits() || self.healing.swap(true, Ordering::AcqRel) {
            return;
        }
        self.thread.spawn_detached(async move {
            while let Err(error) = connection.session().await {
                if error.kind() != ErrorKind::Unreachable || !connection.subscriptions.anybody_waits() {
                    break;
                }
                let until = connection.connecting.lock().await.not_before;
                tokio::time::sleep(until.since(leasehold_clock::now())).await;
            }
            connection.healing.store(false, Ordering::Release);
        });
    }

    /// Ends the connection.
    pub(crate) fn close(&self) {
        *self.current() = None;
    }
}

impl SessionState {
    fn note_answer(&self) {
        self.last_answer.store(leasehold_clock::now().as_nanos(), Ordering::Relaxed);
    }

    fn answered_after(&self, sent: Moment) -> bool {
        self.last_answer.load(Ordering::Relaxed) > sent.as_nanos()
    }

    fn subscribed(&self) -> MutexGuard<'_, HashSet<String>> {
        self.subscribed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The run id in the text of INFO.
fn run_id(info: &str) -> Option<Arc<str>> {
    info.lines().find_map(|line| line.trim_end().strip_prefix("run_id:")).map(Arc::from)
}

/// The same call with the script's text in place of its digest.
fn by_text(script: &Script, command: &Cmd) -> Cmd {
    let mut by_text = redis::cmd("EVAL");
    by_text.arg(&script.text);
    for arg in command.args_iter().skip(2) {
        if let Arg::Simple(word) = arg {
            by_text.arg(word);
        }
    }
    by_text
}

/// Why a call has no answer.
pub(crate) enum Failed {
    /// The command was not sent.
    Unconnected(Error),
    /// The command may have been sent.
    Answered(RedisError),
}

impl Failed {
    /// Whether the server does not know the script.
    pub(crate) fn is_no_script(&self) -> bool {
        const NO_SCRIPT: redis::ErrorKind = redis::ErrorKind::Server(ServerErrorKind::NoScript);
        matches!(self, Self::Answered(cause) if cause.kind() == NO_SCRIPT)
    }

    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Unconnected(error) => error,
            Self::Answered(cause) => error::of(cause),
        }
    }
}
