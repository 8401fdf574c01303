//! Every step is an event, and users can put layers of their own around a store.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold::{Break, Event, Loss, Owner, Store};

use crate::case::Checked;
use crate::chaos::{Chaos, Fault, Kind};
use crate::world::{World, eventually, granted, soon};

crate::cases! {
    async in_order;
    async of_waiting_and_passing_on;
    async of_renewing_and_losing;
    async every_one_is_told;
    async a_loss_says_why;
    async are_counted;
    async layers_stand_in_order;
    async a_layer_sees_callers_and_keeper;
}

/// What a listener heard, in words.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    fn words(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn has(&self, word: &str) -> bool {
        self.words().iter().any(|heard| heard == word)
    }

    fn listener(&self) -> impl Fn(&Event<'_>) + Send + Sync + 'static {
        let heard = self.clone();
        move |event| heard.0.lock().unwrap_or_else(PoisonError::into_inner).push(words(event))
    }
}

fn words(event: &Event<'_>) -> String {
    match event {
        Event::Asked { names } => format!("asked {}", names[0]),
        Event::Granted { name, how, .. } => format!("granted {name} {how:?}"),
        Event::Waits { name } => format!("waits {name}"),
        Event::Renewed { leases, answered, .. } => format!("renewed {leases} {answered}"),
        Event::Lost { loss, .. } => format!("lost {loss:?}"),
        Event::Released { name, ok, .. } => format!("released {name} {ok}"),
        Event::RenewalFailed { name, .. } => format!("not renewed {name}"),
        other => format!("{other:?}"),
    }
}

async fn in_order(world: World) -> Checked {
    let heard = Heard::default();
    let client = world.builder().listener(heard.listener()).connect().await?;
    let guard = granted(&client.lock("a")?).await?;
    let again = granted(&client.lock("a")?.owned_by(guard.owner())).await?;
    again.release().await?;
    guard.release().await?;
    drop(granted(&client.lock("b")?).await?);
    let expected = [
        "asked a",
        "granted a Asked",
        "granted a Reentered",
        "released a true",
        "released a true",
        "asked b",
        "granted b Asked",
        "released b true",
    ];
    assert_eq!(heard.words(), expected);
    Ok(())
}

async fn of_waiting_and_passing_on(world: World) -> Checked {
    let heard = Heard::default();
    let client = world.builder().listener(heard.listener()).connect().await?;
    let queue = async || {
        // However slow the machine is, there is time left for passing it on.
        let lock = client.lock("a")?.budget(Duration::from_secs(10));
        let before = heard.words().len();
        let task = tokio::spawn(async move { lock.acquire().await });
        eventually(async || heard.words().len() > before).await?;
        Ok::<_, crate::case::Failure>(task)
    };
    let first = granted(&client.lock("a")?).await?;
    let second = queue().await?;
    let third = queue().await?;
    // The first grant had no waiters, so its block has one fence; the second one's has one for the third.
    first.release().await?;
    soon("the second", second).await???.release().await?;
    soon("the third", third).await???.release().await?;
    let granted: Vec<String> = heard.words().into_iter().filter(|word| word.starts_with("granted")).collect();
    assert_eq!(granted, ["granted a Asked", "granted a Asked", "granted a HandedOff"]);
    assert_eq!(heard.words().iter().filter(|word| *word == "waits a").count(), 2);
    Ok(())
}

async fn of_renewing_and_losing(world: World) -> Checked {
    let (heard, chaos) = (Heard::default(), Chaos::new());
    let client = world.builder().layer(chaos.clone()).listener(heard.listener()).connect().await?;
    let guard = granted(&client.lock("a")?.keep(world.kept() * 2)).await?;
    eventually(async || heard.has("renewed 1 true")).await?;
    chaos.next(Kind::Renew, 1, Fault::LoseRequest(leasehold::Outcome::Unknown));
    eventually(async || heard.has("renewed 0 false")).await?;
    assert!(!heard.has("lost Gone"));
    world.client().await?.break_lock("a", Break::Now).await?;
    soon("lost", guard.lost()).await?;
    eventually(async || heard.has("lost Gone")).await?;
    assert_eq!(guard.release().await.map_err(|error| error.kind()), Err(leasehold::ErrorKind::Lost));
    assert_eq!(heard.words().last().map(String::as_str), Some("released a false"));
    Ok(())
}

/// Whether an event has all that is known about clients that did not get a lock, or that held one.
fn is_whole(event: &Event<'_>) -> bool {
    match event {
        Event::Busy { name, holder, waited } | Event::Cancelled { name, holder, waited } => {
            name.as_str() == "a" && holder.name == **name && holder.owner.is_some() && !waited.is_zero()
        }
        Event::Failed { waited, .. } => !waited.is_zero(),
        Event::Released { held, .. } | Event::Detached { held, .. } => !held.is_zero(),
        Event::Lost { report, .. } => !report.held.is_zero(),
        Event::RenewalFailed { left, .. } | Event::RenewalLate { left, .. } => !left.is_zero(),
        _ => true,
    }
}

async fn every_one_is_told(world: World) -> Checked {
    let (heard, chaos) = (Heard::default(), Chaos::new());
    let told = heard.clone();
    let listener = move |event: &Event<'_>| {
        let word = if is_whole(event) { event.kind().to_owned() } else { format!("not whole: {event:?}") };
        told.0.lock().unwrap_or_else(PoisonError::into_inner).push(word);
    };
    let client = world.builder().layer(chaos.clone()).listener(listener).connect().await?;
    let other = world.client().await?;
    let count = |kind: &str| heard.words().iter().filter(|word| *word == kind).count();

    let taken = granted(&other.lock("a")?).await?;
    assert!(client.lock("a")?.try_acquire().await?.is_busy());
    assert!(client.lock("a")?.acquire_within(world.short()).await?.is_busy());
    assert_eq!(count("busy"), 2);
    let before = count("waits");
    let waits = tokio::spawn({
        let lock = client.lock("a")?;
        async move { lock.acquire().await }
    });
    eventually(async || count("waits") > before).await?;
    waits.abort();
    eventually(async || heard.has("cancelled")).await?;
    taken.release().await?;

    chaos.next(Kind::Acquire, 1, Fault::LoseRequest(leasehold::Outcome::NotApplied));
    assert!(client.lock("b")?.try_acquire().await.is_err());
    let guard = granted(&client.lock("b")?.keep(world.kept() * 2)).await?;
    eventually(async || heard.has("renewed")).await?;
    chaos.next(Kind::Renew, 1, Fault::LoseRequest(leasehold::Outcome::Unknown));
    eventually(async || heard.has("renewal_failed")).await?;
    chaos.next(Kind::Renew, 1, Fault::Delay(world.kept() * 2));
    eventually(async || heard.has("renewal_late")).await?;
    other.break_lock("b", Break::Now).await?;
    soon("lost", guard.lost()).await?;
    eventually(async || heard.has("lost")).await?;
    drop(guard);
    let can_be_left = client.capability().outlives_process;
    if can_be_left {
        let lock = client.lock("c")?.owned_by(&Owner::explicit("me")?).lease(world.kept());
        granted(&lock).await?.leave().await.map_err(|(_, error)| error)?;
    }
    let words = heard.words();
    for kind in Event::KINDS.iter().filter(|kind| can_be_left || **kind != "left") {
        assert!(words.iter().any(|word| word == kind), "{kind} is never told");
    }
    let not_whole: Vec<_> = words.iter().filter(|word| !Event::KINDS.contains(&word.as_str())).collect();
    assert!(not_whole.is_empty(), "{not_whole:?}");
    Ok(())
}

/// A loss has its reason, the errors of the renewals before it, and how long the lock was held.
async fn a_loss_says_why(world: World) -> Checked {
    let chaos = Chaos::new();
    let reports = Arc::new(Mutex::new(Vec::new()));
    let heard = reports.clone();
    let listener = move |event: &Event<'_>| {
        if let Event::Lost { loss, report, .. } = event {
            assert_eq!(*loss, report.loss);
            heard.lock().unwrap_or_else(PoisonError::into_inner).push((*report).clone());
        }
    };
    let client = world.builder().layer(chaos.clone()).listener(listener).connect().await?;
    let guard = granted(&client.lock("a")?.keep(world.kept())).await?;
    let signal = guard.lost_signal();
    assert!(guard.loss_report().is_none() && signal.report().is_none());
    chaos.every(Kind::Renew, Fault::LoseRequest(leasehold::Outcome::Unknown));
    assert_eq!(soon("lost", guard.lost()).await?, Loss::TimeEnded);
    eventually(async || !reports.lock().unwrap_or_else(PoisonError::into_inner).is_empty()).await?;
    let told = reports.lock().unwrap_or_else(PoisonError::into_inner)[0].clone();
    for report in [guard.loss_report(), signal.report(), Some(told)] {
        let report = report.ok_or("it is lost, and nothing is said of it")?;
        assert_eq!((report.loss, report.left, report.renewals.len()), (Loss::TimeEnded, Duration::ZERO, 3));
        assert!(report.held > world.kept() / 2, "{report:?}");
        let times: Vec<_> = report.renewals.iter().map(|renewal| renewal.at).collect();
        assert!(times.is_sorted() && times[2] <= report.at, "{report:?}");
        assert_eq!(report.renewals[2].error.kind(), leasehold::ErrorKind::Unreachable);
    }
    let lost = guard.protect(std::future::pending::<()>()).await.err().ok_or("it is lost")?;
    assert!(lost.to_string().contains("its time ended, and the last renewal had failed"), "{lost}");
    assert!(std::error::Error::source(&lost).is_some());
    Ok(())
}

async fn are_counted(world: World) -> Checked {
    let client = world.client().await?;
    let other = world.client().await?;
    let guard = granted(&client.lock("a")?.budget(Duration::from_secs(10))).await?;
    let again = granted(&client.lock("a")?.owned_by(guard.owner())).await?;
    let stats = client.stats();
    assert_eq!((stats.guards, stats.waiting, stats.names), (2, 0, 1), "{stats:?}");
    assert_eq!((stats.grants, stats.reentries, stats.calls.acquire, stats.calls.total()), (1, 1, 1, 1), "{stats:?}");
    assert!(client.lock("a")?.try_acquire().await?.is_busy());
    let waits = tokio::spawn({
        let lock = client.lock("a")?;
        async move { lock.acquire().await }
    });
    eventually(async || client.stats().waiting == 1).await?;
    other.break_lock("a", Break::Now).await?;
    drop((guard, again));
    let next = soon("the next", waits).await???;
    let stats = client.stats();
    assert_eq!((stats.guards, stats.waiting, stats.refusals), (1, 0, 1), "{stats:?}");
    assert_eq!((stats.grants + stats.handoffs, stats.calls.acquire >= 1), (2, true), "{stats:?}");
    next.release().await?;
    assert_eq!(client.stats().guards, 0);
    world.quiet(&client).await
}

/// Later layers stand further out.
async fn layers_stand_in_order(world: World) -> Checked {
    let (inner, outer) = (Chaos::new(), Chaos::new());
    let client = world.builder().layer(inner.clone()).layer(outer.clone()).connect().await?;
    outer.next(Kind::Acquire, 1, Fault::LoseRequest(leasehold::Outcome::NotApplied));
    drop(granted(&client.lock("a")?).await?);
    assert_eq!((outer.count(Kind::Acquire), inner.count(Kind::Acquire)), (2, 1));
    Ok(())
}

async fn a_layer_sees_callers_and_keeper(world: World) -> Checked {
    let layered = Arc::new(Mutex::new(0));
    let count = {
        let layered = layered.clone();
        move |store: Arc<dyn Store>| {
            *layered.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            store
        }
    };
    let chaos = Chaos::new();
    let client = world.builder().layer(count).layer(chaos.clone()).connect().await?;
    assert_eq!(*layered.lock().unwrap_or_else(PoisonError::into_inner), 2);
    let guard = granted(&client.lock("a")?.keep(world.kept())).await?;
    eventually(async || chaos.count(Kind::Renew) > 0).await?;
    Ok(guard.release().await?)
}
