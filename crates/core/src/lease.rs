//! Leases and their arithmetic: the one place that says how long a holder may act.

use std::time::Duration;

use crate::fence::Fence;
use crate::name::Name;
use crate::owner::StoreOwner;
use crate::time::Moment;

/// What identifies a lease. An older lease of the same owner is a different lease.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Lease {
    /// The name that is held.
    pub name: Name,
    /// The owner, as the store keeps it.
    pub owner: StoreOwner,
    /// The fence of its grant.
    pub fence: Fence,
}

/// This part of a lease is given up for clocks that run at different rates.
const DRIFT_PART: u32 = 100;
/// And what a clock's granularity may hide.
const DRIFT_FIXED: Duration = Duration::from_millis(2);
/// Time for a holder to hear that its lock is lost before another can have it.
const REACTION: Duration = Duration::from_millis(20);

/// Two sendings of a renewal are at least this far apart.
const RENEW_PAUSE: Duration = Duration::from_millis(2);

/// When a lease ends for its holder: counted from before the sending of the request whose answer said how much was left.
///
/// The store's lease begins when it *executes* the request, which is later than its sending; so this end is earlier than the
/// store's, by the drift of the clocks (1 % + 2 ms) and by a margin to react (20 ms, or a quarter where less than 80 ms is left).
pub fn deadline(sent: Moment, left: Duration) -> Moment {
    let given_up = left / DRIFT_PART + DRIFT_FIXED + REACTION.min(left / 4);
    sent + left.saturating_sub(given_up)
}

/// The lease to ask for so that its holder may act for `span`: what the deadline gives up is added, and no less than every store takes.
pub fn to_last(span: Duration) -> Duration {
    span.saturating_add(span / 50).saturating_add(DRIFT_FIXED + REACTION * 2).max(Duration::from_millis(200))
}

/// When a holder that learns at `lost` that its lock is lost has had time to react, and the lock may go to another.
pub fn noticed(lost: Moment) -> Moment {
    lost + REACTION
}

/// When the store's own lease is surely over, even if its clock is the slower one: for giving up on a release.
pub fn surely_over(received: Moment, left: Duration) -> Moment {
    received + left + left / DRIFT_PART + DRIFT_FIXED
}

/// When to renew: a third of the way, counted like the deadline.
pub fn renew_due(sent: Moment, lease: Duration) -> Moment {
    sent + lease / 3
}

/// When a renewal that has not been answered is sent again, while its call is still under way: one lost message must not cost the
/// lock, however long a call may take.
pub fn renew_hanging(sent: Moment, lease: Duration) -> Moment {
    sent + (lease / 6).max(RENEW_PAUSE)
}

/// How long after a failed renewal the next is tried: often enough for several tries before the deadline.
pub fn renew_again(now: Moment, lease: Duration) -> Moment {
    now + (lease / 12).clamp(RENEW_PAUSE, Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deadline_gives_up_drift_and_margin() {
        let sent = Moment::from_nanos(0);
        let end = deadline(sent, Duration::from_secs(30));
        assert_eq!(end.since(sent), Duration::from_millis(30_000 - 300 - 2 - 20));
        assert_eq!(deadline(sent, Duration::from_millis(200)).since(sent), Duration::from_millis(200 - 2 - 2 - 20));
    }

    #[test]
    fn what_is_asked_for_to_last_so_long_lasts_so_long() {
        let sent = Moment::from_nanos(0);
        for ms in [0, 1, 50, 200, 5_000, 86_400_000] {
            let span = Duration::from_millis(ms);
            assert!(deadline(sent, to_last(span)).since(sent) >= span, "{span:?}");
        }
        assert!(to_last(Duration::MAX) > Duration::from_secs(1));
    }

    #[test]
    fn what_the_store_may_have_is_over_later_than_what_its_holder_has() {
        let then = Moment::from_nanos(7);
        let lease = Duration::from_secs(30);
        assert_eq!(surely_over(then, lease).since(then), Duration::from_millis(30_000 + 300 + 2));
        assert_eq!(to_last(Duration::from_secs(10)), Duration::from_millis(10_000 + 200 + 42));
        assert_eq!(to_last(Duration::ZERO), Duration::from_millis(200));
        assert_eq!(to_last(Duration::from_millis(200)), Duration::from_millis(246));
    }

    #[test]
    fn renewals_come_a_third_of_the_way_and_sooner_where_they_fail() {
        let now = Moment::from_nanos(7);
        let after = |when: Moment| when.since(now).as_micros();
        assert_eq!(after(renew_due(now, Duration::from_secs(30))), 10_000_000);
        assert_eq!(after(renew_hanging(now, Duration::from_secs(30))), 5_000_000);
        assert_eq!(after(renew_hanging(now, Duration::from_millis(6))), 2_000, "not all the time");
        assert_eq!(after(renew_again(now, Duration::from_secs(6))), 500_000);
        assert_eq!(after(renew_again(now, Duration::from_secs(30))), 1_000_000, "once a second at least");
        assert_eq!(after(renew_again(now, Duration::from_millis(6))), 2_000);
    }

    #[test]
    fn a_short_lease_still_leaves_time_to_act() {
        let sent = Moment::from_nanos(0);
        assert_eq!(deadline(sent, Duration::from_millis(10)).since(sent), Duration::from_micros(5_400));
        assert_eq!(deadline(sent, Duration::ZERO), sent);
    }

    #[test]
    fn a_store_s_lease_is_surely_over_after_the_drift_of_a_slow_clock() {
        let received = Moment::from_nanos(7);
        let over = surely_over(received, Duration::from_secs(30));
        assert_eq!(over.since(received), Duration::from_millis(30_000 + 300 + 2));
        assert_eq!(surely_over(received, Duration::ZERO).since(received), Duration::from_millis(2));
    }

    #[test]
    fn no_more_is_asked_for_than_the_deadline_gives_up() {
        assert_eq!(to_last(Duration::from_secs(10)), Duration::from_millis(10_000 + 200 + 42));
        assert_eq!(to_last(Duration::from_millis(1)), Duration::from_millis(200));
    }

    #[test]
    fn renewals_come_at_a_third_and_are_tried_often_before_the_deadline() {
        let (sent, ms) = (Moment::from_nanos(7), Duration::from_millis);
        assert_eq!(renew_due(sent, ms(30_000)).since(sent), ms(10_000));
        assert_eq!(renew_hanging(sent, ms(30_000)).since(sent), ms(5_000));
        assert_eq!(renew_hanging(sent, ms(6)).since(sent), ms(2));
        assert_eq!(renew_again(sent, ms(1_200)).since(sent), ms(100));
        assert_eq!(renew_again(sent, ms(30_000)).since(sent), ms(1_000));
        assert_eq!(renew_again(sent, ms(12)).since(sent), ms(2));
    }
}
