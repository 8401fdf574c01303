//! The boot and the machine that this process runs on, and whether its clock is that of other processes.

use std::io;

use leasehold_core::{Error, StoreTime};

use crate::error;

/// One boot of one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Boot {
    pub(crate) boot_id: String,
    /// Empty if the machine has no id; then it equals no other machine.
    pub(crate) machine_id: String,
    /// A wall clock set by a test.
    #[cfg(test)]
    pub(crate) wall: Option<StoreTime>,
}

impl Boot {
    pub(crate) fn this() -> Result<Self, Error> {
        if time_is_shifted() {
            return Err(error::shifted_time());
        }
        Ok(Self {
            boot_id: boot_id().map_err(error::no_boot)?,
            machine_id: machine_id(),
            #[cfg(test)]
            wall: None,
        })
    }

    /// Whether this is the machine's id. A machine without one equals no other.
    pub(crate) fn is_same(&self, id: &str) -> bool {
        !id.is_empty() && self.machine_id == id
    }

    /// The wall clock. The file's clock starts here at each boot, unless the file has seen later times.
    #[cfg(not(test))]
    pub(crate) fn wall(&self) -> StoreTime {
        leasehold_clock::wall()
    }

    #[cfg(test)]
    pub(crate) fn wall(&self) -> StoreTime {
        self.wall.unwrap_or_else(leasehold_clock::wall)
    }
}

#[cfg(target_os = "linux")]
fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(not(target_os = "linux"))]
fn boot_id() -> io::Result<String> {
    let answer = std::process::Command::new("sysctl").args(["-n", "kern.bootsessionuuid"]).output()?;
    let boot = String::from_utf8_lossy(&answer.stdout).trim().to_owned();
    if boot.is_empty() { Err(io::Error::other("sysctl kern.bootsessionuuid is empty")) } else { Ok(boot) }
}

#[cfg(target_os = "linux")]
fn machine_id() -> String {
    let read = |path| std::fs::read_to_string(path).ok().map(|id| id.trim().to_owned()).filter(|id| !id.is_empty());
    read("/etc/machine-id").or_else(|| read("/var/lib/dbus/machine-id")).unwrap_or_default()
}

#[cfg(not(target_os = "linux"))]
fn machine_id() -> String {
    let answer = std::process::Command::new("sysctl").args(["-n", "kern.uuid"]).output();
    answer.map(|answer| String::from_utf8_lossy(&answer.stdout).trim().to_owned()).unwrap_or_default()
}

/// Whether this process has a clock of its own: Linux has time namespaces with an offset.
fn time_is_shifted() -> bool {
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    offsets.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some("boottime") && words.any(|number| number != "0")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_boot_is_known() {
        let here = Boot::this().unwrap();
        assert!(here.boot_id.len() >= 32, "{here:?}");
        assert_eq!(here, Boot::this().unwrap());
    }
}
