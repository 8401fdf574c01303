//! What can go wrong with a store that lives in memory: only its settings.

use leasehold_core::{Error, ErrorKind};

pub(crate) fn no_such_option(option: &str) -> Error {
    let what = format!("memory: has no option {option:?} of its own");
    Error::new(ErrorKind::BadArgument, "connect", what).with_hint("only keep and budget can be given")
}

pub(crate) fn no_such_place(path: &str) -> Error {
    let what = format!("memory:{path} names a place, but this store is in the process");
    Error::new(ErrorKind::BadArgument, "connect", what).with_hint("write memory: or memory:NAME")
}
