//! docs/redis.md and testing/redisson.md name cases: each of them exists.

use std::fs;
use std::path::Path;

use crate::scene::{Case, Checked};

pub(crate) const CASES: &[Case] = &[("paper::every_case_that_is_named_exists", every_case_that_is_named_exists)];

fn every_case_that_is_named_exists() -> Checked {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let paper =
        fs::read_to_string(root.join("docs/redis.md"))? + &fs::read_to_string(root.join("testing/redisson.md"))?;
    let is_word = |word: &str| word.chars().all(|c| c.is_ascii_lowercase() || "_:*".contains(c));
    let named = paper.split('`').filter_map(|code| code.rsplit_once("::"));
    let named: Vec<(&str, &str)> = named.filter(|(topic, case)| is_word(topic) && is_word(case)).collect();
    for (topic, case) in &named {
        if crate::TOPICS.iter().any(|cases| cases.iter().any(|(name, _)| *name == format!("{topic}::{case}"))) {
            continue;
        }
        // Else it is one of conformance.
        let file = root.join(format!("testing/conformance/src/cases/{}.rs", topic.replace("::", "/")));
        let cases = fs::read_to_string(&file).map_err(|_| format!("there is no {topic}::{case}"))?;
        let exists =
            |how| cases.contains(&format!("    {how} {case};")) || cases.contains(&format!("    {how} {case} needs"));
        assert!(*case == "*" || exists("async") || exists("blocking"), "there is no {topic}::{case}");
    }
    assert!(named.len() > 30, "the table is gone: {named:?}");
    Ok(())
}
