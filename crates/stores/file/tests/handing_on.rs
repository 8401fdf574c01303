//! The proof that a process lives, handed on to another process. A test program of its own: the duplicates cover
//! everything in it.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::port::{Acquire, Acquired, Call, Mode};
use leasehold_core::{ClientId, Fence, Name, Names, RequestId, Store, StoreOwner, StoreTime};
use leasehold_file::{Config, File};

fn is_granted(store: &File, client: u64, kept: bool) -> bool {
    let request = RequestId { client: ClientId([7, client]), number: 1 };
    let call = store.acquire(Acquire {
        names: Names::One(Name::new("a").expect("a name")),
        owner: StoreOwner::Private(request),
        request,
        mode: Mode::Exclusive,
        lease: Duration::from_secs(30),
        block: 1,
        seen: Fence::NONE,
        clock: Default::default(),
        not_after: StoreTime::NEVER,
        enlist: false,
        kept,
        about: Arc::default(),
    });
    match call {
        Call::Done(Some(Ok(answered))) => matches!(answered.result, Acquired::Granted(_)),
        _ => panic!("the call is not done"),
    }
}

#[test]
fn a_holder_lives_as_long_as_its_file_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { path: folder.path().join("locks.db"), liveness: true, create: true };
    let store = File::connect(&config).unwrap();
    assert!(is_granted(&store, 1, true));
    let handed = leasehold_file::live_files().unwrap();
    assert_eq!(handed.len(), 1);
    // The process ends without a release: only its descriptors are closed.
    let live = folder.path().join("locks.db.d").join(format!("{}.live", ClientId([7, 1])));
    std::fs::rename(&live, live.with_extension("kept")).unwrap();
    drop(store);
    std::fs::rename(live.with_extension("kept"), &live).unwrap();
    let other = File::connect(&config).unwrap();
    assert!(!is_granted(&other, 2, false), "another descriptor is still open");
    drop(handed);
    assert!(is_granted(&other, 2, false));
}
