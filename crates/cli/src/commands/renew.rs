//! `renew`: makes a lock that was acquired last longer.

use leasehold::Fence;

use crate::args::RenewArgs;
use crate::exit::{Exit, Failure};
use crate::settings::{Settings, explicit, lease, lease_default};
use crate::store::Seen;
use crate::{human, names, output, runtime, store};

pub(crate) fn run(args: &RenewArgs, settings: &Settings) -> Result<Exit, Failure> {
    let names = names::given(&args.names)?;
    let lease = args.lease.map(|given| lease("--lease", given)).transpose()?;
    let owner = explicit(&args.owner)?;
    runtime::block_on(async {
        let client = match store::look(settings).await? {
            Seen::Store(client) => client,
            Seen::Unmade(label) => return Err(store::nothing_held(&owner, &names, &label)),
        };
        let lock = client.lock_all(names.iter().map(|name| name.as_str())).owned_by(&owner);
        let lease = lease.unwrap_or_else(|| lease_default(&client));
        let left = lock.renew(args.fence.map(Fence::new), lease).await?;
        output::line(&format!("renewed {}: {} left", names::quoted(&names), human::span(left)))?;
        Ok(Exit::DONE)
    })
}
