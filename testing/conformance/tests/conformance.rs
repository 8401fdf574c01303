//! Every case on every deployment: `cargo test -p leasehold-conformance -- memory::expiry`.

use std::process::ExitCode;

use leasehold_conformance::{child, trial};

fn main() -> ExitCode {
    if let Some(ended) = child::run() {
        return ended;
    }
    let arguments = libtest_mimic::Arguments::from_args();
    libtest_mimic::run(&arguments, trial::all()).exit_code()
}
