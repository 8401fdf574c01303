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
    replicas: PerServer<SweptReplica>,
    /// The lease is over everywhere then.
    give_up: Moment,
    /// The caller is answered then.
    answer_by: Moment,
    answered: bool,
}

#[derive(Clone, Debug)]
struct SweptReplica {
    state: SweepState,
    /// The result at this server.
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
        let replica = |trace: Option<Option<StoreTime>>| SweptReplica {
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
            replicas: traces.into_iter().map(replica).collect(),
            give_up,
            answer_by,
            answered: false,
        }
    }

    /// Servers that are to be sent the release now.
    pub fn due(&mut self, now: Moment) -> PerServer<usize> {
        let mut due = PerServer::new();
        for (server, replica) in self.replicas.iter_mut().enumerate() {
            match replica.state {
                SweepState::Due(_) if now >= self.give_up => replica.state = SweepState::Done,
                SweepState::Due(at) if now >= at => {
                    replica.state = SweepState::Sent;
                    due.push(server);
                }
                _ => {}
            }
        }
        due
    }

    /// A server answered, or did not.
    pub fn answered(&mut self, now: Moment, server: usize, reply: Reply<Released>, rng: &mut Rng) {
        let replica = &mut self.replicas[server];
        match reply {
            Ok(Answered { at, result }) => {
                if !replica.may_have_given(&result) {
                    replica.said = Some(Ok(result));
                }
                replica.gave = Some(at);
                replica.state = match replica.unsure {
                    // A ballot may have been overtaken by this.
                    Some(unsure) if at <= unsure => {
                        SweepState::Due(now + unsure.since(at) + std::time::Duration::from_millis(1))
                    }
                    _ => SweepState::Done,
                };
            }
            Err(error) => {
                let hopeless = is_hopeless(&error);
                if replica.said.as_ref().is_none_or(is_undone) {
                    replica.said = Some(Err(error));
                }
                replica.attempts += 1;
                replica.state = if hopeless {
                    SweepState::Done
                } else {
                    SweepState::Due(now + backoff::retry_pause(rng, replica.attempts))
                };
            }
        }
    }

    /// A ballot that was open as this began was executed then, or never. Where it is the last one at that server, a release after all of
    /// them has given everything back.
    pub fn executed(&mut self, server: usize, at: Option<StoreTime>, is_last: bool) {
        let replica = &mut self.replicas[server];
        replica.executed = replica.executed.max(at);
        if !is_last {
            return;
        }
        replica.unsure = replica.executed;
        if matches!(replica.state, SweepState::Due(_)) && replica.gave.is_some() && replica.gave > replica.unsure {
            replica.state = SweepState::Done;
        }
    }

    /// How many more servers must answer, at least, before the result can be certain.
    pub fn awaits(&self) -> usize {
        let gave = |replica: &&SweptReplica| matches!(replica.said, Some(Ok(Released::Released { .. })));
        let gave = self.replicas.iter().filter(gave).count();
        let unheard = self.replicas.iter().filter(|replica| replica.said.is_none()).count();
        self.rules.majority().saturating_sub(gave).min(unheard).max(1)
    }

    /// When the next sending is due, or the answer to the caller.
    pub fn wakes(&self) -> Moment {
        let due = |replica: &SweptReplica| match replica.state {
            SweepState::Due(at) => at,
            SweepState::Sent | SweepState::Done => Moment::NEVER,
        };
        let next = self.replicas.iter().map(due).min().unwrap_or(Moment::NEVER);
        if self.answered { next } else { next.min(self.answer_by) }
    }

    /// Whether every server answered or failed at least once: waiting longer is waiting for servers that are down.
    pub fn is_heard(&self) -> bool {
        self.replicas.iter().all(|replica| replica.said.is_some() || replica.state == SweepState::Done)
    }

    /// Whether nothing is left to be done.
    pub fn is_done(&self) -> bool {
        self.replicas.iter().all(|replica| replica.state == SweepState::Done)
    }

    /// The result, once: as soon as a majority has given back, or no other server can be waited for.
    pub fn verdict(&mut self, now: Moment) -> Option<Result<Released, Error>> {
        if self.answered {
            return None;
        }
        let majority = self.rules.majority();
        let gave = self.replicas.iter().filter_map(|replica| match &replica.said {
            Some(Ok(Released::Released { waiters })) => Some(waiters.unwrap_or(0)),
            _ => None,
        });
        let (gave, waiters) = gave.fold((0, 0), |(gave, most), waiters| (gave + 1, most.max(waiters)));
        let answered = self.replicas.iter().filter(|replica| matches!(replica.said, Some(Ok(_)))).count();
        let all = self.replicas.iter().all(|replica| replica.said.is_some());
        if gave < majority && !all && now < self.answer_by {
            return None;
        }
        self.answered = true;
        let still = self.replicas.iter().find_map(|replica| match replica.said {
            Some(Ok(Released::StillHeld(holds))) => Some(holds),
            _ => None,
        });
        if let (true, Some(holds)) = (gave < majority, still) {
            return Some(Ok(Released::StillHeld(holds)));
        }
        // A majority must be known not to have it: else it may be free for nobody.
        if answered >= majority {
            // Servers that do not answer may have held it as well.
            let held = gave > 0 && gave + (self.replicas.len() - answered) >= majority;
            return Some(Ok(if held { Released::Released { waiters: Some(waiters) } } else { Released::NotHeld }));
        }
        // An error that a majority has is reported as such, not as a missing quorum.
        let unfit = self
            .replicas
            .iter()
            .filter_map(|replica| replica.said.as_ref()?.as_ref().err())
            .filter(|error| is_hopeless(error));
        if let (true, Some(error)) = (unfit.clone().count() >= majority, unfit.clone().next()) {
            return Some(Err(error.clone()));
        }
        let said = self.replicas.iter().enumerate().map(|(server, replica)| {
            let said = match &replica.said {
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
