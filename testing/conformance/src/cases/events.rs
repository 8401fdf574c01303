//! Every step is an event, and users can put layers of their own around a store.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold::{Break, Event, Store};

use crate::case::Checked;
use crate::chaos::{Chaos, Fault, Kind};
use crate::world::{World, eventually, granted, soon};

crate::cases! {
    async in_order;
    async of_waiting_and_passing_on;
    async of_renewing_and_losing;
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
        other => format!("{other:?}"),
    }
}

async fn in_order(world: World) -> Checked {
    let heard = Heard::default();
    let client = world.builder().listener(heard.listener()).connect().await?;
    let guard = granted(&client.lock("a")).await?;
    let again = granted(&client.lock("a").owned_by(guard.owner())).await?;
    again.release().await?;
    guard.release().await?;
    drop(granted(&client.lock("b")).await?);
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
        let lock = client.lock("a").budget(Duration::from_secs(10));
        let before = heard.words().len();
        let task = tokio::spawn(async move { lock.acquire().await });
        eventually(async || heard.words().len() > before).await?;
        Ok::<_, crate::case::Failure>(task)
    };
    let first = granted(&client.lock("a")).await?;
    let second = queue().await?;
    let third = queue().await?;
    // The first grant had no waiters, so its block has one fence; the second one's has one for the third.
    first.release().await?;
    soon("the second", second).await???.release().await?;
    soon("the third", third).await???.release().await?;
    let granted: Vec<String> = heard.words().into_iter().filter(|word| word.starts_with("granted")).collect();
    assert_eq!(granted, ["granted a Asked", "granted a Asked", "granted a PassedOn"]);
    assert_eq!(heard.words().iter().filter(|word| *word == "waits a").count(), 2);
    Ok(())
}

async fn of_renewing_and_losing(world: World) -> Checked {
    let (heard, chaos) = (Heard::default(), Chaos::new());
    let client = world.builder().layer(chaos.clone()).listener(heard.listener()).connect().await?;
    let guard = granted(&client.lock("a").keep(world.kept() * 2)).await?;
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

/// Later layers stand further out.
async fn layers_stand_in_order(world: World) -> Checked {
    let (inner, outer) = (Chaos::new(), Chaos::new());
    let client = world.builder().layer(inner.clone()).layer(outer.clone()).connect().await?;
    outer.next(Kind::Acquire, 1, Fault::LoseRequest(leasehold::Outcome::NotApplied));
    drop(granted(&client.lock("a")).await?);
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
    let guard = granted(&client.lock("a").keep(world.kept())).await?;
    eventually(async || chaos.count(Kind::Renew) > 0).await?;
    Ok(guard.release().await?)
}
