//! `scripts/bench [WHAT…]`: measures, prints figure and bound, and fails where a bound is missed.

mod contention;
mod figure;
mod load;
mod memory;
mod ratio;
mod single;

use figure::Figure;

/// A measurement by name.
type Measurement = (&'static str, fn() -> Vec<Figure>);

/// What can be measured.
const MEASUREMENTS: &[Measurement] = &[
    ("uncontended", single::uncontended),
    ("reentrance", single::reentrance),
    ("passing-on", contention::passing_on),
    ("two-clients", contention::two_clients),
    ("names", memory::names_used_once),
    ("kept", memory::kept_locks),
];

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if wanted == [memory::KEPT_ONCE] {
        return memory::kept_once();
    }
    let known: Vec<&str> = MEASUREMENTS.iter().map(|(name, _)| *name).collect();
    if let Some(unknown) = wanted.iter().find(|name| !known.contains(&name.as_str())) {
        eprintln!("there is no measurement {unknown:?}; known are {}", known.join(", "));
        std::process::exit(64);
    }
    let mut missed = 0;
    for (name, measure) in MEASUREMENTS {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            eprintln!("measuring {name} …");
            for figure in measure() {
                println!("{figure}");
                missed += u32::from(!figure.is_met());
            }
        }
    }
    if missed > 0 {
        eprintln!("{missed} missed");
        std::process::exit(1);
    }
}
