//! One acquire and one release of a free lock, each in a function of its own, for `scripts/figures` to count calls in.

use leasehold::{Client, Guard};
use tokio::runtime::{Builder, Runtime};

fn main() {
    let url = std::env::args().nth(1).expect("the store to use, for example memory:");
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let client = runtime.block_on(Client::connect(&url)).expect("a store that answers");
    // What is done once for a client or a connection is done before it counts.
    for name in ["first", "second", "third"] {
        let guard = acquire(&runtime, &client, name);
        release(&runtime, guard);
    }
    let guard = acquire_counted(&runtime, &client);
    release_counted(&runtime, guard);
}

#[inline(never)]
fn acquire_counted(runtime: &Runtime, client: &Client) -> Guard {
    acquire(runtime, client, "counted")
}

#[inline(never)]
fn release_counted(runtime: &Runtime, guard: Guard) {
    release(runtime, guard);
}

fn acquire(runtime: &Runtime, client: &Client, name: &str) -> Guard {
    runtime.block_on(client.lock(name).expect("a name").acquire()).expect("a free lock")
}

fn release(runtime: &Runtime, guard: Guard) {
    runtime.block_on(guard.release()).expect("a lock that was held");
}
