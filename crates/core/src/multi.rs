//! Locks of several stores, taken together, all or none: which store to try, to wait for or to give back next.
//!
//! A task that holds a part never waits for another, so no tasks wait in a circle. The price is that parts which were taken in vain
//! were in the way of others. So a task that is refused again and again stays away for a random pause, at most in proportion to the
//! time for which it was in the way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use crate::backoff::{self, Rng};
use crate::error::{Error, ErrorKind};
use crate::options::Term;
use crate::time::Moment;

/// From this many refusals on there are pauses.
const PAUSES_FROM: u32 = 3;
/// A pause is at most this many times as long as parts were held in vain,
const PAUSE_FACTOR: u32 = 2;
/// and no longer than this.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// A task yields to earlier ones for this many times as long as parts are usually held,
const YIELD_FACTOR: u32 = 4;
/// but no shorter than this,
const YIELD_MIN: Duration = Duration::from_millis(2);
/// and no longer than this.
const YIELD_MAX: Duration = Duration::from_millis(250);
/// Maximum number of refused waiters scanned for priority.
const MAX_SCANNED: usize = 64;
/// A task yields in vain for at most this many times as long: one that is always refused must not keep others away for ever.
const MAX_YIELDS_IN_VAIN: u32 = 32;
/// This often, a fixed lease must have half of its time left when all parts are held; after that it may have less.
const MAX_HALF_LEASE_CHECKS: u32 = 3;
/// How often leases may end before all parts are held.
const ENDED_MAX: u32 = 10;

/// The tasks of this process that want locks of several stores, by their arrival.
///
/// It gives no task a place in any store's line. But some tasks go first: of those that were refused and asked recently, the earliest
/// ones that want no lock in common. A task that wants one of the same locks yields for a short while: without that, tasks that want
/// many locks would starve among tasks that want few.
#[derive(Debug, Default)]
pub struct GroupQueue {
    waiters: BTreeMap<u64, GroupWaiter>,
    /// Those that were refused.
    refused: BTreeSet<u64>,
    /// The tasks that go first, until when, and what they want; none if that must be determined again.
    first: Option<Vec<(YieldedPlace, Wants)>>,
    came: u64,
    /// How long parts are usually held.
    held_for: Duration,
}

/// The arrival of a task.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Arrival(u64);

/// A task that goes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct YieldedPlace {
    /// Which task.
    pub before: Arrival,
    /// Until then, unless it leaves sooner.
    pub until: Moment,
}

/// A number for each name, sorted. Two names may have the same number.
type Wants = SmallVec<[u64; 8]>;

#[derive(Debug)]
struct GroupWaiter {
    wants: Wants,
    /// It may go first until then, unless it asks again: a task that waits in a line for long would keep others away for nothing.
    fresh_until: Moment,
    /// For how long it yielded since a task left to which it had yielded.
    in_vain: Duration,
}

impl GroupQueue {
    /// An empty queue.
    pub const fn new() -> Self {
        let held_for = Duration::ZERO;
        Self { waiters: BTreeMap::new(), refused: BTreeSet::new(), first: None, came: 0, held_for }
    }

    /// A task arrives that wants these: a number for each name.
    pub fn enter(&mut self, wants: impl IntoIterator<Item = u64>) -> Arrival {
        let mut wants: Wants = wants.into_iter().collect();
        wants.sort_unstable();
        self.came += 1;
        self.waiters.insert(self.came, GroupWaiter { wants, fresh_until: Moment::default(), in_vain: Duration::ZERO });
        Arrival(self.came)
    }

    /// It was refused.
    pub fn refused(&mut self, who: Arrival, now: Moment) {
        let span = self.span();
        let Some(guest) = self.waiters.get_mut(&who.0) else { return };
        guest.fresh_until = now + span;
        self.refused.insert(who.0);
        self.first = None;
    }

    /// It leaves: it has all parts, or gives up.
    pub fn leave(&mut self, who: Arrival) {
        self.waiters.remove(&who.0);
        if self.refused.remove(&who.0) {
            self.first = None;
        }
    }

    /// A part was held for this long.
    pub fn held(&mut self, span: Duration) {
        self.held_for = backoff::smoothed(self.held_for, span);
    }

    /// The task to yield to, and until when.
    pub fn stands_aside(&mut self, who: Arrival, now: Moment) -> Option<YieldedPlace> {
        let span = self.span();
        if self.first.as_ref().is_none_or(|first| first.iter().any(|(aside, _)| aside.until <= now)) {
            self.first = Some(self.priority(now));
        }
        let me = self.waiters.get_mut(&who.0)?;
        let mut first = self.first.iter().flatten().take_while(|(aside, _)| aside.before < who);
        let aside = first.find(|(_, wants)| overlaps(wants, &me.wants)).map(|(aside, _)| *aside);
        let aside = aside.filter(|_| me.in_vain < span * MAX_YIELDS_IN_VAIN);
        // A task does not lose its turn by yielding.
        let returns = me.fresh_until <= now && self.refused.contains(&who.0);
        me.fresh_until = aside.map_or(now, |aside| aside.until) + span;
        if returns {
            self.first = None;
        }
        aside
    }

    /// It yielded for this long: until the task left that went first, or in vain.
    pub fn stood_aside(&mut self, who: Arrival, span: Duration, went: bool) {
        if let Some(guest) = self.waiters.get_mut(&who.0) {
            guest.in_vain = if went { Duration::ZERO } else { guest.in_vain + span };
        }
    }

    /// For how long a task goes first that does not ask again.
    fn span(&self) -> Duration {
        (self.held_for * YIELD_FACTOR).clamp(YIELD_MIN, YIELD_MAX)
    }

    fn priority(&self, now: Moment) -> Vec<(YieldedPlace, Wants)> {
        let mut first: Vec<(YieldedPlace, Wants)> = Vec::new();
        let refused = self.refused.iter().filter_map(|came| Some((*came, self.waiters.get(came)?)));
        for (came, guest) in refused.filter(|(_, guest)| now < guest.fresh_until).take(MAX_SCANNED) {
            if !first.iter().any(|(_, wants)| overlaps(wants, &guest.wants)) {
                first.push((YieldedPlace { before: Arrival(came), until: guest.fresh_until }, guest.wants.clone()));
            }
        }
        first
    }
}

fn overlaps(a: &[u64], b: &[u64]) -> bool {
    a.iter().any(|name| b.binary_search(name).is_ok())
}

/// What to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Take this part, if that can be done without waiting.
    Try(usize),
    /// Wait for this part. Nothing is held.
    Wait(usize),
    /// Give back all that is held.
    GiveBack,
    /// Stay away for so long. Nothing is held.
    Pause(Duration),
    /// All are held: look whether they still are, and for how long.
    Look,
}

/// The way to several parts.
#[derive(Debug)]
pub struct GroupAcquire {
    held: SmallVec<[bool; 4]>,
    /// To be waited for, when nothing is held.
    awaited: Option<usize>,
    /// The one that was taken last.
    last: usize,
    giving_back: bool,
    pause: Option<Duration>,
    refusals: u32,
    ended: u32,
    rng: Rng,
}

impl GroupAcquire {
    /// For this many parts, which are tried in order.
    pub fn new(parts: usize, seed: u64) -> Self {
        Self {
            held: smallvec![false; parts],
            // A single part is waited for at once: there is nothing to give back.
            awaited: (parts == 1).then_some(0),
            last: 0,
            giving_back: false,
            pause: None,
            refusals: 0,
            ended: 0,
            rng: Rng::new(seed),
        }
    }

    /// What to do next: the same until its result is reported.
    pub fn step(&self) -> Step {
        let holds = self.held.iter().any(|held| *held);
        match (self.giving_back && holds, self.pause, self.awaited) {
            (true, ..) => Step::GiveBack,
            (_, Some(pause), _) => Step::Pause(pause),
            (_, _, Some(part)) if !holds => Step::Wait(part),
            _ => self.held.iter().position(|held| !held).map_or(Step::Look, Step::Try),
        }
    }

    /// A part was taken.
    pub fn granted(&mut self, part: usize) {
        self.held[part] = true;
        self.last = part;
        self.awaited = None;
    }

    /// A part was busy: the task waits for it while it holds nothing.
    pub fn refused(&mut self, part: usize) {
        self.refusals += 1;
        self.awaited = Some(part);
        // A task that holds nothing has nothing to give back, and keeps the part that it waits for.
        self.giving_back = self.held.contains(&true);
    }

    /// All parts were given back. They were held in vain for this long.
    pub fn gave_back(&mut self, held_for: Duration) {
        self.held.fill(false);
        self.giving_back = false;
        if self.refusals >= PAUSES_FROM {
            let longest = u64::try_from((held_for * PAUSE_FACTOR).min(PAUSE_MAX).as_nanos()).unwrap_or(u64::MAX);
            self.pause = Some(Duration::from_nanos(self.rng.below(longest)));
        }
    }

    /// The pause is over.
    pub fn paused(&mut self) {
        self.pause = None;
    }

    /// All parts are held: how much is left of each lease, and its term. Answers whether the caller can have them. If not, they are given
    /// back, and the one that took so long is taken first.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] when leases end before all parts are held, again and again.
    pub fn looked(&mut self, mut parts: impl Iterator<Item = (Option<Duration>, Term)>) -> Result<bool, Error> {
        let particular = self.ended < MAX_HALF_LEASE_CHECKS;
        let is_enough = |(left, term): (Option<Duration>, Term)| match (left, term) {
            (None, _) => false,
            (Some(left), Term::Fixed(lease)) if particular => left >= lease / 2,
            (Some(_), _) => true,
        };
        if parts.all(is_enough) {
            return Ok(true);
        }
        self.ended += 1;
        if self.ended > ENDED_MAX {
            let what = "leases ended before all the locks were had";
            let hint = "give longer leases, or keep the locks";
            return Err(Error::new(ErrorKind::Lost, "acquire", what).with_hint(hint));
        }
        self.refused(self.last);
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn of_a_fixed_lease_half_must_be_left() {
        for (left, is_enough) in [(50 * MS, true), (49 * MS, false)] {
            let mut pursuit = GroupAcquire::new(2, 1);
            for part in 0..2 {
                assert_eq!(pursuit.step(), Step::Try(part));
                pursuit.granted(part);
            }
            assert_eq!(pursuit.step(), Step::Look);
            let parts = [(Some(left), Term::Fixed(100 * MS)), (Some(MS), Term::Kept(MS))];
            assert_eq!(pursuit.looked(parts.into_iter()).unwrap(), is_enough, "{left:?}");
        }
    }

    #[test]
    fn what_is_free_is_taken_in_order() {
        let mut pursuit = GroupAcquire::new(3, 1);
        for part in 0..3 {
            assert_eq!(pursuit.step(), Step::Try(part));
            pursuit.granted(part);
        }
        assert_eq!(pursuit.step(), Step::Look);
        assert!(pursuit.looked([(Some(MS), Term::Kept(MS)); 3].into_iter()).unwrap());
    }

    #[test]
    fn whoever_is_refused_holds_nothing_while_it_waits_and_keeps_what_it_waited_for() {
        let mut pursuit = GroupAcquire::new(3, 1);
        pursuit.granted(0);
        pursuit.refused(1);
        assert_eq!(pursuit.step(), Step::GiveBack);
        pursuit.gave_back(MS);
        assert_eq!(pursuit.step(), Step::Wait(1));
        pursuit.granted(1);
        assert_eq!(pursuit.step(), Step::Try(0));
        pursuit.granted(0);
        assert_eq!(pursuit.step(), Step::Try(2));
    }

    #[test]
    fn whoever_is_refused_when_it_holds_nothing_keeps_what_it_waited_for_too() {
        let mut pursuit = GroupAcquire::new(2, 1);
        pursuit.refused(0);
        assert_eq!(pursuit.step(), Step::Wait(0));
        pursuit.granted(0);
        assert_eq!(pursuit.step(), Step::Try(1));
    }

    #[test]
    fn pauses_come_after_some_refusals_and_have_a_limit() {
        let mut pursuit = GroupAcquire::new(2, 1);
        let mut pauses = 0;
        for turn in 0..20 {
            pursuit.granted(turn % 2);
            pursuit.refused((turn + 1) % 2);
            pursuit.gave_back(Duration::from_secs(9));
            if let Step::Pause(pause) = pursuit.step() {
                assert!(pause <= PAUSE_MAX);
                pauses += 1;
                pursuit.paused();
            }
            assert!(matches!(pursuit.step(), Step::Wait(_)));
        }
        assert_eq!(pauses, 18);
    }

    #[test]
    fn a_lease_with_too_little_left_is_not_handed_out() {
        let mut pursuit = GroupAcquire::new(2, 1);
        let fixed = Term::Fixed(10 * MS);
        for turn in 0..=ENDED_MAX {
            while let Step::Try(part) | Step::Wait(part) = pursuit.step() {
                pursuit.granted(part);
            }
            assert_eq!(pursuit.step(), Step::Look);
            let short = [(Some(4 * MS), fixed), (None, fixed)];
            match pursuit.looked(short.into_iter()) {
                Ok(handed_out) => assert!(!handed_out),
                Err(error) => {
                    assert_eq!((error.kind(), turn), (ErrorKind::Lost, ENDED_MAX));
                    return;
                }
            }
            pursuit.gave_back(MS);
            pursuit.paused();
        }
        panic!("it goes on for ever");
    }

    #[test]
    fn after_some_turns_a_fixed_lease_is_handed_out_with_what_there_is() {
        let mut pursuit = GroupAcquire::new(1, 1);
        let little = (Some(MS), Term::Fixed(10 * MS));
        let turns = (0..).find(|_| pursuit.looked([little].into_iter()).unwrap());
        assert_eq!(turns, Some(MAX_HALF_LEASE_CHECKS));
    }

    #[test]
    fn one_stands_aside_for_those_who_came_earlier_want_the_same_and_are_refused() {
        let mut hall = GroupQueue::new();
        let at = |ms| Moment::default() + ms * MS;
        let (first, second, third) = (hall.enter([1, 2]), hall.enter([2, 3]), hall.enter([4]));
        hall.held(10 * MS);
        let aside = |hall: &mut GroupQueue, who, ms| hall.stands_aside(who, at(ms));
        assert_eq!(aside(&mut hall, second, 1), None);
        hall.refused(first, at(1));
        assert_eq!(aside(&mut hall, second, 1), Some(YieldedPlace { before: first, until: at(41) }));
        assert_eq!(aside(&mut hall, second, 41), None, "not for one who waits somewhere for long");
        hall.refused(first, at(50));
        assert_eq!(aside(&mut hall, third, 50), None, "it wants something else");
        assert_eq!(aside(&mut hall, first, 50), None, "it came first");
        hall.leave(first);
        assert_eq!(aside(&mut hall, second, 50), None);
    }

    #[test]
    fn nobody_loses_its_turn_by_standing_aside() {
        let mut hall = GroupQueue::new();
        let at = |ms| Moment::default() + ms * MS;
        let (first, second, third) = (hall.enter([1, 2]), hall.enter([2, 3]), hall.enter([3, 4]));
        hall.held(10 * MS);
        hall.refused(second, at(1));
        for ms in (1..200).step_by(20) {
            hall.refused(first, at(ms));
            assert_eq!(hall.stands_aside(second, at(ms)).map(|aside| aside.before), Some(first));
        }
        hall.leave(first);
        assert_eq!(hall.stands_aside(third, at(200)).map(|aside| aside.before), Some(second));
    }

    #[test]
    fn one_stands_aside_for_as_long_as_others_go_but_not_for_ever_in_vain() {
        let mut hall = GroupQueue::new();
        let (first, second) = (hall.enter([1]), hall.enter([1]));
        hall.held(10 * MS);
        hall.refused(first, Moment::default());
        let mut stands = |went| {
            hall.stood_aside(second, 40 * MS, went);
            hall.stands_aside(second, Moment::default()).is_some()
        };
        assert!((0..100).all(|_| stands(true)));
        assert_eq!((0..100).take_while(|_| stands(false)).count(), MAX_YIELDS_IN_VAIN as usize - 1);
        assert!(stands(true));
    }

    /// So many nanoseconds pass at each turn of the world.
    const TICK: u64 = 20_000;
    const TURNS: u64 = 100_000;
    const TASKS: usize = 12;
    const NAMES: usize = 8;
    /// A world in which nothing happens for so many turns stands still.
    const STILL: u64 = 10_000;

    /// One who wants several things again and again.
    struct Task {
        wants: Vec<usize>,
        pursuit: GroupAcquire,
        guest: Option<Arrival>,
        /// Asleep, or busy with what it holds.
        until: u64,
        queued: bool,
        holding: bool,
        since: u64,
        done: u32,
    }

    struct World {
        now: u64,
        rng: Rng,
        hall: GroupQueue,
        holders: [Option<usize>; NAMES],
        queues: [VecDeque<usize>; NAMES],
        tasks: Vec<Task>,
    }

    impl World {
        fn new(seed: u64) -> Self {
            let mut rng = Rng::new(seed);
            let mut wants = || {
                let size = 2 + rng.below(3) as usize;
                let mut wants = Vec::new();
                while wants.len() < size {
                    let name = rng.below(NAMES as u64) as usize;
                    if !wants.contains(&name) {
                        wants.push(name);
                    }
                }
                wants
            };
            let task = |wants: Vec<usize>| {
                let pursuit = GroupAcquire::new(wants.len(), 0);
                Task { wants, pursuit, guest: None, until: 0, queued: false, holding: false, since: 0, done: 0 }
            };
            let tasks = (0..TASKS).map(|_| task(wants())).collect();
            let (holders, queues) = ([None; NAMES], [const { VecDeque::new() }; NAMES]);
            let mut world = Self { now: 0, rng, hall: GroupQueue::new(), holders, queues, tasks };
            (0..TASKS).for_each(|at| world.begin(at));
            world
        }

        /// How often each task had all it wants; none where the world stands still.
        fn run(mut self) -> Option<Vec<u32>> {
            let mut acted = 0;
            while self.now < TURNS {
                self.now += 1;
                let at = self.rng.below(TASKS as u64) as usize;
                if self.now >= self.tasks[at].until && !self.tasks[at].queued {
                    acted = self.now;
                    self.act(at);
                }
                if self.now - acted > STILL {
                    return None;
                }
            }
            Some(self.tasks.iter().map(|task| task.done).collect())
        }

        fn begin(&mut self, at: usize) {
            let seed = self.rng.draw();
            let task = &mut self.tasks[at];
            task.pursuit = GroupAcquire::new(task.wants.len(), seed);
            task.guest = Some(self.hall.enter(task.wants.iter().map(|name| *name as u64)));
            task.holding = false;
        }

        fn act(&mut self, at: usize) {
            let moment = Moment::from_nanos(self.now * TICK);
            let holds = self.holders.contains(&Some(at));
            let task = &mut self.tasks[at];
            let Some(guest) = task.guest else { return };
            if !holds && self.hall.stands_aside(guest, moment).is_some() {
                return;
            }
            match task.pursuit.step() {
                Step::Try(part) if self.holders[task.wants[part]].is_some() => {
                    task.pursuit.refused(part);
                    self.hall.refused(guest, moment);
                }
                Step::Wait(part) if self.holders[task.wants[part]].is_some() => {
                    assert!(!holds, "it waits while it holds");
                    self.queues[task.wants[part]].push_back(at);
                    task.queued = true;
                }
                Step::Try(part) | Step::Wait(part) => self.give(at, self.tasks[at].wants[part]),
                Step::Pause(pause) => {
                    task.until = self.now + pause.as_nanos() as u64 / TICK;
                    task.pursuit.paused();
                }
                Step::GiveBack => {
                    task.pursuit.gave_back(Duration::from_nanos((self.now - task.since) * TICK));
                    self.take_back(at);
                }
                Step::Look if !task.holding => {
                    assert!(task.wants.iter().all(|name| self.holders[*name] == Some(at)), "it has not all");
                    self.hall.leave(guest);
                    let span = 50 + self.rng.below(50);
                    self.hall.held(Duration::from_nanos(span * TICK));
                    (task.holding, task.until) = (true, self.now + span);
                    task.done += 1;
                }
                Step::Look => {
                    self.take_back(at);
                    self.begin(at);
                }
            }
        }

        fn give(&mut self, at: usize, name: usize) {
            assert_eq!(self.holders[name].replace(at), None);
            let task = &mut self.tasks[at];
            let part = task.wants.iter().position(|wanted| *wanted == name).unwrap();
            task.pursuit.granted(part);
            (task.queued, task.since) = (false, self.now);
        }

        /// Those who wait get it, first come first served.
        fn take_back(&mut self, at: usize) {
            for name in self.tasks[at].wants.clone() {
                if self.holders[name] == Some(at) {
                    self.holders[name] = None;
                    if let Some(next) = self.queues[name].pop_front() {
                        self.give(next, name);
                    }
                }
            }
        }
    }

    fn starves_somebody(done: &[u32]) -> bool {
        let mean = done.iter().sum::<u32>() / TASKS as u32;
        done.iter().any(|done| *done < mean / 4)
    }

    #[test]
    #[cfg_attr(miri, ignore = "worlds take Miri minutes")]
    fn worlds_go_on_and_starve_nobody() {
        for seed in 0..20 {
            let done = World::new(seed).run().unwrap_or_else(|| panic!("seed {seed} stands still"));
            assert!(!starves_somebody(&done), "seed {seed}: {done:?}");
        }
    }
}
