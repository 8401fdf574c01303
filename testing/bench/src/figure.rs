//! One measured figure, how far its rounds lay apart, and the bound it has to keep.

use std::fmt;

use crate::ratio::Sample;

/// A figure with its bound.
pub(crate) struct Figure {
    what: String,
    value: f64,
    /// The smallest and the largest of its rounds.
    spread: Option<(f64, f64)>,
    unit: &'static str,
    bound: Bound,
}

/// The bound of a figure.
#[derive(Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// For the record only.
    None,
}

impl Figure {
    /// A figure for the record.
    pub(crate) fn told(what: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { what: what.into(), value, spread: None, unit, bound: Bound::None }
    }

    /// The median of several rounds.
    pub(crate) fn median(what: impl Into<String>, sample: &Sample, unit: &'static str) -> Self {
        Self::told(what, sample.median(), unit).spread(sample)
    }

    /// The smallest of several rounds: for bounds in absolute numbers, where a machine that does other things too disturbs some.
    pub(crate) fn quietest(what: impl Into<String>, sample: &Sample, unit: &'static str) -> Self {
        Self::told(what, sample.smallest(), unit).spread(sample)
    }

    pub(crate) fn at_most(self, bound: f64) -> Self {
        Self { bound: Bound::AtMost(bound), ..self }
    }

    pub(crate) fn at_least(self, bound: f64) -> Self {
        Self { bound: Bound::AtLeast(bound), ..self }
    }

    fn spread(self, sample: &Sample) -> Self {
        Self { spread: Some((sample.smallest(), sample.largest())), ..self }
    }

    /// Whether it is a time for the record, as the tables of rounds have it too.
    pub(crate) fn is_in_a_table(&self) -> bool {
        self.unit == "us" && matches!(self.bound, Bound::None)
    }

    /// As a row of a table in Markdown.
    pub(crate) fn row(&self) -> String {
        let bound = match self.bound {
            Bound::AtMost(bound) => format!("at most {bound}"),
            Bound::AtLeast(bound) => format!("at least {bound}"),
            Bound::None => String::new(),
        };
        let verdict = match self.bound {
            Bound::None => "",
            _ if self.is_met() => "kept",
            _ => "**missed**",
        };
        let value = format!("{:.2} {}", self.value, self.unit);
        format!("| {} | {} | {bound} | {verdict} |", self.what, value.trim_end())
    }

    pub(crate) fn is_met(&self) -> bool {
        match self.bound {
            Bound::AtMost(bound) => self.value <= bound,
            Bound::AtLeast(bound) => self.value >= bound,
            Bound::None => true,
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.is_met() { "ok    " } else { "MISSED" };
        write!(f, "{verdict} {:<58} {:>12.3} {:<6}", self.what, self.value, self.unit)?;
        if let Some((least, most)) = self.spread {
            write!(f, " [{least:.3} … {most:.3}]")?;
        }
        match self.bound {
            Bound::AtMost(bound) => write!(f, " (at most {bound})"),
            Bound::AtLeast(bound) => write!(f, " (at least {bound:.3})"),
            Bound::None => Ok(()),
        }
    }
}
