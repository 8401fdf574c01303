//! One simulated client: tasks that take locks of a quorum, hold them, keep them and give them back, over the quorum that ships.
//!
//! What a table would do above it is done here in small: one request at a time for a name, deadlines from before the sending, renewals
//! every third of a lease, and what was asked for is given back whatever came of it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::fence::FENCE_UNIT_NANOS;
use leasehold_core::port::{
    Acquire, Acquired, Answered, Call, Granted, Release, Released, Renew, Renewed, Reply, Store,
};
use leasehold_core::{Block, ClientId, Error, Fence, Lease, Moment, Name, Names, RequestId, StoreOwner, StoreTime};
use leasehold_core::{StoreClock, lease};
use leasehold_quorum::{Host as _, Quorum};

use super::machine::{Machine, Tasks, lock};
use super::member::{Answer, Link, Remote};
use super::plan::Plan;
use crate::chance::{Chance, MS, SECOND};
use crate::clock::Clock;

/// Attempts of one request differ in the upper bits of its number.
pub(super) const ATTEMPT_BITS: u32 = 40;

/// In a network that is well, every server has heard of a release by then.
const TOLD: Duration = Duration::from_millis(300);

/// Whether an id that servers know is of an attempt of this request.
pub(super) fn is_of(request: RequestId, attempt: RequestId) -> bool {
    let number = attempt.number & ((1 << ATTEMPT_BITS) - 1);
    attempt.client == request.client && number == request.number
}

/// What a client does or hears that the world must know.
#[derive(Clone, Debug)]
pub(super) enum Deed {
    /// It believes to hold these names until then, asked for at `sent`.
    Granted { request: RequestId, names: Vec<usize>, block: Block, sent: Moment, deadline: Moment },
    /// It protects something with this number.
    Used { request: RequestId, name: usize, fence: Fence, first: bool },
    /// A renewal that was sent then was kept.
    Kept { name: usize, owner: StoreOwner, fence: Fence, sent: Moment, deadline: Moment },
    /// A release was answered; `held`: while the lock was held, by all that the client knew.
    Released { request: RequestId, name: usize, said: Result<Released, Error>, sent: Moment, held: bool },
    /// It has nothing to do with this request any more.
    Finished { request: RequestId },
    /// It was refused or could not be asked.
    Refused { busy: bool, sent: Moment, what: String },
    /// What it holds was asked for once more.
    Repeated { request: RequestId, block: Block, said: Result<Option<Block>, Error>, sent: Moment, held: bool },
    /// The last of the world asked for this, which is free.
    Probed { granted: bool, what: String },
}

/// What it believes of one name that it was granted.
#[derive(Clone, Debug)]
pub(super) struct Belief {
    pub(super) request: RequestId,
    pub(super) name: usize,
    pub(super) owner: StoreOwner,
    pub(super) block: Block,
    pub(super) deadline: Moment,
    lease: Duration,
    sent: Moment,
    kept: bool,
    renew_due: Moment,
}

/// What its tasks have in common, and the world looks at.
pub(super) struct Book {
    pub(super) beliefs: BTreeMap<(u64, usize), Belief>,
    pub(super) deeds: Vec<Deed>,
    chance: Chance,
    numbers: u64,
    /// Names that a task of this client asks for or holds.
    taken: Vec<bool>,
    seen: Vec<Fence>,
    clock: Option<StoreClock>,
}

/// What a task needs.
#[derive(Clone)]
struct Me {
    id: ClientId,
    plan: Arc<Plan>,
    machine: Arc<Machine>,
    callers: Quorum,
    keepers: Quorum,
    book: Arc<Mutex<Book>>,
    /// It asks for nothing more after that.
    until: Moment,
}

pub(super) struct Client {
    clock: Clock,
    parts: u64,
    machine: Arc<Machine>,
    tasks: Tasks,
    pub(super) link: Arc<Mutex<Link>>,
    pub(super) book: Arc<Mutex<Book>>,
    pub(super) still_until: u64,
    pub(super) dead: bool,
    pub(super) tick_at: u64,
}

impl Client {
    pub(super) fn new(who: u64, plan: &Arc<Plan>, chance: &mut Chance, prober: bool) -> Self {
        let error = chance.within(0..2 * plan.ppm + 1) as i64 - plan.ppm as i64;
        let step = if plan.coarse { MS } else { 1 };
        let clock = Clock::new(chance.within(0..SECOND) / step * step, error, step);
        let machine = Machine::new(chance.draw());
        let servers = &plan.rules.servers;
        let link = Link::new(servers.len());
        let members = || Remote::all(servers, &link);
        let (callers, keepers) =
            Quorum::hosted(members(), members(), plan.rules.clone(), machine.clone()).expect("a quorum");
        let book = Arc::new(Mutex::new(Book {
            beliefs: BTreeMap::new(),
            deeds: Vec::new(),
            chance: Chance::new(chance.draw()),
            numbers: 0,
            taken: vec![false; plan.names.len()],
            seen: vec![Fence::NONE; plan.names.len()],
            clock: None,
        }));
        let me = Me {
            id: ClientId([who, 7]),
            plan: plan.clone(),
            machine: machine.clone(),
            callers,
            keepers,
            book: book.clone(),
            until: clock.moment(plan.good),
        };
        if prober {
            machine.spawn(Box::pin(me.probe()));
        } else {
            machine.spawn(Box::pin(me.clone().keep()));
            for _ in 0..plan.hands {
                machine.spawn(Box::pin(me.clone().work()));
            }
        }
        let parts = 1_000_000_u64.saturating_add_signed(error);
        Self {
            clock,
            parts,
            machine,
            tasks: Tasks::default(),
            link,
            book,
            still_until: 0,
            dead: false,
            tick_at: u64::MAX,
        }
    }

    pub(super) fn now(&self, at: u64) -> Moment {
        self.clock.moment(at)
    }

    /// When its clock shows that, in true time.
    pub(super) fn true_time(&self, at: u64, moment: Moment) -> u64 {
        let now = self.now(at).as_nanos();
        let span = |nanos: u64| (u128::from(nanos) * 1_000_000 / u128::from(self.parts)) as u64;
        let moment = moment.as_nanos();
        if moment >= now { at + span(moment - now) } else { at.saturating_sub(span(now - moment)) }
    }

    /// Does whatever is due.
    pub(super) fn run(&mut self, at: u64) {
        self.machine.set_time(self.now(at));
        self.tasks.run(&self.machine);
    }

    /// A call ended, with an answer or without.
    pub(super) fn hears(&mut self, at: u64, call: u64, answer: Option<Answer>) {
        self.machine.set_time(self.now(at));
        lock(&self.link).ended(call, answer);
        self.tasks.run(&self.machine);
    }

    /// When it must be told the time again.
    pub(super) fn wakes(&self) -> Option<Moment> {
        self.machine.next_alarm()
    }
}

impl Book {
    fn pick_names(&mut self) -> Option<Vec<usize>> {
        let many = self.taken.len() as u64;
        let wanted = if many > 1 && self.chance.permille(350) { self.chance.within(2..many + 1) } else { 1 };
        let first = self.chance.within(0..many);
        let mut names: Vec<usize> = (0..wanted).map(|n| ((first + n) % many) as usize).collect();
        names.sort_unstable();
        if names.iter().any(|name| self.taken[*name]) {
            return None;
        }
        names.iter().for_each(|name| self.taken[*name] = true);
        Some(names)
    }

    fn heard<T>(&mut self, sent: Moment, reply: &Reply<T>) {
        if let Ok(answered) = reply {
            let clock = self.clock.get_or_insert(StoreClock::new(sent, sent, answered.at));
            clock.observe(sent, sent, answered.at, Duration::ZERO);
        }
    }
}

impl Me {
    fn chance<T>(&self, draw: impl FnOnce(&mut Chance) -> T) -> T {
        draw(&mut lock(&self.book).chance)
    }

    fn span(&self, micros: std::ops::Range<u64>) -> Duration {
        Duration::from_micros(self.chance(|chance| chance.within(micros)))
    }

    fn tell(&self, deed: Deed) {
        lock(&self.book).deeds.push(deed);
    }

    fn now(&self) -> Moment {
        self.machine.now()
    }

    /// Takes locks, one wish after the other.
    async fn work(self) {
        self.machine.sleep(self.span(0..200_000)).await;
        if self.chance(|chance| chance.permille(500)) {
            let _ = self.callers.clock().await;
        }
        while self.now() < self.until {
            let names = lock(&self.book).pick_names();
            if let Some(names) = names {
                let request = self.request(&names);
                if let Some((granted, sent)) = self.ask(&request).await {
                    self.hold(&request, &names, granted, sent).await;
                }
                self.tell(Deed::Finished { request: request.request });
                let mut book = lock(&self.book);
                names.iter().for_each(|name| book.taken[*name] = false);
            }
            let pause = self.chance(|chance| chance.pick(&[1_000, 200_000, 200_000, 1_200_000]));
            self.machine.sleep(self.span(0..pause)).await;
        }
    }

    fn request(&self, names: &[usize]) -> Acquire {
        let mut book = lock(&self.book);
        book.numbers += 1;
        let request = RequestId { client: self.id, number: book.numbers };
        let (shortest, longest) = self.plan.leases;
        let lease = Duration::from_millis(book.chance.within(shortest..longest + 1));
        let units = (lease.as_nanos() as u64) / FENCE_UNIT_NANOS;
        let block = book.chance.within(1..self.plan.largest_block.min(units) + 1) as u32;
        let shared = StoreOwner::Shared(format!("{}", self.id).into());
        let owner = if book.chance.permille(500) { StoreOwner::Private(request) } else { shared };
        Acquire {
            block,
            seen: names.iter().map(|name| book.seen[*name]).max().unwrap_or_default(),
            kept: true,
            ..Acquire::new(
                Names::new(names.iter().map(|name| self.plan.names[*name].clone())).expect("names"),
                owner,
                request,
                lease,
            )
        }
    }

    /// Asks until it is granted, or gives up.
    async fn ask(&self, request: &Acquire) -> Option<(Granted, Moment)> {
        let tries = self.chance(|chance| chance.within(1..12));
        for _ in 0..tries {
            let sent = self.now();
            let mut asked = request.clone();
            let limit = self.span(300_000..2_000_000);
            if let Some(clock) = lock(&self.book).clock {
                asked.not_after = clock.latest(sent) + limit;
            }
            let reply = self.once_or_twice(asked).await;
            let (reply, sent) =
                reply.unwrap_or((Ok(Answered { at: StoreTime::default(), result: Acquired::TooLate }), sent));
            lock(&self.book).heard(sent, &reply);
            let pause = match reply {
                Ok(Answered { result: Acquired::Granted(granted), .. }) => return Some((granted[0], sent)),
                Ok(Answered { result: Acquired::Busy(busy), .. }) => {
                    self.tell(Deed::Refused { busy: true, sent, what: format!("{} is busy", busy.name) });
                    busy.free_in.unwrap_or(Duration::from_millis(50)).min(Duration::from_millis(120))
                }
                Ok(Answered { result: Acquired::TooLate, .. }) => Duration::from_millis(1),
                Err(error) => {
                    self.tell(Deed::Refused { busy: false, sent, what: error.message().to_owned() });
                    Duration::from_millis(100)
                }
            };
            self.machine.sleep(pause + self.span(0..3_000)).await;
            if self.now() >= self.until {
                break;
            }
        }
        // Whatever came of it, nothing of it may be left: an answer may have been given up, and a grant with it.
        for name in request.names.as_slice() {
            let _ = self.callers.release(giving(request, name, None, None)).await;
        }
        None
    }

    /// The answer to a request, which may be sent again before it has come; none where nobody waited for it.
    async fn once_or_twice(&self, request: Acquire) -> Option<(Reply<Acquired>, Moment)> {
        let sent = self.now();
        let first = self.callers.acquire(request.clone());
        let (cancels, repeats) = (self.plan.cancels, self.plan.repeats);
        if self.chance(|chance| chance.permille(cancels)) {
            let span = self.span(0..30_000);
            return Some((self.machine.within(span, first).await?, sent));
        }
        if !self.chance(|chance| chance.permille(repeats)) {
            return Some((first.await, sent));
        }
        let (pause, mut first) = (self.span(0..10_000), first);
        if let Some(reply) = self.machine.within(pause, &mut first).await {
            return Some((reply, sent));
        }
        let sent_again = self.now();
        let second = self.callers.acquire(request.clone());
        let (one, other) = both(first, second).await;
        // Whichever was granted is the grant; where both were, they are one.
        match (granted(&one), granted(&other)) {
            (Some(block), Some(same)) if block != same => {
                let what = format!("one request was granted with {block:?} and {same:?}");
                self.tell(Deed::Refused { busy: false, sent: Moment::default(), what });
                Some((one, sent))
            }
            (Some(_), _) => Some((one, sent)),
            _ => Some((other, sent_again)),
        }
    }

    async fn hold(&self, request: &Acquire, names: &[usize], granted: Granted, sent: Moment) {
        let deadline = lease::deadline(sent, granted.left);
        let (id, mut block) = (request.request, granted.block);
        let longest = self.chance(|chance| chance.pick(&[20, 100, self.plan.leases.1 * 3 / 2]));
        let ends = (self.now() + self.span(0..longest * 1_000)).min(self.until);
        if self.now() < deadline {
            self.believe(request, names, granted, sent, deadline);
            block = self.use_fences(request, names, block, sent, ends).await;
        }
        let mut order = names.to_vec();
        if self.chance(|chance| chance.permille(500)) {
            order.reverse();
        }
        for (number, name) in order.into_iter().enumerate() {
            if number > 0 && self.chance(|chance| chance.permille(500)) {
                // The others are held for longer.
                self.wait_until(id, name, self.now() + self.span(0..400_000)).await;
            }
            self.give_back(request, name, block).await;
        }
    }

    fn believe(&self, request: &Acquire, names: &[usize], granted: Granted, sent: Moment, deadline: Moment) {
        let (id, block) = (request.request, granted.block);
        let mut book = lock(&self.book);
        let kept = book.chance.permille(700);
        for name in names.iter().copied() {
            book.seen[name] = book.seen[name].max(block.first);
            let belief = Belief {
                request: id,
                name,
                owner: request.owner.clone(),
                block,
                deadline,
                lease: request.lease,
                sent,
                kept,
                renew_due: lease::renew_due(sent, granted.left),
            };
            book.beliefs.insert((id.number, name), belief);
        }
        let names = names.to_vec();
        book.deeds.push(Deed::Granted { request: id, names, block, sent, deadline });
    }

    /// Uses the fences of a block, none ahead of the clock, until then or until the lock is lost. On the way it may ask once more for
    /// what it has. Answers the block that it has in the end.
    async fn use_fences(
        &self,
        request: &Acquire,
        names: &[usize],
        mut block: Block,
        mut sent: Moment,
        ends: Moment,
    ) -> Block {
        let id = request.request;
        for step in 0..3_u64 {
            for name in names.iter().copied() {
                let now = self.now();
                let mut book = lock(&self.book);
                if book.beliefs.get(&(id.number, name)).is_none_or(|belief| now >= belief.deadline) {
                    return block;
                }
                let passed = now.since(sent).as_nanos() as u64 / FENCE_UNIT_NANOS;
                let steps = passed.min(u64::from(block.len) - 1);
                let fence = if step == 0 { block.first } else { block.first.plus(steps) };
                book.seen[name] = book.seen[name].max(fence);
                book.deeds.push(Deed::Used { request: id, name, fence, first: step == 0 });
            }
            let repeats = self.plan.repeats;
            if step == 1 && self.chance(|chance| chance.permille(repeats)) {
                let Some(again) = self.repeat(request, names, block).await else { return block };
                // Its fences count from when they were asked for.
                (block, sent) = if again.0 == block { (block, sent) } else { again };
            }
            let left = ends.since(self.now());
            self.wait_until(id, names[0], self.now() + left / (3 - step as u32)).await;
        }
        block
    }

    /// Asks once more, as one does who has not heard that it was granted: what it has then is what the answer says.
    async fn repeat(&self, request: &Acquire, names: &[usize], block: Block) -> Option<(Block, Moment)> {
        let (sent, id) = (self.now(), request.request);
        let mut ends = Moment::NEVER;
        for name in names {
            let known = lock(&self.book).beliefs.remove(&(id.number, *name));
            ends = ends.min(known.map_or(Moment::default(), |known| known.deadline));
        }
        let said = self.callers.acquire(request.clone()).await;
        let now = self.now();
        let again = match &said {
            Ok(Answered { result: Acquired::Granted(granted), .. }) => Some(granted[0]),
            _ => None,
        };
        let said = said.map(|_| again.map(|granted| granted.block));
        self.tell(Deed::Repeated { request: id, block, said, sent, held: now < ends });
        let granted = again?;
        let deadline = lease::deadline(sent, granted.left);
        if now < deadline {
            self.believe(request, names, granted, sent, deadline);
        }
        Some((granted.block, sent))
    }

    /// Waits until then, or until a name is lost.
    async fn wait_until(&self, id: RequestId, name: usize, until: Moment) {
        loop {
            let deadline = lock(&self.book).beliefs.get(&(id.number, name)).map(|belief| belief.deadline);
            let now = self.now();
            let Some(deadline) = deadline.filter(|deadline| now < *deadline && now < until) else { return };
            self.machine.sleep_until(deadline.min(until)).await;
        }
    }

    async fn give_back(&self, request: &Acquire, name: usize, block: Block) {
        let now = self.now();
        let (belief, used) = {
            let mut book = lock(&self.book);
            (book.beliefs.remove(&(request.request.number, name)), book.seen[name])
        };
        let used = used.clamp(block.first, block.last());
        let release = giving(request, &self.plan.names[name], Some(block.first), Some(used));
        let call = self.callers.release(release);
        let cancels = self.plan.cancels;
        let said = if self.chance(|chance| chance.permille(cancels)) {
            let span = self.span(0..5_000);
            self.machine.within(span, call).await
        } else {
            Some(call.await)
        };
        if let Some(said) = said {
            lock(&self.book).heard(now, &said);
            let said = said.map(|answered| answered.result);
            // A release that took longer than the rest of the lease may have come too late for some servers.
            let held = belief.is_some_and(|belief| self.now() < belief.deadline);
            self.tell(Deed::Released { request: request.request, name, said, sent: now, held });
        }
    }

    /// Renews what is kept, in batches.
    async fn keep(self) {
        loop {
            let (now, mut batch) = (self.now(), Vec::new());
            let mut next = now + Duration::from_millis(100);
            for belief in lock(&self.book).beliefs.values().filter(|belief| belief.kept && now < belief.deadline) {
                // Those that are due soon go along.
                if belief.renew_due <= now + Duration::from_millis(5) {
                    batch.push(belief.clone());
                } else {
                    next = next.min(belief.renew_due);
                }
            }
            if batch.is_empty() {
                self.machine.sleep_until(next).await;
                continue;
            }
            self.renew(batch).await;
        }
    }

    async fn renew(&self, batch: Vec<Belief>) {
        let sent = self.now();
        let renews = batch.iter().map(|belief| Renew {
            lease: Lease {
                name: self.plan.names[belief.name].clone(),
                owner: belief.owner.clone(),
                fence: belief.block.first,
            },
            hold: Some(belief.request),
            term: belief.lease,
            kept: true,
        });
        let reply = self.keepers.renew(renews.collect()).await;
        let now = self.now();
        let mut book = lock(&self.book);
        book.heard(sent, &reply);
        let renewed = reply.map_or_else(|_| vec![Renewed::Unknown; batch.len()], |answered| answered.result);
        for (belief, renewed) in batch.into_iter().zip(renewed) {
            let Some(known) = book.beliefs.get_mut(&(belief.request.number, belief.name)) else { continue };
            known.renew_due = lease::renew_again(now, known.lease);
            // What was invalid stays so.
            if now >= known.deadline {
                continue;
            }
            match renewed {
                Renewed::Kept { left } => {
                    let deadline = lease::deadline(sent, left);
                    known.deadline = known.deadline.max(deadline);
                    known.sent = sent;
                    known.renew_due = lease::renew_due(sent, known.lease);
                    let (name, owner, fence) = (belief.name, belief.owner, belief.block.first);
                    book.deeds.push(Deed::Kept { name, owner, fence, sent, deadline });
                }
                Renewed::Lost | Renewed::Broken => known.deadline = now,
                Renewed::Unknown => {}
            }
        }
    }

    /// In the end everything is free, and can be had: each name by itself, and all together.
    async fn probe(self) {
        let all: Vec<usize> = (0..self.plan.names.len()).collect();
        let each = all.iter().map(|name| vec![*name]);
        for names in each.chain((all.len() > 1).then(|| all.clone())) {
            let request = self.request(&names);
            let said = self.callers.acquire(request.clone()).await;
            let (granted, what) = match &said {
                Ok(Answered { result: Acquired::Granted(_), .. }) => (true, String::new()),
                said => (false, format!("{names:?}: {said:?}")),
            };
            self.tell(Deed::Probed { granted, what });
            for name in request.names.as_slice() {
                let _ = self.callers.release(giving(&request, name, None, None)).await;
            }
            // A majority has given it back; the others are still being told.
            self.machine.sleep(TOLD).await;
        }
    }
}

fn giving(request: &Acquire, name: &Name, fence: Option<Fence>, last_used: Option<Fence>) -> Release {
    Release { fence, last_used, ..Release::hold(name.clone(), request.owner.clone(), request.request) }
}

fn granted(reply: &Reply<Acquired>) -> Option<Block> {
    match reply {
        Ok(Answered { result: Acquired::Granted(granted), .. }) => Some(granted[0].block),
        _ => None,
    }
}

/// Waits for both.
async fn both<T: Unpin>(mut one: Call<T>, mut other: Call<T>) -> (T, T) {
    let (mut first, mut second) = (None, None);
    std::future::poll_fn(|task| {
        if first.is_none()
            && let std::task::Poll::Ready(done) = Pin::new(&mut one).poll(task)
        {
            first = Some(done);
        }
        if second.is_none()
            && let std::task::Poll::Ready(done) = Pin::new(&mut other).poll(task)
        {
            second = Some(done);
        }
        match (first.take(), second.take()) {
            (Some(one), Some(other)) => std::task::Poll::Ready((one, other)),
            (one, other) => {
                (first, second) = (one, other);
                std::task::Poll::Pending
            }
        }
    })
    .await
}
