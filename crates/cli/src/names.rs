//! Names on the command line: separated by commas, `\,` for a literal one.

use leasehold::{Error, ErrorKind, GroupGuard, Name};

use crate::output;

/// Hint for an empty name between two commas.
const SEVERAL: &str = "separate names with one comma; write a comma in a name as '\\,'";

/// Splits the names, checks them, sorts them, and drops duplicates.
pub(crate) fn parse(text: &str) -> Result<Vec<Name>, Error> {
    let parts = split(text);
    let several = parts.len() > 1 && parts.iter().any(String::is_empty);
    let hint = |error: Error| if several { error.with_hint(SEVERAL) } else { error };
    let mut names = parts.into_iter().map(Name::new).collect::<Result<Vec<_>, _>>().map_err(hint)?;
    names.sort();
    names.dedup();
    Ok(names)
}

/// The names that a user gave. A space at the end of one is most likely a mistake.
pub(crate) fn given(text: &str) -> Result<Vec<Name>, Error> {
    let names = parse(text)?;
    for name in names.iter().map(Name::as_str).filter(|name| name.trim() != *name) {
        output::note(&format!(
            "the name {name:?} begins or ends with a space, which is part of the name; separate names with a comma only"
        ));
    }
    Ok(names)
}

/// Joins names so that [`parse`] reads them. A name that ends with a backslash comes last, where no comma follows; that
/// is the only place where it can be given.
pub(crate) fn join(names: &[Name]) -> String {
    let mut escaped: Vec<String> = names.iter().map(|name| name.as_str().replace(',', "\\,")).collect();
    escaped.sort_by_key(|name| name.ends_with('\\'));
    escaped.join(",")
}

/// Names for people, each in quotes.
pub(crate) fn quoted(names: &[Name]) -> String {
    names.iter().map(|name| format!("{:?}", name.as_str())).collect::<Vec<_>>().join(", ")
}

/// The names that a guard lost; all if none is known to be lost, because they are given up together.
pub(crate) fn lost(guard: &GroupGuard) -> Vec<Name> {
    let lost: Vec<Name> = guard.lost_names().cloned().collect();
    if lost.is_empty() { guard.fences().map(|(name, _)| name.clone()).collect() } else { lost }
}

/// The names that were found to be lost as they were released.
pub(crate) fn lost_by(error: &Error) -> Vec<Name> {
    let each = if error.failures().is_empty() { std::slice::from_ref(error) } else { error.failures() };
    let lost = each.iter().filter(|failure| failure.kind() == ErrorKind::Lost);
    lost.filter_map(|failure| Name::new(failure.lock()?).ok()).collect()
}

/// A backslash that is not before a comma is a backslash.
pub(crate) fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let last = parts.len() - 1;
        match c {
            '\\' if chars.next_if_eq(&',').is_some() => parts[last].push(','),
            ',' => parts.push(String::new()),
            c => parts[last].push(c),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        parse(text).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn several_are_sorted_and_taken_once() {
        assert_eq!(names("b,a,b"), ["a", "b"]);
        assert_eq!(names("one"), ["one"]);
    }

    #[test]
    fn an_escaped_comma_belongs_to_the_name() {
        assert_eq!(names(r"a\,b,c\d"), ["a,b", r"c\d"]);
        assert_eq!(join(&parse(r"c,a\,b").unwrap()), r"a\,b,c");
        assert_eq!(join(&parse(r"c,b,a\").unwrap()), r"b,c,a\");
    }

    #[test]
    fn an_empty_part_is_an_empty_name() {
        for text in ["", "a,", ",a", "a,,b"] {
            assert!(parse(text).unwrap_err().to_string().contains("empty"), "{text}");
        }
    }
}
