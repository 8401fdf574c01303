//! One multiplexed connection to a server that is made anew when it fails, and what it is subscribed to.
//!
//! Whatever others may wait for (connecting, subscribing) is done on a thread of our own, never in a caller's future.

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

/// Pauses between attempts to connect grow until here, to a quarter of a second. A waiter has a pause of its own on top, of up to a
/// second and a half, and must not sleep for longer than two once the server is back.
const SLOWEST_ATTEMPT: u32 = 4;
/// So many calls are handed to the connection before the next one waits for its turn: those of one moment go into one write.
const CALLS_AT_ONCE: usize = 1_024;
/// So many channels are subscribed to in one command.
const CHANNELS_AT_ONCE: usize = 1_000;

/// A connection that heals.
pub(crate) struct Connection {
    config: Config,
    /// Whether callers write what they send.
    callers_write: bool,
    limit: Duration,
    /// Where it lives.
    pub(crate) thread: Thread,
    current: Mutex<Option<Session>>,
    /// Held by the one who connects.
    connecting: tokio::sync::Mutex<Attempts>,
    /// Ending subscriptions excludes beginning them.
    subscribing: tokio::sync::RwLock<()>,
    pub(crate) ears: Arc<Subscriptions>,
    healing: AtomicBool,
}

/// One connection for as long as it lasts.
#[derive(Clone)]
pub(crate) struct Session {
    connection: MultiplexedConnection,
    driver: Arc<Driver>,
    state: Arc<SessionState>,
}

/// Marks a connection.
pub(crate) struct ConnectionEpoch(Arc<SessionState>);

impl PartialEq for ConnectionEpoch {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[derive(Default)]
struct SessionState {
    gone: AtomicBool,
    /// When the last answer came, on the clock of [`Moment`]: a server that is slow need not be dead.
    heard: AtomicU64,
    subscribed: Mutex<HashSet<String>>,
    /// Which server it leads to: none where it does not say.
    server: OnceLock<Option<Arc<str>>>,
}

/// What became of the last attempts to connect.
struct Attempts {
    failed: u32,
    error: Option<Error>,
    not_before: Moment,
    rng: Rng,
}

/// Hears what the server sends unasked. With the connection's driver it goes, however that ends.
struct Listener {
    link: Weak<Connection>,
    state: Arc<SessionState>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.state.gone.store(true, Ordering::Release);
    }
}

/// A connection is of no use any more: the next call makes another.
fn is_gone(link: &Weak<Connection>, state: &SessionState) {
    state.gone.store(true, Ordering::Release);
    if let Some(link) = link.upgrade() {
        link.heal();
    }
}

impl Listener {
    fn hear(&self, info: &PushInfo) {
        match info.kind {
            PushKind::Disconnection => is_gone(&self.link, &self.state),
            PushKind::Message => {
                if let (Some(link), [Value::BulkString(channel), Value::BulkString(payload)]) =
                    (self.link.upgrade(), info.data.as_slice())
                {
                    link.ears.hear(channel, payload);
                }
            }
            _ => {}
        }
    }
}

impl Connection {
    pub(crate) fn new(config: &Config, thread: Thread, ears: Arc<Subscriptions>) -> Arc<Self> {
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
            ears,
            healing: AtomicBool::new(false),
        })
    }

    /// Calls a script by its digest; where the server has forgotten it, with its text.
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
        let line = self.line().await.map_err(Failed::Unconnected)?;
        self.send_on(line, command).await
    }

    /// The id that the server behind the present connection drew when it started, where it tells us. Asked once for each connection.
    pub(crate) async fn server(self: &Arc<Self>) -> Result<Option<Arc<str>>, Error> {
        let line = self.line().await?;
        if let Some(server) = line.state.server.get() {
            return Ok(server.clone());
        }
        let state = line.state.clone();
        let server = match self.send_on(line, redis::cmd("INFO").arg("server")).await {
            Ok(Value::VerbatimString { text, .. }) => run_id(&text),
            Ok(answer) => run_id(&redis::from_redis_value::<String>(answer).unwrap_or_default()),
            Err(Failed::Answered(cause)) if error::lacks_rights(&cause) => None,
            Err(failed) => return Err(failed.into_error()),
        };
        Ok(state.server.get_or_init(|| server).clone())
    }

    /// Sends one command on this connection: with the first poll it is on its way.
    pub(crate) async fn send_on(&self, mut line: Session, command: &Cmd) -> Result<Value, Failed> {
        let sent = leasehold_clock::now();
        let answer = line.driver.call(line.connection.send_packed_command(command)).await;
        let answer = answer.and_then(Value::extract_error);
        match answer {
            Err(cause) if cause.is_timeout() && line.state.heard_after(sent) => Err(Failed::Answered(cause)),
            Err(cause) => Err(self.failed(&line, cause)),
            Ok(answer) => {
                line.state.hears();
                Ok(answer)
            }
        }
    }

    fn failed(&self, line: &Session, cause: RedisError) -> Failed {
        // A server that was made a replica keeps its connections; another may be at the address by now.
        let demoted = || cause.to_string().contains("READONLY");
        let is_garbled = cause.kind() == redis::ErrorKind::Parse;
        if is_garbled || cause.is_io_error() || cause.is_unrecoverable_error() || demoted() {
            self.forget(line);
        }
        Failed::Answered(cause)
    }

    /// The next call connects anew. A connection that left a call unanswered may be dead without knowing.
    fn forget(&self, line: &Session) {
        line.state.gone.store(true, Ordering::Release);
        self.heal();
    }

    fn current(&self) -> MutexGuard<'_, Option<Session>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live(&self) -> Option<Session> {
        self.current().as_ref().filter(|line| !line.state.gone.load(Ordering::Acquire)).cloned()
    }

    /// The present connection, or a new one.
    pub(crate) async fn line(self: &Arc<Self>) -> Result<Session, Error> {
        match self.live() {
            Some(line) => Ok(line),
            None => self.thread.runs(self.clone().connect()).await,
        }
    }

    /// One connects, and the others wait for what comes of it.
    #[cold]
    async fn connect(self: Arc<Self>) -> Result<Session, Error> {
        let mut attempts = self.connecting.lock().await;
        if let Some(line) = self.live() {
            return Ok(line);
        }
        let now = leasehold_clock::now();
        if let Some(error) = attempts.error.as_ref().filter(|_| now < attempts.not_before) {
            return Err(error.clone());
        }
        match self.open().await {
            Ok(line) => {
                (attempts.failed, attempts.error) = (0, None);
                *self.current() = Some(line.clone());
                let (link, new) = (self.clone(), line.clone());
                self.thread.behind(async move { link.resubscribe(&new).await });
                Ok(line)
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
        let listener = Listener { link: Arc::downgrade(self), state: state.clone() };
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
        let (connection, work) = tokio::time::timeout(self.limit, opening)
            .await
            .map_err(|_| error::connects_too_long(self.limit))?
            .map_err(|cause| error::unconnected(cause, login.password().is_some()))?;
        let (link, line) = (Arc::downgrade(self), state.clone());
        let driver = match self.callers_write {
            true => Driver::start_shared(self.thread, work, move || is_gone(&link, &line)),
            false => Driver::start(self.thread, work),
        };
        let driver = Arc::new(driver);
        Ok(Session { connection, driver, state })
    }

    /// After a reconnect: hints may have been missed, so everybody asks again.
    async fn resubscribe(self: &Arc<Self>, line: &Session) {
        let channels = self.ears.channels();
        if channels.is_empty() {
            return;
        }
        // Whoever waits asks again from time to time; so a failure here costs no more than that.
        let _ = self.subscribe_on(line, channels).await;
        self.ears.hint_all();
    }

    /// Subscribes, and comes back when the server has confirmed it.
    pub(crate) async fn subscribe(self: &Arc<Self>, channels: Vec<String>) -> Result<(), Error> {
        let line = self.line().await?;
        let link = self.clone();
        self.thread.runs(async move { link.subscribe_on(&line, channels).await }).await
    }

    async fn subscribe_on(self: &Arc<Self>, line: &Session, mut channels: Vec<String>) -> Result<(), Error> {
        let _beginning = self.subscribing.read().await;
        {
            let subscribed = line.state.subscribed();
            channels.retain(|channel| !subscribed.contains(channel));
        }
        let mut connection = line.connection.clone();
        for some in channels.chunks(CHANNELS_AT_ONCE) {
            connection.subscribe(some).await.map_err(|cause| self.failed(line, cause).into_error())?;
            line.state.subscribed().extend(some.iter().cloned());
        }
        Ok(())
    }

    /// Ends subscriptions that nobody needs any more.
    pub(crate) async fn unsubscribe(self: &Arc<Self>, channels: &[String]) {
        let _ending = self.subscribing.write().await;
        let Some(line) = self.live() else { return };
        // Whoever begins to wait says so before it looks whether it is subscribed; here it is the other way round.
        let is_unneeded = |channel: &&String| {
            let removed = line.state.subscribed().remove(*channel);
            let needed = removed && self.ears.needs(channel);
            if needed {
                line.state.subscribed().insert((*channel).clone());
            }
            removed && !needed
        };
        let unneeded: Vec<String> = channels.iter().filter(is_unneeded).cloned().collect();
        let mut connection = line.connection.clone();
        for some in unneeded.chunks(CHANNELS_AT_ONCE) {
            if let Err(cause) = connection.unsubscribe(some).await {
                // With the connection its subscriptions end.
                drop(self.failed(&line, cause));
                return;
            }
        }
    }

    /// Whether the server has confirmed these subscriptions, and on which connection: it is the same one as long as the mark is.
    pub(crate) fn subscribed(&self, channels: &[String]) -> Option<ConnectionEpoch> {
        let line = self.live()?;
        let all = channels.iter().all(|channel| line.state.subscribed().contains(channel));
        all.then(|| ConnectionEpoch(line.state.clone()))
    }

    /// Connects again in the background, where somebody waits for hints.
    fn heal(&self) {
        let Some(link) = self.ears.link() else { return };
        if !self.ears.anybody_waits() || self.healing.swap(true, Ordering::AcqRel) {
            return;
        }
        self.thread.behind(async move {
            while let Err(error) = link.line().await {
                if error.kind() != ErrorKind::Unreachable || !link.ears.anybody_waits() {
                    break;
                }
                let until = link.connecting.lock().await.not_before;
                tokio::time::sleep(until.since(leasehold_clock::now())).await;
            }
            link.healing.store(false, Ordering::Release);
        });
    }

    /// Ends the connection.
    pub(crate) fn close(&self) {
        *self.current() = None;
    }
}

impl SessionState {
    fn hears(&self) {
        self.heard.store(leasehold_clock::now().as_nanos(), Ordering::Relaxed);
    }

    fn heard_after(&self, sent: Moment) -> bool {
        self.heard.load(Ordering::Relaxed) > sent.as_nanos()
    }

    fn subscribed(&self) -> MutexGuard<'_, HashSet<String>> {
        self.subscribed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The id that a server draws when it starts, from what it says of itself.
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

/// Why there is no answer.
pub(crate) enum Failed {
    /// It was not sent.
    Unconnected(Error),
    /// It may have been.
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
