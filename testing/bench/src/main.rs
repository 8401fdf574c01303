//! `scripts/bench [WHAT…]`: measures, prints figure and bound, and fails where a bound is missed.

mod bare;
mod contention;
mod embedded;
mod figure;
mod load;
mod memory;
mod place;
mod port;
mod program;
mod ratio;
mod redis;
mod redlock;
mod run;
mod several;
mod single;
mod waiters;

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
    ("file-solo", embedded::solo),
    ("file-hot", embedded::hot),
    ("file-crowd", several::crowd),
    ("file-waiters", waiters::idle),
    ("file-hold", several::hold),
    ("file-names", embedded::names),
    ("redis-solo", redis::solo),
    ("redis-fleet", redis::fleet),
    ("redis-hot", redis::hot),
    ("redis-crowd", redis::crowd),
    ("redis-hold", redis::hold),
    ("redlock-latency", redlock::latency),
    ("run", run::run),
];

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    match wanted.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [memory::KEPT_ONCE] => return memory::kept_once(),
        [redlock::MEASURE, how] => return redlock::measure(how),
        [waiters::WAIT, url, tasks] => return waiters::wait(url, tasks),
        _ => {}
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
