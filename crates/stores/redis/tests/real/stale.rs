//! A request whose late copy was granted once more has two grants with two fences. The older one is not held any more: whatever is said
//! of it leaves the newer alone, as in the reference store.

use std::sync::Arc;

use leasehold::port::{
    Acquire, Acquired, ClientId, Mode, Names, Release, ReleaseScope, Released, RequestId, StoreOwner,
};
use leasehold::{Fence, Name, Store};
use leasehold_core::reference::{FENCES_KEPT_FOR, Reference};
use leasehold_faults::Failure;
use leasehold_faults::servers::Redis;
use leasehold_redis::{Config, Redis as Server};
use tokio::task::JoinSet;

use crate::batches::{LAYOUTS, calls};
use crate::scene::{Case, Checked, S, block_on, number};

/// Far more than go at once.
const MANY: u64 = 400;

pub(crate) const CASES: &[Case] = &[
    ("stale::a_fence_of_an_older_grant_gives_nothing_back", || block_on(an_older_grant())),
    ("stale::nor_does_it_among_many", || block_on(among_many())),
];

pub(crate) fn store(server: &Redis, layout: &str) -> Result<Server, Failure> {
    let options = [("layout".to_owned(), layout.to_owned())];
    Ok(Server::new(&Config::new("redis", &format!("//{}", server.address()), &options, None)?)?)
}

pub(crate) fn asking(number: u64) -> Acquire {
    let request = RequestId { client: ClientId([1, 2]), number };
    Acquire {
        names: Names::One(Name::new(format!("n{number}")).expect("a good name")),
        owner: StoreOwner::Private(request),
        request,
        mode: Mode::Exclusive,
        lease: 60 * S,
        block: 1,
        seen: Fence::NONE,
        clock: Default::default(),
        not_after: leasehold::port::StoreTime::NEVER,
        enlist: false,
        kept: false,
        about: Arc::default(),
    }
}

pub(crate) fn giving(taken: &Acquire, fence: Option<Fence>) -> Release {
    Release {
        client: taken.request.client,
        name: taken.names.first().clone(),
        owner: taken.owner.clone(),
        fence,
        scope: ReleaseScope::Hold(taken.request),
        last_used: None,
        cooldown: std::time::Duration::ZERO,
        rejoin: false,
    }
}

fn fence_of(acquired: &Acquired) -> Fence {
    match acquired {
        Acquired::Granted(grants) => grants[0].block.first,
        other => panic!("not granted: {other:?}"),
    }
}

/// The store, and beside it the reference store, which is asked the same at the same time.
struct Both {
    store: Server,
    reference: Reference,
}

impl Both {
    async fn take(&mut self, request: &Acquire) -> Result<[Fence; 2], Failure> {
        let answered = self.store.acquire(request.clone()).await?;
        let expected = self.reference.acquire(answered.at, request)?;
        Ok([fence_of(&answered.result), fence_of(&expected)])
    }

    /// Releases the lock with this fence here and that one in the reference.
    async fn give(&mut self, taken: &Acquire, fence: Option<[Fence; 2]>) -> Result<Released, Failure> {
        let release = |at: usize| giving(taken, fence.map(|fences| fences[at]));
        let answered = self.store.release(release(0)).await?;
        let (expected, _) = self.reference.release(answered.at, &release(1));
        assert_eq!(answered.result, expected, "{fence:?}");
        Ok(answered.result)
    }
}

const FREE: Released = Released::Released { waiters: Some(0) };

async fn an_older_grant() -> Checked {
    for layout in LAYOUTS {
        let server = Redis::start()?;
        let mut both =
            Both { store: store(&server, layout)?, reference: Reference::new(1, FENCES_KEPT_FOR).fallible() };
        // Of one fence, and of several.
        for (number, block) in [(1, 1), (2, 5)] {
            let request = Acquire { block, ..asking(number) };
            let older = both.take(&request).await?;
            assert_eq!(both.give(&request, Some(older)).await?, FREE);
            let newer = both.take(&request).await?;
            assert!(newer[0] > older[0]);
            assert_eq!(both.give(&request, Some(older)).await?, Released::NotHeld, "{layout}");
            assert_eq!(both.give(&request, Some(newer)).await?, FREE, "{layout}: the older took it along");
            // A client that never got an answer names no fence.
            both.take(&request).await?;
            assert_eq!(both.give(&request, None).await?, FREE);
        }
        // The record beside the lock was evicted: then only the owner counts.
        let request = asking(3);
        let fence = fence_of(&both.store.acquire(request.clone()).await?.result);
        server.command(&["DEL", "leasehold_fence:{n3}"])?;
        assert_eq!(both.store.release(giving(&request, Some(fence))).await?.result, FREE);
    }
    Ok(())
}

/// Releases of one moment, which share calls.
async fn all_at_once(store: &Server, releases: Vec<(u64, Release)>) -> Result<Vec<(u64, Released)>, Failure> {
    let mut giving = JoinSet::new();
    for (number, release) in releases {
        let call = store.release(release);
        giving.spawn(async move { Ok::<_, leasehold::Error>((number, call.await?.result)) });
    }
    Ok(giving.join_all().await.into_iter().collect::<Result<_, _>>()?)
}

async fn among_many() -> Checked {
    for layout in LAYOUTS {
        let server = Redis::start()?;
        let store = store(&server, layout)?;
        let mut grants = Vec::new();
        for number in 0..MANY {
            let request = asking(number);
            let older = fence_of(&store.acquire(request.clone()).await?.result);
            assert_eq!(store.release(giving(&request, Some(older))).await?.result, FREE);
            let newer = fence_of(&store.acquire(request.clone()).await?.result);
            grants.push((number, request, older, newer));
        }
        // Once, so that the server knows the script.
        let unknown = |number| (number, giving(&asking(MANY + number), None));
        all_at_once(&store, (0..MANY).map(unknown).collect()).await?;
        let before = calls(&server)?;
        let is_stale = |number: u64| number.is_multiple_of(3);
        let release = |(number, request, older, newer): &(u64, Acquire, Fence, Fence)| {
            let fence = match number % 3 {
                0 => Some(*older),
                1 => Some(*newer),
                _ => None,
            };
            (*number, giving(request, fence))
        };
        for (number, released) in all_at_once(&store, grants.iter().map(release).collect()).await? {
            let expected = if is_stale(number) { Released::NotHeld } else { FREE };
            assert_eq!(released, expected, "{layout}: {number}");
            let is_held = number_of(&server, number)? == 1;
            assert_eq!(is_held, is_stale(number), "{layout}: {number}");
        }
        // Those that are not ordinary are asked again alone.
        let called = calls(&server)? - before;
        let alone = (0..MANY).filter(|number| is_stale(*number)).count();
        assert!(called < MANY as usize && called > alone, "{layout}: {called} calls for {MANY} releases");
    }
    Ok(())
}

fn number_of(server: &Redis, of: u64) -> Result<i64, Failure> {
    number(server, &["EXISTS", &format!("n{of}")])
}
