//! Who is to be told that a lock may be free: the other end of the subscriptions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use foldhash::fast::RandomState;
use leasehold_core::port::{Hint, HintSink};
use leasehold_core::waiting::Rng;
use leasehold_core::{ClientId, Name};

use crate::config::Layout;
use crate::keys::{self, Keys};
use crate::link::Link;

/// What a release of ours says on Redisson's channel. Redisson reads it as its own 0, and we know that the first in line was told.
const OURS: &[u8] = b"-0";
/// After a release of Redisson's everybody was told, so everybody asks after a pause of up to this.
const SPREAD: Duration = Duration::from_millis(4);
/// A subscription that nobody needs is kept for this long: a lock that is waited for once is often waited for again.
const WARM: Duration = Duration::from_secs(1);

/// Everybody who waits over one link.
pub(crate) struct Ears {
    layout: Layout,
    link: OnceLock<Weak<Link>>,
    state: Mutex<State>,
}

struct State {
    watchers: HashMap<Name, Vec<(ClientId, HintSink)>, RandomState>,
    /// Redisson's channels, with the names they are of: `a` and `{a}` share one.
    channels: HashMap<String, Vec<Name>, RandomState>,
    /// Clients that wait for anything, with the number of names.
    clients: HashMap<ClientId, usize, RandomState>,
    /// Channels to be unsubscribed from, unless they are needed again.
    idle: Vec<String>,
    sweeping: bool,
    rng: Rng,
}

impl Ears {
    pub(crate) fn new(layout: Layout) -> Arc<Self> {
        let state = State {
            watchers: HashMap::default(),
            channels: HashMap::default(),
            clients: HashMap::default(),
            idle: Vec::new(),
            sweeping: false,
            rng: Rng::new(leasehold_clock::now().as_nanos()),
        };
        Arc::new(Self { layout, link: OnceLock::new(), state: Mutex::new(state) })
    }

    /// The link they listen on.
    pub(crate) fn attach(&self, link: &Arc<Link>) {
        let _ = self.link.set(Arc::downgrade(link));
    }

    pub(crate) fn link(&self) -> Option<Arc<Link>> {
        self.link.get()?.upgrade()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Channels that a client must hear to be told of a name.
    pub(crate) fn channels_of(&self, client: ClientId, name: &Name) -> Vec<String> {
        let mut channels = vec![keys::hint_channel(client)];
        if self.layout == Layout::Redisson {
            channels.push(Keys(name).channel());
        }
        channels
    }

    /// Someone waits.
    pub(crate) fn add(&self, client: ClientId, name: &Name, sink: HintSink) {
        let mut state = self.state();
        let state = &mut *state;
        let watchers = state.watchers.entry(name.clone()).or_default();
        match watchers.iter_mut().find(|(watcher, _)| *watcher == client) {
            Some(watcher) => watcher.1 = sink,
            None => {
                watchers.push((client, sink));
                *state.clients.entry(client).or_default() += 1;
            }
        }
        if self.layout == Layout::Redisson {
            let names = state.channels.entry(Keys(name).channel()).or_default();
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
    }

    /// Someone waits no longer.
    pub(crate) fn remove(&self, client: ClientId, name: &Name) {
        let mut state = self.state();
        let Some(watchers) = state.watchers.get_mut(name) else { return };
        let before = watchers.len();
        watchers.retain(|(watcher, _)| *watcher != client);
        if watchers.len() == before {
            return;
        }
        let nobody = watchers.is_empty();
        if let Some(names) = state.clients.get_mut(&client) {
            *names -= 1;
            if *names == 0 {
                state.clients.remove(&client);
                state.idle.push(keys::hint_channel(client));
            }
        }
        if nobody {
            state.watchers.remove(name);
            state.forget_channel(name);
        }
    }

    /// A client is gone.
    pub(crate) fn remove_all(&self, client: ClientId) {
        let names: Vec<Name> = {
            let state = self.state();
            let watched = |watchers: &Vec<(ClientId, HintSink)>| watchers.iter().any(|(watcher, _)| *watcher == client);
            state.watchers.iter().filter(|(_, watchers)| watched(watchers)).map(|(name, _)| name.clone()).collect()
        };
        names.iter().for_each(|name| self.remove(client, name));
    }

    /// Every channel that somebody needs.
    pub(crate) fn channels(&self) -> Vec<String> {
        let state = self.state();
        let hints = state.clients.keys().map(|client| keys::hint_channel(*client));
        hints.chain(state.channels.keys().cloned()).collect()
    }

    /// Whether somebody needs this channel.
    pub(crate) fn needs(&self, channel: &str) -> bool {
        let state = self.state();
        state.channels.contains_key(channel)
            || state.clients.keys().any(|client| keys::hint_channel(*client) == channel)
    }

    /// A message came.
    pub(crate) fn hear(&self, channel: &[u8], payload: &[u8]) {
        let Ok(channel) = std::str::from_utf8(channel) else { return };
        if keys::is_hint(channel) {
            let Some(name) = std::str::from_utf8(payload).ok().and_then(|name| Name::new(name).ok()) else { return };
            let told = self.state().sinks(&name, |client| keys::hint_channel(client) == channel);
            tell(&told, &name);
        } else if payload != OURS {
            self.hear_redisson(channel);
        }
    }

    fn hear_redisson(&self, channel: &str) {
        let (told, pause) = {
            let mut state = self.state();
            let Some(names) = state.channels.get(channel) else { return };
            let told: Vec<_> = names.iter().map(|name| (name.clone(), state.sinks(name, |_| true))).collect();
            let spread = u64::try_from(SPREAD.as_nanos()).unwrap_or(u64::MAX);
            (told, Duration::from_nanos(state.rng.below(spread)))
        };
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            for (name, sinks) in told {
                tell(&sinks, &name);
            }
        });
    }

    /// Hints may have been missed.
    pub(crate) fn hint_all(&self) {
        let mut told: Vec<(ClientId, HintSink)> = Vec::new();
        for (client, sink) in self.state().watchers.values().flatten() {
            if !told.iter().any(|(other, _)| other == client) {
                told.push((*client, sink.clone()));
            }
        }
        for (_, sink) in told {
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
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            self.state().sweeping = false;
            return;
        };
        let ears = Arc::downgrade(self);
        runtime.spawn(async move {
            tokio::time::sleep(WARM).await;
            let Some(ears) = ears.upgrade() else { return };
            let idle = std::mem::take(&mut ears.state().idle);
            if let Some(link) = ears.link() {
                link.unsubscribe(idle).await;
            }
            ears.state().sweeping = false;
            ears.sweep_later();
        });
    }
}

impl State {
    fn sinks(&self, name: &Name, wanted: impl Fn(ClientId) -> bool) -> Vec<HintSink> {
        let watchers = self.watchers.get(name).map(Vec::as_slice).unwrap_or_default();
        watchers.iter().filter(|(client, _)| wanted(*client)).map(|(_, sink)| sink.clone()).collect()
    }

    fn forget_channel(&mut self, name: &Name) {
        let channel = Keys(name).channel();
        let Some(names) = self.channels.get_mut(&channel) else { return };
        names.retain(|other| other != name);
        if names.is_empty() {
            self.channels.remove(&channel);
            self.idle.push(channel);
        }
    }
}

fn tell(sinks: &[HintSink], name: &Name) {
    for sink in sinks {
        sink(Hint::Name(name.clone()));
    }
}
