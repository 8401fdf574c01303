//! Takes a lock turn after turn, and writes down what it sees of it, for the checks of a history.

use std::path::Path;
use std::time::Duration;

use leasehold::{Attempt, GroupGuard, LostSignal};
use leasehold_faults::history::{History, Hold, Stamp, now};

use super::planted::Planted;
use super::pupil::Pupil;
use crate::ask::{Ask, attempt};
use crate::case::{Checked, Failure};

/// Interval at which a holder checks what it holds.
const LOOK: Duration = Duration::from_millis(1);

/// Takes this many turns, each held for this long unless it is lost. If the store does not answer, it tries again.
pub(super) async fn record(
    pupil: &Pupil,
    path: &str,
    turns: u64,
    nanos: &str,
    ask: &[&str],
) -> Result<String, Failure> {
    let (history, span) = (History::at(Path::new(path)), Duration::from_nanos(nanos.parse()?));
    let (lock, limit) = Ask::read(&pupil.client, ask)?;
    let mut enough = pupil.enough.subscribe();
    let (mut first, mut taken, mut refused) = (None, 0, 0);
    while taken < turns && !*enough.borrow() {
        let asked = now();
        let attempted = tokio::select! {
            attempted = attempt(&lock, limit) => attempted,
            _ = enough.wait_for(|enough| *enough) => break,
        };
        match attempted {
            Ok(Attempt::Granted(guard)) => {
                let fence = match pupil.bug {
                    Planted::FirstFence => *first.get_or_insert(guard.guards()[0].fence().get()),
                    _ => guard.guards()[0].fence().get(),
                };
                let name = guard.guards()[0].name().as_str().to_owned();
                let (who, granted) = (pupil.who, now());
                let hold = Hold { who, name, fence, asked, granted, valid: None, untold: None, told: None };
                Turn { pupil, guard, hold }.take(&history, span).await?;
                taken += 1;
            }
            Ok(Attempt::Busy(_)) => {}
            Err(_) => refused += 1,
        }
    }
    Ok(format!("recorded\t{refused}"))
}

/// A lock that was granted.
struct Turn<'a> {
    pupil: &'a Pupil,
    guard: GroupGuard,
    hold: Hold,
}

impl Turn<'_> {
    async fn take(mut self, history: &History, span: Duration) -> Checked {
        let signal = self.guard.lost_signal();
        let mut enough = self.pupil.enough.subscribe();
        self.look(&signal);
        history.hold(&self.hold)?;
        let until = self.hold.granted + u64::try_from(span.as_nanos())?;
        while self.hold.told.is_none() && now() < until {
            // Enough, or time to look again.
            if tokio::time::timeout(LOOK, enough.wait_for(|enough| *enough)).await.is_ok() {
                break;
            }
            self.look(&signal);
        }
        // Once more: after the loss signal it does not hold the lock.
        self.look(&signal);
        history.hold(&self.hold)?;
        if self.pupil.bug != Planted::Believes || self.hold.told.is_none() {
            // A lost lock is recorded as such; one that cannot be released ends with its lease.
            let _ = self.guard.release().await;
        }
        Ok(())
    }

    fn look(&mut self, signal: &LostSignal) {
        let at: Stamp = now();
        if self.guard.is_valid() || self.pupil.bug == Planted::Believes {
            self.hold.valid = Some(at);
        }
        let at = now();
        if !signal.is_lost() || matches!(self.pupil.bug, Planted::Believes | Planted::Deaf) {
            self.hold.untold = Some(at);
        } else if self.hold.told.is_none() {
            self.hold.told = Some(now());
        }
    }
}
