//! This process's clients at one file, which of them hear of which name, and the folder where processes find each
//! other.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold_clock::fork::Process;
use leasehold_core::reference::Hints;
use leasehold_core::{ClientId, Error, Hint, HintSink, Moment, Name, StoreTime};
use smallvec::SmallVec;

use crate::boot::Boot;
use crate::config::Config;
use crate::database::Database;
use crate::directory::{Site, identity};
use crate::folder::Folder;
use crate::live::Stamp;
use crate::notifier::Notifier;
use crate::unforked::Unforked;
use crate::{error, live, rows, socket};

/// How long a check of all watched names may wait for a busy file.
const CHECK_ALL_PATIENCE: Duration = Duration::from_millis(100);

/// How long the first waiter has to act on its hint before the others are notified too.
const HINT_GRACE: Duration = Duration::from_millis(150);

/// The files that this process has open.
static REGISTRIES: Mutex<Vec<(FileKey, Process, Weak<Registry>)>> = Mutex::new(Vec::new());

/// A file by its path, and by device and inode: it may have other paths, through a mount or a renamed directory.
#[derive(PartialEq, Eq)]
struct FileKey {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl FileKey {
    fn at(path: &Path) -> Self {
        let found = fs::metadata(path).ok();
        Self { path: path.to_owned(), identity: found.map(|found| (found.dev(), found.ino())) }
    }

    fn may_be(&self, other: &Self) -> bool {
        self.path == other.path || (self.identity.is_some() && self.identity == other.identity)
    }
}

/// This process's clients at one file.
pub(crate) struct Registry {
    /// Where processes find each other; replaced if it was removed or replaced on disk.
    folder: Mutex<Arc<Location>>,
    process: Process,
    sender: UnixDatagram,
    ear: Notifier,
    state: Mutex<State>,
    /// Sinks for clients of this process that hear of names they hold.
    holders: Mutex<HashMap<ClientId, HintSink>>,
    /// A connection for checking the watched names, created on first use.
    reader: Mutex<Option<Unforked<Database>>>,
    config: Config,
    boot: Boot,
}

/// The file's location, and the folder beside it.
#[derive(Debug)]
struct Location {
    site: Arc<Site>,
    folder: Folder,
}

impl Location {
    fn at(config: &Config) -> Result<Self, Error> {
        let site = Site::find(&config.path, false)?.ok_or_else(|| error::no_store(&config.path))?;
        let file = site.stat("").map_err(|fault| error::io_failed("cannot find", &config.path, fault.into()))?;
        let file = file.ok_or_else(|| error::no_store(&config.path))?;
        let folder = Folder::enter(&site, site.rights_of(&file))?;
        Ok(Self { site, folder })
    }

    fn is_current(&self) -> bool {
        self.site.is_current() && self.folder.is_current(&self.site)
    }
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) members: HashMap<ClientId, LocalClient>,
    /// Holders in other processes whose end is awaited, with the number of waits.
    pub(crate) followed: HashMap<ClientId, (Arc<File>, usize)>,
}

/// A client of this process.
pub(crate) struct LocalClient {
    live: File,
    pub(crate) socket: Option<Arc<UnixDatagram>>,
    pub(crate) watched: HashMap<Name, Watch>,
}

/// A name that a client waits for.
pub(crate) struct Watch {
    pub(crate) sink: HintSink,
    /// The clients whose holds it waits behind.
    behind: SmallVec<[ClientId; 1]>,
    /// Their stamps from before the last call to the store, if the notifier is to check them; else none.
    stamps: Stamps,
}

/// Holders, and the stamps of their files.
pub(crate) type Stamps = SmallVec<[(ClientId, Stamp); 1]>;

impl Registry {
    /// Registers this process at a file that exists.
    pub(crate) fn at(config: &Config, boot: &Boot) -> Result<Arc<Self>, Error> {
        let path = &config.path;
        Self::check_fork(path)?;
        let mut registries = REGISTRIES.lock().unwrap_or_else(PoisonError::into_inner);
        registries.retain(|(_, _, registry)| registry.strong_count() > 0);
        let known =
            registries.iter().find(|(known, ..)| known.path == *path).and_then(|(.., registry)| registry.upgrade());
        if let Some(registry) = known {
            return Ok(registry);
        }
        let registry = Arc::new(Self::new(config, boot)?);
        registries.push((FileKey::at(path), registry.process, Arc::downgrade(&registry)));
        Ok(registry)
    }

    /// Refuses a file that the parent of this forked process has open: SQLite must not open it again here.
    pub(crate) fn check_fork(path: &Path) -> Result<(), Error> {
        let wanted = FileKey::at(path);
        let registries = REGISTRIES.lock().unwrap_or_else(PoisonError::into_inner);
        let inherited = |(known, process, registry): &(FileKey, Process, Weak<Self>)| {
            known.may_be(&wanted) && !process.is_current() && registry.strong_count() > 0
        };
        if registries.iter().any(inherited) { Err(error::forked()) } else { Ok(()) }
    }

    fn new(config: &Config, boot: &Boot) -> Result<Self, Error> {
        let location = Location::at(config)?;
        let cannot = |fault| error::io_failed("cannot use the folder", &location.folder.path, fault);
        let sender = UnixDatagram::unbound().map_err(cannot)?;
        sender.set_nonblocking(true).map_err(cannot)?;
        let ear = Notifier::new().map_err(cannot)?;
        Ok(Self {
            folder: Mutex::new(Arc::new(location)),
            process: Process::current(),
            sender,
            ear,
            state: Mutex::default(),
            holders: Mutex::default(),
            reader: Mutex::default(),
            config: config.clone(),
            boot: boot.clone(),
        })
    }

    fn location(&self) -> Arc<Location> {
        self.folder.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Opens the folder that exists now, and creates it if it was removed.
    fn reopen_folder(&self) -> io::Result<Arc<Location>> {
        let location = Arc::new(Location::at(&self.config).map_err(io::Error::other)?);
        *self.folder.lock().unwrap_or_else(PoisonError::into_inner) = location.clone();
        Ok(location)
    }

    /// The file by device and inode.
    pub(crate) fn identity(&self) -> Result<(u64, u64), Error> {
        let found = self.location().site.stat("").and_then(|found| found.ok_or(rustix::io::Errno::NOENT));
        found
            .map(|found| identity(&found))
            .map_err(|fault| error::io_failed("cannot find", &self.config.path, fault.into()))
    }

    /// Nothing panics while this mutex is held, except running out of memory.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a client of this process known to other processes: from now on they can tell whether it lives.
    pub(crate) fn join(self: &Arc<Self>, client: ClientId) -> Result<(), Error> {
        let mut state = self.state();
        let member = self.member(&mut state, client).map_err(|fault| self.cannot(fault))?;
        if member.socket.is_some() || !self.holders().contains_key(&client) {
            return Ok(());
        }
        // Without a socket or a thread, the client hears of a break with its next renewal.
        if let Ok(bound) = self.create_in_folder(|folder| socket::bind(folder, client)) {
            member.socket = Some(Arc::new(bound));
            drop(state);
            let _ = self.ear.listen(self);
        }
        Ok(())
    }

    fn holders(&self) -> MutexGuard<'_, HashMap<ClientId, HintSink>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called once the client keeps a lease: from then on it hears of names that it holds.
    pub(crate) fn watch_held(&self, client: ClientId, sink: HintSink) {
        self.holders().insert(client, sink);
    }

    /// Notifies a client that a name which it holds was taken away. If the message is lost, its next renewal finds out.
    pub(crate) fn notify_holder(&self, client: ClientId, name: &Name) {
        match self.holders().get(&client).cloned() {
            Some(sink) => sink(Hint::Held(name.clone())),
            None => self.send_held(client, name),
        }
    }

    pub(crate) fn send_held(&self, client: ClientId, name: &Name) {
        let _ = socket::send(&self.sender, &self.location().folder, client, &socket::held(name));
    }

    /// The sink of a client of this process for names that it holds.
    pub(crate) fn holder(&self, client: ClientId) -> Option<HintSink> {
        self.holders().get(&client).cloned()
    }

    fn member<'s>(&self, state: &'s mut State, client: ClientId) -> io::Result<&'s mut LocalClient> {
        match state.members.entry(client) {
            std::collections::hash_map::Entry::Occupied(known) => Ok(known.into_mut()),
            std::collections::hash_map::Entry::Vacant(new) => {
                let live = self.create_in_folder(|folder| live::hold(folder, client))?;
                Ok(new.insert(LocalClient { live, socket: None, watched: HashMap::new() }))
            }
        }
    }

    /// Creates something in the folder, which is created again if it was removed. Clients that were in the old one are
    /// then found only by their leases and rechecks.
    fn create_in_folder<T>(&self, make: impl Fn(&Folder) -> io::Result<T>) -> io::Result<T> {
        let location = self.location();
        let location = if location.is_current() { location } else { self.reopen_folder()? };
        make(&location.folder).or_else(|fault| match fault.kind() {
            io::ErrorKind::NotFound => make(&self.reopen_folder()?.folder),
            _ => Err(fault),
        })
    }

    fn cannot(&self, fault: io::Error) -> Error {
        error::io_failed("cannot create files in", &self.location().folder.path, fault)
    }

    /// From now on, hints about a name reach the sink: its socket exists, and the notifier listens.
    pub(crate) fn watch(self: &Arc<Self>, client: ClientId, name: Name, sink: HintSink) -> Result<(), Error> {
        let mut state = self.state();
        let member = self.member(&mut state, client).map_err(|fault| self.cannot(fault))?;
        if member.socket.is_none() {
            let bound =
                self.create_in_folder(|folder| socket::bind(folder, client)).map_err(|fault| self.cannot(fault))?;
            member.socket = Some(Arc::new(bound));
        }
        match member.watched.get_mut(&name) {
            Some(watched) => {
                watched.sink = sink;
                watched.stamps.clear();
            }
            None => drop(member.watched.insert(name, Watch { sink, behind: SmallVec::new(), stamps: Stamps::new() })),
        }
        drop(state);
        self.ear.listen(self).map_err(|fault| {
            error::io_failed("cannot start the thread that listens in", &self.location().folder.path, fault)
        })
    }

    pub(crate) fn unwatch(&self, client: ClientId, name: &Name) {
        let mut state = self.state();
        let watched = state.members.get_mut(&client).and_then(|member| member.watched.remove(name));
        for holder in watched.map(|watched| watched.behind).unwrap_or_default() {
            state.let_go(holder);
        }
    }

    /// Stamps of the holders that the client follows for a name. Read them before calling the store.
    pub(crate) fn stamps(&self, client: ClientId, name: &Name) -> Stamps {
        let state = self.state();
        let watched = state.members.get(&client).and_then(|member| member.watched.get(name));
        let stamp = |holder: &ClientId| Some((*holder, live::stamp_of(&state.followed.get(holder)?.0)?));
        watched.map(|watched| watched.behind.iter().filter_map(stamp).collect()).unwrap_or_default()
    }

    /// The client found the name held by these: it is notified when the process of one of them ends. Returns true if it
    /// followed them already when it asked, and their stamps are unchanged: they are then checked every second.
    pub(crate) fn follow(&self, client: ClientId, name: &Name, holders: &[ClientId], stamps: Stamps) -> bool {
        let mut state = self.state();
        let State { members, followed } = &mut *state;
        let Some(watched) = members.get_mut(&client).and_then(|member| member.watched.get_mut(name)) else {
            return false;
        };
        if watched.behind.as_slice() == holders {
            let sure = !holders.is_empty() && stamps.iter().map(|(holder, _)| holder).eq(holders);
            let anew = sure && watched.stamps.is_empty();
            watched.stamps = if sure { stamps } else { Stamps::new() };
            drop(state);
            if anew {
                self.ear.wake();
            }
            return sure;
        }
        watched.stamps.clear();
        let before = std::mem::take(&mut watched.behind);
        let mut gone = false;
        for holder in holders {
            let Some(file) = followed.get(holder).map(|(file, _)| file.clone()).or_else(|| self.look(*holder)) else {
                continue;
            };
            // It may have ended before the file was opened; then the kernel reports nothing.
            gone |= live::is_free(&file);
            followed.entry(*holder).or_insert((file, 0)).1 += 1;
            watched.behind.push(*holder);
        }
        let sink = gone.then(|| watched.sink.clone());
        before.into_iter().for_each(|holder| state.let_go(holder));
        drop(state);
        self.ear.wake();
        if let Some(sink) = sink {
            sink(Hint::Name(name.clone()));
        }
        false
    }

    /// These clients released something that others wait for: their followers see it even if no hint reaches them.
    pub(crate) fn stamp(&self, holders: &[ClientId]) {
        let state = self.state();
        for holder in holders {
            match state.members.get(holder) {
                Some(member) => live::stamp(&member.live),
                None => live::stamp_at(&self.location().folder, *holder),
            }
        }
    }

    fn look(&self, holder: ClientId) -> Option<Arc<File>> {
        live::look(&self.location().folder, holder).ok().map(Arc::new)
    }

    /// Whether a client's process is certainly gone.
    pub(crate) fn is_gone(&self, client: ClientId) -> bool {
        let followed = self.state().followed.get(&client).map(|(file, _)| file.clone());
        if let Some(file) = followed {
            return live::is_free(&file);
        }
        live::is_gone(&self.location().folder, client)
    }

    /// Notifies waiters that a name may be free; returns those that certainly cannot be reached.
    pub(crate) fn tell(&self, hints: Hints) -> Hints {
        let mut deaf = Hints::new();
        for (client, name) in hints {
            match self.hears(client, &name) {
                Some(Some(sink)) => sink(Hint::Name(name)),
                Some(None) => {}
                None if self.send(client, &name) => {}
                None => deaf.push((client, name)),
            }
        }
        deaf
    }

    /// Sends a hint; false if the receiving process is gone. A missing socket means that the client does not listen
    /// yet, and asks again when it does. A full socket wakes its client all the same, and a client that wakes checks
    /// all its names.
    fn send(&self, client: ClientId, name: &Name) -> bool {
        let location = self.location();
        match socket::send(&self.sender, &location.folder, client, name.as_str()) {
            // Clients that came after the folder was replaced are in the new one.
            Err(fault) if fault.kind() == io::ErrorKind::NotFound && !location.is_current() => {
                let again =
                    |location: Arc<Location>| socket::send(&self.sender, &location.folder, client, name.as_str());
                self.reopen_folder().and_then(again).is_ok()
            }
            Err(fault) => fault.kind() != io::ErrorKind::ConnectionRefused,
            Ok(_) => true,
        }
    }

    /// The sink of a client of this process for a name.
    pub(crate) fn sink(&self, client: ClientId, name: &Name) -> Option<HintSink> {
        self.hears(client, name).flatten()
    }

    /// Checks every name that a local client waits for, and notifies those whose turn has come: a hint may have been
    /// lost. A waiter's own recheck covers what cannot be read now.
    pub(crate) fn check_all(&self) {
        let waits: Vec<(ClientId, Name)> = {
            let state = self.state();
            let names = |(client, member): (&ClientId, &LocalClient)| {
                let client = *client;
                member.watched.keys().map(move |name| (client, name.clone())).collect::<Vec<_>>()
            };
            state.members.iter().flat_map(names).collect()
        };
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if reader.is_none() {
            *reader = Database::open(self.config.clone(), self.boot.clone(), CHECK_ALL_PATIENCE, StoreTime::default())
                .ok()
                .map(Unforked::new);
        }
        let Some(reader) = reader.as_mut() else { return };
        let turns = reader.read(CHECK_ALL_PATIENCE, |connection, now| rows::turns(connection, now, &waits));
        for (client, name) in turns.map(|(_, turns)| turns).unwrap_or_default() {
            if let Some(sink) = self.sink(client, &name) {
                sink(Hint::Name(name));
            }
        }
    }

    /// Whether any holder is to be checked every second.
    pub(crate) fn has_followed(&self) -> bool {
        let looks = |member: &LocalClient| member.watched.values().any(|watched| !watched.stamps.is_empty());
        self.state().members.values().any(looks)
    }

    /// Checks the holders that are followed, and notifies the clients that wait behind one that is gone or has released
    /// something. If `patient` and one released just now, returns when to check again.
    pub(crate) fn check_holders(&self, patient: bool) -> Option<Moment> {
        let (mut told, mut again, now) = (Vec::new(), None, leasehold_clock::now());
        {
            let mut state = self.state();
            let gone = state.followed.iter().filter(|(_, (file, _))| live::is_free(file)).map(|(holder, _)| *holder);
            for holder in gone.collect::<Vec<_>>() {
                told.extend(state.behind(holder));
            }
            let State { members, followed } = &mut *state;
            let stamps: HashMap<ClientId, Option<Stamp>> =
                followed.iter().map(|(holder, (file, _))| (*holder, live::stamp_of(file))).collect();
            for (name, watched) in members.values_mut().flat_map(|member| &mut member.watched) {
                let stamp = |holder| stamps.get(holder).copied().flatten();
                let changed = watched.stamps.iter().find(|(holder, before)| stamp(holder) != Some(*before));
                let Some((holder, _)) = changed else { continue };
                let acts_until = stamp(holder).map(|stamp| stamp.at() + HINT_GRACE);
                if patient && acts_until.is_some_and(|until| (now..=now + HINT_GRACE).contains(&until)) {
                    again = again.max(acts_until);
                    continue;
                }
                // Not notified again before it has asked.
                watched.stamps.clear();
                told.push((name.clone(), watched.sink.clone()));
            }
        }
        for (name, sink) in told {
            sink(Hint::Name(name));
        }
        again
    }

    /// Whether a client belongs to this process, and its sink for a name.
    fn hears(&self, client: ClientId, name: &Name) -> Option<Option<HintSink>> {
        let state = self.state();
        let member = state.members.get(&client)?;
        Some(member.watched.get(name).map(|watched| watched.sink.clone()))
    }

    /// Clients of other processes that are gone, by their liveness files.
    pub(crate) fn dead(&self) -> Vec<ClientId> {
        clients(&self.location().folder).filter(|client| self.is_gone(*client)).collect()
    }

    /// Removes files that processes left incomplete.
    pub(crate) fn clear_leftovers(&self) {
        let location = self.location();
        location.folder.clear_leftovers();
        Folder::clear_beside(&location.site);
    }

    /// Whether a client waits for a name here.
    pub(crate) fn is_watching(&self, client: ClientId, name: &Name) -> bool {
        self.sink(client, name).is_some()
    }

    /// Removes the files of a client. Only if the store has nothing more of it, or if it belongs to this process.
    pub(crate) fn clear(&self, client: ClientId) {
        // The liveness file comes last: if this process ends in between, the next one finds the rest.
        let location = self.location();
        location.folder.remove(&socket::name(client));
        location.folder.remove(&live::name(client));
    }

    /// Acts as if the process of a client had died: its file stays, unlocked.
    #[cfg(test)]
    pub(crate) fn forget(&self, client: ClientId) {
        self.state().members.remove(&client);
    }

    /// Removes a client of this process.
    pub(crate) fn leave(&self, client: ClientId) {
        self.holders().remove(&client);
        let member = self.state().members.remove(&client);
        let Some(member) = member else { return };
        for holder in member.watched.into_values().flat_map(|watched| watched.behind) {
            self.state().let_go(holder);
        }
        self.clear(client);
    }
}

impl State {
    fn let_go(&mut self, holder: ClientId) {
        if let Some((_, waits)) = self.followed.get_mut(&holder) {
            *waits -= 1;
            if *waits == 0 {
                self.followed.remove(&holder);
            }
        }
    }

    /// The clients that wait behind a holder whose process ended.
    pub(crate) fn behind(&mut self, holder: ClientId) -> Vec<(Name, HintSink)> {
        self.followed.remove(&holder);
        let mut told = Vec::new();
        for member in self.members.values_mut() {
            for (name, watched) in &mut member.watched {
                if watched.behind.contains(&holder) {
                    watched.behind.retain(|other| *other != holder);
                    watched.stamps.clear();
                    told.push((name.clone(), watched.sink.clone()));
                }
            }
        }
        told
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // The files belong to the parent of a forked process.
        if self.process.is_current() {
            let clients: Vec<ClientId> = self.state().members.keys().copied().collect();
            clients.into_iter().for_each(|client| self.leave(client));
        }
    }
}

/// Duplicates of the descriptors that prove to other processes that the clients of this process live, for a process
/// that goes on in its place: they count as alive until the last duplicate is closed. `exec` closes them unless that is
/// changed.
///
/// # Errors
///
/// Fails if this process has no descriptors left.
pub fn live_files() -> io::Result<Vec<OwnedFd>> {
    let registries: Vec<Arc<Registry>> = {
        let registries = REGISTRIES.lock().unwrap_or_else(PoisonError::into_inner);
        registries
            .iter()
            .filter(|(_, process, _)| process.is_current())
            .filter_map(|(.., registry)| registry.upgrade())
            .collect()
    };
    let mut files = Vec::new();
    for registry in registries {
        for member in registry.state().members.values() {
            files.push(member.live.try_clone()?.into());
        }
    }
    Ok(files)
}

/// Every client with a liveness file in the folder.
fn clients(folder: &Folder) -> impl Iterator<Item = ClientId> + use<> {
    folder.names().filter_map(|name| client_of(name.strip_suffix(".live")?))
}

/// Whether any process that uses the folder is certainly alive.
pub(crate) fn any_alive(folder: &Folder) -> bool {
    clients(folder).any(|client| live::look(folder, client).is_ok_and(|file| !live::is_free(&file)))
}

fn client_of(hex: &str) -> Option<ClientId> {
    let whole = (hex.len() == 32).then(|| u128::from_str_radix(hex, 16).ok())??;
    Some(ClientId([(whole >> 64) as u64, whole as u64]))
}
