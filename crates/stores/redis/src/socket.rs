//! The socket of a connection. A caller's thread that writes its own command does not read from it.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::task::{Context, Poll};

use redis::{ConnectionAddr, ErrorKind, RedisError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::driver;
use crate::wire::Wire;

/// Replies are bounded: see [`Wire`].
pub(crate) struct Socket {
    stream: Stream,
    wire: Wire,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub(crate) async fn connect(address: &ConnectionAddr) -> Result<Self, RedisError> {
        let stream = match address {
            ConnectionAddr::Tcp(host, port) => {
                let stream = connect(host, *port).await?;
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
            ConnectionAddr::Unix(path) => Stream::Unix(UnixStream::connect(path).await?),
            _ => {
                let what = "a kind of address that is not built in";
                return Err(RedisError::from((ErrorKind::InvalidClientConfig, what)));
            }
        };
        Ok(Self { stream, wire: Wire::default() })
    }
}

/// The addresses of a host. The system's resolver blocks, so it runs on a thread of its own.
async fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let (told, answer) = oneshot::channel();
    let host = host.to_owned();
    std::thread::Builder::new().name("leasehold-dns".into()).spawn(move || {
        // A caller that is gone needs no answer.
        let _ = told.send((host.as_str(), port).to_socket_addrs().map(Iterator::collect));
    })?;
    answer.await.unwrap_or_else(|_| Err(io::Error::other("the resolver thread failed")))
}

/// A host may have several addresses, and some may be unreachable: all are tried at once, and the first to answer wins.
async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut attempts = JoinSet::new();
    for address in addresses(host, port).await? {
        attempts.spawn(TcpStream::connect(address));
    }
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "host name did not resolve");
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
        // Our own thread is registered for reads, and does them.
        if driver::is_sending() {
            return Poll::Pending;
        }
        let Self { stream, wire } = &mut *self;
        let before = buffer.filled().len();
        let read = match stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(task, buffer),
            Stream::Unix(stream) => Pin::new(stream).poll_read(task, buffer),
        };
        if matches!(read, Poll::Ready(Ok(()))) {
            wire.read(&buffer.filled()[before..])?;
        }
        read
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(task, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(task, bytes),
        };
        // Our own thread sees the error too, and reports it to every caller of this connection.
        if driver::is_sending() && matches!(written, Poll::Ready(Err(_))) {
            task.waker().wake_by_ref();
            return Poll::Pending;
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(task),
            Stream::Unix(stream) => Pin::new(stream).poll_flush(task),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(task),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(task),
        }
    }
}
