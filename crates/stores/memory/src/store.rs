//! The port, over the reference store under one mutex.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use foldhash::fast::RandomState;
use leasehold_clock::Anchored;
use leasehold_core::port::{
    Acquire, Acquired, Answered, BreakOptions, Broken, Call, Hint, HintSink, Inspected, Release, Released, Renew,
    Renewed, Reply,
};
use leasehold_core::reference::{Hints, Reference};
use leasehold_core::{Capability, ClientId, Consistency, Error, Fencing, Identity, Name, Store, StoreTime};

use crate::config::Config;

/// What this store can do and promise.
const CAPABILITY: Capability = {
    let mut capability = Capability::NOTHING;
    capability.consistency = Consistency::Local;
    capability.fencing = Fencing::Always;
    capability.lost_before = true;
    capability.hints = true;
    capability.waiters = true;
    capability.ordered = false;
    capability.shared_reentrance = true;
    capability.server_clock = true;
    capability.outlives_process = false;
    capability.several_names = true;
    capability.lease_min = Duration::from_millis(10);
    capability
};

/// The stores of this process, by name, for as long as somebody is connected.
static STORES: Mutex<Vec<(Config, Weak<Memory>)>> = Mutex::new(Vec::new());

/// How many there were.
static MADE: AtomicU64 = AtomicU64::new(0);

/// A store inside this process.
pub struct Memory {
    number: u64,
    label: Arc<str>,
    clock: Anchored,
    state: Mutex<State>,
}

struct State {
    reference: Reference,
    watchers: HashMap<Name, Vec<(ClientId, HintSink)>, RandomState>,
}

impl Memory {
    /// The store of that name in this process: the same one for everybody who is connected at the same time.
    pub fn shared(config: &Config) -> Arc<Self> {
        let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
        stores.retain(|(_, store)| store.strong_count() > 0);
        let known = stores.iter().find(|(known, _)| known == config).and_then(|(_, store)| store.upgrade());
        known.unwrap_or_else(|| {
            let store = Arc::new(Self::new(config));
            stores.push((config.clone(), Arc::downgrade(&store)));
            store
        })
    }

    /// A store of its own, that no URL leads to.
    pub fn new(config: &Config) -> Self {
        // The clock never goes back while the process lives, so fences need no record beyond their lock.
        let reference = Reference::new(leasehold_clock::seed().unwrap_or_default(), Duration::ZERO);
        Self {
            number: MADE.fetch_add(1, Ordering::Relaxed),
            label: config.label().into(),
            clock: Anchored::new(),
            state: Mutex::new(State { reference, watchers: HashMap::default() }),
        }
    }

    /// How many names have a record: held, lingering or waited for.
    pub fn len(&self) -> usize {
        let mut state = self.state();
        state.reference.sweep(self.clock.now());
        state.reference.len()
    }

    /// Whether no name has a record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Nothing of ours panics under this mutex; were it so, the state is still whole between two steps.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One atomic step, then the hints it gave, outside of the mutex.
    fn step<T>(&self, step: impl FnOnce(StoreTime, &mut Reference) -> (T, Hints)) -> Answered<T> {
        let mut state = self.state();
        let at = self.clock.now();
        let (result, hints) = step(at, &mut state.reference);
        let told = state.sinks(hints);
        drop(state);
        tell(told);
        Answered { at, result }
    }

    fn ask<T>(&self, step: impl FnOnce(StoreTime, &mut Reference) -> T) -> Answered<T> {
        let mut state = self.state();
        let at = self.clock.now();
        Answered { at, result: step(at, &mut state.reference) }
    }
}

impl State {
    /// Where hints are to be put: those who watch, and nobody else.
    fn sinks(&self, hints: Hints) -> Vec<(Name, HintSink)> {
        let sink = |(client, name): (ClientId, Name)| {
            let sink = self.watchers.get(&name)?.iter().find(|(watcher, _)| *watcher == client)?.1.clone();
            Some((name, sink))
        };
        hints.into_iter().filter_map(sink).collect()
    }
}

fn tell(told: Vec<(Name, HintSink)>) {
    for (name, sink) in told {
        sink(Hint::Name(name));
    }
}

impl Store for Memory {
    fn label(&self) -> &Arc<str> {
        &self.label
    }

    fn capability(&self) -> Capability {
        CAPABILITY
    }

    /// Whichever name it has, or none.
    fn identity(&self) -> Call<Result<Identity, Error>> {
        Call::done(Ok(Identity::new(crate::config::SCHEME, self.number.to_string())))
    }

    fn clock(&self) -> Call<Reply<()>> {
        Call::done(Ok(Answered { at: self.clock.now(), result: () }))
    }

    fn acquire(&self, request: Acquire) -> Call<Reply<Acquired>> {
        let answered = self.ask(|at, reference| reference.acquire(at, &request));
        let labelled = answered.result.map_err(|error| error.on_store(&self.label));
        Call::done(labelled.map(|result| Answered { at: answered.at, result }))
    }

    fn renew(&self, leases: Vec<Renew>) -> Call<Reply<Vec<Renewed>>> {
        Call::done(Ok(self.ask(|at, reference| reference.renew(at, &leases))))
    }

    fn release(&self, request: Release) -> Call<Reply<Released>> {
        Call::done(Ok(self.step(|at, reference| reference.release(at, &request))))
    }

    fn watch(&self, client: ClientId, name: Name, sink: HintSink) -> Call<Result<(), Error>> {
        let mut state = self.state();
        let watchers = state.watchers.entry(name).or_default();
        watchers.retain(|(watcher, _)| *watcher != client);
        watchers.push((client, sink));
        Call::done(Ok(()))
    }

    fn watch_held(&self, _: ClientId, _: HintSink) {}

    fn unwatch(&self, client: ClientId, name: Name) -> Call<()> {
        let at = self.clock.now();
        let mut state = self.state();
        if let Some(watchers) = state.watchers.get_mut(&name) {
            watchers.retain(|(watcher, _)| *watcher != client);
            if watchers.is_empty() {
                state.watchers.remove(&name);
            }
        }
        let hints = state.reference.leave(at, client, &name);
        let told = state.sinks(hints);
        if told.is_empty() {
            return Call::done(());
        }
        Call::pending(async move { tell(told) })
    }

    fn inspect(&self, name: Name) -> Call<Reply<Inspected>> {
        Call::done(Ok(self.ask(|at, reference| reference.inspect(at, &name))))
    }

    fn list(&self, prefix: String, after: Option<Name>, limit: usize) -> Call<Reply<Vec<Inspected>>> {
        Call::done(Ok(self.ask(|at, reference| reference.list(at, &prefix, after.as_ref(), limit))))
    }

    fn break_lock(&self, name: Name, options: BreakOptions) -> Call<Reply<Broken>> {
        Call::done(Ok(self.step(|at, reference| reference.break_lock(at, &name, options))))
    }

    fn close(&self, client: ClientId) -> Call<()> {
        let mut state = self.state();
        state.watchers.retain(|_, watchers| {
            watchers.retain(|(watcher, _)| *watcher != client);
            !watchers.is_empty()
        });
        Call::done(())
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("label", &self.label).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::{Names, RequestId, StoreOwner};

    use super::*;

    /// A million names used once, by holders that died, leave nothing for ever.
    #[test]
    fn names_whose_lease_ran_out_are_forgotten() {
        let store = Memory::new(&Config { name: String::new() });
        for number in 0..20_000 {
            let request = RequestId { client: ClientId([0, 0]), number };
            let asked = Acquire::new(
                Names::One(Name::new(format!("once-{number}")).unwrap()),
                StoreOwner::Private(request),
                request,
                Duration::from_nanos(1),
            );
            assert!(matches!(store.acquire(asked), Call::Done(Some(Ok(_)))));
            assert!(store.state().reference.len() <= 128);
        }
        assert!(store.is_empty());
    }
}
