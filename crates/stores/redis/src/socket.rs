//! The socket of a connection. A thread that writes what it sends itself does not read from it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use redis::{ConnectionAddr, ErrorKind, RedisError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::task::JoinSet;

use crate::driver;

pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub(crate) async fn connect(address: &ConnectionAddr) -> Result<Self, RedisError> {
        match address {
            ConnectionAddr::Tcp(host, port) => {
                let stream = connect(host, *port).await?;
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
            ConnectionAddr::Unix(path) => Ok(Self::Unix(UnixStream::connect(path).await?)),
            _ => Err(RedisError::from((ErrorKind::InvalidClientConfig, "a kind of address that is not built in"))),
        }
    }
}

/// A name may stand for several addresses, of which some lead nowhere: all are tried at once, and the first that answers is it.
async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut attempts = JoinSet::new();
    for address in lookup_host((host, port)).await? {
        attempts.spawn(TcpStream::connect(address));
    }
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name of the host stands for no address");
    while let Some(attempt) = attempts.join_next().await {
        match attempt.unwrap_or_else(|failed| Err(io::Error::other(failed))) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, task: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // Our own thread has asked to be woken when there is something to be read, and reads it.
        if driver::is_sending() {
            return Poll::Pending;
        }
        match &mut *self {
            Self::Tcp(stream) => Pin::new(stream).poll_read(task, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(task, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = match &mut *self {
            Self::Tcp(stream) => Pin::new(stream).poll_write(task, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(task, bytes),
        };
        // Whoever waits for this connection is told by our own thread that it is broken: it finds out as well.
        if driver::is_sending() && matches!(written, Poll::Ready(Err(_))) {
            task.waker().wake_by_ref();
            return Poll::Pending;
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(task),
            Self::Unix(stream) => Pin::new(stream).poll_flush(task),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(task),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(task),
        }
    }
}
