//! Runs simulated worlds from the command line.

use std::process::ExitCode;
use std::time::Instant;

use leasehold_sim::quorum::{Drift, World};
use leasehold_sim::run::{self, Kind};

const HELP: &str = "\
Simulated worlds of leasehold's core.

  --seeds N [--from S]       run N worlds, from seed S
  --seed S [--whole]         run one world and tell its story, of every name
  --quorum                   of clients of a quorum, not of one store
  --beyond                   of a quorum whose clocks are further apart than leases allow for: how often two hold the lock
  --threads N                default 2
  --failures N               stop after so many; default 5
";

#[derive(Default)]
struct Args {
    seeds: Option<u64>,
    from: u64,
    seed: Option<u64>,
    kind: Kind,
    whole: bool,
    threads: Option<usize>,
    failures: Option<usize>,
}

fn main() -> ExitCode {
    let args = match parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(message) => {
            eprintln!("{message}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let fine = if let Some(seed) = args.seed {
        one(args.kind, seed, args.whole)
    } else if args.kind == Kind::Quorum(Drift::Beyond) {
        beyond(&args)
    } else {
        many(&args)
    };
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut args = Args::default();
    while let Some(word) = words.next() {
        let mut number =
            || words.next().and_then(|n| n.replace('_', "").parse::<u64>().ok()).ok_or("a number is missing");
        match word.as_str() {
            "--seeds" => args.seeds = Some(number()?),
            "--from" => args.from = number()?,
            "--seed" => args.seed = Some(number()?),
            "--threads" => args.threads = Some(number()? as usize),
            "--failures" => args.failures = Some(number()? as usize),
            "--whole" => args.whole = true,
            "--quorum" if args.kind == Kind::Store => args.kind = Kind::Quorum(Drift::Assumed),
            "--quorum" => {}
            "--beyond" => args.kind = Kind::Quorum(Drift::Beyond),
            _ => return Err(format!("unknown argument {word:?}")),
        }
    }
    Ok(args)
}

fn one(kind: Kind, seed: u64, whole: bool) -> bool {
    let (story, result) = run::tell(kind, seed, whole);
    println!("{story}");
    match &result {
        Ok(history) => println!("seed {seed}: {history:?}"),
        Err(violation) => println!("seed {seed}: {} is broken: {}", violation.invariant, violation.what),
    }
    result.is_ok()
}

fn many(args: &Args) -> bool {
    let begun = Instant::now();
    let sum = run::sweep(
        args.kind,
        args.from,
        args.seeds.unwrap_or(10_000),
        args.threads.unwrap_or(2),
        args.failures.unwrap_or(5),
        true,
    );
    let speed = sum.worlds as f64 / begun.elapsed().as_secs_f64();
    println!("{} worlds, {} events, {} grants; {speed:.0} worlds a second", sum.worlds, sum.events, sum.grants);
    if let Some(first) = sum.failures.first() {
        println!("{}", run::tell(args.kind, first.seed, false).0);
    }
    for failure in &sum.failures {
        println!("{} is broken: {}", failure.violation.invariant, failure.violation.what);
        println!("  {}", run::command(args.kind, failure.seed));
    }
    sum.failures.is_empty()
}

/// With clocks that are too far apart exclusion fails, or these worlds test nothing; and fences must grow all the same.
fn beyond(args: &Args) -> bool {
    let (mut worlds, mut overlaps, mut grants) = (0, 0, 0);
    for seed in args.from..args.from + args.seeds.unwrap_or(10_000) {
        let mut world = World::new(seed, Drift::Beyond, false);
        match world.run() {
            Ok(history) => grants += history.grants,
            Err(violation) => {
                println!("{} is broken: {}", violation.invariant, violation.what);
                println!("  {}", run::command(args.kind, seed));
                return false;
            }
        }
        worlds += 1;
        overlaps += u64::from(world.overlaps > 0);
    }
    println!(
        "{worlds} worlds, {grants} grants; two held the lock at the same time in {overlaps} of them, never with fences out of order"
    );
    overlaps > 0
}
