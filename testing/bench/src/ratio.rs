//! The ratio runner: A B C A B C …, so that a noisy machine disturbs all alike. Every claim of the kind "x times as fast" comes from here.
//!
//! Ratios are taken within a round, between neighbours in time. Their median counts, and their spread is reported with
//! it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Values of the same thing, one a round, in order of size.
#[derive(Clone, Debug)]
pub(crate) struct Sample(Vec<f64>);

impl Sample {
    pub(crate) fn new(mut values: Vec<f64>) -> Self {
        assert!(!values.is_empty(), "a sample has a value at least");
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    /// The middle one.
    pub(crate) fn median(&self) -> f64 {
        self.0[self.0.len() / 2]
    }

    pub(crate) fn smallest(&self) -> f64 {
        self.0[0]
    }

    pub(crate) fn largest(&self) -> f64 {
        self.0[self.0.len() - 1]
    }
}

/// Things to be measured side by side, each giving one number a round.
pub(crate) struct SideBySide<'a> {
    unit: &'static str,
    things: Vec<(String, Measure<'a>)>,
}

type Measure<'a> = Box<dyn FnMut() -> f64 + 'a>;

impl<'a> SideBySide<'a> {
    pub(crate) fn new(unit: &'static str) -> Self {
        Self { unit, things: Vec::new() }
    }

    /// One more of them. The first is what the others are compared with in print.
    pub(crate) fn thing(mut self, name: impl Into<String>, measure: impl FnMut() -> f64 + 'a) -> Self {
        self.things.push((name.into(), Box::new(measure)));
        self
    }

    /// Measures all of them in turn for this many rounds, after one warm-up round; then prints the table.
    pub(crate) fn run(mut self, rounds: usize) -> Rounds {
        let mut values = vec![Vec::new(); self.things.len()];
        for round in 0..=rounds {
            for (index, (_, measure)) in self.things.iter_mut().enumerate() {
                let value = measure();
                if round > 0 {
                    values[index].push(value);
                }
            }
        }
        let names = self.things.into_iter().map(|(name, _)| name).collect();
        let rounds = Rounds { unit: self.unit.to_owned(), names, values };
        eprintln!("{rounds}");
        rounds
    }
}

/// What came of it: for each thing a value a round.
#[derive(Serialize, Deserialize)]
pub(crate) struct Rounds {
    unit: String,
    names: Vec<String>,
    values: Vec<Vec<f64>>,
}

/// One thing in a table.
pub(crate) struct Row<'a> {
    pub(crate) name: &'a str,
    pub(crate) sample: Sample,
    /// To the first thing, the median of all rounds.
    pub(crate) ratio: f64,
}

impl Rounds {
    /// Some of the things, in this order.
    pub(crate) fn only<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let values = names.iter().map(|name| self.values[self.index(name)].clone()).collect();
        Self { unit: self.unit.clone(), names, values }
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    pub(crate) fn count(&self) -> usize {
        self.values[0].len()
    }

    pub(crate) fn unit(&self) -> &str {
        &self.unit
    }

    /// The table of all things.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let ratio = |name| self.ratio(name, &self.names[0]).median();
        self.names().map(move |name| Row { name, sample: self.of(name), ratio: ratio(name) })
    }

    /// The values of one thing.
    pub(crate) fn of(&self, name: &str) -> Sample {
        Sample::new(self.values[self.index(name)].clone())
    }

    /// How many times the value of `b` the value of `a` is, round by round.
    pub(crate) fn ratio(&self, a: &str, b: &str) -> Sample {
        self.each(a, b, |a, b| a / b)
    }

    /// By how much the value of `a` is above that of `b`, round by round.
    pub(crate) fn difference(&self, a: &str, b: &str) -> Sample {
        self.each(a, b, |a, b| a - b)
    }

    fn each(&self, a: &str, b: &str, relate: impl Fn(f64, f64) -> f64) -> Sample {
        let pairs = self.values[self.index(a)].iter().zip(&self.values[self.index(b)]);
        Sample::new(pairs.map(|(a, b)| relate(*a, *b)).collect())
    }

    fn index(&self, name: &str) -> usize {
        self.names.iter().position(|known| *known == name).unwrap_or_else(|| panic!("nothing is called {name:?}"))
    }
}

impl fmt::Display for Rounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let rounds = self.count();
        write!(
            f,
            "    {:<width$} {:>14} {:>29} {:>9}",
            format!("{rounds} rounds"),
            "median",
            "smallest … largest",
            "ratio"
        )?;
        for Row { name, sample, ratio } in self.rows() {
            let (median, least, most) = (sample.median(), sample.smallest(), sample.largest());
            let spread = format!("{least:.3} … {most:.3}");
            write!(f, "\n    {name:<width$} {median:>14.3} {spread:>29} {ratio:>9.3} {}", self.unit)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_alternate_and_the_first_does_not_count() {
        let order = std::cell::RefCell::new(Vec::new());
        let step = |name: &'static str, values: &'static [f64]| {
            let (order, mut values) = (&order, values.iter());
            move || {
                order.borrow_mut().push(name);
                *values.next().unwrap()
            }
        };
        let rounds = SideBySide::new("us")
            .thing("a", step("a", &[90.0, 2.0, 8.0, 3.0]))
            .thing("b", step("b", &[90.0, 1.0, 2.0, 3.0]))
            .run(3);
        assert_eq!(*order.borrow(), ["a", "b", "a", "b", "a", "b", "a", "b"]);
        let ratio = rounds.ratio("a", "b");
        assert_eq!((ratio.smallest(), ratio.median(), ratio.largest()), (1.0, 2.0, 4.0));
        assert_eq!(rounds.difference("a", "b").largest(), 6.0);
        assert_eq!(rounds.of("a").median(), 3.0);
    }
}
