//! The parts of a group: what is acquired in one step, in which order, and the mistakes that are found before anything is acquired.

use std::sync::Arc;

use leasehold_core::{Error, ErrorKind, Identity, Name, Names, Owner};

use crate::lock::Lock;
use crate::runtime::handle::ShellHandle;
use crate::runtime::random;

/// The locks that one step of one store acquires.
pub(super) struct Part {
    pub(super) lock: Lock,
    pub(super) owner: Owner,
    /// The owner was given, so that it may hold locks elsewhere.
    is_given: bool,
    /// The index of its first lock among those that were given.
    pub(super) given_at: usize,
    /// The server that keeps it, if that was asked.
    identity: Option<Identity>,
}

impl Part {
    pub(super) fn names(&self) -> &[Name] {
        self.lock.names.as_slice()
    }

    pub(super) fn shell(&self) -> &Arc<ShellHandle> {
        &self.lock.shell
    }

    fn is_of_client(&self, other: &Lock) -> bool {
        is_same_client(&self.lock, other)
    }

    /// The server that keeps it: asked once.
    async fn identity(&mut self) -> Result<Identity, Error> {
        if let Some(identity) = &self.identity {
            return Ok(identity.clone());
        }
        let client = self.shell();
        let identity = client.store.identity().await.map_err(|error| error.on_store(client.store.label()))?;
        Ok(self.identity.insert(identity).clone())
    }

    /// Whether another lock can be acquired in the same step.
    fn suits(&self, other: &Lock) -> bool {
        self.is_of_client(other)
            && self.shell().store.capability().several_names
            && self.lock.owner == other.owner
            && self.lock.options == other.options
            && self.lock.about == other.about
    }
}

fn is_same_client(a: &Lock, b: &Lock) -> bool {
    Arc::ptr_eq(&a.shell, &b.shell)
}

/// Groups the locks into parts. Nothing is sent.
pub(super) fn parts(locks: &[Lock], owner: Option<&Owner>) -> Result<Vec<Part>, Error> {
    if locks.is_empty() {
        return Err(Error::new(ErrorKind::BadArgument, "acquire", "no lock was given; give at least one"));
    }
    let generated = random::owner()?;
    let mut parts: Vec<Part> = Vec::new();
    for (given_at, lock) in locks.iter().enumerate() {
        lock.check("acquire")?;
        let same_client = locks[..given_at].iter().filter(|other| is_same_client(lock, other));
        if let Some(name) = same_client.flat_map(|other| common(other.names.as_slice(), lock.names.as_slice())).next() {
            return Err(twice(&lock.shell, &lock.shell, name));
        }
        match parts.iter_mut().find(|part| part.suits(lock)) {
            Some(part) => {
                let names = part.names().iter().chain(lock.names.as_slice()).cloned();
                part.lock.names = Names::new(names)?;
            }
            None => {
                let owner = lock.owner.as_ref().or(owner);
                let (is_given, owner) = (owner.is_some(), owner.unwrap_or(&generated).clone());
                parts.push(Part { lock: lock.clone(), owner, is_given, given_at, identity: None });
            }
        }
    }
    for part in &mut parts {
        part.lock.owner = Some(part.owner.clone());
    }
    Ok(parts)
}

/// Asks the stores for their identity, if that matters, and whether an owner already holds anything; then puts the parts in the order in
/// which they are tried.
pub(super) async fn prepare(parts: &mut [Part]) -> Result<(), Error> {
    identify(parts).await?;
    for part in parts.iter().filter(|part| part.is_given) {
        hold_nothing(part).await?;
    }
    // The same order for every group of the same locks.
    parts.sort_by(|a, b| a.names().cmp(b.names()));
    Ok(())
}

/// Finds a name that is given twice on one store. Only stores with a name in common are asked.
async fn identify(parts: &mut [Part]) -> Result<(), Error> {
    for at in 0..parts.len() {
        let (before, rest) = parts.split_at_mut(at);
        let part = &mut rest[0];
        for other in before {
            let name = common(other.names(), part.names()).next().cloned();
            // Within one client this was checked before.
            let Some(name) = name.filter(|_| !other.is_of_client(&part.lock)) else { continue };
            let (one, two) = (other.identity().await?, part.identity().await?);
            match one.is_same(&two) {
                Some(false) => {}
                Some(true) => return Err(twice(other.shell(), part.shell(), &name)),
                None => return Err(untold(other.shell(), part.shell(), &name)),
            }
        }
    }
    Ok(())
}

/// An owner that is used elsewhere, or was taken from a guard, must not wait for itself.
async fn hold_nothing(part: &Part) -> Result<(), Error> {
    let client = part.shell();
    for name in part.names() {
        let here = client.state().table.holds_for(leasehold_clock::now(), name, &part.owner);
        let holds = match (here, part.owner.as_explicit()) {
            (Some(false), Some(id)) => {
                let inspected = client.store.inspect(name.clone()).await;
                let inspected = inspected.map_err(|error| error.on_store(client.store.label()).on_lock(name))?;
                let is_it = |owner: &leasehold_core::StoreOwner| owner.is_shared() && owner.to_string() == **id;
                inspected.result.holders.iter().any(|holder| is_it(&holder.owner))
            }
            (here, _) => here == Some(true),
        };
        if holds {
            return Err(already_held(client, name));
        }
    }
    Ok(())
}

fn common<'a>(a: &'a [Name], b: &'a [Name]) -> impl Iterator<Item = &'a Name> {
    a.iter().filter(|name| b.contains(name))
}

pub(super) fn already_held(client: &Arc<ShellHandle>, name: &Name) -> Error {
    let what = "this owner already holds one of the locks that were to be taken together";
    let error = Error::new(ErrorKind::AlreadyHeld, "acquire", what).with_hint("release it first");
    error.on_store(client.store.label()).on_lock(name)
}

fn twice(one: &Arc<ShellHandle>, two: &Arc<ShellHandle>, name: &Name) -> Error {
    let (a, b) = (one.store.label(), two.store.label());
    let what = if a == b {
        "the lock is given twice".to_owned()
    } else {
        format!("the lock is given twice: {a} and {b} are one store")
    };
    Error::new(ErrorKind::BadArgument, "acquire", what).on_store(b).on_lock(name)
}

fn untold(one: &Arc<ShellHandle>, two: &Arc<ShellHandle>, name: &Name) -> Error {
    let (a, b) = (one.store.label(), two.store.label());
    let what =
        format!("{a} and {b} do not tell whether they are one server, and then this would be one lock given twice");
    let hint = "allow INFO to this user, or take other names";
    Error::new(ErrorKind::Unfit, "acquire", what).with_hint(hint).on_store(b).on_lock(name)
}
