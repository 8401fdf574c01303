//! What goes through a proxy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch::Receiver;

use super::{Mode, Seen};
use crate::servers::Port;

/// How much is read at once.
const CHUNK: usize = 16 * 1024;
/// Below this a delay has to be exact.
const SHORT: Duration = Duration::from_millis(10);

/// Which way something goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Requests,
    Replies,
}

/// Why a connection ended.
enum End {
    /// One of the two sides closed it.
    Closed,
    /// It was cut.
    Cut,
}

/// Takes connections until the proxy is gone.
pub(super) async fn serve(port: &Port, server: SocketAddr, mut mode: Receiver<Mode>, seen: &Arc<Seen>) {
    while is(&mut mode, |mode| mode.listens).await {
        // The caller waits for this, and reports if it does not come.
        let Ok(listener) = TcpListener::bind(port.address()).await else { return };
        tell(seen, true);
        let mut refusing = mode.clone();
        loop {
            tokio::select! {
                Ok((client, _)) = listener.accept() => {
                    let now = *mode.borrow();
                    if now.listens {
                        tokio::spawn(connection(client, server, now.cuts, mode.clone(), seen.clone()));
                    }
                }
                refused = is(&mut refusing, |mode| !mode.listens) => {
                    if !refused {
                        return;
                    }
                    break;
                }
            }
        }
        drop(listener);
        tell(seen, false);
    }
}

fn tell(seen: &Seen, listens: bool) {
    *seen.listens.lock().unwrap_or_else(PoisonError::into_inner) = listens;
    seen.changed.notify_all();
}

/// Waits until it is so; false when the proxy is gone.
async fn is(mode: &mut Receiver<Mode>, so: impl FnMut(&Mode) -> bool) -> bool {
    mode.wait_for(so).await.is_ok()
}

/// One connection, from when everything had been cut so often.
async fn connection(mut client: TcpStream, server: SocketAddr, cuts: u64, mode: Receiver<Mode>, seen: Arc<Seen>) {
    seen.open.fetch_add(1, Ordering::AcqRel);
    let mut cutting = mode.clone();
    let end = tokio::select! {
        _ = is(&mut cutting, |mode| mode.cuts != cuts) => End::Cut,
        end = pass(&mut client, server, mode, &seen) => end,
    };
    if matches!(end, End::Cut) {
        // What is cut is reset, not ended.
        let _ = client.set_zero_linger();
    }
    drop(client);
    seen.open.fetch_sub(1, Ordering::AcqRel);
}

async fn pass(client: &mut TcpStream, server: SocketAddr, mut mode: Receiver<Mode>, seen: &Seen) -> End {
    if !is(&mut mode, |mode| mode.passes).await {
        return End::Cut;
    }
    let Ok(mut server) = TcpStream::connect(server).await else { return End::Closed };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
    tokio::select! {
        end = pump(Way::Requests, from_client, to_server, mode.clone(), seen) => end,
        end = pump(Way::Replies, from_server, to_client, mode.clone(), seen) => end,
    }
}

async fn pump(
    way: Way,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut mode: Receiver<Mode>,
    seen: &Seen,
) -> End {
    let mut chunk = vec![0; CHUNK];
    loop {
        let Ok(read) = from.read(&mut chunk).await else { return End::Closed };
        if read == 0 {
            return End::Closed;
        }
        let delay = mode.borrow().delay;
        if !delay.is_zero() {
            wait(delay).await;
        }
        if !is(&mut mode, |mode| mode.passes).await {
            return End::Cut;
        }
        let passes = if way == Way::Replies { seen.spend(read) } else { read };
        if to.write_all(&chunk[..passes]).await.is_err() {
            return End::Closed;
        }
        if passes < read {
            // Not reset: what was let through has to arrive.
            return End::Closed;
        }
    }
}

/// The runtime's timers count whole milliseconds, and more than one too many at times: what is short is slept away on a thread.
async fn wait(delay: Duration) {
    if delay > SHORT {
        return tokio::time::sleep(delay).await;
    }
    let _ = tokio::task::spawn_blocking(move || std::thread::sleep(delay)).await;
}

impl Seen {
    /// How many of these bytes of replies go through.
    fn spend(&self, bytes: usize) -> usize {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        match *left {
            Some(few) if few < bytes => {
                *left = None;
                self.cut_in_a_reply.fetch_add(1, Ordering::AcqRel);
                few
            }
            Some(enough) => {
                *left = Some(enough - bytes);
                bytes
            }
            None => bytes,
        }
    }
}
