//! Checks whether a store is fit to keep locks: for operators.

use std::time::Instant;

use leasehold_core::port::{Break, BreakOptions};
use leasehold_core::{Check, Error, ErrorKind, Fencing, Verdict};

use crate::client::url::StoreUrl;
use crate::client::{Client, ClientBuilder};
use crate::lock::Attempt;
use crate::runtime::random;

/// The label of a store that does not exist yet, and that connecting would create, as it does with a file. None if the store exists
/// or is not of this kind.
///
/// # Errors
///
/// A bad URL or option.
pub fn not_created(url: &str) -> Result<Option<String>, Error> {
    StoreUrl::parse(url)?.not_created()
}

/// Checks a store: what its engine reports, whether it opens, and whether a lock can be acquired and released there. A store that
/// does not exist yet is not created.
///
/// # Errors
///
/// A bad URL or option. A store that cannot be reached; anything wrong with one that is reached is a check that fails.
///
/// # Cancel safety
///
/// Dropping the future leaves nothing behind. If a lock was acquired, it is released in the background.
///
/// # Example
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
/// for check in leasehold::examine("memory:").await? {
///     println!("{}: {:?}, {}", check.check, check.verdict, check.found);
/// }
/// # Ok(()) }
/// ```
pub async fn examine(url: &str) -> Result<Vec<Check>, Error> {
    Client::builder(url).examine().await
}

impl ClientBuilder {
    /// Checks the store instead of connecting to it, as [`examine`] does: for a store that wants a password.
    ///
    /// # Errors
    ///
    /// As [`examine`].
    ///
    /// # Cancel safety
    ///
    /// As [`examine`].
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// for check in leasehold::Client::builder("memory:").password("secret").examine().await? {
    ///     println!("{}: {:?}", check.check, check.verdict);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn examine(self) -> Result<Vec<Check>, Error> {
        let mut checks = Vec::new();
        if let Some(store) = self.url()? {
            checks = store.examine().await?;
            if let Some(label) = store.not_created()? {
                let found = format!("{label} is not there yet, so nothing was tried");
                let not_created = Check::new("opening", Verdict::Warn, found);
                checks.push(not_created.with_advice("is it the right one? The first lock creates it"));
                return Ok(checks);
            }
        }
        let client = match self.connect().await {
            // The faults of a quorum are in the checks of its servers, also that one is named twice.
            Err(error)
                if matches!(error.kind(), ErrorKind::Unfit | ErrorKind::NoQuorum)
                    || checks.iter().any(|check| check.verdict == Verdict::Fail) =>
            {
                checks.push(failed("opening", &error));
                return Ok(checks);
            }
            connected => connected?,
        };
        checks.push(Check::new("opening", Verdict::Ok, client.store_label()));
        checks.push(try_out(&client).await?);
        checks.push(fences(client.capability().fencing));
        client.close().await?;
        Ok(checks)
    }
}

/// Acquires a lock under a name that nobody else has, and releases it.
async fn try_out(client: &Client) -> Result<Check, Error> {
    let name = format!("leasehold-doctor-{}", random::owner()?);
    let began = Instant::now();
    let tried = match client.lock(&name)?.try_acquire().await {
        Ok(Attempt::Granted(guard)) => {
            let released = guard.release().await;
            // This name is never used again: its last fence need not be kept for days.
            let _ = client.break_lock(&name, BreakOptions::from(Break::Now).reset_fence()).await;
            released
        }
        Ok(Attempt::Busy(holder)) => {
            Err(Error::new(ErrorKind::Unfit, "acquire", format!("a fresh name is busy: {holder}")))
        }
        Err(error) => Err(error),
    };
    match tried {
        Ok(()) => Ok(Check::new("take and release", Verdict::Ok, format!("{:.1?}", began.elapsed()))),
        Err(error) if error.is_retryable() && error.kind() != ErrorKind::NoQuorum => Err(error),
        Err(error) => Ok(failed("take and release", &error)),
    }
}

fn fences(fencing: Fencing) -> Check {
    match fencing {
        Fencing::Always => Check::new("fences", Verdict::Ok, "they always grow"),
        Fencing::ByClock => Check::new(
            "fences",
            Verdict::Ok,
            "they grow as long as the store's clock does not go back by more than an outage took",
        ),
        _ => Check::new("fences", Verdict::Warn, "there are none")
            .with_advice("a holder that slept through its lease cannot be refused at the resource"),
    }
}

fn failed(check: &'static str, error: &Error) -> Check {
    let failed = Check::new(check, Verdict::Fail, error.message()).with_error(error.kind());
    match error.hint() {
        Some(hint) => failed.with_advice(hint),
        None => failed,
    }
}

#[cfg(all(test, not(shuttle), feature = "memory"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_store_of_one_process_warns_and_works() {
        let checks = examine("memory:examined").await.unwrap();
        let found: Vec<_> = checks.iter().map(|check| (check.check, check.verdict)).collect();
        let ok = |check| (check, Verdict::Ok);
        assert_eq!(found, [("sharing", Verdict::Warn), ok("opening"), ok("take and release"), ok("fences")]);
    }

    #[tokio::test]
    async fn a_wrong_url_is_an_error() {
        assert_eq!(examine("nowhere:").await.unwrap_err().kind(), ErrorKind::BadArgument);
    }
}
