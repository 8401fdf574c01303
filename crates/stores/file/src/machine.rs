//! What the file's times depend on: which boot of which machine this is, and whether its clock and file system can be trusted.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use leasehold_core::{Error, StoreTime};

use crate::error;

/// One boot of one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) boot: String,
    /// Empty where the machine has no id: then it is the same as no other.
    pub(crate) id: String,
    /// A wall clock that a test has set.
    #[cfg(test)]
    pub(crate) wall: Option<StoreTime>,
}

impl Machine {
    pub(crate) fn this() -> Result<Self, Error> {
        if time_is_shifted() {
            return Err(error::shifted_time());
        }
        Ok(Self {
            boot: boot_id().map_err(error::no_boot)?,
            id: machine_id(),
            #[cfg(test)]
            wall: None,
        })
    }

    /// Whether that is the machine's id. A machine without one is the same as no other.
    pub(crate) fn is_same(&self, id: &str) -> bool {
        !id.is_empty() && self.id == id
    }

    /// The wall clock: where the file's clock starts with a boot, unless the file has seen later times.
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

/// Whether this process sees a clock of its own: Linux has namespaces where the boot clock is moved.
fn time_is_shifted() -> bool {
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    offsets.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some("boottime") && words.any(|number| number != "0")
    })
}

/// Refuses file systems that other machines, or the host of a virtual one, may write to at the same time.
pub(crate) fn check_file_system(open: impl AsFd, folder: &Path) -> Result<(), Error> {
    match file_system(open) {
        Ok(kind) => match SHARED.iter().find(|(magic, _)| *magic == kind) {
            Some((_, name)) => Err(error::shared_file_system(name)),
            None => Ok(()),
        },
        Err(fault) => Err(error::place("the file system cannot be asked about", folder, fault)),
    }
}

/// Whether just this file is mounted, as into a container: then processes beside it would write to another log.
pub(crate) fn is_mount_point(path: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let wanted = path.to_string_lossy().replace('\\', "\\134").replace(' ', "\\040").replace('\t', "\\011");
    mounts.lines().any(|line| line.split(' ').nth(4) == Some(wanted.as_str()))
}

#[cfg(target_os = "linux")]
fn file_system(open: impl AsFd) -> io::Result<u32> {
    // The kernel's numbers have 32 bits; the type of the field differs between architectures.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::unnecessary_cast,
        reason = "as said above"
    )]
    Ok(rustix::fs::fstatfs(open)?.f_type as u32)
}

/// Elsewhere there are no such numbers, and the mount is not looked at.
#[cfg(not(target_os = "linux"))]
fn file_system(_: impl AsFd) -> io::Result<u32> {
    Ok(0)
}

/// File systems by the number that `statfs` gives. virtiofs answers with FUSE's.
const SHARED: &[(u32, &str)] = &[
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "SMB (cifs)"),
    (0xfe53_4d42, "SMB"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "FUSE or virtiofs"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x564c, "NCP"),
    (0x786f_4256, "a folder shared with VirtualBox"),
    (0xbacb_acbc, "a folder shared with VMware"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_known_and_fit() {
        let here = Machine::this().unwrap();
        assert!(here.boot.len() >= 32, "{here:?}");
        assert_eq!(here, Machine::this().unwrap());
        check_file_system(std::fs::File::open("/").unwrap(), Path::new("/")).unwrap();
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_foreign_file_system_is_told_by_its_number() {
        // /proc is on no list; its number is known, so the asking itself is right.
        assert_eq!(file_system(std::fs::File::open("/proc").unwrap()).unwrap(), 0x9fa0);
    }
}
