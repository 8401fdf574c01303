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
    /// Several at once, where they are ordinary.
    pub(crate) acquire_many: Script,
    pub(crate) renew: Script,
    pub(crate) release: Script,
    /// Several at once, where they are ordinary.
    pub(crate) release_many: Script,
    pub(crate) leave: Script,
    /// After some were given back together.
    pub(crate) tell: Script,
    pub(crate) breaking: Script,
    pub(crate) inspect: Script,
    /// For a look at whether the server is fit.
    pub(crate) fences: Script,
    pub(crate) vote: Script,
    pub(crate) uphold: Script,
}

const CLOCK: &str = include_str!("scripts/clock.lua");
const RECORD: &str = include_str!("scripts/record.lua");
const LINE: &str = include_str!("scripts/line.lua");
const COMMON: &str = include_str!("scripts/common.lua");
const DESCRIBE: &str = include_str!("scripts/describe.lua");
const RENEWING: &str = include_str!("scripts/renewing.lua");
const BIRTH: &str = include_str!("scripts/birth.lua");

static REDISSON: LazyLock<Scripts> = LazyLock::new(|| {
    let [first, layout] = [include_str!("scripts/first_redisson.lua"), include_str!("scripts/layout_redisson.lua")];
    Scripts::new(first, layout, include_str!("scripts/look_redisson.lua"))
});
static PLAIN: LazyLock<Scripts> = LazyLock::new(|| {
    let [first, layout] = [include_str!("scripts/first_plain.lua"), include_str!("scripts/layout_plain.lua")];
    Scripts::new(first, layout, include_str!("scripts/look_plain.lua"))
});

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
        let alone = [&self.acquire, &self.renew, &self.release, &self.leave, &self.tell, &self.breaking, &self.inspect];
        alone.into_iter().chain([&self.acquire_many, &self.release_many])
    }

    /// A server makes every function of a script anew with every call: so what ends the ordinary case stands before those that it does not need.
    fn new(first: &str, layout: &str, look: &str) -> Self {
        let script =
            |parts: &[&str]| Script::new([CLOCK, RECORD, first, LINE, COMMON, layout].concat() + &parts.concat());
        let taking = [CLOCK, RECORD, first, include_str!("scripts/acquire_free.lua")].concat();
        let giving = [CLOCK, first, include_str!("scripts/release_alone.lua")].concat();
        Self {
            acquire: Script::new(
                [
                    &taking,
                    include_str!("scripts/acquire_short.lua"),
                    LINE,
                    COMMON,
                    layout,
                    include_str!("scripts/acquire.lua"),
                    look,
                    DESCRIBE,
                    include_str!("scripts/acquire_busy.lua"),
                ]
                .concat(),
            ),
            acquire_many: Script::new([&taking, include_str!("scripts/acquire_many.lua")].concat()),
            renew: script(&[RENEWING, include_str!("scripts/renew.lua")]),
            release: Script::new(
                [
                    &giving,
                    include_str!("scripts/release_short.lua"),
                    LINE,
                    include_str!("scripts/release_line.lua"),
                    RECORD,
                    COMMON,
                    layout,
                    include_str!("scripts/release.lua"),
                ]
                .concat(),
            ),
            release_many: Script::new([&giving, include_str!("scripts/release_many.lua")].concat()),
            leave: Script::new([CLOCK, LINE, include_str!("scripts/leave.lua")].concat()),
            tell: Script::new([CLOCK, LINE, include_str!("scripts/tell.lua")].concat()),
            breaking: script(&[look, DESCRIBE, include_str!("scripts/break.lua")]),
            inspect: script(&[look, DESCRIBE, include_str!("scripts/inspect.lua")]),
            fences: Script::new([CLOCK, RECORD, COMMON, include_str!("scripts/fences.lua")].concat()),
            vote: script(&[look, DESCRIBE, BIRTH, include_str!("scripts/vote.lua")]),
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
