//! This store as one server of a quorum: its votes, and the epoch of the server.

use leasehold_core::port::{Acquire, Call, Notification, Release, Released, Renew, Reply};
use leasehold_core::quorum::{Ballot, Member, RenewedVote, Vote, Voted};
use leasehold_core::{Error, Outcome, StoreTime};
use redis::{Cmd, Value};

use crate::error;
use crate::keys;
use crate::reply;
use crate::store::{self, Inner, Redis};

impl Inner {
    /// Whether the server syncs every write before it answers. Asked once per connection. If the user may not ask, the
    /// answer is no, and the server is in quarantine after every restart.
    async fn is_synced(&self) -> bool {
        let mark = self.connection.subscribed(&[]);
        if let (Some(mark), Some((known, synced))) = (&mark, &*self.synced())
            && mark == known
        {
            return *synced;
        }
        let synced = self.asks_whether_synced().await.unwrap_or(false);
        *self.synced() = self.connection.subscribed(&[]).map(|mark| (mark, synced));
        synced
    }

    async fn asks_whether_synced(&self) -> Result<bool, Error> {
        for (setting, wanted) in [("appendonly", "yes"), ("appendfsync", "always"), ("no-appendfsync-on-rewrite", "no")]
        {
            let answer = self.connection.query(redis::cmd("CONFIG").arg("GET").arg(setting)).await?;
            if !says(&answer, wanted) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Records whether this client may be on a waitlist after a vote.
    fn note_waiting(&self, request: &Acquire, voted: &Result<(StoreTime, Vote), Error>) {
        let client = request.request.client;
        let names = request.names.as_slice().iter();
        let mut waitlists = self.waitlists();
        match voted {
            Ok((_, Vote { voted: Voted::Busy(busy), .. })) if request.enlist => {
                waitlists.enter(client, &busy.name, leasehold_clock::now());
            }
            Err(error) if request.enlist && error.outcome() == Outcome::Unknown => {
                let now = leasehold_clock::now();
                names.for_each(|name| waitlists.enter(client, name, now));
            }
            Ok((_, Vote { voted: Voted::Took { .. } | Voted::Held { .. }, .. })) => {
                for name in names {
                    waitlists.leave(client, name);
                }
            }
            _ => {}
        }
    }

    fn add_epoch(&self, command: &mut Cmd) {
        command.arg(self.space.server_epoch());
    }
}

fn says(answer: &Value, wanted: &str) -> bool {
    let is = |value: &Value| matches!(value, Value::BulkString(bytes) if bytes == wanted.as_bytes());
    match answer {
        Value::Map(settings) => settings.iter().any(|(_, value)| is(value)),
        Value::Array(words) => words.last().is_some_and(is),
        _ => false,
    }
}

fn vote_command(inner: &Inner, ballot: &Ballot, synced: bool) -> Cmd {
    let request = &ballot.acquire;
    let names = request.names.as_slice();
    let mut command = store::calling(&inner.scripts.vote, names.len() * store::parts(inner.layout) + 1);
    names.iter().for_each(|name| store::add_keys(&mut command, inner, name));
    inner.add_epoch(&mut command);
    command
        .arg(keys::tag(&request.owner))
        .arg(keys::request(request.request))
        .arg(reply::millis(request.lease))
        .arg(ballot.block.first.get())
        .arg(ballot.block.len.max(1))
        .arg(u8::from(ballot.again))
        .arg(reply::micros(request.not_after))
        .arg(&keys::client(request.request.client))
        .arg(u8::from(request.enlist))
        .arg(reply::about(&request.about))
        .arg(reply::millis(inner.quarantine))
        .arg(u8::from(synced));
    command
}

impl Member for Redis {
    fn vote(&self, ballot: Ballot) -> Call<Reply<Vote>> {
        let names = ballot.acquire.names.as_slice();
        if let Some(name) = names.iter().find(|name| keys::is_reserved(name)) {
            return self.refused(error::reserved(name));
        }
        if keys::is_reserved_owner(&ballot.acquire.owner) {
            return self.refused(error::reserved_owner("acquire"));
        }
        let inner = self.0.clone();
        self.call(async move {
            let command = vote_command(&inner, &ballot, inner.is_synced().await);
            let answer = inner.run(&inner.scripts.vote, command).await;
            let names = ballot.acquire.names.as_slice();
            let mut voted = answer.and_then(|value| reply::voted(value, names, inner.quarantine));
            if let Ok((_, Vote { voted: Voted::Busy(busy), .. })) = &mut voted
                && store::releases_silently(&inner, busy)
            {
                busy.notification = Notification::Never;
            }
            inner.note_waiting(&ballot.acquire, &voted);
            voted.map_err(|error| error.during("acquire"))
        })
    }

    fn uphold(&self, leases: Vec<Renew>) -> Call<Reply<RenewedVote>> {
        if leases.iter().any(|renew| keys::is_reserved_owner(&renew.lease.owner)) {
            return self.refused(error::reserved_owner("renew"));
        }
        let inner = self.0.clone();
        self.call(async move {
            let synced = inner.is_synced().await;
            let mut command = store::calling(&inner.scripts.renew_vote, leases.len() * 2 + 1);
            store::add_lease_keys(&mut command, &inner, &leases);
            inner.add_epoch(&mut command);
            store::add_leases(&mut command, &leases);
            command.arg(reply::millis(inner.quarantine)).arg(u8::from(synced));
            let answer = inner.run(&inner.scripts.renew_vote, command).await;
            answer.and_then(|value| reply::renewed_vote(value, inner.quarantine)).map_err(|error| error.during("renew"))
        })
    }

    fn withdraw(&self, request: Release) -> Call<Reply<Released>> {
        self.give_back(request, true)
    }
}
