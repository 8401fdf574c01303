//! Which users can rename entries of a directory: a path through it may then lead to another directory. Also what an
//! access list grants to a file's group.

use std::os::fd::AsFd;

use rustix::fs::Stat;

use crate::directory::is_trusted;

#[cfg(target_os = "linux")]
pub(crate) use access_list::listed_for_group;

/// Whether users other than its owner and root can rename entries of a directory: they have write access, and it has no
/// sticky bit. Root's group and private groups, which many systems create for each user, do not count.
#[must_use]
pub fn others_can_rename(folder: impl AsFd, stat: &Stat) -> bool {
    let counts = |group: u32| group != 0 && !is_private_group(group);
    // With an access list, the group bits of the mode are the maximum for all its entries.
    let some_group = || counts(stat.st_gid) || access_list::lets_others_write(folder, counts);
    stat.st_mode & 0o1000 == 0 && (stat.st_mode & 0o002 != 0 || (stat.st_mode & 0o020 != 0 && some_group()))
}

/// Whether a group is private to this user: it is the user's primary group, has the user's name or number, and no other
/// members.
fn is_private_group(group: u32) -> bool {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    rustix::process::getegid().as_raw() == group
        && is_alone(rustix::process::geteuid().as_raw(), group, &read("/etc/passwd"), &read("/etc/group"))
}

/// The same, from the lists of users and groups. A user is a member if the group lists it or is its primary group.
fn is_alone(user: u32, group: u32, users: &str, groups: &str) -> bool {
    let has = |line: &Vec<&str>, field: usize, number: u32| line.get(field).is_some_and(|id| id.parse() == Ok(number));
    let lines = |text| str::lines(text).map(|line| line.split(':').collect::<Vec<_>>());
    let name = lines(users).find(|line| has(line, 2, user)).map(|line| line[0]);
    if lines(users).any(|line| has(&line, 3, group) && !has(&line, 2, user)) {
        return false;
    }
    let mut entries = lines(groups).filter(|line| has(line, 2, group)).peekable();
    let is_named = entries.peek().map_or(group == user, |line| group == user || name == Some(line[0]));
    let is_other = |member: &str| !member.is_empty() && name != Some(member);
    is_named && !entries.any(|line| line.last().is_some_and(|members| members.trim().split(',').any(is_other)))
}

#[cfg(target_os = "linux")]
mod access_list {
    use std::os::fd::{AsFd, AsRawFd};

    use rustix::io::Errno;

    use super::is_trusted;

    /// Linux's attribute with the list, and its version. Entries of 8 bytes follow: kind, permissions, id.
    const ATTRIBUTE: &str = "system.posix_acl_access";
    const VERSION: [u8; 4] = 2_u32.to_le_bytes();
    const USER: u16 = 2;
    const OWN_GROUP: u16 = 4;
    const GROUP: u16 = 8;
    const WRITE: u16 = 2;
    /// No list made by hand is longer.
    const BYTES_MAX: usize = 8 * 1024;

    /// What a file's list grants to its own group, as mode bits: all without a list, none if it cannot be read.
    pub(crate) fn listed_for_group(file: impl AsFd) -> u32 {
        let mut list = [0; BYTES_MAX];
        match read(file, &mut list) {
            Ok(length) => group_bits(&list[..length]),
            Err(Errno::NODATA | Errno::NOTSUP | Errno::NOSYS) => 0o060,
            Err(_) => 0,
        }
    }

    pub(super) fn group_bits(list: &[u8]) -> u32 {
        let entries = list.strip_prefix(&VERSION).unwrap_or_default();
        let may = |entry: &[u8]| match entry {
            [what0, what1, may, ..] if u16::from_le_bytes([*what0, *what1]) == OWN_GROUP => Some(u32::from(*may)),
            _ => None,
        };
        entries.chunks(8).find_map(may).map_or(0, |may| (may << 3) & 0o060)
    }

    fn read(itself: impl AsFd, list: &mut [u8; BYTES_MAX]) -> Result<usize, Errno> {
        let path = format!("/proc/self/fd/{}", itself.as_fd().as_raw_fd());
        rustix::fs::getxattr(&path, ATTRIBUTE, &mut list[..])
    }

    /// Whether a directory has a list that lets another user, or a group that counts, write. A list that cannot be read
    /// might.
    pub(super) fn lets_others_write(folder: impl AsFd, counts: impl Fn(u32) -> bool) -> bool {
        let mut list = [0; BYTES_MAX];
        match read(folder, &mut list) {
            Ok(length) => has_writer(&list[..length], counts),
            Err(Errno::NODATA | Errno::NOTSUP | Errno::NOSYS) => false,
            Err(_) => true,
        }
    }

    pub(super) fn has_writer(list: &[u8], counts: impl Fn(u32) -> bool) -> bool {
        let Some(entries) = list.strip_prefix(&VERSION) else { return true };
        entries.chunks(8).any(|entry| {
            let Ok([what0, what1, may0, may1, who @ ..]) = <[u8; 8]>::try_from(entry) else { return true };
            let (what, may) = (u16::from_le_bytes([what0, what1]), u16::from_le_bytes([may0, may1]));
            let may_write = may & WRITE != 0;
            match (what, u32::from_le_bytes(who)) {
                (USER, user) => may_write && !is_trusted(user),
                (GROUP, group) => may_write && counts(group),
                _ => false,
            }
        })
    }
}

#[cfg(not(target_os = "linux"))]
mod access_list {
    pub(super) fn lets_others_write(_: impl super::AsFd, _: impl Fn(u32) -> bool) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str = "root:x:0:0:root:/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\nbob:x:1001:1001::/:\n";

    #[test]
    fn a_group_is_private_only_without_other_members() {
        let extra = |line: &str| format!("{USERS}{line}\n");
        for (users, groups, group, private) in [
            (USERS.to_owned(), "alice:x:1000:\n", 1000, true),
            (USERS.to_owned(), "alice:x:1000:alice\n", 1000, true),
            (USERS.to_owned(), "alice:x:1000:alice,bob\n", 1000, false),
            (USERS.to_owned(), "alice:x:1000:\nother:x:1000:bob\n", 1000, false),
            (USERS.to_owned(), "alice:x:100:\n", 100, true),
            (USERS.to_owned(), "users:x:100:\n", 100, false),
            (USERS.to_owned(), "", 1000, true),
            (USERS.to_owned(), "", 100, false),
            // The primary group of another user, who is not listed in it.
            (extra("eve:x:1002:1000::/:"), "alice:x:1000:\n", 1000, false),
            (extra("eve:x:1002:1000::/:"), "", 1000, false),
            (extra("alice2:x:1000:1000::/:"), "alice:x:1000:\n", 1000, true),
        ] {
            assert_eq!(is_alone(1000, group, &users, groups), private, "{users} {groups}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_list_counts_where_another_may_write() {
        let own = rustix::process::geteuid().as_raw();
        let entry =
            |what: u16, may: u16, who: u32| [&what.to_le_bytes()[..], &may.to_le_bytes(), &who.to_le_bytes()].concat();
        let usual =
            [2_u32.to_le_bytes().to_vec(), entry(1, 7, u32::MAX), entry(4, 7, u32::MAX), entry(16, 7, u32::MAX)];
        let usual = usual.concat();
        for (more, counts) in [
            (vec![], false),
            (entry(2, 5, own + 1), false),
            (entry(2, 7, own + 1), true),
            (entry(2, 7, own), false),
            (entry(2, 7, 0), false),
            (entry(8, 7, 7), true),
            (entry(8, 5, 7), false),
            (entry(8, 7, 8), false),
            (vec![1], true),
        ] {
            let list = [usual.clone(), more].concat();
            assert_eq!(access_list::has_writer(&list, |group| group == 7), counts, "{list:?}");
        }
        assert!(access_list::has_writer(b"of another version", |_| false));
        let named = |may| [usual.clone(), entry(8, may, 7)].concat();
        assert_eq!(access_list::group_bits(&named(0)), 0o060, "its own entry says all");
        let without =
            [2_u32.to_le_bytes().to_vec(), entry(2, 7, 7), entry(4, 4, u32::MAX), entry(16, 7, u32::MAX)].concat();
        assert_eq!(access_list::group_bits(&without), 0o040, "others may do more than the group");
        assert_eq!(access_list::group_bits(b"of another version"), 0);
    }
}
