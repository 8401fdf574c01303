//! Prints the Lua scripts as they are sent to a server: `print_scripts [LAYOUT [OPERATION]]`.
//!
//! The layout is `redisson` (the default) or `plain`; without an operation, all of them are printed.

use std::process::ExitCode;

use leasehold_redis::{Layout, script_texts};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (layout, operation) = (arguments.next(), arguments.next());
    let layout = match layout.as_deref() {
        None | Some("redisson") => Layout::Redisson,
        Some("plain") => Layout::Plain,
        Some(other) => return refused(&format!("there is no layout '{other}'; use redisson or plain")),
    };
    let is_wanted = |name: &str| operation.as_deref().is_none_or(|wanted| wanted == name);
    let wanted: Vec<_> = script_texts(layout).filter(|(name, _)| is_wanted(name)).collect();
    if wanted.is_empty() {
        let known: Vec<_> = script_texts(layout).map(|(name, _)| name).collect();
        return refused(&format!("there is no such operation; use one of {}", known.join(", ")));
    }
    for (name, text) in wanted {
        if operation.is_none() {
            println!("-- === {name}.lua");
        }
        print!("{text}");
    }
    ExitCode::SUCCESS
}

fn refused(why: &str) -> ExitCode {
    eprintln!("print_scripts: {why}");
    ExitCode::from(64)
}
