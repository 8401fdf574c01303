//! `scripts/bench [--rounds N] [--pairs N] [--write PAGE] [WHAT…]`: measures, prints figure and bound, and fails where a bound is missed.
//!
//! Comparisons with peers can be made shorter, to see that they run: the bounds are meant for what is measured without these flags.
//! They are also what `--write` makes a page of, with a picture beside it.

mod arguments;
mod bare;
mod chart;
mod comparison;
mod contention;
mod embedded;
mod figure;
mod handoff;
mod load;
mod machine;
mod memory;
mod page;
mod peers;
mod place;
mod port;
mod program;
mod ratio;
mod redis;
mod redlock;
mod run;
mod scripts;
mod several;
mod single;
mod socket;
mod solo;
mod waiters;
mod wakeups;

use arguments::Arguments;
use comparison::{Comparison, Effort};
use figure::Figure;

/// How something is measured.
#[derive(Clone, Copy)]
enum Measure {
    Alone(fn() -> Vec<Figure>),
    /// Beside floors and peers.
    Compared(fn(Effort) -> Comparison),
}

use Measure::{Alone, Compared};

/// What can be measured, by name.
const MEASUREMENTS: &[(&str, Measure)] = &[
    ("uncontended", Alone(single::uncontended)),
    ("reentrance", Alone(single::reentrance)),
    ("passing-on", Alone(contention::passing_on)),
    ("two-clients", Alone(contention::two_clients)),
    ("names", Alone(memory::names_used_once)),
    ("kept", Alone(memory::kept_locks)),
    ("file-solo", Alone(embedded::solo)),
    ("file-hot", Alone(embedded::hot)),
    ("file-crowd", Alone(several::crowd)),
    ("file-waiters", Alone(waiters::idle)),
    ("file-hold", Alone(several::hold)),
    ("file-names", Alone(embedded::names)),
    ("redis-peers", Compared(solo::solo)),
    ("redis-fleet", Alone(redis::fleet)),
    ("redis-hot", Alone(redis::hot)),
    ("redis-handoff", Compared(handoff::handoff)),
    ("redis-hold", Alone(redis::hold)),
    ("redlock-peers", Compared(redlock::redlock)),
    ("run", Alone(run::run)),
];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [memory::KEPT_ONCE] => return memory::kept_once(),
        [redlock::MEASURE, how, rounds, pairs] => return redlock::measure(how, Effort::told(rounds, pairs)),
        [handoff::BARE_TURNS, port, _] => return handoff::bare_turns(port),
        // leasehold in a process of its own, as testing/interop starts it.
        ["drive", ..] => return leasehold_interop::ours::drive(&words[1..]).expect("a driver"),
        [waiters::WAIT, url, tasks] => return waiters::wait(url, tasks),
        _ => {}
    }
    let arguments = Arguments::read(&words).unwrap_or_else(|wrong| {
        eprintln!("{wrong}");
        std::process::exit(64);
    });
    let (mut missed, mut compared) = (0, Vec::new());
    for (name, measure) in MEASUREMENTS.iter().filter(|(name, measure)| arguments.wants(name, *measure)) {
        eprintln!("measuring {name} …");
        let figures = match measure {
            Alone(measure) => measure(),
            Compared(measure) => {
                let found = measure(arguments.effort);
                for ignored in &found.ignored {
                    println!("ignored: {ignored}");
                }
                compared.push(found);
                Vec::new()
            }
        };
        for figure in compared.last().filter(|_| figures.is_empty()).map_or(&figures, |found| &found.figures) {
            println!("{figure}");
            missed += u32::from(!figure.is_met());
        }
    }
    if let Some(path) = &arguments.write {
        page::write(path, &compared, arguments.effort);
    }
    if missed > 0 {
        eprintln!("{missed} missed");
        std::process::exit(1);
    }
}
