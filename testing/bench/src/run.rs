//! What `leasehold run` adds to a command, beside `flock`.

use std::process::{Command, Stdio};
use std::time::Instant;

use crate::figure::Figure;
use crate::place::Place;
use crate::program;
use crate::ratio::SideBySide;

const ROUNDS: usize = 21;
/// A round is the mean of this many commands.
const TIMES: u32 = 5;

/// A command that does nothing: bare, under `flock`, under `leasehold run`.
pub(crate) fn run() -> Vec<Figure> {
    let place = Place::new();
    let leasehold = || {
        let mut command = Command::new(program::path());
        command.args(["--store", &place.url(), "run", "job", "--", "true"]);
        command
    };
    let flock = || {
        let mut command = Command::new("flock");
        command.arg(place.path("flock")).arg("true");
        command
    };
    let rounds = SideBySide::new("ms")
        .thing("bare", || mean_ms(|| Command::new("true")))
        .thing("flock", || mean_ms(flock))
        .thing("leasehold run", || mean_ms(leasehold))
        .run(ROUNDS);
    vec![
        Figure::median("a bare command", &rounds.of("bare"), "ms"),
        Figure::median("flock adds", &rounds.difference("flock", "bare"), "ms"),
        Figure::median("leasehold run adds", &rounds.difference("leasehold run", "bare"), "ms").at_most(15.0),
    ]
}

fn mean_ms(command: impl Fn() -> Command) -> f64 {
    let began = Instant::now();
    for _ in 0..TIMES {
        let status = command().stdin(Stdio::null()).status().expect("a command");
        assert!(status.success(), "{status}");
    }
    began.elapsed().as_secs_f64() * 1e3 / f64::from(TIMES)
}
