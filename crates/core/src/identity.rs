//! Which server a store is, independent of its URL: so that two URLs of one server are recognised.

use std::fmt;
use std::sync::Arc;

/// Which server a store is.
///
/// Two stores with the same identity are one: a lock of one is the lock of that name of the other. Their URLs decide nothing: a server
/// has many names, and a file many paths.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    kind: &'static str,
    id: Option<Arc<str>>,
}

impl Identity {
    /// The store of this kind that has this id of its own: one that no other store of the kind has.
    pub fn new(kind: &'static str, id: impl Into<Arc<str>>) -> Self {
        Self { kind, id: Some(id.into()) }
    }

    /// Some store of this kind; which one, it does not say.
    pub fn unknown(kind: &'static str) -> Self {
        Self { kind, id: None }
    }

    /// Whether it says which one it is.
    pub fn is_known(&self) -> bool {
        self.id.is_some()
    }

    /// Whether it is the same store; none where that cannot be known.
    pub fn is_same(&self, other: &Self) -> Option<bool> {
        if self.kind != other.kind {
            return Some(false);
        }
        Some(self.id.as_ref()? == other.id.as_ref()?)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.id.as_deref().unwrap_or("?"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_id_decides_within_a_kind() {
        let (a, b) = (Identity::new("file", "1:2"), Identity::new("file", "1:3"));
        assert_eq!(a.is_same(&Identity::new("file", "1:2")), Some(true));
        assert_eq!(a.is_same(&b), Some(false));
        assert_eq!(a.is_same(&Identity::new("redis", "1:2")), Some(false));
        assert_eq!(a.is_same(&Identity::unknown("redis")), Some(false));
        assert_eq!(a.is_same(&Identity::unknown("file")), None);
    }

    #[test]
    fn one_without_an_id_is_not_known() {
        assert!(Identity::new("file", "1:2").is_known());
        assert!(!Identity::unknown("file").is_known());
        assert_eq!(format!("{:?} {:?}", Identity::new("file", "1"), Identity::unknown("redis")), "file:1 redis:?");
    }
}
