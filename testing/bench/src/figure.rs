//! One measured figure and the bound it has to keep.

use std::fmt;

/// A figure with its bound.
pub(crate) struct Figure {
    pub(crate) what: &'static str,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) bound: Bound,
}

/// What is asked of a figure.
#[derive(Clone, Copy)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// For the record only.
    Told,
}

impl Figure {
    pub(crate) fn is_met(&self) -> bool {
        match self.bound {
            Bound::AtMost(bound) => self.value <= bound,
            Bound::AtLeast(bound) => self.value >= bound,
            Bound::Told => true,
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.is_met() { "ok    " } else { "MISSED" };
        write!(f, "{verdict} {:<58} {:>12.3} {:<6}", self.what, self.value, self.unit)?;
        match self.bound {
            Bound::AtMost(bound) => write!(f, " (at most {bound})"),
            Bound::AtLeast(bound) => write!(f, " (at least {bound})"),
            Bound::Told => Ok(()),
        }
    }
}
