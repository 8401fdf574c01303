//! Whether the file system of the store is local to this machine.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use leasehold_core::Error;

use crate::error;

/// Refuses file systems that other machines, or the host of a virtual machine, may write at the same time.
pub(crate) fn check(open: impl AsFd, folder: &Path) -> Result<(), Error> {
    match kind(open) {
        Ok(kind) => match SHARED.iter().find(|(magic, _)| *magic == kind) {
            Some((_, name)) => Err(error::shared_file_system(name)),
            None => Ok(()),
        },
        Err(fault) => Err(error::io_failed("cannot determine the file system of", folder, fault)),
    }
}

/// Whether only this file is mounted, as into a container: processes outside would use another log.
pub(crate) fn is_mount_point(path: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let wanted = path.to_string_lossy().replace('\\', "\\134").replace(' ', "\\040").replace('\t', "\\011");
    mounts.lines().any(|line| line.split(' ').nth(4) == Some(wanted.as_str()))
}

#[cfg(target_os = "linux")]
fn kind(open: impl AsFd) -> io::Result<u32> {
    // The kernel's numbers have 32 bits; the type of the field differs between architectures.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::unnecessary_cast, reason = "see above")]
    Ok(rustix::fs::fstatfs(open)?.f_type as u32)
}

/// Other systems have no such numbers, and the mount is not checked.
#[cfg(not(target_os = "linux"))]
fn kind(_: impl AsFd) -> io::Result<u32> {
    Ok(0)
}

/// File systems by the number from `statfs`. virtiofs reports FUSE's.
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
    fn the_root_file_system_is_local() {
        check(std::fs::File::open("/").unwrap(), Path::new("/")).unwrap();
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_file_system_is_recognized_by_its_number() {
        // /proc is not on the list, but its number is known: this shows that the call works.
        assert_eq!(kind(std::fs::File::open("/proc").unwrap()).unwrap(), 0x9fa0);
    }
}
