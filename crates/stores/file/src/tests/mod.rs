//! The file itself: what survives restarts, what is refused, and what happens when it is removed.

mod boots;
mod busy;
mod files;
mod hostile;
mod looks;
mod odd;
mod records;
mod rooms;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::port::{
    About, Acquire, Acquired, Answered, Break, Call, Granted, Mode, Release, ReleaseScope, Released, Renew, Renewed,
};
use leasehold_core::{ClientId, Error, Fence, Lease, Name, Names, RequestId, Store, StoreOwner, StoreTime};

use crate::boot::Boot;
use crate::{Config, File};

const LEASE: Duration = Duration::from_secs(30);

/// A folder with a file in it, and the boot that uses it.
struct Bench {
    folder: tempfile::TempDir,
    boot: Boot,
}

impl Bench {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), boot: Boot::this().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("locks.db")
    }

    fn config(&self) -> Config {
        Config { path: self.path(), liveness: true, create: true }
    }

    fn open(&self) -> Result<Arc<File>, Error> {
        let config = self.config();
        File::open(&config, &self.boot, config.label().into())
    }

    /// The same file after a reboot, with the wall clock at `wall`.
    fn reboot(&mut self, wall: Option<StoreTime>) {
        self.boot.boot_id.push('+');
        self.boot.wall = wall;
    }

    fn sql(&self, sql: &str) -> i64 {
        rusqlite::Connection::open(self.path()).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn asking(client: u64, number: u64, what: &str) -> Acquire {
    let request = RequestId { client: ClientId([7, client]), number };
    Acquire {
        names: Names::One(name(what)),
        owner: StoreOwner::Private(request),
        request,
        mode: Mode::Exclusive,
        lease: LEASE,
        block: 1,
        seen: Fence::NONE,
        clock: Default::default(),
        not_after: StoreTime::NEVER,
        enlist: false,
        kept: false,
        about: Arc::default(),
    }
}

/// The answer of a call that is done at once.
fn now<T>(call: Call<leasehold_core::Reply<T>>) -> Result<T, Error> {
    match call {
        Call::Done(Some(reply)) => reply.map(|Answered { result, .. }| result),
        _ => panic!("the call is not done"),
    }
}

fn take(store: &File, request: &Acquire) -> Option<Granted> {
    match now(store.acquire(request.clone())).unwrap() {
        Acquired::Granted(grants) => Some(grants[0]),
        _ => None,
    }
}

fn give(store: &File, request: &Acquire) -> Result<Released, Error> {
    now(store.release(giving(request)))
}

fn giving(request: &Acquire) -> Release {
    Release {
        client: request.request.client,
        name: request.names.first().clone(),
        owner: request.owner.clone(),
        fence: None,
        scope: ReleaseScope::Hold(request.request),
        last_used: None,
        cooldown: Duration::ZERO,
        rejoin: false,
    }
}

fn renew(store: &File, request: &Acquire, fence: Fence) -> Result<Renewed, Error> {
    let lease = Lease { name: request.names.first().clone(), owner: request.owner.clone(), fence };
    now(store.renew(vec![Renew { lease, hold: Some(request.request), term: LEASE, kept: true }]))
        .map(|renewed| renewed[0])
}
