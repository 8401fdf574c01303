//! leasehold and other languages' lock libraries on one Redis server, or over three: `testing/interop/run`, which builds the drivers of the others first.

mod bench;
mod cases;
mod encounter;
mod monitor;
mod table;
mod trial;

use std::process::ExitCode;

use leasehold_interop::{Failure, clock, driver, ours, peer};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let ended = match words.first().map(String::as_str) {
        Some("drive") => ours::drive(&words[1..]),
        Some("bench") => bench::run(),
        _ => return trial::run(&libtest_mimic::Arguments::from_args()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("leasehold-interop: {error}");
            ExitCode::FAILURE
        }
    }
}
