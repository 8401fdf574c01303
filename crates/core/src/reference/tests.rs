//! Checks of the reference store: what simulated worlds found.

use super::*;
use crate::name::Names;

fn request(client: u64, number: u64) -> Acquire {
    Acquire {
        names: Names::One(Name::new("a").unwrap()),
        owner: StoreOwner::Shared("shared".into()),
        request: RequestId { client: ClientId([client, 0]), number },
        mode: Mode::Exclusive,
        lease: Duration::from_secs(1),
        block: 1,
        seen: Fence::NONE,
        not_after: StoreTime::NEVER,
        enlist: false,
        about: Arc::default(),
    }
}

fn release(of: &Acquire) -> Release {
    Release {
        client: of.request.client,
        name: Name::new("a").unwrap(),
        owner: of.owner.clone(),
        fence: None,
        give: Give::Hold(of.request),
        last_used: None,
        linger: Duration::ZERO,
        rejoin: false,
    }
}

#[test]
fn an_acquire_that_comes_again_after_its_hold_was_given_back_is_not_counted() {
    let now = StoreTime::from_nanos(1_000_000_000);
    let mut store = Reference::new(1, Duration::ZERO);
    let (one, other) = (request(1, 1), request(2, 1));
    store.acquire(now, &one).unwrap();
    store.acquire(now, &other).unwrap();
    assert_eq!(store.release(now, &release(&one)).0, Released::StillHeld(1));
    store.acquire(now, &one).unwrap();
    assert_eq!(store.release(now, &release(&other)).0, Released::Released { waiters: Some(0) });
}

#[test]
fn a_late_copy_of_a_granted_request_is_answered_like_the_first() {
    let now = StoreTime::from_nanos(1_000_000_000);
    let mut store = Reference::new(1, Duration::ZERO);
    let one = Acquire { not_after: now, ..request(1, 1) };
    store.acquire(now, &one).unwrap();
    let late = now + Duration::from_millis(1);
    assert!(matches!(store.acquire(late, &one).unwrap(), Acquired::Granted(_)));
    let other = Acquire { not_after: now, ..request(2, 1) };
    assert!(matches!(store.acquire(late, &other).unwrap(), Acquired::TooLate));
}
