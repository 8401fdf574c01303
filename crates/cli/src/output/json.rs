//! JSON that is safe to print: values are exact, and characters that control a terminal are written as JSON escapes.

use std::io;

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

use crate::exit::{Exit, Failure};
use crate::human;

/// One JSON object on a line.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let bytes = json_bytes(value).map_err(|error| Failure::new(Exit::BUG, error.to_string()))?;
    super::styled(&String::from_utf8_lossy(&bytes))
}

/// A value as JSON on one line. A JSON reader gets every character unchanged; those that control a terminal are
/// escaped.
pub(crate) fn json_bytes(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut bytes, Escaped))?;
    Ok(bytes)
}

/// Compact JSON. Serde escapes C0 itself; this also escapes DEL, C1, direction marks, and characters without a width.
struct Escaped;

impl Formatter for Escaped {
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, found)) = rest.char_indices().find(|(_, c)| human::is_unsafe(*c)) {
            writer.write_all(&rest.as_bytes()[..at])?;
            for unit in found.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = &rest[at + found.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &impl Serialize) -> String {
        String::from_utf8(json_bytes(value).unwrap()).unwrap()
    }

    #[test]
    fn values_are_exact_and_no_terminal_acts_on_them() {
        let hostile = "a\u{1b}[2J\u{9b}2J\u{7f}\n\"\\\u{202e}\u{2066}\u{200b}\u{e0041}\u{feff} Zoë 🔒";
        let json = text(&[hostile]);
        assert!(!json.chars().any(human::is_unsafe), "{json:?}");
        assert!(json.contains(r"\u202e") && json.contains(r"\udb40\udc41") && json.contains("Zoë 🔒"), "{json}");
        let read: Vec<String> = serde_json::from_str(&json).unwrap();
        assert_eq!(read, [hostile]);
    }

    #[test]
    fn ordinary_values_look_as_they_did() {
        let value = serde_json::json!({"name": "a b", "fence": 3, "label": null, "tab": "\t"});
        assert_eq!(text(&value), serde_json::to_string(&value).unwrap());
    }
}
