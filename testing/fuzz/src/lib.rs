//! Fuzzing on stable Rust: inputs made from a corpus and a seed, for the parsers that read what others wrote.
//!
//! A target is a test named `fuzzed…` beside the code that it tries. It runs every file of its corpus
//! (`testing/fuzz/corpus/<target>`) as it is, then a given number of mutated ones. The same seed produces the same
//! inputs, so a failure can be reproduced.
//!
//! | variable | what |
//! |---|---|
//! | `LEASEHOLD_FUZZ_RUNS` | how many inputs each target tries, as a multiple of what it tries by itself |
//! | `LEASEHOLD_FUZZ_SEED` | the seed, a number |
//!
//! An input that makes a target panic is printed, and kept in `target/fuzz/<target>`. Put it into the corpus once the cause is mended.

mod random;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

pub use random::Random;

/// No input is longer.
const LENGTH_MAX: usize = 8 * 1_024;
/// At most this many changes are made to one input.
const CHANGES_MAX: u64 = 6;
/// At most this much of an input is printed.
const SHOWN_MAX: usize = 400;
/// Numbers at which parsers go wrong, as text.
const NUMBERS: [&str; 12] = [
    "0",
    "-1",
    "1",
    "255",
    "65535",
    "2147483648",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551616",
    "99999999999999999999999",
];

/// One thing to try, with its corpus.
#[derive(Debug)]
pub struct Target {
    name: &'static str,
    corpus: Vec<Vec<u8>>,
    words: &'static [&'static str],
    runs: u64,
    seed: u64,
}

impl Target {
    /// With the files of `testing/fuzz/corpus/<name>`. Tries `runs` inputs, or a multiple of that.
    ///
    /// # Panics
    ///
    /// Where there is no corpus: a target without one tries next to nothing.
    pub fn new(name: &'static str, runs: u64) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut paths: Vec<PathBuf> = files.filter_map(|file| Some(file.ok()?.path())).collect();
        // As the file system has them they differ from machine to machine.
        paths.sort();
        let read = |path: PathBuf| std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self::with_corpus(name, runs, paths.into_iter().map(read))
    }

    /// With a corpus that was just made.
    ///
    /// # Panics
    ///
    /// Where it is empty.
    pub fn with_corpus(name: &'static str, runs: u64, corpus: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let corpus: Vec<Vec<u8>> = corpus.into_iter().collect();
        assert!(!corpus.is_empty(), "the corpus {name} is empty");
        let factor = variable("LEASEHOLD_FUZZ_RUNS").unwrap_or(1);
        let seed = variable("LEASEHOLD_FUZZ_SEED").unwrap_or(0);
        Self { name, corpus, words: &[], runs: runs.saturating_mul(factor), seed }
    }

    /// Words of the language that is tried: they are put into inputs.
    #[must_use]
    pub fn words(mut self, words: &'static [&'static str]) -> Self {
        self.words = words;
        self
    }

    /// Hands every input to `run`, which panics where something is wrong.
    ///
    /// # Panics
    ///
    /// As `run` does, after the input was printed and kept.
    pub fn run(self, mut run: impl FnMut(&[u8])) {
        let mut random = Random::new(self.seed);
        let changed = (0..self.runs).map(|_| self.input(&mut random)).collect::<Vec<_>>();
        for input in self.corpus.iter().chain(&changed) {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(input))) {
                self.keep(input);
                resume_unwind(panic);
            }
        }
    }

    /// A file of the corpus with some changes.
    fn input(&self, random: &mut Random) -> Vec<u8> {
        let mut input = random.pick(&self.corpus).clone();
        for _ in 0..=random.below(CHANGES_MAX) {
            self.change(&mut input, random);
        }
        input.truncate(LENGTH_MAX.max(self.corpus.iter().map(Vec::len).max().unwrap_or(0)));
        input
    }

    fn change(&self, input: &mut Vec<u8>, random: &mut Random) {
        let (from, to) = random.range(input.len());
        match random.below(9) {
            0 => input.iter_mut().skip(from).take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
            1 => input.iter_mut().skip(from).take(1).for_each(|byte| *byte = random.byte()),
            2 => input.insert(from, random.byte()),
            3 => drop(input.drain(from..to)),
            4 => {
                let again = input[from..to].to_vec();
                input.splice(from..from, again);
            }
            5 => {
                let other = random.pick(&self.corpus);
                let (start, end) = random.range(other.len());
                input.splice(from..to, other[start..end].iter().copied());
            }
            6 => drop(input.splice(from..to, random.pick(&NUMBERS).bytes())),
            7 if !self.words.is_empty() => drop(input.splice(from..from, random.pick(self.words).bytes())),
            _ => input.truncate(to),
        }
    }

    /// For debugging.
    fn keep(&self, input: &[u8]) {
        let Self { name, seed, .. } = self;
        let (shown, rest) = input.split_at(input.len().min(SHOWN_MAX));
        let more = if rest.is_empty() { String::new() } else { format!("… and {} bytes more", rest.len()) };
        eprintln!("{name}, seed {seed}, fails on {}{more}", shown.escape_ascii());
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/fuzz").join(name);
        let path = folder.join(format!("{:016x}", random::digest(input)));
        // What cannot be kept was printed.
        let kept = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, input));
        eprintln!("{}", kept.map_or_else(|error| error.to_string(), |()| format!("kept as {}", path.display())));
    }
}

fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|error| panic!("{name}={value}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(runs: u64) -> Target {
        Target::with_corpus("tests", runs, ["redis://host".into(), "file:/a".into()]).words(&["@"])
    }

    fn inputs(runs: u64) -> Vec<Vec<u8>> {
        let mut inputs = Vec::new();
        target(runs).run(|input| inputs.push(input.to_vec()));
        inputs
    }

    #[test]
    fn the_corpus_comes_first_and_the_same_seed_makes_the_same_inputs() {
        let made = inputs(200);
        assert_eq!(made[..2], [b"redis://host".to_vec(), b"file:/a".to_vec()]);
        assert_eq!(made, inputs(200));
        let different: std::collections::HashSet<_> = made.iter().collect();
        assert!(different.len() > 100, "{} of 202 differ", different.len());
    }

    #[test]
    fn what_panics_is_found() {
        let found = catch_unwind(|| target(2_000).run(|input| assert!(!input.contains(&b'@'), "found it")));
        assert!(found.is_err());
    }
}
