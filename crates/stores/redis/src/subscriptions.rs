//! Who is to be told that a lock may be free: the other end of the subscriptions.
//!
//! Every client has a channel of its own, on which the first in line is told by a release of ours. Redisson tells on a channel of
//! the lock's, so for as long as somebody waits for a lock we listen there as well.

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

/// What a release of ours says on Redisson's channel. Redisson reads it as its own 0, and we know that the first in line was told.
const OURS: &[u8] = b"-0";
/// After a release of Redisson's everybody was told, so everybody asks after a pause of up to this.
const SPREAD: Duration = Duration::from_millis(4);
/// A subscription that nobody needs is kept for this long: a lock that is waited for once is often waited for again.
const WARM: Duration = Duration::from_secs(1);

/// So many messages are heard in a [`WINDOW`] one by one. Whoever is allowed to publish can send any number: what comes beyond that is heard
/// together, at its end.
const WINDOW_MESSAGES: u32 = 256;
const WINDOW: Duration = Duration::from_millis(20);

/// Everybody who waits over one link.
pub(crate) struct Subscriptions {
    layout: Layout,
    space: Space,
    link: OnceLock<Weak<Connection>>,
    state: Mutex<State>,
}

struct State {
    clients: HashMap<ClientId, Listening, RandomState>,
    /// Redisson's channels that are listened to.
    channels: HashMap<String, Channel, RandomState>,
    /// Those that nobody needed a moment ago.
    idle: Vec<String>,
    sweeping: bool,
    rng: Rng,
    /// When the present window began, how many messages came in it, and whether its end is waited for.
    window: (Moment, u32, bool),
}

/// A client that waited for something at some time.
struct Listening {
    sink: HintSink,
    names: HashSet<Name, RandomState>,
}

/// A channel of Redisson's.
#[derive(Default)]
struct Channel {
    /// The locks it is of: `a` and `{a}` share one.
    names: Vec<Name>,
    /// How many wait.
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
        Arc::new(Self { layout, space, link: OnceLock::new(), state: Mutex::new(state) })
    }

    /// The link they listen on.
    pub(crate) fn attach(&self, link: &Arc<Connection>) {
        let _ = self.link.set(Arc::downgrade(link));
    }

    pub(crate) fn link(&self) -> Option<Arc<Connection>> {
        self.link.get()?.upgrade()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Channels that a client must hear to be told of a name.
    pub(crate) fn channels_of(&self, client: ClientId, name: &Name) -> Vec<String> {
        let mut channels = vec![self.space.hint_channel(&client.to_string())];
        channels.extend(self.channel_of(name));
        channels
    }

    /// Where Redisson tells of this lock. Behind a prefix it tells of nothing; there a release sees that somebody listens.
    fn channel_of(&self, name: &Name) -> Option<String> {
        (self.layout == Layout::Redisson).then(|| self.space.keys(name).channel())
    }

    /// Whether this client ever waited, so that it may hear of a name without having subscribed to it.
    pub(crate) fn knows(&self, client: ClientId) -> bool {
        self.state().clients.contains_key(&client)
    }

    /// Someone waits.
    pub(crate) fn add(&self, client: ClientId, name: &Name, sink: &HintSink) {
        let mut state = self.state();
        let none = || Listening { sink: sink.clone(), names: HashSet::default() };
        state.clients.entry(client).or_insert_with(none).sink = sink.clone();
        state.wait(client, name, self.channel_of(name));
    }

    /// A client waits that did before.
    pub(crate) fn add_again(&self, client: ClientId, name: &Name) {
        self.state().wait(client, name, self.channel_of(name));
    }

    /// Someone waits no longer. Answers whether there is something to be swept later.
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

    /// Every channel that somebody needs.
    pub(crate) fn channels(&self) -> Vec<String> {
        let state = self.state();
        let hints = state.clients.keys().map(|client| self.space.hint_channel(&client.to_string()));
        hints.chain(state.channels.keys().cloned()).collect()
    }

    /// Whether somebody waits who needs this channel.
    pub(crate) fn needs(&self, channel: &str) -> bool {
        self.state().channels.get(channel).is_some_and(|channel| channel.waiters > 0)
    }

    /// Whether anybody waits for anything.
    pub(crate) fn anybody_waits(&self) -> bool {
        self.state().clients.values().any(|listening| !listening.names.is_empty())
    }

    /// A message came.
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

    /// Whether this message is left out: with the end of the window everybody asks again.
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
            let ears = Arc::downgrade(self);
            Thread::Callers.behind(async move {
                tokio::time::sleep(WINDOW).await;
                let Some(ears) = ears.upgrade() else { return };
                ears.state().window = (leasehold_clock::now(), 0, false);
                ears.hint_all();
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
        Thread::Callers.behind(async move {
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

    /// Unsubscribes after a while from what nobody needs any more.
    pub(crate) fn sweep_later(self: &Arc<Self>) {
        {
            let mut state = self.state();
            if state.idle.is_empty() || state.sweeping {
                return;
            }
            state.sweeping = true;
        }
        let ears = Arc::downgrade(self);
        Thread::Callers.behind(async move {
            tokio::time::sleep(WARM).await;
            let Some(ears) = ears.upgrade() else { return };
            let idle = std::mem::take(&mut ears.state().idle);
            if let Some(link) = ears.link() {
                link.unsubscribe(&idle).await;
            }
            {
                let mut state = ears.state();
                state.sweeping = false;
                for channel in idle {
                    if state.channels.get(&channel).is_some_and(|channel| channel.waiters == 0) {
                        state.channels.remove(&channel);
                    }
                }
            }
            ears.sweep_later();
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
        let ears = Subscriptions::new(Layout::Plain, Space("".into()));
        let (client, name) = (ClientId([7, 7]), Name::new("a").expect("a name"));
        let (tell, told) = mpsc::channel();
        ears.add(client, &name, &(Arc::new(move |hint| drop(tell.send(hint))) as HintSink));
        let channel = ears.space.hint_channel(&client.to_string());
        for _ in 0..100_000 {
            ears.hear(channel.as_bytes(), b"a");
        }
        let mut single = 0;
        while told.recv_timeout(Duration::from_secs(60)).expect("the last ones are heard as well") != Hint::All {
            single += 1;
        }
        assert!(single < 50_000, "{single} of 100,000 messages are heard one by one");
    }
}
