//! The waitlist of a name: which clients count, and which is notified when one leaves.

use leasehold::Store;
use leasehold::port::{Acquire, Acquired, ClientId, Released, RequestId, StoreOwner};
use leasehold_faults::Failure;
use leasehold_faults::servers::Redis;
use leasehold_faults::servers::resp::Reply;
use leasehold_redis::Redis as Server;

use crate::batches::{LAYOUTS, calls_of};
use crate::scene::{Case, Checked, block_on, number};
use crate::stale::{asking, giving, store};

pub(crate) const CASES: &[Case] = &[
    ("waitlists::who_was_not_heard_of_for_long_does_not_count", || block_on(who_was_not_heard_of_for_long())),
    ("waitlists::only_the_first_one_tells_as_it_leaves", || block_on(only_the_first_one_tells_as_it_leaves())),
];

const LINE: &str = "leasehold_line:{n1}";
const HEARD: &str = "leasehold_heard:{n1}";

fn client(number: u64) -> ClientId {
    ClientId([number, 0])
}

/// A held name, and clients on its waitlist.
async fn waited_for(store: &Server, clients: impl IntoIterator<Item = u64>) -> Result<Acquire, Failure> {
    let held = asking(1);
    store.acquire(held.clone()).await?;
    for number in clients {
        let request = RequestId { client: client(number), number: 1 };
        let waiting = Acquire { request, owner: StoreOwner::Private(request), enlist: true, ..held.clone() };
        let found = store.acquire(waiting).await?.result;
        assert!(matches!(found, Acquired::Busy(_)), "{found:?}");
    }
    Ok(held)
}

/// Two are on the waitlist, and one of them has not asked for too long.
async fn who_was_not_heard_of_for_long() -> Checked {
    for layout in LAYOUTS {
        let server = Redis::start()?;
        let store = store(&server, layout)?;
        let held = waited_for(&store, [7, 8]).await?;
        let Reply::List(waiting) = server.command(&["ZRANGE", LINE, "0", "-1"])? else {
            return Err("no list".into());
        };
        assert_eq!(waiting.len(), 2, "{layout}");
        // In microseconds: long ago, and far from now.
        for (client, heard_until) in waiting.iter().zip(["1", "9000000000000000"]) {
            server.command(&["ZADD", HEARD, heard_until, client.text()?])?;
        }
        for key in [LINE, HEARD] {
            server.command(&["PERSIST", key])?;
        }
        let released = store.release(giving(&held, None)).await?.result;
        assert_eq!(released, Released::Released { waiters: Some(1) }, "{layout}");
    }
    Ok(())
}

/// The first waiter may have been notified without reacting, so the next one is notified. A client that leaves from
/// behind it causes no notification.
async fn only_the_first_one_tells_as_it_leaves() -> Checked {
    for layout in LAYOUTS {
        let server = Redis::start()?;
        let store = store(&server, layout)?;
        let held = waited_for(&store, [7, 8, 9]).await?;
        let name = held.names.first();
        // Free, and no client was notified.
        server.command(&["DEL", name.as_str()])?;
        let told = || calls_of(&server, "publish");
        let before = told()?;
        store.unwatch(client(8), name.clone()).await;
        assert_eq!(number(&server, &["ZCARD", LINE])?, 2, "{layout}: it stays in line");
        assert_eq!(told()?, before, "{layout}: the first in line was told once more");
        store.unwatch(client(7), name.clone()).await;
        assert_eq!(told()?, before + 1, "{layout}: the next one was not told");
    }
    Ok(())
}
