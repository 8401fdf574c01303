//! Giving back at every server, until that is certain or the lease is over: nothing is left behind on a minority.

use super::{PerServer, Rules, Said};
use crate::backoff::{self, Rng};
use crate::error::{Error, Outcome};
use crate::port::{Answered, Released, Reply};
use crate::time::{Moment, StoreTime};

/// A release that goes to all servers.
#[derive(Clone, Debug)]
pub struct Sweep {
    rules: Rules,
    seats: PerServer<SweptReplica>,
    /// Then the lease is over everywhere.
    give_up: Moment,
    /// Then whoever asked is answered.
    answer_by: Moment,
    answered: bool,
}

#[derive(Clone, Debug)]
struct SweptReplica {
    state: SweepState,
    /// What came of it.
    said: Option<Result<Released, Error>>,
    /// Until when a ballot may still be executed there, or was.
    unsure: Option<StoreTime>,
    /// When a ballot was last executed there, of those that were open as this began.
    executed: Option<StoreTime>,
    /// When it was last released there.
    gave: Option<StoreTime>,
    attempts: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SweepState {
    Due(Moment),
    Sent,
    Done,
}

impl SweptReplica {
    /// Whether an earlier call may be why it says this now: it gave back, or was not heard of and may have.
    fn may_have_given(&self, says: &Released) -> bool {
        match &self.said {
            Some(Ok(Released::Released { .. })) => true,
            Some(said @ Err(_)) => !is_undone(said) && matches!(says, Released::NotHeld),
            _ => false,
        }
    }
}

/// Whether a call that failed certainly did nothing.
fn is_undone(said: &Result<Released, Error>) -> bool {
    matches!(said, Err(error) if error.outcome() == Outcome::NotApplied)
}

/// Whether a call did nothing, and never will.
fn is_hopeless(error: &Error) -> bool {
    error.outcome() == Outcome::NotApplied && !error.is_retryable()
}

impl Sweep {
    /// Everything that may be left behind: see [`Attempt::traces`](super::Attempt::traces).
    pub fn begin(
        rules: &Rules,
        traces: PerServer<Option<Option<StoreTime>>>,
        now: Moment,
        answer_by: Moment,
        give_up: Moment,
    ) -> Self {
        let seat = |trace: Option<Option<StoreTime>>| SweptReplica {
            state: if trace.is_some() { SweepState::Due(now) } else { SweepState::Done },
            // Where nothing can be, it is not even asked.
            said: trace.is_none().then_some(Ok(Released::NotHeld)),
            unsure: trace.flatten(),
            executed: None,
            gave: None,
            attempts: 0,
        };
        Self {
            rules: rules.clone(),
            seats: traces.into_iter().map(seat).collect(),
            give_up,
            answer_by,
            answered: false,
        }
    }

    /// Servers that are to be sent the release now.
    pub fn due(&mut self, now: Moment) -> PerServer<usize> {
        let mut due = PerServer::new();
        for (server, seat) in self.seats.iter_mut().enumerate() {
            match seat.state {
                SweepState::Due(_) if now >= self.give_up => seat.state = SweepState::Done,
                SweepState::Due(at) if now >= at => {
                    seat.state = SweepState::Sent;
                    due.push(server);
                }
                _ => {}
            }
        }
        due
    }

    /// A server answered, or did not.
    pub fn answered(&mut self, now: Moment, server: usize, reply: Reply<Released>, rng: &mut Rng) {
        let seat = &mut self.seats[server];
        match reply {
            Ok(Answered { at, result }) => {
                if !seat.may_have_given(&result) {
                    seat.said = Some(Ok(result));
                }
                seat.gave = Some(at);
                seat.state = match seat.unsure {
                    // A ballot may have been overtaken by this.
                    Some(unsure) if at <= unsure => {
                        SweepState::Due(now + unsure.since(at) + std::time::Duration::from_millis(1))
                    }
                    _ => SweepState::Done,
                };
            }
            Err(error) => {
                let hopeless = is_hopeless(&error);
                if seat.said.as_ref().is_none_or(is_undone) {
                    seat.said = Some(Err(error));
                }
                seat.attempts += 1;
                seat.state = if hopeless {
                    SweepState::Done
                } else {
                    SweepState::Due(now + backoff::retry_pause(rng, seat.attempts))
                };
            }
        }
    }

    /// A ballot that was open as this began was executed then, or never. Where it is the last one at that server, a release after all of
    /// them has given everything back.
    pub fn executed(&mut self, server: usize, at: Option<StoreTime>, is_last: bool) {
        let seat = &mut self.seats[server];
        seat.executed = seat.executed.max(at);
        if !is_last {
            return;
        }
        seat.unsure = seat.executed;
        if matches!(seat.state, SweepState::Due(_)) && seat.gave.is_some() && seat.gave > seat.unsure {
            seat.state = SweepState::Done;
        }
    }

    /// So many more servers must be heard of, at least, before anything can be certain.
    pub fn awaits(&self) -> usize {
        let gave = |seat: &&SweptReplica| matches!(seat.said, Some(Ok(Released::Released { .. })));
        let gave = self.seats.iter().filter(gave).count();
        let unheard = self.seats.iter().filter(|seat| seat.said.is_none()).count();
        self.rules.majority().saturating_sub(gave).min(unheard).max(1)
    }

    /// When to look for what is due, or to answer.
    pub fn wakes(&self) -> Moment {
        let due = |seat: &SweptReplica| match seat.state {
            SweepState::Due(at) => at,
            SweepState::Sent | SweepState::Done => Moment::NEVER,
        };
        let next = self.seats.iter().map(due).min().unwrap_or(Moment::NEVER);
        if self.answered { next } else { next.min(self.answer_by) }
    }

    /// Whether every server answered or failed at least once: whoever waits longer waits for servers that are not there.
    pub fn is_heard(&self) -> bool {
        self.seats.iter().all(|seat| seat.said.is_some() || seat.state == SweepState::Done)
    }

    /// Whether nothing is left to be done.
    pub fn is_done(&self) -> bool {
        self.seats.iter().all(|seat| seat.state == SweepState::Done)
    }

    /// What came of it, once: as soon as a majority has given back, or nobody else can be waited for.
    pub fn verdict(&mut self, now: Moment) -> Option<Result<Released, Error>> {
        if self.answered {
            return None;
        }
        let majority = self.rules.majority();
        let gave = self.seats.iter().filter_map(|seat| match &seat.said {
            Some(Ok(Released::Released { waiters })) => Some(waiters.unwrap_or(0)),
            _ => None,
        });
        let (gave, waiters) = gave.fold((0, 0), |(gave, most), waiters| (gave + 1, most.max(waiters)));
        let answered = self.seats.iter().filter(|seat| matches!(seat.said, Some(Ok(_)))).count();
        let all = self.seats.iter().all(|seat| seat.said.is_some());
        if gave < majority && !all && now < self.answer_by {
            return None;
        }
        self.answered = true;
        let still = self.seats.iter().find_map(|seat| match seat.said {
            Some(Ok(Released::StillHeld(holds))) => Some(holds),
            _ => None,
        });
        if let (true, Some(holds)) = (gave < majority, still) {
            return Some(Ok(Released::StillHeld(holds)));
        }
        // Of a majority it must be known that they do not have it: else it may be free for nobody.
        if answered >= majority {
            // Those who do not answer may have held it as well.
            let held = gave > 0 && gave + (self.seats.len() - answered) >= majority;
            return Some(Ok(if held { Released::Released { waiters: Some(waiters) } } else { Released::NotHeld }));
        }
        // What a majority cannot do is not for want of a majority.
        let unfit =
            self.seats.iter().filter_map(|seat| seat.said.as_ref()?.as_ref().err()).filter(|error| is_hopeless(error));
        if let (true, Some(error)) = (unfit.clone().count() >= majority, unfit.clone().next()) {
            return Some(Err(error.clone()));
        }
        let said = self.seats.iter().enumerate().map(|(server, seat)| {
            let said = match &seat.said {
                Some(Ok(Released::Released { .. })) => Said::Fine("gave it back"),
                Some(Ok(_)) => Said::Fine("did not have it"),
                Some(Err(error)) => Said::Failed(error),
                None => Said::Silent,
            };
            (server, said)
        });
        Some(Err(self.rules.no_quorum("release", Outcome::Unknown, said)))
    }
}
