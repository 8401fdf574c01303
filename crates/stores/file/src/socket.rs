//! Hints between processes: one datagram socket a waiting client, in the folder beside the file; the message is a name.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::{ClientId, Name};

use crate::place::open_up;

/// Makes sockets in the folder, and sends to those of others.
#[derive(Debug)]
pub(crate) struct Sockets {
    folder: PathBuf,
    way: Mutex<Way>,
    mode: u32,
    sender: UnixDatagram,
}

/// A way to the folder that is short enough for a socket's address, which has room for some hundred bytes only.
#[derive(Debug)]
struct Way {
    short: PathBuf,
    open: fs::File,
}

impl Way {
    fn to(folder: &Path) -> io::Result<Self> {
        let open = fs::File::open(folder)?;
        let short = if cfg!(target_os = "linux") {
            format!("/proc/self/fd/{}", open.as_raw_fd()).into()
        } else {
            folder.to_owned()
        };
        Ok(Self { short, open })
    }
}

impl Sockets {
    pub(crate) fn new(folder: &Path, mode: u32) -> io::Result<Self> {
        let sender = UnixDatagram::unbound()?;
        sender.set_nonblocking(true)?;
        Ok(Self { folder: folder.to_owned(), way: Mutex::new(Way::to(folder)?), mode, sender })
    }

    /// The folder was made anew.
    pub(crate) fn enter(&self, folder: &Path) -> io::Result<()> {
        *self.way() = Way::to(folder)?;
        Ok(())
    }

    fn way(&self) -> MutexGuard<'_, Way> {
        self.way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn bind(&self, client: ClientId) -> io::Result<UnixDatagram> {
        let path = self.way().short.join(name_of(client));
        let socket = UnixDatagram::bind(&path)?;
        socket.set_nonblocking(true)?;
        open_up(&path, self.mode)?;
        Ok(socket)
    }

    pub(crate) fn unbind(&self, client: ClientId) {
        let _ = fs::remove_file(self.way().short.join(name_of(client)));
    }

    /// Sends a hint; false where the process that heard it is gone. No socket: it does not listen yet, and asks again when it does. A socket that is full wakes its client all the same, and whoever
    /// wakes looks at all its names.
    pub(crate) fn send(&self, client: ClientId, name: &Name) -> bool {
        let sent = self.try_send(client, name);
        match sent {
            Err(fault) if fault.kind() == io::ErrorKind::NotFound && self.was_replaced() => {
                self.enter(&self.folder).and_then(|()| self.try_send(client, name)).is_ok()
            }
            Err(fault) => fault.kind() != io::ErrorKind::ConnectionRefused,
            Ok(_) => true,
        }
    }

    fn try_send(&self, client: ClientId, name: &Name) -> io::Result<usize> {
        self.sender.send_to(name.as_str().as_bytes(), self.way().short.join(name_of(client)))
    }

    /// Whether the folder was cleared away and made anew: then those who came since are in another one.
    fn was_replaced(&self) -> bool {
        let way = self.way();
        let open = way.open.metadata().map(|open| (open.dev(), open.ino())).ok();
        open != fs::metadata(&self.folder).map(|there| (there.dev(), there.ino())).ok()
    }
}

fn name_of(client: ClientId) -> String {
    format!("{client}.sock")
}
