//! Looking whether the file is fit to keep locks. Nothing is made or changed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use leasehold_core::{Check, Error, Verdict};
use rustix::fs::Access;
use rustix::io::Errno;

use crate::config::Config;
use crate::directory::{Site, open_directory};
use crate::error;
use crate::folder;
use crate::machine::{self, Machine};
use crate::open::{self, Found};

const RIGHTS: &str = "give this user, or one of its groups, the right to write there (docs/file.md says how to share a file), or name \
                      another as file:PATH";

/// Looks at the machine, the place and the file. What stands there and is no store of ours is not looked at any further: opening it will
/// say why, and nobody is to be told that something of theirs is damaged.
pub fn examine(config: &Config) -> Vec<Check> {
    let path = config.resolved().path;
    let mut checks = vec![clock(), file_system(&path)];
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
    match Machine::this() {
        Ok(_) => {
            Check::new("clock", Verdict::Ok, "leases are counted from the machine's boot, whatever the wall clock does")
        }
        Err(error) => failed("clock", &error),
    }
}

fn file_system(path: &Path) -> Check {
    let there = existing(path);
    let cannot = |fault: Errno| error::place("the file system cannot be asked about", there, fault.into());
    let asked = open_directory(rustix::fs::CWD, there.as_os_str()).map_err(cannot);
    match asked.and_then(|open| machine::check_file_system(open, there)) {
        Ok(()) => Check::new("file system", Verdict::Ok, format!("{} is this machine's own", there.display())),
        Err(error) => failed("file system", &error),
    }
}

/// Whether this user cannot find out what stands there.
fn is_closed(path: &Path) -> bool {
    match fs::metadata(path) {
        Ok(found) => found.is_file() && !may(path, Access::READ_OK),
        Err(fault) => fault.kind() == std::io::ErrorKind::PermissionDenied,
    }
}

/// Who may take locks here: whoever may write the file.
fn permissions(path: &Path) -> Check {
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(fault) if fault.kind() == std::io::ErrorKind::NotFound => return to_make(path),
        Err(fault) if fault.kind() == std::io::ErrorKind::PermissionDenied => {
            return no_rights(format!(
                "this user cannot look at {}: a folder on the way is closed to it",
                path.display()
            ));
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
        let found = format!(
            "mode {mode:03o}, user {}: users who may only read the file can keep everybody else from it",
            found.uid()
        );
        return Check::new("permissions", Verdict::Warn, found).with_advice(
            "take that right away (chmod go-r) from the file, its -wal and its -shm, unless they are trusted",
        );
    }
    let who = match (mode & 0o020 != 0, mode & 0o002 != 0) {
        (_, true) => "every user",
        (true, false) => "its user and its group",
        (false, false) => "its user alone",
    };
    Check::new("permissions", Verdict::Ok, format!("mode {mode:03o}, user {}: {who} can take locks", found.uid()))
}

/// Whether a file that is not there could be made.
fn to_make(path: &Path) -> Check {
    let folder = existing(path);
    if may(folder, Access::WRITE_OK | Access::EXEC_OK) {
        return Check::new("permissions", Verdict::Ok, "there is no file yet; the first lock makes it");
    }
    no_rights(format!("there is no file yet, and this user cannot make one in {}", folder.display()))
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

/// The nearest folder that is there.
fn existing(path: &Path) -> &Path {
    path.ancestors().skip(1).find(|folder| folder.exists()).unwrap_or(Path::new("/"))
}

/// Whether this user has those rights; true where that cannot be found out.
fn may(path: &Path, access: Access) -> bool {
    let found = rustix::fs::accessat(rustix::fs::CWD, path, access, rustix::fs::AtFlags::EACCESS);
    !matches!(found, Err(Errno::ACCESS | Errno::ROFS | Errno::PERM))
}

fn integrity(site: &Arc<Site>) -> Check {
    match open::quick_check(site) {
        Ok(found) if found == "ok" => Check::new("integrity", Verdict::Ok, "the file is whole"),
        Ok(found) => Check::new("integrity", Verdict::Fail, format!("the file is damaged: {found}")),
        Err(error) => failed("integrity", &error),
    }
}

/// Names the locks whose fences were never given out: they are refused until they are repaired.
fn fences(site: &Arc<Site>) -> Option<Check> {
    let odd = Machine::this().and_then(|machine| open::odd_fences(site, &machine)).ok()?;
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
    fn what_is_not_ours_is_not_called_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        fs::write(&path, "my notes").unwrap();
        for path in [&path, folder.path()] {
            let verdicts = verdicts(path);
            assert!(!verdicts.iter().any(|(check, _)| ["permissions", "integrity"].contains(check)), "{verdicts:?}");
        }
    }
}
