//! Every case there is, a file a topic.

mod arguments;
mod cancelling;
mod closing;
mod events;
mod exclusion;
mod expiry;
mod fences;
mod forking;
mod handing;
mod hints;
mod holding;
mod keeping;
mod names;
mod operating;
mod passing;
mod processes;
mod reentrance;
mod reference;
mod releasing;
mod repeating;
mod together;
mod trying;
mod unknown;

use crate::case::Case;

/// Topics and their cases.
pub const TOPICS: &[(&str, &[Case])] = &[
    ("arguments", arguments::CASES),
    ("cancelling", cancelling::CASES),
    ("closing", closing::CASES),
    ("events", events::CASES),
    ("exclusion", exclusion::CASES),
    ("expiry", expiry::CASES),
    ("fences", fences::CASES),
    ("forking", forking::CASES),
    ("hints", hints::CASES),
    ("handing", handing::CASES),
    ("holding", holding::CASES),
    ("keeping", keeping::CASES),
    ("names", names::CASES),
    ("operating", operating::CASES),
    ("passing", passing::CASES),
    ("processes::counting", processes::counting::CASES),
    ("processes::dropping", processes::dropping::CASES),
    ("processes::forked", processes::forked::CASES),
    ("processes::killed", processes::killed::CASES),
    ("processes::restless", processes::restless::CASES),
    ("processes::stopped", processes::stopped::CASES),
    ("processes::told", processes::told::CASES),
    ("reentrance", reentrance::CASES),
    ("reference", reference::CASES),
    ("releasing", releasing::CASES),
    ("repeating", repeating::CASES),
    ("together", together::CASES),
    ("trying", trying::CASES),
    ("unknown", unknown::CASES),
];
