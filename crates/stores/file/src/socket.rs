//! Hints between processes: one datagram socket a waiting client, in the folder beside the file; the message is a name.

use std::fs;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use leasehold_core::{ClientId, Name};

use crate::place::open_up;

/// Makes sockets in the folder, and sends to those of others.
#[derive(Debug)]
pub(crate) struct Sockets {
    folder: PathBuf,
    /// A way to the folder that is short enough for a socket's address, which has room for some hundred bytes only.
    short: PathBuf,
    #[cfg(target_os = "linux")]
    _open: fs::File,
    mode: u32,
    sender: UnixDatagram,
}

impl Sockets {
    pub(crate) fn new(folder: &Path, mode: u32) -> io::Result<Self> {
        let sender = UnixDatagram::unbound()?;
        sender.set_nonblocking(true)?;
        #[cfg(target_os = "linux")]
        {
            use std::os::fd::AsRawFd;
            let open = fs::File::open(folder)?;
            let short = format!("/proc/self/fd/{}", open.as_raw_fd()).into();
            Ok(Self { folder: folder.to_owned(), short, _open: open, mode, sender })
        }
        #[cfg(not(target_os = "linux"))]
        Ok(Self { folder: folder.to_owned(), short: folder.to_owned(), mode, sender })
    }

    pub(crate) fn bind(&self, client: ClientId) -> io::Result<UnixDatagram> {
        let socket = UnixDatagram::bind(self.short.join(name_of(client)))?;
        socket.set_nonblocking(true)?;
        open_up(&self.folder.join(name_of(client)), self.mode)?;
        Ok(socket)
    }

    pub(crate) fn unbind(&self, client: ClientId) {
        let _ = fs::remove_file(self.folder.join(name_of(client)));
    }

    /// Sends a hint; false where the process that heard it is gone. No socket: it does not listen yet, and asks again when it does. A socket that is full wakes its client all the same, and whoever
    /// wakes looks at all its names.
    pub(crate) fn send(&self, client: ClientId, name: &Name) -> bool {
        match self.sender.send_to(name.as_str().as_bytes(), self.short.join(name_of(client))) {
            Ok(_) => true,
            Err(fault) => fault.kind() != io::ErrorKind::ConnectionRefused,
        }
    }
}

fn name_of(client: ClientId) -> String {
    format!("{client}.sock")
}
