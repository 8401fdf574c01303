//! `renew`: extends a lock that was taken with `acquire`.

use std::time::Duration;

use leasehold::Fence;

use crate::args::RenewArgs;
use crate::exit::{Exit, Failure};
use crate::settings::{Settings, explicit, lease, lease_default};
use crate::store::StoreState;
use crate::{human, names, output, runtime, store};

pub(crate) fn run(args: &RenewArgs, settings: &Settings) -> Result<Exit, Failure> {
    let names = names::given(&args.names)?;
    let lease = args.lease.map(|given| lease("--lease", given)).transpose()?;
    let owner = explicit(&args.owner)?;
    let fence = args.fence.map(Fence::new);
    if fence.is_some() && names.len() > 1 {
        let hint = "leave --fence out, or name one lock";
        return Err(Failure::usage("a fence applies to one lock, but several were named").with_hint(hint));
    }
    runtime::block_on(async {
        let client = match store::look(settings).await? {
            StoreState::Store(client) => client,
            StoreState::NotCreated(label) => return Err(store::nothing_held(&owner, &names, &label)),
        };
        let lease = lease.unwrap_or_else(|| lease_default(&client));
        let (mut shortest, mut done) = (Duration::MAX, Ok(()));
        for name in &names {
            match client.detached(name.as_str(), &owner)?.renew(fence, lease).await {
                Ok(left) => shortest = shortest.min(left),
                // The others are renewed all the same.
                Err(error) => done = done.and(Err(error)),
            }
        }
        done?;
        output::line(&format!("renewed {}: {} left", names::quoted(&names), human::span(shortest)))?;
        Ok(Exit::DONE)
    })
}
