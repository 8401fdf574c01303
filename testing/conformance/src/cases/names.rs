//! Names of every kind are locks of their own, and there may be thousands.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::Event;

use crate::case::Checked;
use crate::chaos::{Chaos, Kind};
use crate::world::{World, eventually, granted};

crate::cases! {
    async of_every_kind;
    async of_every_kind_are_listed;
    async thousands_at_once;
}

/// Each is different from every other, though engines may like to fold, trim, split or escape them.
fn kinds() -> Vec<String> {
    let mut names: Vec<String> = [
        "a",
        "A",
        "a ",
        " a",
        "a  b",
        "a b",
        "a/b",
        "/a/b",
        "a//b",
        "a/b/",
        "..",
        ".",
        "a:b",
        "{a}",
        "{a}b",
        "a{b}",
        "a,b",
        "a;b",
        "a%2Fb",
        "a%b",
        "a+b",
        "a\\b",
        "a'b",
        "a\"b",
        "a`b",
        "*",
        "?",
        "[a]",
        "$1",
        "#",
        "%s",
        "null",
        "0",
        "00",
        "-",
        "--",
        "_",
        "ß",
        "ss",
        "ẞ",
        "é",
        "e\u{301}",
        "ï",
        "i",
        "İ",
        "ı",
        "日本語",
        "🔒",
        "👩‍👩‍👧",
        "\u{200b}",
        "\u{feff}a",
        "\u{a0}",
        "عربى",
    ]
    .map(String::from)
    .into();
    names.push("x".repeat(512));
    names.push(format!("{}y", "x".repeat(511)));
    names.push("é".repeat(256));
    names.push("🔒".repeat(128));
    names
}

async fn of_every_kind(world: World) -> Checked {
    let (one, two) = (world.client().await?, world.client().await?);
    let mut guards = Vec::new();
    for name in kinds() {
        let attempt = one.lock(&name)?.try_acquire().await?;
        guards.push(attempt.granted().ok_or_else(|| format!("{name:?} is another's twin"))?);
    }
    for name in kinds() {
        assert!(two.lock(&name)?.try_acquire().await?.is_busy(), "{name:?} was granted twice");
        let status = two.inspect(&name).await?;
        assert_eq!(status.name.as_str(), name);
        assert_eq!(status.holders.len(), 1);
    }
    for guard in guards {
        let name = guard.name().to_string();
        guard.release().await?;
        drop(granted(&two.lock(&name)?).await?);
    }
    world.quiet(&two).await?;
    world.empty().await
}

async fn of_every_kind_are_listed(world: World) -> Checked {
    let client = world.client().await?;
    let mut guards = Vec::new();
    for name in kinds() {
        guards.push(granted(&client.lock(&name)?).await?);
    }
    let mut expected = kinds();
    expected.sort();
    let listed: Vec<String> = client.list("").await?.into_iter().map(|status| status.name.to_string()).collect();
    assert_eq!(listed, expected);
    let with_a: Vec<String> = client.list("a/").await?.into_iter().map(|status| status.name.to_string()).collect();
    assert_eq!(with_a, ["a//b", "a/b", "a/b/"]);
    Ok(())
}

/// All are kept with few renewals: leases are renewed in batches. How short so many leases may be is for a bench to
/// say.
async fn thousands_at_once(world: World) -> Checked {
    const NAMES: usize = 3_000;
    let (chaos, renewed) = (Chaos::new(), Arc::new(AtomicUsize::new(0)));
    let listener = {
        let renewed = renewed.clone();
        move |event: &Event<'_>| {
            if let Event::Renewed { leases, answered: true, .. } = event {
                renewed.fetch_add(*leases, Ordering::Relaxed);
            }
        }
    };
    let client = world.builder().layer(chaos.clone()).listener(listener).connect().await?;
    let lease = Duration::from_secs(30);
    let mut guards = Vec::new();
    for at in 0..NAMES {
        guards.push(granted(&client.lock(format!("name-{at}"))?.keep(lease)).await?);
    }
    assert_eq!(client.list("name-").await?.len(), NAMES);
    assert_eq!(client.list("name-29").await?.len(), 111);
    let before = (chaos.count(Kind::Renew), renewed.load(Ordering::Relaxed));
    eventually(async || renewed.load(Ordering::Relaxed) >= before.1 + NAMES).await?;
    assert!(guards.iter().all(leasehold::Guard::is_valid), "some were lost");
    let renewals = chaos.count(Kind::Renew) - before.0;
    assert!(renewals < NAMES as u64, "{renewals} renewals for {NAMES} names");
    drop(guards);
    eventually(async || client.in_use() == 0).await?;
    world.empty().await
}
