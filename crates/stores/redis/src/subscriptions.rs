//! Delivers messages from the server to the clients that wait for a lock.
//!
//! Every client has a channel of its own, on which our releases notify the first waiter. Redisson publishes on a
//! channel per lock, so while a client waits for a lock, that channel is subscribed as well.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use foldhash::fast::RandomState;
use leasehold_core::backoff::Rng;
use leasehold_core::port::{Hint, HintSink};
use leasehold_core::{ClientId, Moment, Name};

use crate::config::Layout;
use crate::connection::Connection;
use crate::keys::Space;
use crate::thread::Thread;

/// The payload of our releases on Redisson's channel. Redisson reads it as its own 0; we know that the first waiter was
/// notified.
const OURS: &[u8] = b"-0";
/// A release by Redisson wakes every waiter, so each asks after a random pause of up to this.
const SPREAD: Duration = Duration::from_millis(4);
/// An unused subscription is kept for this long: clients often wait for the same lock again.
const WARM: Duration = Duration::from_secs(1);

/// Maximum number of messages delivered one by one in a [`WINDOW`]. A publisher may send any number; the rest is
/// delivered as one hint at the end of the window.
const WINDOW_MESSAGES: u32 = 256;
const WINDOW: Duration = Duration::from_millis(20);

/// The clients that wait over one connection.
pub(crate) struct Subscriptions {
    layout: Layout,
    space: Space,
    connection: OnceLock<Weak<Connection>>,
    state: Mutex<State>,
}

struct State {
    clients: HashMap<ClientId, Listening, RandomState>,
    /// Redisson's channels that are subscribed.
    channels: HashMap<String, Channel, RandomState>,
    /// Channels that have become unused.
    idle: Vec<String>,
    sweeping: bool,
    rng: Rng,
    /// Start of the current window, its number of messages, and whether a task waits for its end.
    window: (Moment, u32, bool),
}

/// A client that has waited at least once.
struct Listening {
    sink: HintSink,
    names: HashSet<Name, RandomState>,
}

/// A channel of Redisson's.
#[derive(Default)]
struct Channel {
    /// The locks of the channel: `a` and `{a}` share one.
    names: Vec<Name>,
    /// Number of waiters.
    waiters: usize,
}

impl Subscriptions {
    pub(crate) fn new(layout: Layout, space: Space) -> Arc<Self> {
        let state = State {
            clients: HashMap::default(),
            channels: HashMap::default(),
            idle: Vec::new(),
            sweeping: false,
            rng: Rng::new(leasehold_clock::now().as_nanos()),
            window: (Moment::default(), 0, false),
        };
        Arc::new(Self { layout, space, connection: OnceLock::new(), state: Mutex::new(state) })
    }

    /// Sets the connection of the subscriptions.
    pub(crate) fn attach(&self, connection: &Arc<Connection>) {
        let _ = self.connection.set(Arc::downgrade(connection));
    }

    pub(crate) fn connection(&self) -> Option<Arc<Connection>> {
        self.connection.get()?.upgrade()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The channels that notify a client of a name.
    pub(crate) fn channels_of(&self, client: ClientId, name: &Name) -> Vec<String> {
        let mut channels = vec![self.space.hint_channel(&client.to_string())];
        channels.extend(self.channel_of(name));
        channels
    }

    /// Redisson's channel of this lock. With a prefix Redisson does not use it; there it shows a release that a client
    /// listens.
    fn channel_of(&self, name: &Name) -> Option<String> {
        (self.layout == Layout::Redisson).then(|| self.space.keys(name).channel())
    }

    /// Whether this client has ever waited, so that it may be notified of a name it has not subscribed to.
    pub(crate) fn knows(&self, client: ClientId) -> bool {
        self.state().clients.contains_key(&client)
    }

    /// A client waits.
    pub(crate) fn add(&self, client: ClientId, name: &Name, sink: &HintSink) {
        let mut state = self.state();
        let none = || Listening { sink: sink.clone(), names: HashSet::default() };
        state.clients.entry(client).or_insert_with(none).sink = sink.clone();
        state.wait(client, name, self.channel_of(name));
    }

    /// A known client waits again.
    pub(crate) fn add_again(&self, client: ClientId, name: &Name) {
        self.state().wait(client, name, self.channel_of(name));
    }

    /// A client waits no longer. Returns whether unused channels have to be swept.
    pub(crate) fn remove(&self, client: ClientId, name: &Name) -> bool {
        let mut state = self.state();
        state.wait_no_more(client, name, self.channel_of(name));
        !state.idle.is_empty() && !state.sweeping
    }

    /// A client is gone.
    pub(crate) fn remove_all(&self, client: ClientId) {
        let mut state = self.state();
        let names: Vec<Name> =
            state.clients.get(&client).map(|listening| listening.names.iter().cloned().collect()).unwrap_or_default();
        for name in names {
            state.wait_no_more(client, &name, self.channel_of(&name));
        }
        state.clients.remove(&client);
    }

    /// Every channel in use.
    pub(crate) fn channels(&self) -> Vec<String> {
        let state = self.state();
        let hints = state.clients.keys().map(|client| self.space.hint_channel(&client.to_string()));
        hints.chain(state.channels.keys().cloned()).collect()
    }

    /// Whether a waiter needs this channel.
    pub(crate) fn needs(&self, channel: &str) -> bool {
        self.state().channels.get(channel).is_some_and(|channel| channel.waiters > 0)
    }

    /// Whether any client waits.
    pub(crate) fn anybody_waits(&self) -> bool {
        self.state().clients.values().any(|listening| !listening.names.is_empty())
    }

    /// Handles a message.
    pub(crate) fn hear(self: &Arc<Self>, channel: &[u8], payload: &[u8]) {
        if self.is_flooded() {
            return;
        }
        let Ok(channel) = std::str::from_utf8(channel) else { return };
        if let Some(client) = self.space.client_of_hint(channel) {
            let Some(name) = std::str::from_utf8(payload).ok().and_then(|name| Name::new(name).ok()) else { return };
            let sink = self.state().clients.get(&client).map(|listening| listening.sink.clone());
            if let Some(sink) = sink {
                sink(Hint::Name(name));
            }
        } else if payload != OURS {
            self.hear_redisson(channel);
        }
    }

    /// Whether to drop this message: at the end of the window every waiter asks again.
    fn is_flooded(self: &Arc<Self>) -> bool {
        let now = leasehold_clock::now();
        let mut state = self.state();
        let (began, messages, is_awaited) = &mut state.window;
        if now.since(*began) > WINDOW && !*is_awaited {
            (*began, *messages) = (now, 0);
        }
        *messages = messages.saturating_add(1);
        if *messages <= WINDOW_MESSAGES {
            return false;
        }
        if !std::mem::replace(is_awaited, true) {
            let subscriptions = Arc::downgrade(self);
            Thread::Callers.spawn_detached(async move {
                tokio::time::sleep(WINDOW).await;
                let Some(subscriptions) = subscriptions.upgrade() else { return };
                subscriptions.state().window = (leasehold_clock::now(), 0, false);
                subscriptions.hint_all();
            });
        }
        true
    }

    fn hear_redisson(&self, channel: &str) {
        let (names, sinks, pause) = {
            let mut state = self.state();
            let Some(found) = state.channels.get(channel).filter(|channel| channel.waiters > 0) else { return };
            let (names, sinks) = (found.names.clone(), state.sinks());
            let spread = u64::try_from(SPREAD.as_nanos()).unwrap_or(u64::MAX);
            (names, sinks, Duration::from_nanos(state.rng.below(spread)))
        };
        Thread::Callers.spawn_detached(async move {
            tokio::time::sleep(pause).await;
            for (name, sink) in names.iter().flat_map(|name| sinks.iter().map(move |sink| (name, sink))) {
                sink(Hint::Name(name.clone()));
            }
        });
    }

    /// Hints may have been missed.
    pub(crate) fn hint_all(&self) {
        let sinks = self.state().sinks();
        for sink in sinks {
            sink(Hint::All);
        }
    }

    /// Unsubscribes from unused channels after a while.
    pub(crate) fn sweep_later(self: &Arc<Self>) {
        {
            let mut state = self.state();
            if state.idle.is_empty() || state.sweeping {
                return;
            }
            state.sweeping = true;
        }
        let subscriptions = Arc::downgrade(self);
        Thread::Callers.spawn_detached(async move {
            tokio::time::sleep(WARM).await;
            let Some(subscriptions) = subscriptions.upgrade() else { return };
            let idle = std::mem::take(&mut subscriptions.state().idle);
            if let Some(connection) = subscriptions.connection() {
                connection.unsubscribe(&idle).await;
            }
            {
                let mut state = subscriptions.state();
                state.sweeping = false;
                for channel in idle {
                    if state.channels.get(&channel).is_some_and(|channel| channel.waiters == 0) {
                        state.channels.remove(&channel);
                    }
                }
            }
            subscriptions.sweep_later();
        });
    }
}

impl State {
    fn wait(&mut self, client: ClientId, name: &Name, channel: Option<String>) {
        let Some(listening) = self.clients.get_mut(&client) else { return };
        if let (true, Some(channel)) = (listening.names.insert(name.clone()), channel) {
            let channel = self.channels.entry(channel).or_default();
            channel.waiters += 1;
            if !channel.names.contains(name) {
                channel.names.push(name.clone());
            }
        }
    }

    fn wait_no_more(&mut self, client: ClientId, name: &Name, channel: Option<String>) {
        let Some(listening) = self.clients.get_mut(&client) else { return };
        let (true, Some(key)) = (listening.names.remove(name), channel) else { return };
        if let Some(channel) = self.channels.get_mut(&key) {
            channel.waiters -= 1;
            if channel.waiters == 0 {
                self.idle.push(key);
            }
        }
    }

    fn sinks(&self) -> Vec<HintSink> {
        self.clients.values().map(|listening| listening.sink.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_flood_is_heard_together_and_nothing_after_it_is_missed() {
        Thread::Callers.start().expect("a thread");
        let subscriptions = Subscriptions::new(Layout::Plain, Space("".into()));
        let (client, name) = (ClientId([7, 7]), Name::new("a").expect("a name"));
        let (tell, told) = mpsc::channel();
        subscriptions.add(client, &name, &(Arc::new(move |hint| drop(tell.send(hint))) as HintSink));
        let channel = subscriptions.space.hint_channel(&client.to_string());
        for _ in 0..100_000 {
            subscriptions.hear(channel.as_bytes(), b"a");
        }
        let mut single = 0;
        while told.recv_timeout(Duration::from_secs(60)).expect("the last ones are heard as well") != Hint::All {
            single += 1;
        }
        assert!(single < 50_000, "{single} of 100,000 messages are heard one by one");
    }
}
