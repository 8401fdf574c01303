//! Makes a server's text fit for display: bounded, and without characters that control a terminal or reorder a line.

/// The longest owner that leasehold itself writes, with room to spare.
pub(crate) const OWNER_MAX: usize = 320;
/// The longest value of another program that is shown.
pub(crate) const VALUE_MAX: usize = 128;
/// The longest error text of a server that is shown.
pub(crate) const ERROR_MAX: usize = 256;

/// At most `max` characters of the text, with unprintable ones replaced.
pub(crate) fn legible(text: &str, max: usize) -> String {
    let mut chars = text.chars();
    let mut shown: String = chars.by_ref().take(max).map(|c| if is_plain(c) { c } else { '\u{fffd}' }).collect();
    if chars.next().is_some() {
        shown.push('…');
    }
    shown
}

/// Neither a control character nor one that changes the writing direction.
fn is_plain(c: char) -> bool {
    let turns = matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !c.is_control() && !turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_is_bounded_and_gives_no_orders() {
        assert_eq!(legible("a\u{1b}[2J\u{202e}b\r\n", 99), "a\u{fffd}[2J\u{fffd}b\u{fffd}\u{fffd}");
        assert_eq!(legible("größe", 9), "größe");
        assert_eq!(legible(&"ß".repeat(1_000), 3), "ßßß…");
    }
}
