//! What a figure was measured on and with, in words that fit any machine.

use leasehold_faults::servers::Redis;

use crate::redis::info;

const LOCKED: &str = include_str!("../../../Cargo.lock");

/// Cores and kernel.
pub(crate) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let numbers: Vec<&str> = kernel.split(['.', '-']).take(2).collect();
    format!("{cores} cores, Linux {}, {}", numbers.join("."), std::env::consts::ARCH)
}

/// The version of a server.
pub(crate) fn redis_version(server: &Redis) -> String {
    let told = info(server, "server").into_iter().find(|(key, _)| key == "redis_version");
    told.map_or_else(|| "unknown".into(), |(_, version)| version)
}

/// The version of a crate that this program was built with.
pub(crate) fn locked_version(name: &str) -> &'static str {
    let entry = LOCKED.split("[[package]]").find(|entry| entry.contains(&format!("name = \"{name}\"\n")));
    let line = entry.and_then(|entry| entry.lines().find_map(|line| line.strip_prefix("version = ")));
    line.expect("a crate of this workspace's").trim_matches('"')
}
