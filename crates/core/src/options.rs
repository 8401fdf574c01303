//! Options of a lock, with their bounds. Checked before anything is sent.

use std::sync::Arc;
use std::time::Duration;

use crate::capability::Capability;
use crate::error::{Error, ErrorKind};

/// The lease of a kept lock where none is given.
pub const KEEP_DEFAULT: Duration = Duration::from_secs(30);
/// For how long a lock is passed on inside one process before other processes get their turn.
pub const BUDGET_DEFAULT: Duration = Duration::from_millis(50);
/// The longest budget for passing on.
pub const BUDGET_MAX: Duration = Duration::from_secs(10);
/// How many times a lock is passed on at the most before it goes back to the store.
pub const MAX_HANDOFFS: u32 = 65_536;
/// The longest `max_hold` and `at_least`.
pub const HOLD_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// The longest label, in bytes.
pub const LABEL_MAX_BYTES: usize = 256;

/// For how long a lock is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Term {
    /// Renewed as long as the guard lives; this is the lease that a dead holder leaves behind.
    Kept(Duration),
    /// Never renewed: it ends when it ends.
    Fixed(Duration),
}

impl Term {
    /// The lease asked of the store.
    pub fn lease(self) -> Duration {
        match self {
            Self::Kept(lease) | Self::Fixed(lease) => lease,
        }
    }
}

/// How to wait for a lock that is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum WaitMode {
    /// Sleep until the store tells that the lock may be free, where it can.
    #[default]
    Notified,
    /// Ask again after pauses that grow, with jitter.
    Spinning,
}

/// How a lock is taken, held and waited for. Start from [`Options::default`] and set what differs.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Kept or fixed, and for how long. Default: kept, 30 s.
    pub term: Term,
    /// A kept lock is lost after this long. Default: no limit.
    pub max_hold: Option<Duration>,
    /// Others are kept out for at least this long from the grant, also when it is released sooner. Default: zero.
    pub at_least: Duration,
    /// Notified or spinning. Default: notified.
    pub wait_mode: WaitMode,
    /// For how long it may be passed on inside this process; zero turns that off. Default: 50 ms.
    pub budget: Duration,
    /// Human-readable label, shown by `inspect` and `list`. Default: none.
    pub label: Option<Arc<str>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            term: Term::Kept(KEEP_DEFAULT),
            max_hold: None,
            at_least: Duration::ZERO,
            wait_mode: WaitMode::default(),
            budget: BUDGET_DEFAULT,
            label: None,
        }
    }
}

impl Options {
    /// The lease to ask of the store. What is held for a while at most need not be leased for longer; and a fixed lease that nobody
    /// releases keeps others out for as long as was asked.
    pub fn lease(&self) -> Duration {
        match self.term {
            Term::Kept(lease) => lease.min(self.max_hold.unwrap_or(Duration::MAX)),
            Term::Fixed(lease) => lease.max(self.at_least),
        }
    }

    /// Whether nobody needs the lock once the process is gone: it was to be kept, and for no minimum time.
    pub fn ends_with_process(&self) -> bool {
        matches!(self.term, Term::Kept(_)) && self.at_least.is_zero()
    }

    /// Checks every option against its bounds and the store's.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::BadArgument`], naming the option, what was given and what is allowed.
    pub fn check(&self, store: &Capability) -> Result<(), Error> {
        let what = if matches!(self.term, Term::Kept(_)) { "keep" } else { "lease" };
        check_lease(what, self.term.lease(), store)?;
        let at_least_max = if matches!(self.term, Term::Fixed(_)) { store.lease_max } else { HOLD_MAX };
        within("at_least", self.at_least, Duration::ZERO, at_least_max)?;
        within("budget", self.budget, Duration::ZERO, BUDGET_MAX)?;
        if let Some(max_hold) = self.max_hold {
            within("max_hold", max_hold, store.lease_min, HOLD_MAX)?;
            if matches!(self.term, Term::Fixed(_)) {
                return Err(bad("max_hold is for kept locks; a fixed lease ends by itself")
                    .with_hint("leave one of the two out"));
            }
        }
        match &self.label {
            Some(label) if label.len() > LABEL_MAX_BYTES => {
                let what = format!("the label is {} bytes long; at most {LABEL_MAX_BYTES} are allowed", label.len());
                Err(bad(what).with_hint(LABEL_FORM))
            }
            Some(label) if label.chars().any(char::is_control) => {
                Err(bad("the label has a control character").with_hint(LABEL_FORM))
            }
            _ => Ok(()),
        }
    }
}

const LABEL_FORM: &str = "a label is at most 256 bytes of text without control characters";

/// Checks a lease against the store's bounds.
///
/// # Errors
///
/// [`ErrorKind::BadArgument`], naming `what` was given and what is allowed.
pub fn check_lease(what: &str, given: Duration, store: &Capability) -> Result<(), Error> {
    let checked = within(what, given, store.lease_min, store.lease_max);
    match store.longer_leases.filter(|_| given > store.lease_max) {
        Some(hint) => checked.map_err(|error| error.with_hint(hint)),
        None => checked,
    }
}

fn within(what: &str, given: Duration, min: Duration, max: Duration) -> Result<(), Error> {
    if (min..=max).contains(&given) {
        return Ok(());
    }
    let what = format!("{what} is {}; it must be from {} to {}", spoken(given), spoken(min), spoken(max));
    Err(bad(what).with_hint("give one within these bounds, written like 250ms, 10s or 5m"))
}

/// A duration as people write it.
pub fn spoken(span: Duration) -> String {
    match span.as_secs() {
        secs if span.subsec_nanos() > 0 || secs == 0 => format!("{span:?}"),
        secs if secs % 86_400 == 0 && secs > 86_400 => format!("{}d", secs / 86_400),
        secs if secs % 3_600 == 0 => format!("{}h", secs / 3_600),
        secs if secs % 60 == 0 => format!("{}m", secs / 60),
        secs => format!("{secs}s"),
    }
}

fn bad(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::BadArgument, "options", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORE: Capability = Capability::NOTHING;

    #[test]
    fn defaults_are_within_bounds() {
        Options::default().check(&STORE).unwrap();
    }

    #[test]
    fn spans_are_written_as_people_write_them() {
        let spans = [(0, "0ns"), (1, "1s"), (59, "59s"), (60, "1m"), (90, "90s"), (3_600, "1h"), (7_200, "2h")];
        let longer = [(86_400, "24h"), (90_000, "25h"), (172_800, "2d"), (176_400, "49h"), (3_660, "61m")];
        for (seconds, text) in spans.into_iter().chain(longer) {
            assert_eq!(spoken(Duration::from_secs(seconds)), text);
        }
        assert_eq!(spoken(Duration::from_millis(1_500)), "1.5s");
        assert_eq!((KEEP_DEFAULT, Options::default().term), (Duration::from_secs(30), Term::Kept(KEEP_DEFAULT)));
    }

    #[test]
    fn each_bound_is_checked_and_named() {
        let ms = Duration::from_millis;
        let two_days = Duration::from_secs(2 * 86_400);
        let with = |change: fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            options.check(&STORE).unwrap_err().to_string()
        };
        assert!(with(|o| o.term = Term::Fixed(Duration::from_millis(1))).contains("lease is 1ms"));
        assert!(with(|o| o.budget = Duration::from_secs(60)).contains("budget"));
        assert!(with(|o| o.max_hold = Some(Duration::ZERO)).contains("max_hold"));
        assert!(with(|o| o.at_least = Duration::MAX).contains("at_least"));
        assert!(with(|o| o.label = Some("a\nb".into())).contains("label"));
        let too_long = Options { term: Term::Kept(two_days), ..Options::default() };
        assert_eq!(too_long.check(&STORE).unwrap_err().kind(), ErrorKind::BadArgument);
        let both = Options { term: Term::Fixed(ms(500)), max_hold: Some(ms(500)), ..Options::default() };
        assert!(both.check(&STORE).unwrap_err().to_string().contains("fixed"));
    }

    #[test]
    fn bounds_themselves_are_allowed() {
        let just = Duration::from_nanos(1);
        let checked = |change: &dyn Fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            options.check(&STORE).is_ok()
        };
        for (max, set) in [
            (STORE.lease_max, (|o, span| o.term = Term::Kept(span)) as fn(&mut Options, Duration)),
            (STORE.lease_max, |o, span| o.term = Term::Fixed(span)),
            (STORE.lease_max, |o, span| (o.term, o.at_least) = (Term::Fixed(KEEP_DEFAULT), span)),
            (HOLD_MAX, |o, span| o.at_least = span),
            (HOLD_MAX, |o, span| o.max_hold = Some(span)),
            (BUDGET_MAX, |o, span| o.budget = span),
        ] {
            assert!(checked(&|o| set(o, max)) && !checked(&|o| set(o, max + just)), "{max:?}");
        }
        for set in [
            (|o, span| o.term = Term::Kept(span)) as fn(&mut Options, Duration),
            |o, span| o.term = Term::Fixed(span),
            |o, span| o.max_hold = Some(span),
        ] {
            assert!(checked(&|o| set(o, STORE.lease_min)) && !checked(&|o| set(o, STORE.lease_min - just)));
        }
        assert!(checked(&|o| o.label = Some("x".repeat(LABEL_MAX_BYTES).into())));
        assert!(!checked(&|o| o.label = Some("x".repeat(LABEL_MAX_BYTES + 1).into())));
    }

    #[test]
    fn a_store_says_how_to_have_longer_leases() {
        let store = Capability { longer_leases: Some("raise its limit"), ..STORE };
        let hint = |given| check_lease("lease", given, &store).unwrap_err().hint();
        assert_eq!(hint(store.lease_max + Duration::from_nanos(1)), Some("raise its limit"));
        assert_ne!(hint(Duration::ZERO), Some("raise its limit"), "it is too short");
        assert!(check_lease("lease", store.lease_max, &store).is_ok());
    }

    #[test]
    fn what_is_held_for_a_while_is_leased_for_no_longer() {
        let secs = Duration::from_secs;
        let kept = Options { term: Term::Kept(secs(30)), ..Options::default() };
        assert_eq!(kept.lease(), secs(30));
        assert_eq!(Options { max_hold: Some(secs(5)), ..kept.clone() }.lease(), secs(5));
        assert_eq!(Options { max_hold: Some(secs(50)), ..kept.clone() }.lease(), secs(30));
        assert_eq!(Options { at_least: secs(50), ..kept.clone() }.lease(), secs(30));
        let fixed = Options { term: Term::Fixed(secs(3)), ..Options::default() };
        assert_eq!(fixed.lease(), secs(3));
        assert_eq!(Options { at_least: secs(5), ..fixed.clone() }.lease(), secs(5));
        assert!(kept.ends_with_process() && !fixed.ends_with_process());
        assert!(!Options { at_least: secs(1), ..kept }.ends_with_process());
    }

    #[test]
    fn durations_are_told_as_people_write_them() {
        let told = [(0, "0ns"), (1, "1s"), (59, "59s"), (60, "1m"), (90, "90s"), (3_600, "1h"), (5_400, "90m")];
        for (secs, text) in told.into_iter().chain([(86_400, "24h"), (172_800, "2d"), (90_000, "25h")]) {
            assert_eq!(spoken(Duration::from_secs(secs)), text);
        }
        assert_eq!(spoken(Duration::from_millis(250)), "250ms");
        assert_eq!(spoken(Duration::from_millis(1_500)), "1.5s");
    }
}
