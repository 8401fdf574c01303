//! Hints between processes: one datagram socket per waiting client, in the folder beside the file. A message is a name.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;

use leasehold_core::{ClientId, Hint, Name};
use rustix::fs::{AtFlags, Gid, chownat};

use crate::folder::Folder;

/// Name of a client's socket.
pub(crate) fn name(client: ClientId) -> String {
    format!("{client}.sock")
}

/// First character of a message about a name that the reader holds. No name begins with it; older versions ignore it.
const HELD: char = '\u{1}';

/// The message that a name which the reader holds was taken away.
pub(crate) fn held(name: &Name) -> String {
    format!("{HELD}{}", name.as_str())
}

/// Parses a message.
pub(crate) fn read(message: &[u8]) -> Option<Hint> {
    let text = std::str::from_utf8(message).ok()?;
    match text.strip_prefix(HELD) {
        Some(name) => Some(Hint::Held(Name::new(name).ok()?)),
        None => Some(Hint::Name(Name::new(text).ok()?)),
    }
}

/// Creates the socket of a client. Other processes can reach it only once it is complete.
pub(crate) fn bind(folder: &Folder, client: ClientId) -> io::Result<UnixDatagram> {
    let unfinished = folder.begin(client)?;
    let socket = UnixDatagram::bind(unfinished.way())?;
    socket.set_nonblocking(true)?;
    let rights = unfinished.rights();
    let (directory, temp_name) = unfinished.location();
    if let Some(group) = rights.group.filter(|_| rights.mode & 0o060 != 0) {
        // If this user is not in the group, the folder decides the group.
        let _ = chownat(directory, temp_name, None, Some(Gid::from_raw(group)), AtFlags::SYMLINK_NOFOLLOW);
    }
    // In a private folder: this is the file that was just created.
    fs::set_permissions(unfinished.way(), fs::Permissions::from_mode(rights.mode))?;
    unfinished.finish(&name(client))?;
    Ok(socket)
}

/// Sends a hint to a client's socket.
#[cfg(target_os = "linux")]
pub(crate) fn send(sender: &UnixDatagram, folder: &Folder, client: ClientId, message: &str) -> io::Result<usize> {
    use std::os::fd::AsRawFd;

    use rustix::fs::{FileType, Mode, OFlags, fstat, openat};

    // Not by its name: a link there could lead to a socket of the system.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let there = openat(&folder.open, name(client), flags, Mode::empty())?;
    let stat = fstat(&there)?;
    if crate::directory::kind(&stat) != FileType::Socket || stat.st_nlink > 1 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    sender.send_to(message.as_bytes(), format!("/proc/self/fd/{}", there.as_raw_fd()))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn send(sender: &UnixDatagram, folder: &Folder, client: ClientId, message: &str) -> io::Result<usize> {
    use rustix::fs::{FileType, statat};

    let stat = statat(&folder.open, name(client), AtFlags::SYMLINK_NOFOLLOW)?;
    if crate::directory::kind(&stat) != FileType::Socket {
        return Err(io::ErrorKind::InvalidData.into());
    }
    sender.send_to(message.as_bytes(), folder.way(&name(client)))
}
