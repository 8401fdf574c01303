//! Names of locks: checked once, then cheap to pass around.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::error::{Error, ErrorKind};

/// The longest name, in bytes.
pub const NAME_MAX_BYTES: usize = 512;

/// Hint shown for a name that is not allowed.
const FORM: &str = "a name is 1 to 512 bytes of text without control characters";

/// The name of a lock: 1 to 512 bytes of UTF-8 without control characters. Every other character is allowed, and case counts.
#[derive(Clone, Eq, PartialOrd, Ord)]
pub struct Name(Arc<str>);

impl PartialEq for Name {
    /// Copies of one name share their text: most comparisons end at the address.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Name {
    /// Checks a name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::BadArgument`] when it is empty, longer than [`NAME_MAX_BYTES`] or holds a control character.
    pub fn new(name: impl AsRef<str>) -> Result<Self, Error> {
        let name = name.as_ref();
        match fault(name) {
            None => Ok(Self(Arc::from(name))),
            Some(fault) => Err(Error::new(ErrorKind::BadArgument, "name", fault).with_hint(FORM)),
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn fault(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("the name of a lock is empty".into());
    }
    if name.len() > NAME_MAX_BYTES {
        return Some(format!("the name of a lock is {} bytes long; at most {NAME_MAX_BYTES} are allowed", name.len()));
    }
    let at = name.char_indices().find(|(_, c)| c.is_control());
    at.map(|(at, c)| format!("the name of a lock has a control character (U+{:04X}) at byte {at}", u32::from(c)))
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// The names that one request takes together: one, or several in sorted order without duplicates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    /// A single name: the usual case, without an allocation.
    One(Name),
    /// Two or more, sorted.
    Many(Arc<[Name]>),
}

impl Names {
    /// Sorts the names and drops duplicates.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::BadArgument`] when there is none.
    pub fn new(names: impl IntoIterator<Item = Name>) -> Result<Self, Error> {
        let mut names: Vec<Name> = names.into_iter().collect();
        names.sort();
        names.dedup();
        match names.len() {
            0 => Err(Error::new(ErrorKind::BadArgument, "name", "no name was given; give at least one")),
            1 => Ok(Self::One(names.swap_remove(0))),
            _ => Ok(Self::Many(names.into())),
        }
    }

    /// All names, in order.
    pub fn as_slice(&self) -> &[Name] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Many(names) => names,
        }
    }

    /// The first name in order.
    pub fn first(&self) -> &Name {
        &self.as_slice()[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_name_is_taken_as_it_is() {
        for name in ["a", "A", "ümläut", "a/b", "{tag}", "a,b", "a b", "🔒", &"x".repeat(512)] {
            assert_eq!(Name::new(name).unwrap().as_str(), name);
        }
        assert_ne!(Name::new("a").unwrap(), Name::new("A").unwrap());
    }

    #[test]
    fn bad_names_are_refused_with_their_own_reason() {
        for (name, reason) in [("", "empty"), ("a\nb", "U+000A"), ("\u{7f}", "U+007F"), (&"x".repeat(513), "513 bytes")]
        {
            let error = Name::new(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadArgument);
            assert!(error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    fn several_names_are_sorted_and_taken_once() {
        let names = ["b", "a", "b"].map(|n| Name::new(n).unwrap());
        let names = Names::new(names).unwrap();
        assert_eq!(names.as_slice().iter().map(Name::as_str).collect::<Vec<_>>(), ["a", "b"]);
        assert!(Names::new([]).is_err());
    }

    #[test]
    fn names_are_found_by_their_text() {
        use std::collections::HashMap;
        let (one, copy) = (Name::new("a").unwrap(), Name::new("a").unwrap());
        assert_eq!(one, copy, "their texts are two");
        let known = HashMap::from([(one.clone(), 1), (Name::new("b").unwrap(), 2)]);
        assert_eq!((known.get("a"), known.get(&copy), known.get("c")), (Some(&1), Some(&1), None));
        assert_eq!((one.to_string(), format!("{one:?}")), ("a".into(), "\"a\"".into()));
        let many = Names::new([copy, one.clone()]).unwrap();
        assert_eq!(many, Names::One(one));
        assert_eq!(Names::new(["b", "a"].map(|n| Name::new(n).unwrap())).unwrap().first().as_str(), "a");
    }
}
