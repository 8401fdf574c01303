//! A port of the loopback address that no other test on this machine uses as long as the value lives, even without a
//! listener.
//!
//! It is not a port that the operating system gives to clients: a client that connects to such a port without a
//! listener may be connected to itself.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};

use crate::Failure;

/// Below what Linux gives to clients.
const FIRST: u16 = 20_000;
const MANY: u16 = 10_000;
/// Ports that this process had: a client that a test left behind may still look for its server there.
static HAD: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
/// How many are tried before it is given up.
const TRIES: u32 = 1_000;

/// A reserved port.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// Locked for as long as the port is reserved.
    _reserved: File,
}

impl Port {
    /// One that is free, and that this process did not have before.
    ///
    /// # Errors
    ///
    /// When none is found.
    pub fn reserve() -> Result<Self, Failure> {
        let user = rustix::process::getuid().as_raw();
        let folder = std::env::temp_dir().join(format!("leasehold-test-ports-{user}"));
        std::fs::create_dir_all(&folder)?;
        for _ in 0..TRIES {
            let number = FIRST + u16::try_from(getrandom::u32()? % u32::from(MANY))?;
            let file = OpenOptions::new().create(true).append(true).open(folder.join(number.to_string()))?;
            let is_free = || TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok();
            let is_new = || HAD.lock().unwrap_or_else(PoisonError::into_inner).insert(number);
            if file.try_lock().is_ok() && is_free() && is_new() {
                return Ok(Self { number, _reserved: file });
            }
        }
        Err("no port is free".into())
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The loopback address with it.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.number).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_else_has_it_and_it_is_free_again_afterwards() {
        let ports: Vec<Port> = (0..50).map(|_| Port::reserve().unwrap()).collect();
        let mut numbers: Vec<u16> = ports.iter().map(Port::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 50);
        drop(ports);
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, numbers[0])).is_ok());
    }
}
