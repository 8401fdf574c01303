//! `release`: gives back a lock that was acquired.

use leasehold::{Fence, Name};

use crate::args::ReleaseArgs;
use crate::exit::{Exit, Failure};
use crate::run::Signals;
use crate::settings::{Settings, explicit};
use crate::store::Seen;
use crate::{names, output, runtime, store};

pub(crate) fn run(args: &ReleaseArgs, settings: &Settings) -> Result<Exit, Failure> {
    let names = names::given(&args.names)?;
    let owner = explicit(&args.owner)?;
    let fence = args.fence.map(Fence::new);
    if fence.is_some() && names.len() > 1 {
        let hint = "leave --fence out, or name one lock";
        return Err(Failure::usage("a fence is of one name, and several are given").with_hint(hint));
    }
    runtime::block_on(async {
        let client = match store::look(settings).await? {
            Seen::Store(client) => client,
            Seen::Unmade(label) => return Err(store::nothing_held(&owner, &names, &label)),
        };
        let mut signals = Signals::passed_on()?;
        let mut done = Ok(());
        for name in &names {
            let lock = client.lock(name.as_str()).owned_by(&owner);
            let left = match args.all {
                true => lock.release_all(fence).await.map(|()| 0),
                false => lock.release(fence).await,
            };
            // Each is said, and the others are given back all the same.
            let said = left.map_err(Into::into).and_then(|left| output::line(&released(name, left)));
            done = output::first_failure(done, said);
        }
        // It goes on at servers that were not heard of yet.
        store::close(&client, &mut signals, &mut done, false).await;
        done.map(|()| Exit::DONE)
    })
}

fn released(name: &Name, left: u32) -> String {
    let name = names::join(std::slice::from_ref(name));
    match left {
        0 => format!("released {name}"),
        left => format!("released one hold of {name}; {left} left"),
    }
}
