//! This process at one file: the clients it has there, who hears of which name, and the folder where processes find each other.

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

use crate::config::Config;
use crate::database::Database;
use crate::directory::{Site, identity};
use crate::folder::Folder;
use crate::live::Stamp;
use crate::machine::Machine;
use crate::notifier::Notifier;
use crate::unforked::Unforked;
use crate::{error, live, rows, socket};

/// How long looking around may wait for a busy file.
const LOOK_FOR: Duration = Duration::from_millis(100);

/// The first in line has so much time to act on its hint before the others see that it could.
const GRACE: Duration = Duration::from_millis(150);

/// The files that this process has open, for as long as it has them open.
static PLACES: Mutex<Vec<(Known, Process, Weak<Registry>)>> = Mutex::new(Vec::new());

/// A file by its name, and by device and number: it may have other names, through a mount or a folder that was renamed.
#[derive(PartialEq, Eq)]
struct Known {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl Known {
    fn at(path: &Path) -> Self {
        let found = fs::metadata(path).ok();
        Self { path: path.to_owned(), identity: found.map(|found| (found.dev(), found.ino())) }
    }

    fn may_be(&self, other: &Self) -> bool {
        self.path == other.path || (self.identity.is_some() && self.identity == other.identity)
    }
}

/// This process at one file.
pub(crate) struct Registry {
    /// Where processes find each other; another one where somebody removed or replaced it.
    folder: Mutex<Arc<Entered>>,
    process: Process,
    sender: UnixDatagram,
    ear: Notifier,
    state: Mutex<State>,
    /// Where clients of this process hear of names that they hold.
    holders: Mutex<HashMap<ClientId, HintSink>>,
    /// A connection for looking around, made when it is needed first.
    eyes: Mutex<Option<Unforked<Database>>>,
    config: Config,
    machine: Machine,
}

/// Where the file is, and the folder beside it.
#[derive(Debug)]
struct Entered {
    site: Arc<Site>,
    folder: Folder,
}

impl Entered {
    fn at(config: &Config) -> Result<Self, Error> {
        let site = Site::find(&config.path, false)?.ok_or_else(|| error::no_store(&config.path))?;
        let file = site.stat("").map_err(|fault| error::place("there is no", &config.path, fault.into()))?;
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
    pub(crate) members: HashMap<ClientId, Member>,
    /// Holders in other processes whose end is waited for, with how many waits there are.
    pub(crate) followed: HashMap<ClientId, (Arc<File>, usize)>,
}

/// A client of this process.
pub(crate) struct Member {
    live: File,
    pub(crate) socket: Option<Arc<UnixDatagram>>,
    pub(crate) watched: HashMap<Name, Watched>,
}

/// A name that a client waits for.
pub(crate) struct Watched {
    pub(crate) sink: HintSink,
    /// Whose holds it waits behind.
    behind: SmallVec<[ClientId; 1]>,
    /// Their stamps from before the store was asked last, where the ear is to look at them; else none.
    stamps: Stamps,
}

/// Holders, and what was stamped on their files.
pub(crate) type Stamps = SmallVec<[(ClientId, Stamp); 1]>;

impl Registry {
    /// This process's place at a file that exists.
    pub(crate) fn at(config: &Config, machine: &Machine) -> Result<Arc<Self>, Error> {
        let path = &config.path;
        Self::check_fork(path)?;
        let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
        places.retain(|(_, _, place)| place.strong_count() > 0);
        let known = places.iter().find(|(known, ..)| known.path == *path).and_then(|(.., place)| place.upgrade());
        if let Some(place) = known {
            return Ok(place);
        }
        let place = Arc::new(Self::new(config, machine)?);
        places.push((Known::at(path), place.process, Arc::downgrade(&place)));
        Ok(place)
    }

    /// Refuses a file that a process which this one was forked from has open: SQLite must not open it again here.
    pub(crate) fn check_fork(path: &Path) -> Result<(), Error> {
        let wanted = Known::at(path);
        let places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
        let inherited = |(known, process, place): &(Known, Process, Weak<Self>)| {
            known.may_be(&wanted) && !process.is_current() && place.strong_count() > 0
        };
        if places.iter().any(inherited) { Err(error::forked()) } else { Ok(()) }
    }

    fn new(config: &Config, machine: &Machine) -> Result<Self, Error> {
        let entered = Entered::at(config)?;
        let cannot = |fault| error::place("the folder cannot be used:", &entered.folder.path, fault);
        let sender = UnixDatagram::unbound().map_err(cannot)?;
        sender.set_nonblocking(true).map_err(cannot)?;
        let ear = Notifier::new().map_err(cannot)?;
        Ok(Self {
            folder: Mutex::new(Arc::new(entered)),
            process: Process::current(),
            sender,
            ear,
            state: Mutex::default(),
            holders: Mutex::default(),
            eyes: Mutex::default(),
            config: config.clone(),
            machine: machine.clone(),
        })
    }

    fn entered(&self) -> Arc<Entered> {
        self.folder.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Enters the folder that stands there now, and makes it where somebody cleared it away.
    fn enter_again(&self) -> io::Result<Arc<Entered>> {
        let entered = Arc::new(Entered::at(&self.config).map_err(io::Error::other)?);
        *self.folder.lock().unwrap_or_else(PoisonError::into_inner) = entered.clone();
        Ok(entered)
    }

    /// The file by device and number.
    pub(crate) fn identity(&self) -> Result<(u64, u64), Error> {
        let found = self.entered().site.stat("").and_then(|found| found.ok_or(rustix::io::Errno::NOENT));
        found
            .map(|found| identity(&found))
            .map_err(|fault| error::place("there is no", &self.config.path, fault.into()))
    }

    /// Nothing panics under this mutex but a want of memory.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a client of this process known to others: from now on they can tell whether it lives.
    pub(crate) fn join(self: &Arc<Self>, client: ClientId) -> Result<(), Error> {
        let mut state = self.state();
        let member = self.member(&mut state, client).map_err(|fault| self.cannot(fault))?;
        if member.socket.is_some() || !self.holders().contains_key(&client) {
            return Ok(());
        }
        // Without a socket or a thread, the next renewal finds out what an operator did.
        if let Ok(bound) = self.in_the_folder(|folder| socket::bind(folder, client)) {
            member.socket = Some(Arc::new(bound));
            drop(state);
            let _ = self.ear.listen(self);
        }
        Ok(())
    }

    fn holders(&self) -> MutexGuard<'_, HashMap<ClientId, HintSink>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From when the client keeps something on, it hears there of names that it holds.
    pub(crate) fn watch_held(&self, client: ClientId, sink: HintSink) {
        self.holders().insert(client, sink);
    }

    /// Tells a client that a name which it holds was taken away. Where it does not hear, its next renewal finds out.
    pub(crate) fn tell_holder(&self, client: ClientId, name: &Name) {
        match self.holders().get(&client).cloned() {
            Some(sink) => sink(Hint::Held(name.clone())),
            None => self.send_held(client, name),
        }
    }

    pub(crate) fn send_held(&self, client: ClientId, name: &Name) {
        let _ = socket::send(&self.sender, &self.entered().folder, client, &socket::held(name));
    }

    /// Where a client of this process hears of what it holds.
    pub(crate) fn holder(&self, client: ClientId) -> Option<HintSink> {
        self.holders().get(&client).cloned()
    }

    fn member<'s>(&self, state: &'s mut State, client: ClientId) -> io::Result<&'s mut Member> {
        match state.members.entry(client) {
            std::collections::hash_map::Entry::Occupied(known) => Ok(known.into_mut()),
            std::collections::hash_map::Entry::Vacant(new) => {
                let live = self.in_the_folder(|folder| live::hold(folder, client))?;
                Ok(new.insert(Member { live, socket: None, watched: HashMap::new() }))
            }
        }
    }

    /// Makes something in the folder. Where somebody cleared that away it is made anew; those who were in it are found by lease and
    /// recheck alone from then on.
    fn in_the_folder<T>(&self, make: impl Fn(&Folder) -> io::Result<T>) -> io::Result<T> {
        let entered = self.entered();
        let entered = if entered.is_current() { entered } else { self.enter_again()? };
        make(&entered.folder).or_else(|fault| match fault.kind() {
            io::ErrorKind::NotFound => make(&self.enter_again()?.folder),
            _ => Err(fault),
        })
    }

    fn cannot(&self, fault: io::Error) -> Error {
        error::place("nothing can be made in", &self.entered().folder.path, fault)
    }

    /// From now on, hints about a name reach the sink: its socket is there, and somebody listens.
    pub(crate) fn watch(self: &Arc<Self>, client: ClientId, name: Name, sink: HintSink) -> Result<(), Error> {
        let mut state = self.state();
        let member = self.member(&mut state, client).map_err(|fault| self.cannot(fault))?;
        if member.socket.is_none() {
            let bound =
                self.in_the_folder(|folder| socket::bind(folder, client)).map_err(|fault| self.cannot(fault))?;
            member.socket = Some(Arc::new(bound));
        }
        match member.watched.get_mut(&name) {
            Some(watched) => {
                watched.sink = sink;
                watched.stamps.clear();
            }
            None => drop(member.watched.insert(name, Watched { sink, behind: SmallVec::new(), stamps: Stamps::new() })),
        }
        drop(state);
        self.ear.listen(self).map_err(|fault| {
            error::place("no thread can be started that listens in", &self.entered().folder.path, fault)
        })
    }

    pub(crate) fn unwatch(&self, client: ClientId, name: &Name) {
        let mut state = self.state();
        let watched = state.members.get_mut(&client).and_then(|member| member.watched.remove(name));
        for holder in watched.map(|watched| watched.behind).unwrap_or_default() {
            state.let_go(holder);
        }
    }

    /// What stands on the files of those whom the client follows for a name: to be read before the store is asked.
    pub(crate) fn stamps(&self, client: ClientId, name: &Name) -> Stamps {
        let state = self.state();
        let watched = state.members.get(&client).and_then(|member| member.watched.get(name));
        let stamp = |holder: &ClientId| Some((*holder, live::stamp_of(&state.followed.get(holder)?.0)?));
        watched.map(|watched| watched.behind.iter().filter_map(stamp).collect()).unwrap_or_default()
    }

    /// The client found the name held by these: when the process of one of them ends, it is told. Where it followed them already as
    /// it asked, with these stamps, they are looked at each second from now on: then the answer is yes.
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
            // It may have ended before the file was opened; then the kernel says nothing.
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

    /// Clients gave back what others wait for: those who follow them see it, though nobody told them.
    pub(crate) fn stamp(&self, holders: &[ClientId]) {
        let state = self.state();
        for holder in holders {
            match state.members.get(holder) {
                Some(member) => live::stamp(&member.live),
                None => live::stamp_at(&self.entered().folder, *holder),
            }
        }
    }

    fn look(&self, holder: ClientId) -> Option<Arc<File>> {
        live::look(&self.entered().folder, holder).ok().map(Arc::new)
    }

    /// Whether the process of a client is certain to be gone.
    pub(crate) fn is_gone(&self, client: ClientId) -> bool {
        let followed = self.state().followed.get(&client).map(|(file, _)| file.clone());
        if let Some(file) = followed {
            return live::is_free(&file);
        }
        live::is_gone(&self.entered().folder, client)
    }

    /// Tells waiters that a name may be free; answers those that are certain not to hear it.
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

    /// Sends a hint; false where the process that heard it is gone. No socket: it does not listen yet, and asks again when it does. A
    /// socket that is full wakes its client all the same, and whoever wakes looks at all its names.
    fn send(&self, client: ClientId, name: &Name) -> bool {
        let entered = self.entered();
        match socket::send(&self.sender, &entered.folder, client, name.as_str()) {
            // Those who came since the folder was made anew are in that one.
            Err(fault) if fault.kind() == io::ErrorKind::NotFound && !entered.is_current() => {
                let again = |entered: Arc<Entered>| socket::send(&self.sender, &entered.folder, client, name.as_str());
                self.enter_again().and_then(again).is_ok()
            }
            Err(fault) => fault.kind() != io::ErrorKind::ConnectionRefused,
            Ok(_) => true,
        }
    }

    /// Where a client of this process hears of a name.
    pub(crate) fn sink(&self, client: ClientId, name: &Name) -> Option<HintSink> {
        self.hears(client, name).flatten()
    }

    /// Looks at every name that somebody here waits for, and tells those whose turn has come: a hint may have been lost on its way.
    /// What cannot be read now is found by the recheck of the waiter itself.
    pub(crate) fn look_around(&self) {
        let waits: Vec<(ClientId, Name)> = {
            let state = self.state();
            let names = |(client, member): (&ClientId, &Member)| {
                let client = *client;
                member.watched.keys().map(move |name| (client, name.clone())).collect::<Vec<_>>()
            };
            state.members.iter().flat_map(names).collect()
        };
        let mut eyes = self.eyes.lock().unwrap_or_else(PoisonError::into_inner);
        if eyes.is_none() {
            *eyes = Database::open(self.config.clone(), self.machine.clone(), LOOK_FOR, StoreTime::default())
                .ok()
                .map(Unforked::new);
        }
        let Some(eyes) = eyes.as_mut() else { return };
        let turns = eyes.read(LOOK_FOR, |connection, now| rows::turns(connection, now, &waits));
        for (client, name) in turns.map(|(_, turns)| turns).unwrap_or_default() {
            if let Some(sink) = self.sink(client, &name) {
                sink(Hint::Name(name));
            }
        }
    }

    /// Whether somebody is to be looked at each second.
    pub(crate) fn looks(&self) -> bool {
        let looks = |member: &Member| member.watched.values().any(|watched| !watched.stamps.is_empty());
        self.state().members.values().any(looks)
    }

    /// Looks at those who are followed, and tells those who wait behind one that is gone or has given something back. With patience:
    /// where one did so just now, answers when to look again.
    pub(crate) fn look_at_holders(&self, patient: bool) -> Option<Moment> {
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
                let acts_until = stamp(holder).map(|stamp| stamp.at() + GRACE);
                if patient && acts_until.is_some_and(|until| (now..=now + GRACE).contains(&until)) {
                    again = again.max(acts_until);
                    continue;
                }
                // Not told again before it has asked.
                watched.stamps.clear();
                told.push((name.clone(), watched.sink.clone()));
            }
        }
        for (name, sink) in told {
            sink(Hint::Name(name));
        }
        again
    }

    /// Whether a client is of this process, and where it hears of a name.
    fn hears(&self, client: ClientId, name: &Name) -> Option<Option<HintSink>> {
        let state = self.state();
        let member = state.members.get(&client)?;
        Some(member.watched.get(name).map(|watched| watched.sink.clone()))
    }

    /// Clients of other processes that are gone, as their files tell.
    pub(crate) fn dead(&self) -> Vec<ClientId> {
        clients(&self.entered().folder).filter(|client| self.is_gone(*client)).collect()
    }

    /// Removes what processes left that ended while they were making it.
    pub(crate) fn clear_leftovers(&self) {
        let entered = self.entered();
        entered.folder.clear_leftovers();
        Folder::clear_beside(&entered.site);
    }

    /// Whether a client waits for a name here.
    pub(crate) fn is_watching(&self, client: ClientId, name: &Name) -> bool {
        self.sink(client, name).is_some()
    }

    /// Removes the files of a client. Only when nothing of it is left in the store, or it lives in this process.
    pub(crate) fn clear(&self, client: ClientId) {
        // The liveness file last: whoever ends in between leaves what the next one finds.
        let entered = self.entered();
        entered.folder.remove(&socket::name(client));
        entered.folder.remove(&live::name(client));
    }

    /// As if the process of a client had died: its file stays, and nobody holds it.
    #[cfg(test)]
    pub(crate) fn forget(&self, client: ClientId) {
        self.state().members.remove(&client);
    }

    /// Ends a client of this process.
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

    /// Those who wait behind a holder whose process ended.
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
        // The files of a process that this one was forked from are that one's.
        if self.process.is_current() {
            let clients: Vec<ClientId> = self.state().members.keys().copied().collect();
            clients.into_iter().for_each(|client| self.leave(client));
        }
    }
}

/// Duplicates of what proves to other processes that the clients of this one live, for handing on to a process that goes on in
/// its stead: they count as living until the last duplicate is closed. They are closed by `exec` unless that is changed.
///
/// # Errors
///
/// When this process has no descriptors left.
pub fn live_files() -> io::Result<Vec<OwnedFd>> {
    let places: Vec<Arc<Registry>> = {
        let places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
        places.iter().filter(|(_, process, _)| process.is_current()).filter_map(|(.., place)| place.upgrade()).collect()
    };
    let mut files = Vec::new();
    for place in places {
        for member in place.state().members.values() {
            files.push(member.live.try_clone()?.into());
        }
    }
    Ok(files)
}

/// Every client that has a liveness file in the folder.
fn clients(folder: &Folder) -> impl Iterator<Item = ClientId> + use<> {
    folder.names().filter_map(|name| client_of(name.strip_suffix(".live")?))
}

/// Whether any process that uses the folder is certain to live.
pub(crate) fn somebody_lives(folder: &Folder) -> bool {
    clients(folder).any(|client| live::look(folder, client).is_ok_and(|file| !live::is_free(&file)))
}

fn client_of(hex: &str) -> Option<ClientId> {
    let whole = (hex.len() == 32).then(|| u128::from_str_radix(hex, 16).ok())??;
    Some(ClientId([(whole >> 64) as u64, whole as u64]))
}
