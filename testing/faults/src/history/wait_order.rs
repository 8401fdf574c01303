//! The lines of a history, a tab between words.

use super::{Forgot, Hold, Stamp};

/// A line.
pub(super) enum Line {
    Hold(Hold),
    Forgot(Forgot),
}

pub(super) fn of_hold(hold: &Hold) -> String {
    let Hold { who, name, fence, asked, granted, .. } = hold;
    let [valid, untold, told] = [hold.valid, hold.untold, hold.told].map(Option::unwrap_or_default);
    format!("hold\t{who}\t{name}\t{fence}\t{asked}\t{granted}\t{valid}\t{untold}\t{told}")
}

pub(super) fn of_forgot(forgot: Forgot) -> String {
    let Forgot { from, to, everything } = forgot;
    format!("forgot\t{from}\t{to}\t{everything}")
}

pub(super) fn read(line: &str) -> Option<Line> {
    let words: Vec<&str> = line.split('\t').collect();
    match words.as_slice() {
        ["hold", who, name, fence, stamps @ ..] => {
            let stamps: Vec<Stamp> = stamps.iter().map(|stamp| stamp.parse()).collect::<Result<_, _>>().ok()?;
            let [asked, granted, seen @ ..] = stamps.as_slice() else { return None };
            let [valid, untold, told] = *<&[Stamp; 3]>::try_from(seen).ok()?;
            let [valid, untold, told] = [valid, untold, told].map(|stamp| (stamp > 0).then_some(stamp));
            let (who, fence, name) = (who.parse().ok()?, fence.parse().ok()?, (*name).to_owned());
            Some(Line::Hold(Hold { who, name, fence, asked: *asked, granted: *granted, valid, untold, told }))
        }
        ["forgot", from, to, everything] => {
            let everything = everything.parse().ok()?;
            Some(Line::Forgot(Forgot { from: from.parse().ok()?, to: to.parse().ok()?, everything }))
        }
        _ => None,
    }
}
