//! Checks whether the file is fit for locks. Nothing is created or changed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use leasehold_core::{Check, Error, Verdict};
use rustix::fs::Access;
use rustix::io::Errno;

use crate::boot::Boot;
use crate::config::Config;
use crate::directory::{Site, open_directory};
use crate::error;
use crate::file_system;
use crate::folder;
use crate::open::{self, Found};

const RIGHTS: &str = "give this user, or one of its groups, write permission there (docs/file.md explains how to share a file), or \
                      use another file (file:PATH)";

/// Checks the machine, the location and the file. A file that is not a leasehold store is not examined further: opening
/// it explains why, and another program's file must not be called damaged.
pub fn examine(config: &Config) -> Vec<Check> {
    let path = config.resolved().path;
    let mut checks = vec![clock(), local_disk(&path)];
    match Site::find(&path, false) {
        Ok(Some(site)) => {
            let found = open::probe(&site);
            if found.is_ok() || is_closed(&path) {
                checks.push(permissions(&path));
            }
            if let Ok(Found::Ours(_)) = found {
                checks.push(integrity(&site));
                checks.extend(fences(&site));
            }
        }
        Ok(None) => checks.push(permissions(&path)),
        Err(_) if is_closed(&path) => checks.push(permissions(&path)),
        Err(error) => checks.push(failed("permissions", &error)),
    }
    checks.push(Check::new("engine", Verdict::Ok, format!("SQLite {}, built in", rusqlite::version())));
    checks
}

fn clock() -> Check {
    match Boot::this() {
        Ok(_) => Check::new("clock", Verdict::Ok, "leases use the boot clock, which cannot be set"),
        Err(error) => failed("clock", &error),
    }
}

fn local_disk(path: &Path) -> Check {
    let there = existing(path);
    let cannot = |fault: Errno| error::io_failed("cannot determine the file system of", there, fault.into());
    let asked = open_directory(rustix::fs::CWD, there.as_os_str()).map_err(cannot);
    match asked.and_then(|open| file_system::check(open, there)) {
        Ok(()) => Check::new("file system", Verdict::Ok, format!("{} is local to this machine", there.display())),
        Err(error) => failed("file system", &error),
    }
}

/// Whether this user cannot find out what exists at the path.
fn is_closed(path: &Path) -> bool {
    match fs::metadata(path) {
        Ok(found) => found.is_file() && !may(path, Access::READ_OK),
        Err(fault) => fault.kind() == std::io::ErrorKind::PermissionDenied,
    }
}

/// Users who can take locks: those who may write the file.
fn permissions(path: &Path) -> Check {
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(fault) if fault.kind() == std::io::ErrorKind::NotFound => return can_create(path),
        Err(fault) if fault.kind() == std::io::ErrorKind::PermissionDenied => {
            return no_rights(format!("this user cannot access {}: a folder on the path denies it", path.display()));
        }
        Err(fault) => return Check::new("permissions", Verdict::Fail, format!("{}: {fault}", path.display())),
    };
    let mode = found.mode() & 0o777;
    if !may(path, Access::READ_OK | Access::WRITE_OK) {
        return no_rights(format!("mode {mode:03o}, user {}: this user cannot write the file", found.uid()));
    }
    let folder = beside(path);
    if folder.exists() && !may(&folder, Access::WRITE_OK | Access::EXEC_OK) {
        return no_rights(format!("this user cannot write in {}, where processes find each other", folder.display()));
    }
    if mode & 0o044 > (mode & 0o022) << 1 {
        let found =
            format!("mode {mode:03o}, user {}: users who may only read the file can block all others", found.uid());
        return Check::new("permissions", Verdict::Warn, found).with_advice(
            "remove the read permission (chmod go-r) from the file, its -wal and its -shm, unless you trust those users",
        );
    }
    let who = match (mode & 0o020 != 0, mode & 0o002 != 0) {
        (_, true) => "every user",
        (true, false) => "its user and its group",
        (false, false) => "its user alone",
    };
    Check::new("permissions", Verdict::Ok, format!("mode {mode:03o}, user {}: {who} can take locks", found.uid()))
}

/// Whether a missing file could be created.
fn can_create(path: &Path) -> Check {
    let folder = existing(path);
    if may(folder, Access::WRITE_OK | Access::EXEC_OK) {
        return Check::new("permissions", Verdict::Ok, "there is no file yet; the first lock creates it");
    }
    no_rights(format!("there is no file yet, and this user cannot create one in {}", folder.display()))
}

/// The folder beside the file.
fn beside(path: &Path) -> PathBuf {
    let mut folder = path.as_os_str().to_owned();
    folder.push(folder::SUFFIX);
    folder.into()
}

fn no_rights(found: String) -> Check {
    Check::new("permissions", Verdict::Fail, found).with_advice(RIGHTS)
}

/// The nearest existing folder.
fn existing(path: &Path) -> &Path {
    path.ancestors().skip(1).find(|folder| folder.exists()).unwrap_or(Path::new("/"))
}

/// Whether this user has those rights; true if that cannot be determined.
fn may(path: &Path, access: Access) -> bool {
    let found = rustix::fs::accessat(rustix::fs::CWD, path, access, rustix::fs::AtFlags::EACCESS);
    !matches!(found, Err(Errno::ACCESS | Errno::ROFS | Errno::PERM))
}

fn integrity(site: &Arc<Site>) -> Check {
    match open::quick_check(site) {
        Ok(found) if found == "ok" => Check::new("integrity", Verdict::Ok, "the file is intact"),
        Ok(found) => Check::new("integrity", Verdict::Fail, format!("the file is damaged: {found}")),
        Err(error) => failed("integrity", &error),
    }
}

/// Names the locks whose fences this store never granted. They are refused until they are repaired.
fn fences(site: &Arc<Site>) -> Option<Check> {
    let odd = Boot::this().and_then(|boot| open::bad_fences(site, &boot)).ok()?;
    (!odd.is_empty()).then(|| {
        let found = format!("0, or more than 8 days ahead of the file's clock: {}", odd.join(", "));
        Check::new("fences", Verdict::Fail, found).with_advice(leasehold_core::reference::RESET_FENCE)
    })
}

fn failed(check: &'static str, error: &Error) -> Check {
    let failed = Check::new(check, Verdict::Fail, error.message());
    match error.hint() {
        Some(hint) => failed.with_advice(hint),
        None => failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(path: &Path) -> Vec<(&'static str, Verdict)> {
        let config = Config::new(path.to_str().unwrap(), &[]).unwrap();
        examine(&config).into_iter().map(|check| (check.check, check.verdict)).collect()
    }

    #[test]
    fn fences_that_were_never_given_out_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let config = Config::new(folder.path().join("locks.db").to_str().unwrap(), &[]).unwrap();
        drop(crate::File::connect(&config).unwrap());
        let odd = || examine(&config).into_iter().find(|check| check.check == "fences");
        assert!(odd().is_none());
        let put = "INSERT INTO names (name, last, lingers_until) VALUES ('far', 9000000000000000000, 0)";
        rusqlite::Connection::open(&config.path).unwrap().execute(put, []).unwrap();
        let odd = odd().unwrap();
        assert!(odd.verdict == Verdict::Fail && odd.found.ends_with(": far"), "{odd:?}");
    }

    #[test]
    fn a_file_that_is_not_there_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/locks.db");
        assert!(verdicts(&path).iter().all(|(_, verdict)| *verdict == Verdict::Ok));
        assert!(!path.parent().unwrap().exists());
    }

    #[test]
    fn a_damaged_file_fails_and_stays_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks.db");
        drop(open::open(&Site::find(&path, true).unwrap().unwrap(), true).unwrap());
        assert!(verdicts(&path).contains(&("integrity", Verdict::Ok)));
        let mut damaged = fs::read(&path).unwrap();
        damaged[4096..].fill(0x5a);
        fs::write(&path, &damaged).unwrap();
        assert!(verdicts(&path).contains(&("integrity", Verdict::Fail)));
        assert_eq!(fs::read(&path).unwrap(), damaged);
    }

    #[test]
    fn a_foreign_file_is_not_called_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        fs::write(&path, "my notes").unwrap();
        for path in [&path, folder.path()] {
            let verdicts = verdicts(path);
            assert!(!verdicts.iter().any(|(check, _)| ["permissions", "integrity"].contains(check)), "{verdicts:?}");
        }
    }
}
