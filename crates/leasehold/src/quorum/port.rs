//! The rest of the port: who holds what, hints, clocks, breaking.

use std::collections::BTreeMap;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold_core::port::{
    Acquire, Acquired, Answered, BreakOptions, Broken, Call, HintSink, Holder, Inspected, Release, Released, Renew,
    Renewed, Reply,
};
use leasehold_core::quorum::{Member, PerServer};
use leasehold_core::{
    Capability, ClientId, Consistency, Error, ErrorKind, Fencing, Identity, Moment, Name, Outcome, Store,
};

use super::Quorum;
use super::calls::{Completed, InFlightCalls, Reading};
use super::timer_queue::{self, Alarm};

/// Servers are waited for so long where nobody is in a hurry.
const LIMIT: Duration = Duration::from_millis(1_500);
/// And so long for a page of locks: that is many calls to each server, of which every one has its own limit.
const LISTING: Duration = Duration::from_secs(30);
/// And those beyond a majority so much longer.
const MOMENT: Duration = Duration::from_millis(10);
/// Closing waits so long for servers that neither answer nor fail.
const FAREWELL: Duration = Duration::from_millis(500);

/// What kind of store it is.
const KIND: &str = "redlock";

impl Quorum {
    /// Asks every server, and waits for as many as there are in time; only for a majority, and a moment longer, where that will do.
    async fn gather<T: Reading + Unpin + Send + 'static>(
        &self,
        operation: &'static str,
        limit: Duration,
        patient: bool,
        call: impl Fn(&Arc<dyn Member>) -> Call<Result<T, Error>>,
    ) -> Result<Vec<(usize, T)>, Error> {
        let now = self.now();
        let mut flights = InFlightCalls::new();
        for (server, member) in self.members.iter().enumerate() {
            flights.send(server, 0, now, call(member));
        }
        let mut found: Vec<(usize, T)> = Vec::new();
        let mut errors: PerServer<Option<Error>> = self.members.iter().map(|_| None).collect();
        let mut until = now + limit;
        let mut alarm = Alarm::new(self.host());
        let majority = self.shared.rules.majority();
        std::future::poll_fn(|task| {
            loop {
                match flights.poll(self, task) {
                    Poll::Ready(Completed { server, reply, .. }) => match reply {
                        Ok(answered) => {
                            found.push((server, answered));
                            if found.len() == majority && !patient {
                                until = until.min(self.now() + MOMENT);
                            }
                        }
                        Err(error) => errors[server] = Some(error),
                    },
                    Poll::Pending if flights.is_empty() || self.now() >= until => return Poll::Ready(()),
                    Poll::Pending => {
                        alarm.set(until, task.waker());
                        return Poll::Pending;
                    }
                }
            }
        })
        .await;
        self.finish(flights);
        if found.len() >= majority {
            return Ok(found);
        }
        if let Some(error) = errors.iter().flatten().find(|error| !error.is_retryable()) {
            return Err(error.clone());
        }
        Err(self.no_quorum(operation, &found, &errors))
    }

    fn no_quorum<T>(&self, operation: &'static str, found: &[(usize, T)], errors: &[Option<Error>]) -> Error {
        let rules = &self.shared.rules;
        let states = rules.servers.iter().enumerate().map(|(server, label)| {
            if found.iter().any(|(answered, _)| *answered == server) {
                return format!("{label} answers");
            }
            match &errors[server] {
                Some(error) => format!("{label}: {}", error.message()),
                None => format!("{label} does not answer"),
            }
        });
        let states: Vec<String> = states.collect();
        let what =
            format!("no quorum: {} of {} servers must agree; {}", rules.majority(), rules.servers(), states.join("; "));
        Error::new(ErrorKind::NoQuorum, operation, what).with_outcome(Outcome::NotApplied)
    }

    /// Asks servers for their clock that were never heard of: without it they cannot be asked for a vote.
    pub(super) async fn learn_clocks(&self) {
        let now = self.now();
        let (unknown, enough) = {
            let state = self.state();
            let unknown: PerServer<usize> = state.clocks.unknown().collect();
            if unknown.is_empty() {
                return;
            }
            let enough = self.members.len() - unknown.len() >= self.shared.rules.majority();
            let left_out = state.health.ailing(now);
            (unknown.into_iter().filter(|server| left_out[*server].is_none()).collect::<PerServer<usize>>(), enough)
        };
        let mut flights = InFlightCalls::new();
        for server in unknown {
            flights.send(server, 0, now, self.members[server].clock());
        }
        if !enough {
            self.wait_for_majority(now, &mut flights).await;
        }
        self.finish(flights);
    }

    async fn wait_for_majority(&self, now: Moment, flights: &mut InFlightCalls<Answered<()>>) {
        let (until, mut alarm) = (now + LIMIT, Alarm::new(self.host()));
        let missing = self.members.len() - self.shared.rules.majority();
        std::future::poll_fn(|task| {
            loop {
                let known = self.state().clocks.unknown().count() <= missing;
                if known || self.now() >= until {
                    return Poll::Ready(());
                }
                match flights.poll(self, task) {
                    Poll::Ready(Completed { server, reply: Err(error), .. }) => {
                        self.state().health.failed(server, self.now(), Some(error));
                    }
                    Poll::Ready(_) => {}
                    Poll::Pending if flights.is_empty() => return Poll::Ready(()),
                    Poll::Pending => {
                        alarm.set(until, task.waker());
                        return Poll::Pending;
                    }
                }
            }
        })
        .await;
    }

    /// One server under two names would have two votes.
    async fn are_different(&self, servers: Vec<usize>) -> Result<(), Error> {
        let mut calls: Vec<_> = servers.iter().map(|server| (*server, self.members[*server].identity())).collect();
        let mut known: Vec<(usize, Identity)> = Vec::new();
        std::future::poll_fn(|task| {
            calls.retain_mut(|(server, call)| match Pin::new(call).poll(task) {
                Poll::Ready(Ok(identity)) if identity.is_known() => {
                    known.push((*server, identity));
                    false
                }
                Poll::Ready(_) => false,
                Poll::Pending => true,
            });
            if calls.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        for (at, (server, identity)) in known.iter().enumerate() {
            if let Some((other, _)) = known[..at].iter().find(|(_, other)| other == identity) {
                let labels = &self.shared.rules.servers;
                let what =
                    format!("{} and {} are one server: its vote would count twice", labels[*other], labels[*server]);
                return Err(Error::new(ErrorKind::BadArgument, "connect", what).with_hint("name every server once"));
            }
        }
        Ok(())
    }

    /// Waits until what is given back was sent to every server that is there, and has what is left to its owner.
    async fn last_errands(&self) {
        self.hurry();
        let until = self.now() + FAREWELL;
        self.last_votes(until).await;
        timer_queue::within(self.host(), until, self.shared.errands.done()).await;
    }

    /// Who holds a name, where a majority says so, or would with those servers that were not heard of: a lock that may be held is never
    /// called free.
    fn combined(&self, name: &Name, found: Vec<Inspected>, unheard: usize) -> Inspected {
        let majority = self.shared.rules.majority();
        let waiters = found.iter().filter_map(|found| found.waiters).max();
        let lingering = found.iter().filter(|found| found.lingers.is_some()).count() >= majority;
        let lingers = found.iter().filter_map(|found| found.lingers.clone()).max_by_key(|lingers| lingers.left);
        let rows: Vec<_> = found.into_iter().flat_map(|found| found.holders).collect();
        let same = |one: &Holder| {
            let mut rows: Vec<_> =
                rows.iter().filter(|row| row.owner == one.owner && row.fence == one.fence).cloned().collect();
            // What a majority still has when the others have let go.
            rows.sort_by_key(|row| std::cmp::Reverse(row.left.unwrap_or(Duration::MAX)));
            // It can still be renewed where enough servers would.
            let whole = rows.iter().filter(|row| !row.broken).count();
            let broken = whole + unheard < majority;
            (rows.len() + unheard >= majority).then(|| Holder { broken, ..rows[majority.min(rows.len()) - 1].clone() })
        };
        let holders: Vec<_> = rows.iter().find_map(same).into_iter().collect();
        let lingers = lingers.filter(|_| holders.is_empty() && lingering);
        Inspected { name: name.clone(), holders, lingers, waiters }
    }
}

const LONGER_LEASES: &str = "no lease may be longer than the quarantine, which ?quarantine= sets, alike for all clients of these servers; \
    docs/redlock.md says how to change it";

impl Store for Quorum {
    fn label(&self) -> &Arc<str> {
        &self.shared.label
    }

    fn capability(&self) -> Capability {
        let all = self.members.iter().map(|member| member.capability());
        let every = |has: fn(&Capability) -> bool| self.members.iter().all(|member| has(&member.capability()));
        let quarantine = self.shared.rules.quarantine;
        let longest = all.map(|one| one.lease_max).min().unwrap_or(Capability::NOTHING.lease_max);
        Capability {
            consistency: Consistency::Ap,
            fencing: Fencing::ByClock,
            lost_before: every(|one| one.lost_before),
            hints: every(|one| one.hints),
            waiters: every(|one| one.waiters),
            server_clock: true,
            outlives_process: every(|one| one.outlives_process),
            several_names: every(|one| one.several_names),
            // A server that forgot must not vote for as long as any lease lasts.
            lease_max: if quarantine.is_zero() { longest } else { longest.min(quarantine) },
            longer_leases: (!quarantine.is_zero() && quarantine < longest).then_some(LONGER_LEASES),
            ..Capability::NOTHING
        }
    }

    /// The servers it is made of, in whichever order; where one does not say who it is, nothing is known.
    fn identity(&self) -> Call<Result<Identity, Error>> {
        let calls: Vec<_> = self.members.iter().map(|member| member.identity()).collect();
        Call::pending(async move {
            let mut servers = Vec::new();
            for call in calls {
                match call.await {
                    Ok(server) if server.is_known() => servers.push(format!("{server:?}")),
                    _ => return Ok(Identity::unknown(KIND)),
                }
            }
            servers.sort();
            Ok(Identity::new(KIND, servers.join(",")))
        })
    }

    fn clock(&self) -> Call<Reply<()>> {
        let quorum = self.clone();
        Call::pending(async move {
            let found = quorum.gather("connect", LIMIT, false, |member| member.clock()).await;
            let checked = match found {
                Ok(found) => quorum.are_different(found.into_iter().map(|(server, _)| server).collect()).await,
                Err(error) => Err(error),
            };
            quorum.answer(checked)
        })
    }

    fn acquire(&self, request: Acquire) -> Call<Reply<Acquired>> {
        Call::pending(self.clone().take(request))
    }

    fn renew(&self, leases: Vec<Renew>) -> Call<Reply<Vec<Renewed>>> {
        Call::pending(self.clone().uphold(leases))
    }

    fn release(&self, request: Release) -> Call<Reply<Released>> {
        Call::pending(self.clone().give(request))
    }

    fn watch(&self, client: ClientId, name: Name, sink: HintSink) -> Call<Result<(), Error>> {
        let quorum = self.clone();
        Call::pending(async move {
            let watch = |member: &Arc<dyn Member>| member.watch(client, name.clone(), sink.clone());
            let found = quorum.gather("watch", LIMIT, false, watch).await;
            found.map(drop).map_err(|error| error.on_store(&quorum.shared.label))
        })
    }

    fn watch_held(&self, _: ClientId, _: HintSink) {}

    fn unwatch(&self, client: ClientId, name: Name) -> Call<()> {
        let calls: Vec<Call<()>> = self.members.iter().map(|member| member.unwatch(client, name.clone())).collect();
        let quorum = self.clone();
        Call::pending(async move {
            for call in calls {
                quorum.spawn(call);
            }
        })
    }

    fn inspect(&self, name: Name) -> Call<Reply<Inspected>> {
        let quorum = self.clone();
        Call::pending(async move {
            let found = quorum.gather("inspect", LIMIT, false, |member| member.inspect(name.clone())).await;
            quorum.answer(found.map(|found| {
                let unheard = quorum.members.len() - found.len();
                quorum.combined(&name, found.into_iter().map(|(_, found)| found.result).collect(), unheard)
            }))
        })
    }

    fn list(&self, prefix: String, after: Option<Name>, limit: usize) -> Call<Reply<Vec<Inspected>>> {
        let quorum = self.clone();
        Call::pending(async move {
            let (mut all, mut after) = (Vec::new(), after);
            loop {
                let list = |member: &Arc<dyn Member>| member.list(prefix.clone(), after.clone(), limit);
                let pages = match quorum.gather("list", LISTING, false, list).await {
                    Ok(pages) => pages.into_iter().map(|(_, page)| page.result).collect(),
                    Err(error) => return quorum.answer(Err(error)),
                };
                let (found, end) = quorum.merged(pages, limit);
                all.extend(found);
                if end.is_none() || all.len() >= limit {
                    all.truncate(limit);
                    return quorum.answer(Ok(all));
                }
                after = end;
            }
        })
    }

    fn break_lock(&self, name: Name, options: BreakOptions) -> Call<Reply<Broken>> {
        let quorum = self.clone();
        Call::pending(async move {
            let found = quorum.gather("break", LIMIT, true, |member| member.break_lock(name.clone(), options)).await;
            let found = found.map_err(|error| error.with_outcome(Outcome::Unknown));
            quorum.answer(found.map(|found| {
                let unheard = quorum.members.len() - found.len();
                // With a majority it is done: what a minority has instead was never granted.
                let mut refusals = found.iter().filter_map(|(_, found)| found.result.refused);
                let is_done = found.len() - refusals.clone().count() >= quorum.shared.rules.majority();
                let refused = refusals.next().filter(|_| !is_done);
                let was = found.into_iter().map(|(_, found)| found.result.was).collect();
                Broken { was: quorum.combined(&name, was, unheard), refused }
            }))
        })
    }

    fn close(&self, client: ClientId) -> Call<()> {
        let quorum = self.clone();
        Call::pending(async move {
            quorum.last_errands().await;
            let calls: Vec<Call<()>> = quorum.members.iter().map(|member| member.close(client)).collect();
            for call in calls {
                call.await;
            }
        })
    }
}

impl Quorum {
    /// One page out of those of all servers, and where it ends: no further than the shortest full one goes.
    fn merged(&self, pages: Vec<Vec<Inspected>>, limit: usize) -> (Vec<Inspected>, Option<Name>) {
        let unheard = self.members.len() - pages.len();
        let full = pages.iter().filter(|page| page.len() >= limit);
        let end = full.filter_map(|page| page.last().map(|last| last.name.clone())).min();
        let mut names: BTreeMap<Name, Vec<Inspected>> = BTreeMap::new();
        for found in pages.into_iter().flatten() {
            names.entry(found.name.clone()).or_default().push(found);
        }
        let within = names.into_iter().filter(|(name, _)| end.as_ref().is_none_or(|end| name <= end));
        let combined = within.map(|(name, found)| self.combined(&name, found, unheard));
        (combined.filter(|found| !found.holders.is_empty() || found.lingers.is_some()).collect(), end)
    }
}
