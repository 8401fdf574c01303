//! Every case with every library, as trials of libtest-mimic; what is missing shows as *ignored: reason*.

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::Failure;
use crate::cases::{CASES, Case};
use crate::encounter::Meeting;
use crate::peer::{PEERS, Peer};
use crate::table::Found;

/// Toolchains without which it fails, with commas between them.
const REQUIRE: &str = "LEASEHOLD_REQUIRE";
/// A library that takes leasehold's place: shows that the drivers themselves are right.
const AGAINST: &str = "LEASEHOLD_INTEROP_AGAINST";
/// Meet a leasehold that shares nothing with them; such that start quickly and can do all that cases ask for, over one server and over three.
const PLANTED: [&str; 2] = ["redis-semaphore", "node-redlock-three"];
/// Cases that mostly wait, side by side.
const TOGETHER: usize = 8;

/// Runs all that the arguments ask for, and prints the table.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let found = Arc::new(Found::default());
    let mut arguments = arguments.clone();
    arguments.test_threads = Some(1);
    let alone = libtest_mimic::run(&arguments, trials(&found, true));
    arguments.test_threads = Some(TOGETHER);
    let together = libtest_mimic::run(&arguments, trials(&found, false));
    if !arguments.list {
        found.print();
    }
    if alone.has_failed() { alone.exit_code() } else { together.exit_code() }
}

fn trials(found: &Arc<Found>, alone: bool) -> Vec<Trial> {
    let all = CASES.iter().flat_map(|case| PEERS.iter().map(move |peer| (case, peer)));
    let these = all.filter(|(case, peer)| (case.alone)(peer) == alone);
    let mut trials: Vec<Trial> = these.map(|(case, peer)| trial(found.clone(), *case, *peer)).collect();
    if !alone {
        let both = PLANTED.iter().flat_map(|name| CASES.iter().map(move |case| (name, case)));
        trials.extend(both.filter_map(|(name, case)| planted(name, *case)));
    }
    trials
}

fn trial(found: Arc<Found>, case: Case, peer: Peer) -> Trial {
    let name = format!("{}::{}", peer.name, case.name.replace(' ', "_"));
    let against = against(peer);
    let missing = against.needs.missing().map(|_| against.needs.word);
    let missing = missing.or_else(|| peer.needs.missing().map(|_| peer.needs.word));
    if let Some(word) = missing {
        found.cell(peer.name, case.name, format!("ignored: no {word}"));
        let (name, failed) = (format!("{name} [ignored: no {word}]"), format!("{name} [no {word}]"));
        let trial = |name| Trial::test(name, move || Err(format!("{REQUIRE} names {word}").into()));
        return if required(word) { trial(failed) } else { trial(name).with_ignored_flag(true) };
    }
    if let Some(reason) = (case.lacks)(&peer).or_else(|| (case.lacks)(&against)) {
        return Trial::test(format!("{name} [ignored: {reason}]"), move || Err(reason.into())).with_ignored_flag(true);
    }
    Trial::test(name, move || {
        let result = tried(&found, case, against, peer);
        let cell = result.as_ref().map_or_else(|error| format!("FAILED: {error}"), Clone::clone);
        found.cell(peer.name, case.name, cell);
        result.map(drop).map_err(|error| Failed::from(error.to_string()))
    })
}

/// Where leasehold has a lock of its own instead of the one that is shared, the case must object.
fn planted(name: &str, case: Case) -> Option<Trial> {
    let (peer, objects) = (Peer::named(name)?, case.objects?);
    let mut ours = Peer::leasehold(&peer);
    ours.behind = "-planted";
    if ours.needs.missing().or_else(|| peer.needs.missing()).is_some() {
        return None;
    }
    let name = format!("planted::{name}::{}", case.name.replace(' ', "_"));
    Some(Trial::test(name, move || match Meeting::of(ours, peer).and_then(|mut meeting| (case.run)(&mut meeting)) {
        Err(error) if error.to_string().contains(objects) => Ok(()),
        Err(error) => Err(format!("something else went wrong: {error}").into()),
        Ok(cell) => Err(format!("it finds nothing wrong: {cell}").into()),
    }))
}

fn tried(found: &Found, case: Case, against: Peer, peer: Peer) -> Result<String, Failure> {
    let mut meeting = Meeting::of(against, peer)?;
    let title = &meeting.theirs.title;
    found.title(
        peer.name,
        &if peer.servers == 1 { title.clone() } else { format!("{title}, {} servers", peer.servers) },
    );
    let cell = (case.run)(&mut meeting)?;
    meeting.servers.nothing_lasts()?;
    Ok(cell)
}

/// leasehold in the layout and over as many servers as the other library, or its stand-in.
fn against(peer: Peer) -> Peer {
    let named = std::env::var(AGAINST).ok();
    let fits = |one: &Peer| one.layout == peer.layout && one.servers == peer.servers;
    let named = named.and_then(|names| names.split(',').filter_map(Peer::named).find(fits));
    named.unwrap_or_else(|| Peer::leasehold(&peer))
}

fn required(word: &str) -> bool {
    std::env::var(REQUIRE).is_ok_and(|words| words.split(',').any(|one| one.trim() == word))
}
