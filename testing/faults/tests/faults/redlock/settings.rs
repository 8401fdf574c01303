//! What is refused before it does harm: another quarantine than the servers have, leases that are longer than it, too few servers.

use leasehold::{Client, ErrorKind};
use leasehold_faults::servers::Redis;
use leasehold_faults::servers::redis::Settings;

use super::{Five, NAME, QUARANTINE};
use crate::{Checked, Proof, wait};

pub(super) const CASES: &[Proof] = &[
    ("another_quarantine_is_refused", || wait(another_quarantine())),
    ("a_lease_longer_than_the_quarantine_is_refused", || wait(a_longer_lease())),
    ("too_few_servers_an_even_number_and_one_twice_are_refused", || wait(servers())),
];

/// The quarantine is one value for all clients of the servers.
async fn another_quarantine() -> Checked {
    let mut five = Five::voting(&Settings::default(), QUARANTINE).await?;
    let guard = five.client().await?.lock(NAME)?.acquire().await?;
    for other in [QUARANTINE * 2, std::time::Duration::ZERO] {
        five.quarantine = other;
        let client = five.client().await?;
        let error = client.lock("other")?.try_acquire().await.expect_err("another quarantine");
        assert_eq!(error.kind(), ErrorKind::Unfit, "{error}");
        for span in [QUARANTINE, other] {
            let span = format!("{}s", span.as_secs());
            assert!(error.message().contains(&span), "{span} is missing: {error}");
        }
        assert!(error.hint().is_some_and(|hint| hint.contains("quarantine")), "{error}");
    }
    assert!(guard.is_valid());
    guard.release().await?;
    Ok(())
}

async fn a_longer_lease() -> Checked {
    let five = Five::start(&Settings::default(), QUARANTINE)?;
    let client = five.client().await?;
    let longer = QUARANTINE * 2;
    for lock in [client.lock(NAME)?.lease(longer), client.lock(NAME)?.keep(longer)] {
        let error = lock.try_acquire().await.expect_err("a longer lease");
        assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
    }
    for server in &five.servers {
        assert_eq!(server.command(&["DBSIZE"])?.number()?, 0, "something was sent");
    }
    Ok(())
}

async fn servers() -> Checked {
    let servers: Vec<Redis> = (0..4).map(|_| Redis::start()).collect::<Result<_, _>>()?;
    let places: Vec<String> = servers.iter().map(|server| server.address().to_string()).collect();
    let [one, two, three, four] = &places[..] else { return Err("four servers".into()) };
    for (wrong, why) in [
        (one.clone(), "three servers or more"),
        (format!("{one},{two}"), "three servers or more"),
        (places.join(","), "even=yes"),
        (format!("{one},{two},{one}"), "twice"),
        (format!("{one},{two},"), "missing"),
    ] {
        let error = Client::connect(&format!("redlock://{wrong}")).await.expect_err("a wrong URL");
        assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
        assert!(error.to_string().contains(why), "{why:?} is missing: {error}");
    }
    for good in
        [format!("{one},{two},{three}?quarantine=0s"), format!("{one},{two},{three},{four}?quarantine=0s&even=yes")]
    {
        Client::connect(&format!("redlock://{good}")).await?.lock(NAME)?.acquire().await?.release().await?;
    }
    Ok(())
}
