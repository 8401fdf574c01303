//! Every case there is, a file a topic.

mod cancelling;
mod closing;
mod exclusion;
mod expiry;
mod fences;
mod hints;
mod keeping;
mod names;
mod releasing;
mod repeating;
mod trying;
mod unknown;

use crate::case::Case;

/// Topics and their cases.
pub const TOPICS: &[(&str, &[Case])] = &[
    ("cancelling", cancelling::CASES),
    ("closing", closing::CASES),
    ("exclusion", exclusion::CASES),
    ("expiry", expiry::CASES),
    ("fences", fences::CASES),
    ("hints", hints::CASES),
    ("keeping", keeping::CASES),
    ("names", names::CASES),
    ("releasing", releasing::CASES),
    ("repeating", repeating::CASES),
    ("trying", trying::CASES),
    ("unknown", unknown::CASES),
];
