//! Owners: who takes a lock, as the user sees it and as the store keeps it.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, ErrorKind};

/// The longest explicit owner, in bytes.
pub const OWNER_MAX_BYTES: usize = 256;

/// One client of a store: 128 random bits, drawn when it connects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub [u64; 2]);

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.0[0], self.0[1])
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Who takes a lock. Re-entrance goes by it: an owner that holds a lock can take it again.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Owner(Kind);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Kind {
    Generated([u64; 2]),
    Explicit(Arc<str>),
}

impl Owner {
    /// An owner made of 128 random bits, fresh for one acquire. It re-enters only in the client that made it.
    pub fn generated(bits: [u64; 2]) -> Self {
        Self(Kind::Generated(bits))
    }

    /// An owner with an id of the user's. Every process that gives the same id re-enters.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::BadArgument`] when it is empty, longer than [`OWNER_MAX_BYTES`] or holds a control character.
    pub fn explicit(id: impl AsRef<str>) -> Result<Self, Error> {
        let id = id.as_ref();
        let fault = if id.is_empty() {
            "the owner is empty"
        } else if id.len() > OWNER_MAX_BYTES {
            "the owner is longer than 256 bytes"
        } else if id.chars().any(char::is_control) {
            "the owner has a control character"
        } else {
            return Ok(Self(Kind::Explicit(Arc::from(id))));
        };
        let form = "an owner is 1 to 256 bytes of text without control characters";
        Err(Error::new(ErrorKind::BadArgument, "owner", fault).with_hint(form))
    }

    /// The user's id, where the owner is explicit.
    pub fn as_explicit(&self) -> Option<&Arc<str>> {
        match &self.0 {
            Kind::Explicit(id) => Some(id),
            Kind::Generated(_) => None,
        }
    }

    /// The owner as the store keeps it, for what this request takes.
    pub fn in_store(&self, request: RequestId) -> StoreOwner {
        match &self.0 {
            Kind::Explicit(id) => StoreOwner::Shared(id.clone()),
            Kind::Generated(_) => StoreOwner::Private(request),
        }
    }

    /// Whether it was made of random bits.
    pub fn is_generated(&self) -> bool {
        matches!(self.0, Kind::Generated(_))
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Generated([a, b]) => write!(f, "{a:016x}{b:016x}"),
            Kind::Explicit(id) => f.write_str(id),
        }
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({self})")
    }
}

/// One request of one client. Re-sending it under the same id never grants or counts twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId {
    /// The client that asks.
    pub client: ClientId,
    /// Sequence number, unique per client.
    pub number: u64,
}

/// An owner as the store keeps it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreOwner {
    /// One asking of one client: present in the store means granted to that asking. It is never counted above one.
    Private(RequestId),
    /// An id that several clients may share; the store counts its holds, each by the request that took it.
    Shared(Arc<str>),
}

impl StoreOwner {
    /// Whether several clients may be this owner: then one client's hold can outlast what that client knows of the lease.
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }
}

impl fmt::Display for StoreOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Private(id) => write!(f, "{}:{}", id.client, id.number),
            Self::Shared(id) => f.write_str(id),
        }
    }
}

impl fmt::Debug for StoreOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_owner_never_equals_an_explicit_one() {
        let generated = Owner::generated([1, 2]);
        let same_text = Owner::explicit(generated.to_string()).unwrap();
        assert_eq!(generated.to_string(), same_text.to_string());
        assert_ne!(generated, same_text);
    }

    #[test]
    fn bad_owners_are_refused() {
        for id in ["", "a\tb", &"x".repeat(257)] {
            assert_eq!(Owner::explicit(id).unwrap_err().kind(), ErrorKind::BadArgument);
        }
    }

    #[test]
    fn owners_are_told_as_they_were_given() {
        let longest = "x".repeat(OWNER_MAX_BYTES);
        let explicit = Owner::explicit(&longest).unwrap();
        assert_eq!((explicit.as_explicit().map(|id| &**id), explicit.is_generated()), (Some(&*longest), false));
        let generated = Owner::generated([1, 2]);
        assert_eq!((generated.as_explicit(), generated.is_generated()), (None, true));
        assert_eq!(format!("{generated:?}"), "Owner(00000000000000010000000000000002)");
    }

    #[test]
    fn only_an_owner_with_an_id_is_shared() {
        let client = ClientId([0xa, 0xb]);
        let private = StoreOwner::Private(RequestId { client, number: 7 });
        assert_eq!((private.is_shared(), private.to_string()), (false, format!("{client}:7")));
        let shared = StoreOwner::Shared("a".into());
        assert_eq!((shared.is_shared(), format!("{shared:?}")), (true, "a".into()));
        assert_eq!(format!("{client:?}"), "000000000000000a000000000000000b");
    }
}
