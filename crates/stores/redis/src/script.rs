//! The scripts: their text for each layout, and calls of them by digest.

use std::sync::LazyLock;

use crate::config::Layout;

/// One script, for one layout.
pub(crate) struct Script {
    pub(crate) text: String,
    pub(crate) digest: String,
}

/// All scripts of one layout.
pub(crate) struct Scripts {
    pub(crate) acquire: Script,
    pub(crate) renew: Script,
    pub(crate) release: Script,
    pub(crate) leave: Script,
    pub(crate) breaking: Script,
    pub(crate) inspect: Script,
    pub(crate) vote: Script,
    pub(crate) uphold: Script,
}

const CLOCK: &str = include_str!("scripts/clock.lua");
const RECORD: &str = include_str!("scripts/record.lua");
const COMMON: &str = include_str!("scripts/common.lua");
const DESCRIBE: &str = include_str!("scripts/describe.lua");
const RENEWING: &str = include_str!("scripts/renewing.lua");
const BIRTH: &str = include_str!("scripts/birth.lua");

static REDISSON: LazyLock<Scripts> = LazyLock::new(|| {
    Scripts::new(include_str!("scripts/first_redisson.lua"), include_str!("scripts/layout_redisson.lua"))
});
static PLAIN: LazyLock<Scripts> =
    LazyLock::new(|| Scripts::new(include_str!("scripts/first_plain.lua"), include_str!("scripts/layout_plain.lua")));

impl Scripts {
    /// Those of a layout.
    pub(crate) fn of(layout: Layout) -> &'static Self {
        match layout {
            Layout::Redisson => &REDISSON,
            Layout::Plain => &PLAIN,
        }
    }

    /// Each of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Script> {
        [&self.acquire, &self.renew, &self.release, &self.leave, &self.breaking, &self.inspect].into_iter()
    }

    /// A server makes every function of a script anew with every call: so what ends the ordinary case stands before those that it does not need.
    fn new(first: &str, layout: &str) -> Self {
        let ordinary_first = |ordinary: &str, parts: &[&str]| {
            Script::new([&[CLOCK, RECORD, first, ordinary, COMMON, layout], parts].concat().concat())
        };
        let script = |parts: &[&str]| ordinary_first("", parts);
        Self {
            acquire: ordinary_first(
                include_str!("scripts/acquire_free.lua"),
                &[DESCRIBE, include_str!("scripts/acquire.lua")],
            ),
            renew: script(&[RENEWING, include_str!("scripts/renew.lua")]),
            release: ordinary_first(include_str!("scripts/release_alone.lua"), &[include_str!("scripts/release.lua")]),
            leave: script(&[include_str!("scripts/leave.lua")]),
            breaking: script(&[DESCRIBE, include_str!("scripts/break.lua")]),
            inspect: script(&[DESCRIBE, include_str!("scripts/inspect.lua")]),
            vote: script(&[DESCRIBE, BIRTH, include_str!("scripts/vote.lua")]),
            uphold: script(&[RENEWING, BIRTH, include_str!("scripts/uphold.lua")]),
        }
    }
}

impl Script {
    fn new(text: String) -> Self {
        let digest = redis::Script::new(&text).get_hash().to_owned();
        Self { text, digest }
    }
}
