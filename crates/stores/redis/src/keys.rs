//! From names to keys. The lock itself is at the name; its other keys are in the same hash slot. With a prefix, all of
//! them and every channel begin with it, so a user with rights to that prefix alone can keep locks there.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use leasehold_core::{ClientId, Name, RequestId, StoreOwner};

/// The prefix of all keys and channels; it may be empty.
#[derive(Clone, Debug)]
pub(crate) struct Space(pub(crate) Arc<str>);

/// The keys of one name.
pub(crate) struct Keys<'a> {
    prefix: &'a str,
    lock: Cow<'a, str>,
}

impl Space {
    pub(crate) fn keys<'a>(&'a self, name: &'a Name) -> Keys<'a> {
        let lock = match &*self.0 {
            "" => Cow::Borrowed(name.as_str()),
            prefix => Cow::Owned(format!("{prefix}{name}")),
        };
        Keys { prefix: &self.0, lock }
    }

    /// The name of the lock at a key.
    pub(crate) fn name_of_lock(&self, key: &str) -> Option<Name> {
        Name::new(key.strip_prefix(&*self.0)?).ok()
    }

    /// The name that a fence's key belongs to.
    pub(crate) fn name_of_fence(&self, key: &str) -> Option<Name> {
        let rest = key.strip_prefix(&*self.0)?.strip_prefix(FENCE)?.strip_prefix(':')?;
        self.name_of_lock(rest.strip_prefix(':').or_else(|| rest.strip_prefix('{')?.strip_suffix('}'))?)
    }

    /// A pattern for the keys of fences of names that begin like this, in either form.
    pub(crate) fn fence_pattern(&self, beginning: &str) -> String {
        let (prefix, beginning) = (escaped(&self.0), escaped(beginning));
        format!("{prefix}{FENCE}:[{{:]{prefix}{beginning}*")
    }

    /// A pattern for the keys of locks whose names begin like this.
    pub(crate) fn pattern(&self, beginning: &str) -> String {
        format!("{}{}*", escaped(&self.0), escaped(beginning))
    }

    /// The channel on which a client is notified that a lock may be free. The scripts derive it from the key of a
    /// waitlist.
    pub(crate) fn hint_channel(&self, client: &str) -> String {
        format!("{}{HINT}{client}", self.0)
    }

    /// The record of the server's epoch: since when it has forgotten nothing.
    pub(crate) fn server_epoch(&self) -> String {
        format!("{}{EPOCH}", self.0)
    }

    /// The client of a hint channel.
    pub(crate) fn client_of_hint(&self, channel: &str) -> Option<ClientId> {
        client_of(channel.strip_prefix(&*self.0)?.strip_prefix(HINT)?)
    }
}

impl Keys<'_> {
    pub(crate) fn lock(&self) -> &str {
        &self.lock
    }

    /// The last fence.
    pub(crate) fn fence(&self) -> String {
        self.beside(FENCE)
    }

    /// The record of a shared owner.
    pub(crate) fn record(&self) -> String {
        self.beside(RECORD)
    }

    /// Waiting clients, by arrival.
    pub(crate) fn waitlist(&self) -> String {
        self.beside("leasehold_line")
    }

    /// Waiting clients, by the time until which they are assumed to wait.
    pub(crate) fn waiter_expiries(&self) -> String {
        self.beside("leasehold_heard")
    }

    /// The counter of Redisson's fenced lock.
    pub(crate) fn token(&self) -> String {
        self.redissons("redisson_lock_token")
    }

    /// The channel on which Redisson announces a release.
    pub(crate) fn channel(&self) -> String {
        self.redissons(CHANNEL)
    }

    /// Our own keys differ for `a` and `{a}`, although both have the hash tag `a`.
    fn beside(&self, what: &str) -> String {
        let (prefix, lock) = (self.prefix, &*self.lock);
        if lock.contains('{') { [prefix, what, "::", lock].concat() } else { [prefix, what, ":{", lock, "}"].concat() }
    }

    /// Redisson's rule. With a prefix it is ours alone: Redisson puts its own word first.
    fn redissons(&self, what: &str) -> String {
        let (prefix, lock) = (self.prefix, &*self.lock);
        if lock.contains('{') { [prefix, what, ":", lock].concat() } else { [prefix, what, ":{", lock, "}"].concat() }
    }
}

const FENCE: &str = "leasehold_fence";
/// A key that begins like this belongs to a lock and is not the name of one.
const RESERVED: [&str; 5] =
    ["leasehold_fence:", "leasehold_lock:", "leasehold_line:", "leasehold_heard:", "redisson_lock_token:"];
const EPOCH: &str = "leasehold_birth";
const RECORD: &str = "leasehold_lock";
const CHANNEL: &str = "redisson_lock__channel";
const HINT: &str = "leasehold_hint:";

/// Whether a lock of this name would collide with a key of another lock.
pub(crate) fn is_reserved(name: &Name) -> bool {
    name.as_str() == EPOCH || RESERVED.iter().any(|prefix| name.as_str().starts_with(prefix))
}

/// Whether keys behind this prefix could be taken for others of ours.
pub(crate) fn is_reserved_prefix(prefix: &str) -> bool {
    prefix.contains("leasehold_") || prefix.starts_with("redisson_lock_")
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

fn client_of(hex: &str) -> Option<ClientId> {
    let half = |from: usize| u64::from_str_radix(hex.get(from..from + 16)?, 16).ok();
    Some(ClientId([half(0)?, half(16)?]))
}

/// An id of one request: a UUID for its client, and its number, as Redisson has a UUID and a thread.
pub(crate) fn request(id: RequestId) -> String {
    request_behind("", id)
}

/// Written digit by digit: it goes with every call, and a format takes as long as the rest of the call's text.
fn request_behind(before: &str, id: RequestId) -> String {
    let mut text = String::with_capacity(before.len() + UUID + 1 + 20);
    text.push_str(before);
    for (place, digit) in client(id.client).into_iter().enumerate() {
        if matches!(place, 8 | 12 | 16 | 20) {
            text.push('-');
        }
        text.push(char::from(digit));
    }
    text.push(':');
    // To write into a string cannot fail.
    let _ = write!(text, "{}", id.number);
    text
}

/// A client's id, as in a waitlist.
pub(crate) fn client(id: ClientId) -> [u8; 32] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    std::array::from_fn(|place| DIGITS[(id.0[place / 16] >> (60 - 4 * (place % 16))) as usize & 0xf])
}

/// The length of a UUID as text.
const UUID: usize = 36;

/// The request that such an id belongs to.
pub(crate) fn request_of(text: &str) -> Option<RequestId> {
    let (uuid, number) = text.split_once(':')?;
    if uuid.len() != UUID || !uuid.is_ascii() {
        return None;
    }
    Some(RequestId { client: client_of(&uuid.replace('-', ""))?, number: number.parse().ok()? })
}

/// Owners that mean something else where a lock keeps its owner: a lock that lingers or was broken, the mode of
/// Redisson's read-write locks, and an owner that was generated, whose kind a lock does not tell.
pub(crate) fn is_reserved_owner(owner: &StoreOwner) -> bool {
    let StoreOwner::Shared(id) = owner else { return false };
    id.starts_with("leasehold:") || &**id == "mode" || is_request(id)
}

/// Whether this is the id of a request, letter by letter.
fn is_request(text: &str) -> bool {
    request_of(text).is_some_and(|id| request(id) == text)
}

/// An owner with its kind before it.
pub(crate) fn tag(owner: &StoreOwner) -> String {
    match owner {
        StoreOwner::Private(id) => request_behind("p", *id),
        StoreOwner::Shared(id) => ["s", &**id].concat(),
    }
}

/// The owner of such a tag; none where it is not one of ours.
pub(crate) fn owner_of(tag: &str) -> Option<StoreOwner> {
    match tag.split_at_checked(1)? {
        ("p", id) => request_of(id).map(StoreOwner::Private),
        ("s", id) => Some(StoreOwner::Shared(id.into())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(prefix: &str) -> Space {
        Space(prefix.into())
    }

    #[test]
    fn names_and_their_records_belong_together() {
        for space in ["", "app1:", "{app}", "a"].map(space) {
            for name in ["a", "{a}", ":{a}", "a:b", "a{b", "x{y}z", "}", "a*b"] {
                let name = Name::new(name).unwrap();
                let keys = space.keys(&name);
                assert_eq!(space.name_of_lock(keys.lock()).as_ref(), Some(&name));
                assert_eq!(space.name_of_fence(&keys.fence()).as_ref(), Some(&name));
            }
            let [a, tagged] = ["a", "{a}"].map(|name| space.keys(&Name::new(name).unwrap()).record());
            assert_ne!(a, tagged);
        }
    }

    #[test]
    fn everything_stands_behind_the_prefix_and_in_the_slot_of_its_lock() {
        let (space, name) = (space("app1:"), Name::new("a").unwrap());
        let keys = space.keys(&name);
        assert_eq!(keys.lock(), "app1:a");
        for beside in
            [keys.fence(), keys.record(), keys.waitlist(), keys.waiter_expiries(), keys.token(), keys.channel()]
        {
            assert!(beside.starts_with("app1:") && beside.ends_with(":{app1:a}"), "{beside}");
        }
        assert_eq!(space.fence_pattern("x"), "app1:leasehold_fence:[{:]app1:x*");
        assert_eq!(space.pattern("x"), "app1:x*");
        assert_eq!(space.name_of_lock("a"), None, "it is not behind the prefix");
    }

    #[test]
    fn redissons_rule_for_hash_tags_is_kept() {
        let channel = |name| space("").keys(&Name::new(name).unwrap()).channel();
        assert_eq!(channel("a"), "redisson_lock__channel:{a}");
        assert_eq!(channel("{a}:b"), "redisson_lock__channel:{a}:b");
        assert_eq!(channel("a{b"), "redisson_lock__channel:a{b");
    }

    #[test]
    fn a_hint_finds_its_client() {
        let client = ClientId([7, u64::MAX]);
        for space in ["", "app1:"].map(space) {
            assert_eq!(space.client_of_hint(&space.hint_channel(&client.to_string())), Some(client));
            assert_eq!(space.client_of_hint("redisson_lock__channel:{a}"), None);
        }
        assert_eq!(space("app1:").client_of_hint(&space("").hint_channel(&client.to_string())), None);
    }

    #[test]
    fn owners_that_a_lock_would_take_for_another_are_reserved() {
        let is_reserved = |id: &str| is_reserved_owner(&StoreOwner::Shared(id.into()));
        let generated = RequestId { client: ClientId([7, u64::MAX]), number: u64::MAX };
        assert!(!is_reserved_owner(&StoreOwner::Private(generated)));
        assert!(is_reserved(&request(generated)) && is_reserved("01234567-89ab-cdef-fedc-ba9876543210:0"));
        assert!(is_reserved("mode") && is_reserved("leasehold:linger") && is_reserved("leasehold:broken:me"));
        for other in [
            "01234567-89AB-cdef-fedc-ba9876543210:42",
            "0123456789ab-cdef-fedc-ba987654-3210:42",
            "01234567-89ab-cdef-fedc-ba9876543210:042",
            "01234567-89ab-cdef-fedc-ba9876543210:+42",
            "01234567-89ab-cdef-fedc-ba9876543210:42:write",
            "01234567-89ab-cdef-fedc-ba9876543210",
            "me/01234567-89ab-cdef-fedc-ba9876543210:42",
            "Mode",
            "modes",
            "leasehold",
        ] {
            assert!(!is_reserved(other), "{other}");
        }
    }

    #[test]
    fn owners_come_back_as_they_were() {
        let id = RequestId { client: ClientId([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]), number: 42 };
        assert_eq!(request(id), "01234567-89ab-cdef-fedc-ba9876543210:42");
        assert_eq!(client(id.client).as_slice(), id.client.to_string().as_bytes());
        for owner in [StoreOwner::Private(id), StoreOwner::Shared("who:ever".into())] {
            assert_eq!(owner_of(&tag(&owner)), Some(owner));
        }
    }
}
