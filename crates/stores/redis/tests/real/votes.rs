//! Votes in a quorum: a ballot that is executed twice is answered as the first time, here as in the reference store.

use std::sync::Arc;
use std::time::Duration;

use leasehold::port::{
    Acquire, Block, ClientId, Lease, Mode, Names, Release, ReleaseScope, Released, Renew, RequestId, StoreOwner,
    StoreTime,
};
use leasehold::{Fence, Name, Store};
use leasehold_core::quorum::{Ballot, Member, Voted, VotingStatus};
use leasehold_core::reference::{FENCES_KEPT_FOR, Reference};
use leasehold_faults::Failure;
use leasehold_faults::servers::Redis;
use leasehold_redis::{Config, Redis as Server};

use crate::scene::{Case, Checked, MS, S, block_on};

pub(crate) const CASES: &[Case] = &[
    ("votes::a_ballot_executed_twice_is_answered_alike", || block_on(executed_twice())),
    ("votes::what_joined_a_majority_is_confirmed", || block_on(what_joined_is_confirmed())),
    ("votes::fences_that_were_not_taken_are_not_given_back", || block_on(not_given_back())),
    ("votes::of_several_names_all_take_the_fences_or_none", || block_on(several_names())),
    ("votes::a_server_that_forgot_recovers_in_votes_and_renewals", || block_on(one_that_forgot_recovers())),
    ("votes::a_server_that_forgot_takes_no_fence_of_before", || block_on(one_that_forgot_takes_no_fence_of_before())),
];

/// A server, and beside it the reference store, which is asked the same at the same time.
struct Both {
    _server: Redis,
    store: Server,
    reference: Reference,
    /// A fence that is ahead of the server's clock, and near it for nearly two seconds.
    first: Fence,
}

impl Both {
    async fn start() -> Result<Self, Failure> {
        let server = Redis::start()?;
        let store = member(&server, Duration::ZERO)?;
        // The script is known from here on.
        store.vote(ballot(9, &["warm"], Fence::new(1), 1)).await?;
        let first = Fence::at(store.clock().await?.at + 900 * MS);
        Ok(Self { _server: server, store, reference: Reference::new(1, FENCES_KEPT_FOR), first })
    }

    /// Whether the fences of a ballot are taken, by a server that has the names for it.
    async fn takes(&mut self, ballot: &Ballot) -> Result<bool, Failure> {
        let answered = self.store.vote(ballot.clone()).await?;
        let expected = self.reference.vote(answered.at, ballot, Fence::NONE);
        Ok(match (answered.result.voted, expected) {
            (Voted::Took { .. }, Voted::Took { .. }) => true,
            (Voted::Held { last, .. }, Voted::Held { last: expected, .. }) => {
                assert_eq!(last, expected);
                false
            }
            (voted, expected) => panic!("{voted:?} and not {expected:?} to {:?}", ballot.block),
        })
    }

    async fn gives(&mut self, taken: &Ballot, last_used: Option<Fence>) -> Checked {
        let release = Release {
            client: taken.acquire.request.client,
            name: taken.acquire.names.first().clone(),
            owner: taken.acquire.owner.clone(),
            fence: None,
            scope: ReleaseScope::Hold(taken.acquire.request),
            last_used,
            cooldown: Duration::ZERO,
            rejoin: false,
        };
        let answered = self.store.release(release.clone()).await?;
        assert!(matches!(answered.result, Released::Released { .. }), "{:?}", answered.result);
        assert_eq!(self.reference.release(answered.at, &release).0, answered.result);
        Ok(())
    }

    /// Another was granted these fences, and has gone.
    async fn after_another(first: u64, len: u32) -> Result<Self, Failure> {
        let mut both = Self::start().await?;
        let other = ballot(8, &["a"], both.first.plus(first), len);
        assert!(both.takes(&other).await?);
        both.gives(&other, None).await?;
        Ok(both)
    }
}

/// A server of a quorum.
fn member(server: &Redis, quarantine: Duration) -> Result<Server, Failure> {
    let options = [("layout".to_owned(), "plain".to_owned())];
    let config = Config::new("redis", &format!("//{}", server.address()), &options, None)?;
    Ok(Server::new(&config.with_quarantine(quarantine))?)
}

fn ballot(client: u64, names: &[&str], first: Fence, len: u32) -> Ballot {
    let request = RequestId { client: ClientId([client, 0]), number: 1 };
    let acquire = Acquire {
        names: Names::new(names.iter().map(|name| Name::new(name).expect("a good name"))).expect("good names"),
        owner: StoreOwner::Private(request),
        request,
        mode: Mode::Exclusive,
        lease: 60 * S,
        block: 1,
        seen: Fence::NONE,
        clock: Default::default(),
        not_after: StoreTime::NEVER,
        enlist: false,
        kept: false,
        about: Arc::default(),
    };
    Ballot { acquire, block: Block { first, len }, again: false }
}

async fn executed_twice() -> Checked {
    let mut both = Both::after_another(0, 1).await?;
    let same_as_the_other = ballot(1, &["a"], both.first, 1);
    assert!(!both.takes(&same_as_the_other).await?, "another had this fence");
    assert!(!both.takes(&same_as_the_other).await?, "and had it before it was asked twice");
    let larger = ballot(1, &["a"], both.first.plus(10), 1);
    assert!(both.takes(&larger).await?);
    assert!(!both.takes(&same_as_the_other).await?, "it is stale");
    assert!(both.takes(&larger).await?, "what is stale has taken the fences away");
    assert!(!both.takes(&ballot(1, &["a"], both.first.plus(10), 2)).await?, "these are others");
    Ok(())
}

/// Even though the server knows a larger fence.
async fn what_joined_is_confirmed() -> Checked {
    let mut both = Both::after_another(100, 1).await?;
    let ours = ballot(1, &["a"], both.first, 1);
    assert!(both.takes(&Ballot { again: true, ..ours.clone() }).await?);
    assert!(both.takes(&ours).await?);
    Ok(())
}

async fn not_given_back() -> Checked {
    let mut both = Both::after_another(0, 3).await?;
    let same_as_the_other = ballot(1, &["a"], both.first, 3);
    assert!(!both.takes(&same_as_the_other).await?);
    both.gives(&same_as_the_other, Some(both.first)).await?;
    assert!(!both.takes(&ballot(2, &["a"], both.first.plus(1), 1)).await?, "the other may have used it");
    Ok(())
}

async fn several_names() -> Checked {
    let mut both = Both::after_another(0, 1).await?;
    let names = ["a", "b"];
    let refused = ballot(1, &names, both.first, 1);
    assert!(!both.takes(&refused).await?);
    assert!(!both.takes(&refused).await?);
    assert!(both.takes(&ballot(1, &names, both.first.plus(1), 1)).await?);
    Ok(())
}

/// What it holds since then counts as little as its vote.
async fn one_that_forgot_recovers() -> Checked {
    const QUARANTINE: Duration = Duration::from_secs(3_600);
    let server = Redis::start()?;
    let store = member(&server, QUARANTINE)?;
    server.command(&["FLUSHALL"])?;
    let recovers =
        |standing: VotingStatus| matches!(standing, VotingStatus::Recovering { left } if left > QUARANTINE / 2);
    let ballot = ballot(1, &["a"], Fence::at(store.clock().await?.at), 1);
    let vote = store.vote(ballot.clone()).await?.result;
    assert!(recovers(vote.standing), "{vote:?}");
    let lease = Lease {
        name: ballot.acquire.names.first().clone(),
        owner: ballot.acquire.owner.clone(),
        fence: ballot.block.first,
    };
    let renew = Renew { lease, hold: Some(ballot.acquire.request), term: 60 * S, kept: false };
    let upheld = store.uphold(vec![renew]).await?.result;
    assert!(recovers(upheld.standing), "{upheld:?}");
    Ok(())
}

/// It may have taken what is a second ahead of its clock before it forgot.
async fn one_that_forgot_takes_no_fence_of_before() -> Checked {
    let server = Redis::start()?;
    let store = member(&server, S)?;
    server.command(&["FLUSHALL"])?;
    // From its first answer on it knows when it forgot.
    let born = store.vote(ballot(9, &["warm"], Fence::new(1), 1)).await?.at;
    let near = ballot(1, &["a"], Fence::at(born + 500 * MS), 1);
    let voted = store.vote(near).await?.result.voted;
    assert!(matches!(voted, Voted::Held { .. }), "{voted:?}: another may have this fence");
    Ok(())
}
