//! A file that this user may read but not write: its locks can be inspected, and every other call is refused.

use std::fmt;
use std::sync::Arc;

use leasehold_core::port::{
    Acquire, Acquired, Answered, BreakOptions, Broken, Call, HintSink, Inspected, Release, Released, Renew, Renewed,
    Reply,
};
use leasehold_core::reference::Record;
use leasehold_core::{Capability, ClientId, Error, Identity, Name, Store, StoreTime};
use rusqlite::Connection;
use rustix::fs::{Access, AtFlags, accessat};
use rustix::io::Errno;

use crate::boot::Boot;
use crate::config::{Config, SCHEME};
use crate::database;
use crate::directory::{Site, identity};
use crate::error::{self, Fault};
use crate::executor::WORKER_PATIENCE;
use crate::open::{self, ClockSource, Found};
use crate::store::{self, CAPABILITY, File};

/// Opens the file, and creates a missing one. If this user may only read it, `list` and `inspect` work and every other
/// call is refused.
///
/// # Errors
///
/// As [`File::connect`].
pub fn connect(config: &Config) -> Result<Arc<dyn Store>, Error> {
    match File::connect(config) {
        Ok(store) => Ok(store),
        Err(error) if may_only_read(config) => Reader::connect(config).map_err(|_| error),
        Err(error) => Err(error),
    }
}

/// Whether there is a store that this user may read but not write.
fn may_only_read(config: &Config) -> bool {
    let Ok(Some(site)) = Site::find(&config.path, false) else { return false };
    let write = accessat(&site.directory.open, &site.name, Access::WRITE_OK, AtFlags::EACCESS);
    matches!(write, Err(Errno::ACCESS | Errno::ROFS | Errno::PERM)) && matches!(open::probe(&site), Ok(Found::Ours(_)))
}

/// A read-only store. It opens the file for every call: nothing is cached between calls.
struct Reader {
    label: Arc<str>,
    config: Config,
    boot: Boot,
}

impl Reader {
    fn connect(config: &Config) -> Result<Arc<dyn Store>, Error> {
        let config = config.resolved();
        let reader = Self { label: config.label().into(), boot: Boot::this()?, config };
        reader.look(|_, _| Ok(()))?;
        Ok(Arc::new(reader))
    }

    fn site(&self) -> Result<Arc<Site>, Error> {
        Site::find(&self.config.path, false)?.ok_or_else(|| error::no_store(&self.config.path))
    }

    /// Reads a snapshot. After a restart of the machine nothing is held, and `work` gets no connection.
    fn look<T>(
        &self,
        work: impl Fn(Option<&Connection>, StoreTime) -> rusqlite::Result<T>,
    ) -> Result<Answered<T>, Error> {
        database::set_patience(WORKER_PATIENCE);
        open::read(&self.site()?, |connection| {
            let transaction = connection.unchecked_transaction()?;
            let (held, at) = match open::clock_source(&transaction, &self.boot)? {
                ClockSource::Ours(epoch) => (Some(&*transaction), epoch.now()),
                ClockSource::BeforeRestart => (None, self.boot.wall()),
                ClockSource::OtherMachine => return Err(error::not_entered().into()),
            };
            Ok(Answered { at, result: work(held, at).map_err(Fault::from)? })
        })
    }

    fn answer<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl Fn(Option<&Connection>, StoreTime) -> rusqlite::Result<T>,
    ) -> Call<Reply<T>> {
        Call::done(self.look(work).map_err(|error| error.during(operation).on_store(&self.label)))
    }

    fn refuse<T>(&self, operation: &'static str) -> Call<Result<T, Error>> {
        Call::done(Err(error::read_only().during(operation).on_store(&self.label)))
    }
}

impl Store for Reader {
    fn label(&self) -> &Arc<str> {
        &self.label
    }

    fn capability(&self) -> Capability {
        CAPABILITY
    }

    fn identity(&self) -> Call<Result<Identity, Error>> {
        let found = self.site().and_then(|site| {
            let found = site.stat("").and_then(|found| found.ok_or(Errno::NOENT));
            found.map_err(|fault| error::io_failed("cannot find", &self.config.path, fault.into()))
        });
        let named = found.map(|found| identity(&found)).map(|(device, number)| format!("{device}:{number}"));
        Call::done(
            named
                .map(|text| Identity::new(SCHEME, text))
                .map_err(|error| error.during("identity").on_store(&self.label)),
        )
    }

    fn clock(&self) -> Call<Reply<()>> {
        self.answer("clock", |_, _| Ok(()))
    }

    fn acquire(&self, _: Acquire) -> Call<Reply<Acquired>> {
        self.refuse("acquire")
    }

    fn renew(&self, _: Vec<Renew>) -> Call<Reply<Vec<Renewed>>> {
        self.refuse("renew")
    }

    fn release(&self, _: Release) -> Call<Reply<Released>> {
        self.refuse("release")
    }

    fn watch(&self, _: ClientId, _: Name, _: HintSink) -> Call<Result<(), Error>> {
        self.refuse("watch")
    }

    fn watch_held(&self, _: ClientId, _: HintSink) {}

    fn unwatch(&self, _: ClientId, _: Name) -> Call<()> {
        Call::done(())
    }

    fn inspect(&self, name: Name) -> Call<Reply<Inspected>> {
        self.answer("look-up", |held, now| match held {
            Some(connection) => store::inspect(connection, now, &name),
            None => Ok(Record::default().inspect(now, &name)),
        })
    }

    fn list(&self, prefix: String, after: Option<Name>, limit: usize) -> Call<Reply<Vec<Inspected>>> {
        self.answer("list", |held, now| match held {
            Some(connection) => store::list(connection, now, &prefix, after.as_ref(), limit),
            None => Ok(Vec::new()),
        })
    }

    fn break_lock(&self, _: Name, _: BreakOptions) -> Call<Reply<Broken>> {
        self.refuse("break")
    }

    fn close(&self, _: ClientId) -> Call<()> {
        Call::done(())
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("label", &self.label).finish_non_exhaustive()
    }
}
