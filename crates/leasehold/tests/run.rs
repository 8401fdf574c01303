//! Work that is run under a lock: it has the lock, ends with it, and gives it back.
#![cfg(feature = "memory")]
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use leasehold::{Break, Client, Error, ErrorKind, Guard, blocking};

#[derive(Debug)]
enum Failure {
    Work,
    Lock(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

#[tokio::test]
async fn the_result_is_that_of_the_work_and_the_lock_is_free_after_it() -> Result<(), Error> {
    let client = Client::connect("memory:run").await?;
    let lock = client.lock("a")?;
    let held = lock.run(async |guard: &Guard| Ok::<_, Error>((guard.is_valid(), client.inspect("a").await?.is_held())));
    assert_eq!(held.await?, (true, true));
    assert!(!client.inspect("a").await?.is_held());
    let failed = lock.run(async |_: &Guard| Err::<(), _>(Failure::Work)).await;
    assert!(matches!(failed, Err(Failure::Work)));
    assert!(!client.inspect("a").await?.is_held());
    Ok(())
}

#[tokio::test]
async fn work_ends_with_its_lock() -> Result<(), Error> {
    let client = Client::connect("memory:run-lost").await?;
    let lock = client.lock("a")?.keep(std::time::Duration::from_secs(3));
    let lost = lock.run(async |_: &Guard| {
        client.break_lock("a", Break::Now).await?;
        std::future::pending::<Result<(), Failure>>().await
    });
    assert!(matches!(lost.await, Err(Failure::Lock(error)) if error.kind() == ErrorKind::Lost));
    Ok(())
}

#[tokio::test]
async fn a_loss_that_shows_at_the_release_is_told() -> Result<(), Error> {
    let client = Client::connect("memory:run-late").await?;
    let done = client.lock("a")?.run(async |_: &Guard| client.break_lock("a", Break::Now).await.map(drop)).await;
    assert_eq!(done.unwrap_err().kind(), ErrorKind::Lost);
    let both = client.lock_all(["a", "b"])?;
    let done = both.run(async |_: &leasehold::GroupGuard| client.break_lock("b", Break::Now).await.map(drop)).await;
    assert_eq!(done.unwrap_err().kind(), ErrorKind::Lost);
    Ok(())
}

#[test]
fn a_thread_runs_work_and_re_enters() -> Result<(), Error> {
    let client = blocking::Client::connect("memory:run-blocking")?;
    let lock = client.lock("a")?;
    let fences = lock.run(|outer| lock.run(|inner| Ok::<_, Error>((outer.fence(), inner.fence()))))?;
    assert_eq!(fences.0, fences.1);
    assert!(!client.inspect("a")?.is_held());
    let both = client.lock_all(["a", "b"])?;
    assert!(both.run(|guard| Ok::<_, Error>(guard.fence("b")))?.is_some());
    let lost = lock.run(|_| client.break_lock("a", Break::Now).map(drop));
    assert_eq!(lost.unwrap_err().kind(), ErrorKind::Lost);
    Ok(())
}
