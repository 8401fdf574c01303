//! `release`: gives back a lock that was acquired.

use leasehold::Fence;

use crate::args::ReleaseArgs;
use crate::exit::{Exit, Failure};
use crate::settings::{Settings, explicit};
use crate::store::Seen;
use crate::{names, output, runtime, store};

pub(crate) fn run(args: &ReleaseArgs, settings: &Settings) -> Result<Exit, Failure> {
    let names = names::parse(&args.names)?;
    let owner = explicit(&args.owner)?;
    let fence = args.fence.map(Fence::new);
    runtime::block_on(async {
        let client = match store::look(settings).await? {
            Seen::Store(client) => client,
            Seen::Unmade(label) => return Err(store::nothing_held(&owner, &names, &label)),
        };
        let lock = client.lock_all(names.iter().map(|name| name.as_str())).owned_by(&owner);
        let left = match args.all {
            true => lock.release_all(fence).await.map(|()| 0),
            false => lock.release(fence).await,
        }?;
        let what = match left {
            0 => format!("released {}", names::join(&names)),
            left => format!("released one hold of {}; {left} left", names::join(&names)),
        };
        output::line(&what)?;
        Ok(Exit::DONE)
    })
}
