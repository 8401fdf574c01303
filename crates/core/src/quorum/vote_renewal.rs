//! One renewal at all servers at once: a lease is kept where a majority of servers that vote still has it.

use super::epoch::VotingStatus;
use super::member::RenewedVote;
use super::{PerServer, ReplicaReply, Rules, Said};
use crate::error::{Error, Outcome};
use crate::port::{Answered, Renewed, Reply};
use crate::time::Moment;

/// Renewals under way, from their sending to their verdict.
#[derive(Clone, Debug)]
pub struct VoteRenewal {
    rules: Rules,
    leases: usize,
    began: Moment,
    ends: Moment,
    replicas: PerServer<Option<ReplicaReply<RenewedVote>>>,
    decided: bool,
}

impl VoteRenewal {
    /// Renews this many leases; servers are waited for until `ends`.
    pub fn begin(rules: &Rules, leases: usize, now: Moment, ends: Moment) -> Self {
        let replicas = (0..rules.servers()).map(|_| None).collect();
        Self { rules: rules.clone(), leases, began: now, ends, replicas, decided: false }
    }

    /// A server answered, or did not.
    pub fn answered(&mut self, server: usize, sent: Moment, reply: Reply<RenewedVote>) {
        if self.replicas[server].is_some() {
            return;
        }
        self.replicas[server] = Some(match reply {
            Ok(Answered { result: upheld, .. }) if upheld.renewed.len() == self.leases => {
                ReplicaReply::Answered { sent, answer: upheld }
            }
            Ok(_) => ReplicaReply::Silent,
            Err(error) => ReplicaReply::Failed(error),
        });
    }

    /// When it began: the rest of a lease counts from then.
    pub fn began(&self) -> Moment {
        self.began
    }

    /// The caller is answered then at the latest.
    pub fn wakes(&self) -> Moment {
        if self.decided { Moment::NEVER } else { self.ends }
    }

    /// The result, once: as soon as it is certain for every lease.
    pub fn verdict(&mut self, now: Moment) -> Option<Result<Vec<Renewed>, Error>> {
        if self.decided {
            return None;
        }
        let open = self.replicas.iter().filter(|replica| replica.is_none()).count();
        let awaited = if now < self.ends { open } else { 0 };
        let verdicts: Vec<Renewed> = (0..self.leases).map(|lease| self.of(lease, awaited)).collect();
        if awaited > 0 && verdicts.contains(&Renewed::Unknown) {
            return None;
        }
        self.decided = true;
        let all_unknown = self.leases > 0 && verdicts.iter().all(|verdict| *verdict == Renewed::Unknown);
        Some(if all_unknown { Err(self.failure()) } else { Ok(verdicts) })
    }

    /// What is certain of a lease, while `awaited` servers may still answer.
    fn of(&self, lease: usize, awaited: usize) -> Renewed {
        let majority = self.rules.majority();
        let mut ends: PerServer<Moment> = PerServer::new();
        let (mut without, mut broken) = (0, 0);
        for heard in self.replicas.iter().flatten() {
            let ReplicaReply::Answered { sent, answer: upheld } = heard else { continue };
            match upheld.renewed[lease] {
                Renewed::Kept { left } if upheld.standing.votes() => ends.push(*sent + left),
                Renewed::Lost => without += 1,
                Renewed::Broken => broken += 1,
                Renewed::Kept { .. } | Renewed::Unknown => {}
            }
        }
        if ends.len() >= majority {
            ends.sort_unstable_by(|a, b| b.cmp(a));
            return Renewed::Kept { left: ends[majority - 1].since(self.began) };
        }
        // Too many do not have it for a majority to have it.
        if without + broken > self.replicas.len() - majority {
            // Servers where it is broken keep others out: with a majority of them, nobody else can be granted it. A server that
            // voted for nobody answers that it has nothing, so one that says broken may be the first of a majority.
            return match broken {
                0 => Renewed::Lost,
                _ if broken >= majority => Renewed::Broken,
                _ if broken + awaited >= majority => Renewed::Unknown,
                _ => Renewed::Lost,
            };
        }
        Renewed::Unknown
    }

    /// Servers that vote and do not have a lease that a majority has: they may be asked to join it.
    pub fn vacant(&self, lease: usize) -> impl Iterator<Item = usize> {
        let kept = matches!(self.of(lease, 0), Renewed::Kept { .. });
        self.replicas.iter().enumerate().filter_map(move |(server, replica)| match replica {
            Some(ReplicaReply::Answered { answer: upheld, .. })
                if kept && upheld.standing.votes() && upheld.renewed[lease] == Renewed::Lost =>
            {
                Some(server)
            }
            _ => None,
        })
    }

    /// Which servers did not answer.
    pub fn silent(&self) -> impl Iterator<Item = (usize, Option<&Error>)> {
        self.replicas.iter().enumerate().filter_map(|(server, replica)| match replica {
            Some(ReplicaReply::Failed(error)) => Some((server, Some(error))),
            None => Some((server, None)),
            _ => None,
        })
    }

    fn failure(&self) -> Error {
        let said = self.replicas.iter().enumerate().map(|(server, replica)| {
            let said = match replica {
                Some(ReplicaReply::Answered {
                    answer: RenewedVote { standing: VotingStatus::Recovering { left }, .. },
                    ..
                }) => Said::Recovering(*left),
                Some(ReplicaReply::Answered { answer: upheld, .. }) => Said::Fine(what_is_there(&upheld.renewed)),
                Some(ReplicaReply::Failed(error)) => Said::Failed(error),
                Some(ReplicaReply::Silent) | None => Said::Silent,
            };
            (server, said)
        });
        self.rules.no_quorum("renew", Outcome::Unknown, said)
    }
}

/// For people: what a server has of what was to be renewed.
fn what_is_there(renewed: &[Renewed]) -> &'static str {
    let has = renewed.iter().filter(|renewed| matches!(renewed, Renewed::Kept { .. })).count();
    match has {
        0 => "does not have it",
        has if has == renewed.len() => "has it",
        _ => "has some of them",
    }
}
