//! What `scripts/bench` is told.

use std::path::PathBuf;

use crate::comparison::Effort;
use crate::{MEASUREMENTS, Measure};

/// The words after the command.
pub(crate) struct Arguments {
    wanted: Vec<String>,
    pub(crate) effort: Effort,
    /// The page to write.
    pub(crate) write: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn read(words: &[String]) -> Result<Self, String> {
        let mut arguments = Self { wanted: Vec::new(), effort: Effort::FULL, write: None };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--rounds" => arguments.effort.rounds = number(word, words.next())?,
                "--pairs" => arguments.effort.pairs = number(word, words.next())?,
                "--write" => arguments.write = Some(words.next().ok_or("--write needs the path of a page")?.into()),
                name if MEASUREMENTS.iter().any(|(known, _)| *known == name) => arguments.wanted.push(name.to_owned()),
                unknown => return Err(unknown_name(unknown)),
            }
        }
        if arguments.write.is_some() && !arguments.wanted.is_empty() {
            return Err("--write measures all comparisons: name none".to_owned());
        }
        Ok(arguments)
    }

    /// Whether this is to be measured.
    pub(crate) fn wants(&self, name: &str, measure: Measure) -> bool {
        let all = self.wanted.is_empty() && (self.write.is_none() || matches!(measure, Measure::Compared(_)));
        all || self.wanted.iter().any(|wanted| wanted == name)
    }
}

fn number<N: std::str::FromStr + PartialOrd + From<u8>>(flag: &str, word: Option<&String>) -> Result<N, String> {
    let number = word.and_then(|word| word.parse().ok()).filter(|number| *number >= N::from(1));
    number.ok_or_else(|| format!("{flag} needs a number from 1 on"))
}

fn unknown_name(name: &str) -> String {
    let known: Vec<&str> = MEASUREMENTS.iter().map(|(known, _)| *known).collect();
    format!("there is no measurement {name:?}; known are {}", known.join(", "))
}
