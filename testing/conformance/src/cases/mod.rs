//! Every case there is, a file a topic.

mod exclusion;
mod expiry;
mod keeping;
mod releasing;
mod repeating;
mod trying;

use crate::case::Case;

/// Topics and their cases.
pub const TOPICS: &[(&str, &[Case])] = &[
    ("exclusion", exclusion::CASES),
    ("expiry", expiry::CASES),
    ("keeping", keeping::CASES),
    ("releasing", releasing::CASES),
    ("repeating", repeating::CASES),
    ("trying", trying::CASES),
];
