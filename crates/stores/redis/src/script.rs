//! The Lua scripts: one file per operation, with shared parts from `scripts/lib`.
//!
//! An operation's file reads from top to bottom. A line `--@include lib/waitlist.lua` stands for the text of that part;
//! `{layout}` in it is `redisson` or `plain`. The place of an include matters: a server creates every function of a
//! script with every call, so the parts that a short path does not need stand after its `return`.

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
    /// A batch of ordinary acquires.
    pub(crate) acquire_many: Script,
    pub(crate) renew: Script,
    pub(crate) release: Script,
    /// A batch of ordinary releases.
    pub(crate) release_many: Script,
    pub(crate) leave: Script,
    /// Wakes waiters after a batch of releases.
    pub(crate) notify: Script,
    pub(crate) break_lock: Script,
    pub(crate) inspect: Script,
    /// Looks for unfit fences, for `doctor`.
    pub(crate) fences: Script,
    pub(crate) vote: Script,
    pub(crate) renew_vote: Script,
}

/// Pairs of a file's path below `scripts` and its text.
macro_rules! files {
    ($($path:literal),* $(,)?) => { &[$(($path, include_str!(concat!("scripts/", $path)))),*] };
}

const OPERATIONS: &[(&str, &str)] = files![
    "acquire.lua",
    "acquire_many.lua",
    "break.lua",
    "fences.lua",
    "inspect.lua",
    "leave.lua",
    "notify.lua",
    "release.lua",
    "release_many.lua",
    "renew.lua",
    "renew_vote.lua",
    "vote.lua",
];

const PARTS: &[(&str, &str)] = files![
    "lib/fence_text.lua",
    "lib/free_grant.lua",
    "lib/holders.lua",
    "lib/lease_renewal.lua",
    "lib/ordinary_release.lua",
    "lib/plain/inspection.lua",
    "lib/plain/lock.lua",
    "lib/plain/ownership.lua",
    "lib/prelude.lua",
    "lib/records.lua",
    "lib/redisson/inspection.lua",
    "lib/redisson/lock.lua",
    "lib/redisson/ownership.lua",
    "lib/server_epoch.lua",
    "lib/waitlist.lua",
];

const INCLUDE: &str = "--@include ";

static REDISSON: LazyLock<Scripts> = LazyLock::new(|| Scripts::new(Layout::Redisson));
static PLAIN: LazyLock<Scripts> = LazyLock::new(|| Scripts::new(Layout::Plain));

/// The whole text of every script of a layout, by the name of its operation: for people who want to read it, and for
/// tests.
#[doc(hidden)]
pub fn script_texts(layout: Layout) -> impl Iterator<Item = (&'static str, String)> {
    OPERATIONS.iter().map(move |(path, text)| (path.trim_end_matches(".lua"), assembled(text, layout)))
}

impl Scripts {
    pub(crate) fn of(layout: Layout) -> &'static Self {
        match layout {
            Layout::Redisson => &REDISSON,
            Layout::Plain => &PLAIN,
        }
    }

    /// The scripts that a lock on a single server needs.
    pub(crate) fn of_locks(&self) -> impl Iterator<Item = &Script> {
        [
            &self.acquire,
            &self.renew,
            &self.release,
            &self.leave,
            &self.notify,
            &self.break_lock,
            &self.inspect,
            &self.acquire_many,
            &self.release_many,
        ]
        .into_iter()
    }

    fn new(layout: Layout) -> Self {
        let script = |path| Script::new(assembled(text_of(OPERATIONS, path).unwrap_or_default(), layout));
        Self {
            acquire: script("acquire.lua"),
            acquire_many: script("acquire_many.lua"),
            renew: script("renew.lua"),
            release: script("release.lua"),
            release_many: script("release_many.lua"),
            leave: script("leave.lua"),
            notify: script("notify.lua"),
            break_lock: script("break.lua"),
            inspect: script("inspect.lua"),
            fences: script("fences.lua"),
            vote: script("vote.lua"),
            renew_vote: script("renew_vote.lua"),
        }
    }
}

impl Script {
    fn new(text: String) -> Self {
        let digest = redis::Script::new(&text).get_hash().to_owned();
        Self { text, digest }
    }
}

/// Puts the parts in the place of the includes. The name of a part that does not exist stays; a test finds it.
fn assembled(operation: &str, layout: Layout) -> String {
    let folder = match layout {
        Layout::Redisson => "redisson",
        Layout::Plain => "plain",
    };
    let part = |line: &str| text_of(PARTS, &line.strip_prefix(INCLUDE)?.trim_end().replace("{layout}", folder));
    operation.split_inclusive('\n').map(|line| part(line).unwrap_or(line)).collect()
}

fn text_of(files: &[(&str, &'static str)], path: &str) -> Option<&'static str> {
    files.iter().find(|(known, _)| *known == path).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const LAYOUTS: [Layout; 2] = [Layout::Redisson, Layout::Plain];

    #[test]
    fn every_include_names_a_part_and_every_part_is_included() {
        let mut unused: Vec<_> = PARTS.iter().map(|(path, _)| *path).collect();
        for layout in LAYOUTS {
            for (operation, text) in script_texts(layout) {
                assert!(!text.contains("--@"), "{operation} has an include that names no part");
                unused.retain(|path| text_of(PARTS, path).is_some_and(|part| !text.contains(part)));
            }
        }
        assert!(unused.is_empty(), "no script includes {unused:?}");
        assert!(PARTS.iter().all(|(_, text)| !text.contains("--@")), "a part includes no other part");
    }

    #[test]
    fn every_file_is_listed() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/scripts");
        let (mut folders, mut found) = (vec![root.clone()], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => found.push(path.strip_prefix(&root).expect("a path below").display().to_string()),
                }
            }
        }
        let mut listed: Vec<_> = OPERATIONS.iter().chain(PARTS).map(|(path, _)| (*path).to_owned()).collect();
        found.sort();
        listed.sort();
        assert_eq!(found, listed);
    }

    #[test]
    fn every_operation_has_its_script() {
        for layout in LAYOUTS {
            let scripts = Scripts::of(layout);
            let others = [&scripts.fences, &scripts.vote, &scripts.renew_vote];
            let mut used: Vec<_> = scripts.of_locks().chain(others).map(|script| script.text.clone()).collect();
            let mut texts: Vec<_> = script_texts(layout).map(|(_, text)| text).collect();
            used.sort();
            texts.sort();
            assert_eq!(used, texts);
        }
    }
}
