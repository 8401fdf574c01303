//! From names to keys: the lock itself stands at the bare name, and what belongs to it stands beside it in the same hash slot.

use leasehold_core::{ClientId, Name, RequestId, StoreOwner};

/// Where the lock of a name is, and all that belongs to it.
pub(crate) struct Keys<'a>(pub(crate) &'a Name);

impl Keys<'_> {
    pub(crate) fn lock(&self) -> &str {
        self.0.as_str()
    }

    /// The last fence.
    pub(crate) fn fence(&self) -> String {
        self.beside(FENCE)
    }

    /// Who holds it.
    pub(crate) fn record(&self) -> String {
        self.beside(RECORD)
    }

    /// Waiting clients, as they came.
    pub(crate) fn line(&self) -> String {
        self.beside("leasehold_line")
    }

    /// Waiting clients, by when they were last heard of.
    pub(crate) fn heard(&self) -> String {
        self.beside("leasehold_heard")
    }

    /// The counter of Redisson's fenced lock.
    pub(crate) fn token(&self) -> String {
        self.redissons("redisson_lock_token")
    }

    /// Where Redisson tells of a release.
    pub(crate) fn channel(&self) -> String {
        self.redissons(CHANNEL)
    }

    /// Keys of our own are told apart for `a` and `{a}`, which both have the tag `a`.
    fn beside(&self, what: &str) -> String {
        let name = self.lock();
        if name.contains('{') { format!("{what}::{name}") } else { format!("{what}:{{{name}}}") }
    }

    /// Redisson's rule.
    fn redissons(&self, what: &str) -> String {
        let name = self.lock();
        if name.contains('{') { format!("{what}:{name}") } else { format!("{what}:{{{name}}}") }
    }
}

const FENCE: &str = "leasehold_fence";
/// What begins like this is not the name of a lock but a key that belongs to one.
const RESERVED: [&str; 5] =
    ["leasehold_fence:", "leasehold_lock:", "leasehold_line:", "leasehold_heard:", "redisson_lock_token:"];
const RECORD: &str = "leasehold_lock";
const CHANNEL: &str = "redisson_lock__channel";
const HINT: &str = "leasehold_hint:";

/// Whether a lock of this name would stand where something of another lock stands.
pub(crate) fn is_reserved(name: &Name) -> bool {
    RESERVED.iter().any(|prefix| name.as_str().starts_with(prefix))
}

/// The name that a record's key belongs to.
pub(crate) fn name_of_record(key: &str) -> Option<Name> {
    name_beside(RECORD, key)
}

/// The name that a fence's key belongs to.
pub(crate) fn name_of_fence(key: &str) -> Option<Name> {
    name_beside(FENCE, key)
}

/// A pattern for the keys of all fences.
pub(crate) fn fence_pattern() -> String {
    format!("{FENCE}:*")
}

fn name_beside(what: &str, key: &str) -> Option<Name> {
    let rest = key.strip_prefix(what)?.strip_prefix(':')?;
    let name = rest.strip_prefix(':').or_else(|| rest.strip_prefix('{')?.strip_suffix('}'))?;
    Name::new(name).ok()
}

/// Keys of records of names that begin with `prefix`, as patterns.
pub(crate) fn record_patterns(prefix: &str) -> [String; 2] {
    let prefix = escaped(prefix);
    [format!("{RECORD}:{{{prefix}*"), format!("{RECORD}::{prefix}*")]
}

/// A pattern for keys that begin with `prefix`.
pub(crate) fn pattern(prefix: &str) -> String {
    format!("{}*", escaped(prefix))
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

/// Where a client is told that a lock it waits for may be free.
pub(crate) fn hint_channel(client: ClientId) -> String {
    format!("{HINT}{client}")
}

/// The client that such a channel belongs to.
pub(crate) fn client_of_hint(channel: &str) -> Option<ClientId> {
    client_of(channel.strip_prefix(HINT)?)
}

fn client_of(hex: &str) -> Option<ClientId> {
    let half = |from: usize| u64::from_str_radix(hex.get(from..from + 16)?, 16).ok();
    Some(ClientId([half(0)?, half(16)?]))
}

/// An id of one request: a UUID for its client, and its number, as Redisson has a UUID and a thread.
pub(crate) fn request(id: RequestId) -> String {
    let [a, b] = id.client.0;
    let (a1, a2, a3) = (a >> 32, (a >> 16) & 0xffff, a & 0xffff);
    let (b1, b2) = (b >> 48, b & 0xffff_ffff_ffff);
    format!("{a1:08x}-{a2:04x}-{a3:04x}-{b1:04x}-{b2:012x}:{}", id.number)
}

/// The request that such an id belongs to.
pub(crate) fn request_of(text: &str) -> Option<RequestId> {
    let (uuid, number) = text.split_once(':')?;
    if uuid.len() != 36 || !uuid.is_ascii() {
        return None;
    }
    Some(RequestId { client: client_of(&uuid.replace('-', ""))?, number: number.parse().ok()? })
}

/// Owners that mean something else where a lock keeps its owner: a lock that lingers or was broken, and the mode of Redisson's
/// read-write locks.
pub(crate) fn is_reserved_owner(owner: &StoreOwner) -> bool {
    matches!(owner, StoreOwner::Shared(id) if id.starts_with("leasehold:") || &**id == "mode")
}

/// An owner with its kind before it.
pub(crate) fn tag(owner: &StoreOwner) -> String {
    match owner {
        StoreOwner::Private(id) => format!("p{}", request(*id)),
        StoreOwner::Shared(id) => format!("s{id}"),
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

    #[test]
    fn names_and_their_records_belong_together() {
        for name in ["a", "{a}", ":{a}", "a:b", "a{b", "x{y}z", "}", "a*b"] {
            let name = Name::new(name).unwrap();
            assert_eq!(name_of_fence(&Keys(&name).fence()).as_ref(), Some(&name));
            assert_eq!(name_of_record(&Keys(&name).record()), Some(name));
        }
        let [a, tagged] = ["a", "{a}"].map(|name| Keys(&Name::new(name).unwrap()).record());
        assert_ne!(a, tagged);
    }

    #[test]
    fn redissons_rule_for_hash_tags_is_kept() {
        let channel = |name| Keys(&Name::new(name).unwrap()).channel();
        assert_eq!(channel("a"), "redisson_lock__channel:{a}");
        assert_eq!(channel("{a}:b"), "redisson_lock__channel:{a}:b");
        assert_eq!(channel("a{b"), "redisson_lock__channel:a{b");
    }

    #[test]
    fn a_hint_finds_its_client() {
        let client = ClientId([7, u64::MAX]);
        assert_eq!(client_of_hint(&hint_channel(client)), Some(client));
        assert_eq!(client_of_hint("redisson_lock__channel:{a}"), None);
    }

    #[test]
    fn owners_come_back_as_they_were() {
        let id = RequestId { client: ClientId([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]), number: 42 };
        assert_eq!(request(id), "01234567-89ab-cdef-fedc-ba9876543210:42");
        for owner in [StoreOwner::Private(id), StoreOwner::Shared("who:ever".into())] {
            assert_eq!(owner_of(&tag(&owner)), Some(owner));
        }
    }
}
