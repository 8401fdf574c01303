//! Durations and holders in words, and text from outside made safe to print.

use std::time::{Duration, SystemTime};

use leasehold::Holder;

use crate::settings;

/// A duration as people write it, rounded.
pub(crate) fn span(span: Duration) -> String {
    let rounded = match span.as_millis() {
        0..1_000 => Duration::from_millis(u64::from(span.subsec_millis())),
        _ => Duration::from_secs(span.as_secs()),
    };
    humantime::format_duration(rounded).to_string()
}

/// A holder: `"nightly" on host7 (process 4711)`, or `process 4711 on host7` without a name. The process of an
/// `acquire` has ended: `owner 714c12ab… (acquired by process 4711 on host7)`.
pub(crate) fn holder(holder: &Holder) -> String {
    let host = holder.host.as_ref().map(|host| format!(" on {}", plain(host))).unwrap_or_default();
    let process = |pid| format!("process {pid}{host}");
    let owner = holder.owner.as_deref();
    match (name_of(holder), holder.pid, owner.filter(|owner| settings::is_of_acquire(owner))) {
        (Some(name), Some(pid), _) => format!("{name:?}{host} (process {pid})"),
        (Some(name), None, _) => format!("{name:?}{host}"),
        (None, Some(pid), Some(owner)) => format!("owner {} (acquired by {})", short(owner), process(pid)),
        (None, Some(pid), None) => process(pid),
        (None, None, _) => format!("{}{host}", plain(owner.unwrap_or("an unknown owner"))),
    }
}

/// The first digits of a random owner: `714c12ab…`.
pub(crate) fn short(owner: &str) -> String {
    format!("{}…", owner.chars().take(8).collect::<String>())
}

/// The holder's name: its label, or an owner that is not random digits.
pub(crate) fn name_of(holder: &Holder) -> Option<&str> {
    let random = |owner: &str| owner.len() >= 32 && owner.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':');
    let chosen = |owner: &&str| !random(owner) && !settings::is_of_run(owner);
    holder.label.as_deref().or_else(|| holder.owner.as_deref().filter(chosen))
}

/// Why a lock is not free: `held by "nightly" on host7 (process 4711), for 2m 5s`, or that it was broken and its lease
/// continues, or that it lingers after its last holder.
pub(crate) fn taken(by: &Holder) -> String {
    match (by.is_cooldown(), by.owner.is_some()) {
        (false, _) if by.is_broken() => format!("broken, and free when the lease of {} ends", holder(by)),
        (false, _) => format!("held by {}", held(by)),
        (true, true) => format!("lingering (--at-least) after {}", holder(by)),
        (true, false) => "lingering (--at-least) without a holder".to_owned(),
    }
}

/// The holder, and for how long: `"nightly" on host7 (process 4711), for 2m 5s`.
pub(crate) fn held(by: &Holder) -> String {
    match held_for(by) {
        Some(long) => format!("{}, for {}", holder(by), span(long)),
        None => holder(by),
    }
}

/// The same while waiting: `held for 2m 5s by "nightly" on host7 (process 4711)`.
pub(crate) fn taken_for(by: &Holder) -> String {
    match held_for(by).filter(|_| !by.is_broken()) {
        Some(long) => format!("held for {} by {}", span(long), holder(by)),
        None => taken(by),
    }
}

/// How long it has been held, by this machine's wall clock. Unknown after a release.
pub(crate) fn held_for(holder: &Holder) -> Option<Duration> {
    if holder.is_cooldown() {
        return None;
    }
    SystemTime::now().duration_since(holder.since?).ok()
}

/// Text from outside (a server, a file, the name of a process), which may be hostile, as one line that is safe to
/// print: [unsafe](is_unsafe) characters become `\u{1b}` and the like.
pub(crate) fn plain(text: &str) -> String {
    escape(text, is_unsafe)
}

/// The same for text of several lines, which keeps its line ends. Text from outside is made [`plain`] before it is
/// inserted.
pub(crate) fn plain_lines(text: &str) -> String {
    escape(text, |c| c != '\n' && is_unsafe(c))
}

fn escape(text: &str, is_escaped: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_escaped(c) { shown.extend(c.escape_unicode()) } else { shown.push(c) }
    }
    shown
}

/// Whether a character controls a terminal or disguises text: control characters (C0, DEL and C1), line and paragraph
/// separators, marks of text direction, and characters without a width.
pub(crate) fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' // soft hyphen, Arabic letter mark, Mongolian vowel separator
            | '\u{200b}'..='\u{200f}' // zero width, marks of direction
            | '\u{2028}'..='\u{202e}' // ends of lines and paragraphs, embeddings and overrides
            | '\u{2060}'..='\u{206f}' // joiners, invisible operators, isolates
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' // byte order mark, annotations
            | '\u{e0000}'..='\u{e007f}' // tags
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_as_fine_as_people_care_for() {
        for (given, said) in [(250, "250ms"), (0, "0s"), (1_999, "1s"), (125_400, "2m 5s"), (86_400_000, "1day")] {
            assert_eq!(span(Duration::from_millis(given)), said);
        }
    }

    #[test]
    fn a_terminal_is_not_given_orders() {
        assert_eq!(plain("a\u{1b}[2Jb\u{9b}2J\r\n"), r"a\u{1b}[2Jb\u{9b}2J\u{d}\u{a}");
        assert_eq!(plain_lines("a\u{7}\nb"), "a\\u{7}\nb");
    }

    #[test]
    fn text_cannot_pass_for_other_text() {
        let marks = "\u{61c}\u{200b}\u{200d}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}";
        let more = "\u{2060}\u{2066}\u{2067}\u{2068}\u{2069}\u{feff}\u{fffb}\u{e0041}\u{ad}";
        for c in marks.chars().chain(more.chars()) {
            assert_eq!(plain(&c.to_string()), format!("\\u{{{:x}}}", u32::from(c)));
        }
        let words = "Zoë, 東京, שלום, 🔒 \\ it's <b>%s</b>";
        assert_eq!(plain(words), words);
    }
}
