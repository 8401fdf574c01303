//! The libraries that leasehold is compared with, each in a process of its own in its own language: testing/interop/peers.

use std::net::SocketAddr;
use std::time::Duration;

use leasehold_interop::driver::Driver;
use leasehold_interop::peer::Peer;
use serde::Deserialize;

use crate::ratio::SideBySide;

/// How long one command may take by itself.
const PATIENCE: Duration = Duration::from_secs(600);
/// Pairs that every peer makes before anything counts: some compile their code only then.
const WARM_UP: u32 = 10_000;

/// Those that take part, and those that cannot.
#[derive(Default)]
pub(crate) struct Peers {
    drivers: Vec<(String, Driver)>,
    pub(crate) ignored: Vec<String>,
}

/// One of them, as fast as it can be.
pub(crate) fn peer(name: &str) -> Peer {
    let measured = if name == "redisson-4" { Peer::measured_redisson() } else { Peer::named(name) };
    measured.expect("a peer of testing/interop")
}

impl Peers {
    /// Starts one, or says why not. What it is called begins with its own name and version.
    pub(crate) fn start(&mut self, name: &str, servers: &[SocketAddr], called: &str) {
        let peer = peer(name);
        if peer.needs.missing().is_some() {
            self.ignored.push(format!("{name}{called}: no {}", peer.needs.word));
            return;
        }
        let driver = Driver::start(peer, servers).unwrap_or_else(|error| panic!("{error}"));
        self.drivers.push((format!("{}{called}", driver.title), driver));
    }

    /// Their names, with their versions.
    pub(crate) fn titles(&self) -> Vec<String> {
        self.drivers.iter().map(|(title, _)| title.clone()).collect()
    }

    /// Has each of them take and release a free lock, so that all of its code is warm.
    pub(crate) fn warm_up(&mut self, pairs: u32) {
        for (_, driver) in &mut self.drivers {
            solo(driver, pairs.min(WARM_UP));
        }
    }

    /// One more thing to be measured for each: the median of a take and a release, in microseconds.
    pub(crate) fn beside<'a>(&'a mut self, things: SideBySide<'a>, pairs: u32) -> SideBySide<'a> {
        self.drivers
            .iter_mut()
            .fold(things, |things, (title, driver)| things.thing(title.clone(), move || solo(driver, pairs)))
    }
}

fn solo(driver: &mut Driver, pairs: u32) -> f64 {
    #[derive(Deserialize)]
    struct Measured {
        p50_us: f64,
    }
    let asked = driver.tell(&format!("solo bench-{} {pairs}", driver.peer.name));
    let measured = asked.and_then(|()| driver.answer::<Measured>(PATIENCE));
    measured.unwrap_or_else(|error| panic!("{error}")).p50_us
}
