//! Other users on the same machine: through a store, they reach none of each other's files.
//!
//! These tests need root and `setpriv`. Without them they do nothing, unless LEASEHOLD_TEST_ALL is set, as in
//! `scripts/test`: then they fail.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::port::{Acquire, Acquired, Break, Call, Mode, Release, ReleaseScope};
use leasehold_core::{ClientId, Error, ErrorKind, Fence, Name, Names, RequestId, Store, StoreOwner, StoreTime};
use leasehold_file::{Config, File};

const MALLORY: u32 = 4001;
const BOB: u32 = 4002;
const GROUP: u32 = 4711;
const SECRET: &str = "of root alone, and to stay as it is";

/// Tells the copy of this program that runs as another user what to do.
const ROLE: &str = "LEASEHOLD_TEST_ROLE";
const PATH: &str = "LEASEHOLD_TEST_PATH";

fn has_users() -> bool {
    let setpriv = Command::new("setpriv").arg("--version").stdout(Stdio::null()).status();
    let ready = rustix::process::geteuid().is_root() && setpriv.is_ok_and(|status| status.success());
    assert!(ready || std::env::var_os("LEASEHOLD_TEST_ALL").is_none(), "root and setpriv are needed");
    ready
}

/// A directory of root's with a secret in it, and a copy of this program that every user can run.
struct SharedMachine {
    folder: tempfile::TempDir,
}

impl SharedMachine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let machine = Self { folder };
        fs::copy(std::env::current_exe().unwrap(), machine.at("program")).unwrap();
        machine.put("secret", SECRET, 0, 0, 0o600);
        machine
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(path)
    }

    fn put(&self, path: &str, content: &str, user: u32, group: u32, mode: u32) -> PathBuf {
        let path = self.at(path);
        fs::write(&path, content).unwrap();
        chown(&path, Some(user), Some(group)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    fn folder(&self, path: &str, user: u32, group: u32, mode: u32) -> PathBuf {
        let path = self.at(path);
        fs::create_dir(&path).unwrap();
        chown(&path, Some(user), Some(group)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    /// The folder that docs/file.md recommends.
    fn shared(&self) -> PathBuf {
        self.folder("shared", 0, GROUP, 0o2770)
    }

    fn command(&self, user: u32, role: &str, path: &Path) -> Command {
        let mut command = Command::new("setpriv");
        let user = user.to_string();
        command.args(["--reuid", &user, "--regid", &user, "--groups", &GROUP.to_string()]);
        command.arg(self.at("program")).args(["--exact", "role", "--nocapture"]).env(ROLE, role).env(PATH, path);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).current_dir("/");
        command
    }

    /// Another user takes a lock and releases it.
    fn takes(&self, user: u32, path: &Path) -> Output {
        self.command(user, "take", path).output().unwrap()
    }

    fn secret_is_untouched(&self) {
        is_untouched(&self.at("secret"), 0);
    }
}

fn is_untouched(path: &Path, group: u32) {
    let found = fs::symlink_metadata(path).unwrap();
    assert_eq!(fs::read_to_string(path).unwrap(), SECRET, "{}", path.display());
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (0, group, 0o600), "{}", path.display());
}

/// Another user at work, until it is dropped.
struct Attacker(Child);

impl Attacker {
    fn start(machine: &SharedMachine, role: &str, path: &Path) -> Self {
        let mut child = machine.command(MALLORY, role, path).spawn().unwrap();
        // It reports when it has begun.
        let (mut seen, mut byte) = (String::new(), [0]);
        while !seen.contains("begun") {
            assert_eq!(child.stdout.as_mut().unwrap().read(&mut byte).unwrap(), 1, "{seen}");
            seen.push(byte[0].into());
        }
        Self(child)
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn config(path: &Path) -> Config {
    Config { path: path.to_owned(), liveness: true, create: true }
}

/// Takes a lock, waits for another name, and releases everything: all that a client creates and opens.
fn take(path: &Path) -> Result<(), Error> {
    let store = File::connect(&config(path))?;
    let request = RequestId { client: ClientId([u64::from(std::process::id()), rand()]), number: 1 };
    let name = Name::new("a").unwrap();
    let watched = store.watch(request.client, Name::new("b").unwrap(), Arc::new(|_| ()));
    done(watched)?;
    let taken = done(store.acquire(asking(request, &name)))?;
    if let Acquired::Granted(_) = taken.result {
        let scope = ReleaseScope::Hold(request);
        let (owner, fence, last_used, cooldown) = (StoreOwner::Private(request), None, None, Duration::ZERO);
        done(store.release(Release {
            client: request.client,
            name,
            owner,
            fence,
            scope,
            last_used,
            cooldown,
            rejoin: false,
        }))?;
    }
    Ok(())
}

fn asking(request: RequestId, name: &Name) -> Acquire {
    Acquire {
        names: Names::One(name.clone()),
        owner: StoreOwner::Private(request),
        request,
        mode: Mode::Exclusive,
        lease: Duration::from_secs(30),
        block: 1,
        seen: Fence::NONE,
        clock: Default::default(),
        not_after: StoreTime::NEVER,
        enlist: true,
        kept: true,
        about: Arc::default(),
    }
}

fn rand() -> u64 {
    use std::hash::BuildHasher;
    std::hash::RandomState::new().hash_one(0)
}

fn done<T: Unpin>(call: Call<Result<T, Error>>) -> Result<T, Error> {
    use std::future::Future;
    use std::task::{Context, Poll, Waker};
    let mut call = std::pin::pin!(call);
    loop {
        match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn is_refused(path: &Path, words: &str) {
    let error = take(path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unfit, "{error}");
    assert!(error.to_string().contains(words) && error.hint().is_some(), "{error}");
}

/// Lists the locks with read permission only.
fn look(path: &Path) {
    let store = leasehold_file::connect(&config(path)).unwrap();
    let held = done(store.list(String::new(), None, 10)).unwrap().result;
    assert_eq!(held.iter().map(|held| held.name.as_str()).collect::<Vec<_>>(), ["kept"]);
    assert_eq!(done(store.inspect(Name::new("kept").unwrap())).unwrap().result.holders.len(), 1);
    assert!(done(store.inspect(Name::new("free").unwrap())).unwrap().result.holders.is_empty());
    let error = done(store.break_lock(Name::new("kept").unwrap(), Break::Now.into())).unwrap_err();
    assert!(
        error.kind() == ErrorKind::Unfit && error.to_string().contains("cannot be written by this user"),
        "{error}"
    );
}

/// Roles of the copies of this program that run as other users.
#[test]
fn role() {
    let (Ok(role), Some(path)) = (std::env::var(ROLE), std::env::var_os(PATH).map(PathBuf::from)) else { return };
    match role.as_str() {
        "take" => take(&path).unwrap(),
        "block" => block(&path),
        "lease" => lease(&path),
        "few files" => take_with_few_files(&path),
        "look" => look(&path),
        "swap" => swap(&path),
        "swap logs" => swap_logs(&path),
        role => panic!("{role}?"),
    }
}

/// Takes a lock with ever more available descriptors, and never panics.
fn take_with_few_files(path: &Path) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let whole = getrlimit(Resource::Nofile);
    let (mut failed, mut hinted) = (0, 0);
    for files in 0.. {
        setrlimit(Resource::Nofile, Rlimit { current: Some(files), ..whole }).unwrap();
        let taken = take(path);
        setrlimit(Resource::Nofile, whole).unwrap();
        let Err(error) = taken else { break };
        assert!([ErrorKind::Unfit, ErrorKind::Unreachable].contains(&error.kind()), "{files} files: {error}");
        failed += 1;
        hinted += u64::from(error.hint().is_some_and(|hint| hint.contains("ulimit -n")));
        assert!(files < 100, "{error}");
    }
    assert!(failed > 0 && hinted * 2 > failed, "{hinted} of {failed} say what is missing");
}

/// Blocks the file with read permission only: with a lock on the index of its log.
fn block(path: &Path) {
    use nix::fcntl::{FcntlArg, fcntl};
    use nix::libc::{F_RDLCK, SEEK_SET, flock};
    let index = fs::File::open(path.with_extension("db-shm")).unwrap();
    let [l_type, l_whence] = [F_RDLCK, SEEK_SET].map(|constant| i16::try_from(constant).unwrap());
    // The locks that SQLite needs for a write, a checkpoint and a recovery.
    fcntl(&index, FcntlArg::F_SETLK(&flock { l_type, l_whence, l_start: 120, l_len: 3, l_pid: 0 })).unwrap();
    println!("begun");
    std::thread::sleep(Duration::from_secs(600));
}

/// Takes a lease, so that the kernel asks this process before any other may open a file, and never answers.
#[allow(unsafe_code, reason = "there is no other way to a lease")]
fn lease(path: &Path) {
    use std::os::fd::AsRawFd;
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    // SAFETY: both calls affect only this process, which continues without the signal.
    unsafe {
        nix::libc::signal(nix::libc::SIGIO, nix::libc::SIG_IGN);
        assert_eq!(nix::libc::fcntl(file.as_raw_fd(), nix::libc::F_SETLEASE, nix::libc::F_WRLCK), 0);
    }
    println!("begun");
    std::thread::sleep(Duration::from_secs(600));
}

/// Replaces the log and its index by a file of root's and back, as fast as it can.
fn swap_logs(folder: &Path) {
    println!("begun");
    let at = |name: &str| folder.join(name);
    for log in ["locks.db-wal", "locks.db-shm"].iter().cycle() {
        let _ = fs::rename(at(log), at("away"));
        let _ = fs::rename(at("private"), at(log));
        std::thread::sleep(Duration::from_micros(200));
        let _ = fs::rename(at(log), at("private"));
        let _ = fs::rename(at("away"), at(log));
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Puts links in the place of everything that is opened, created or changed, as fast as it can, alternating with real
/// files.
fn swap(folder: &Path) {
    println!("begun");
    let secret = folder.parent().unwrap().join("secret");
    let spare = folder.join("spare");
    for turn in 0_u32.. {
        for name in ["locks.db", "locks.db-wal", "locks.db-shm", "locks.db.d", "locks.db.d/opening", "locks.db-journal"]
        {
            let path = folder.join(name);
            match turn % 3 {
                0 => {
                    let _ = symlink(&secret, &spare);
                    let _ = fs::rename(&spare, &path);
                }
                1 => drop(fs::write(&path, "")),
                _ => drop(fs::remove_file(&path)),
            }
        }
        let _ = fs::rename(folder.join("locks.db.d"), folder.join(format!("old-{turn}")));
        for entry in fs::read_dir(folder.join(format!("old-{turn}"))).into_iter().flatten().flatten() {
            let _ = symlink(&secret, &spare);
            let _ = fs::rename(&spare, entry.path());
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[test]
fn a_journal_of_a_stranger_stops_no_store_that_is_there() {
    if !has_users() {
        return;
    }
    let machine = SharedMachine::new();
    let path = machine.folder("open", 0, 0, 0o1777).join("locks.db");
    let taken = machine.takes(BOB, &path);
    assert!(taken.status.success(), "{}", String::from_utf8_lossy(&taken.stderr));
    let content = "as good as any that SQLite would play back";
    let journal = machine.put("open/locks.db-journal", content, MALLORY, GROUP, 0o666);
    let taken = machine.takes(BOB, &path);
    assert!(taken.status.success(), "{}", String::from_utf8_lossy(&taken.stderr));
    let left = (fs::read_to_string(&journal).unwrap(), fs::metadata(&journal).unwrap().uid());
    assert_eq!(left, (content.to_owned(), MALLORY));
    // One that may be SQLite's own is not ignored.
    chown(&journal, Some(BOB), None).unwrap();
    let refused = machine.takes(BOB, &path);
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && why.contains("no rollback journal"), "{why}");
    assert_eq!(fs::read_to_string(&journal).unwrap(), content);
}

/// Gives another user write permission on a folder, as `setfacl -m u:USER:rwx` does.
fn let_write(folder: &Path, user: u32) {
    set_list(folder, user, 5);
}

/// An access list in which one more user may do everything, and the group and all others may do `rest`.
fn set_list(path: &Path, user: u32, rest: u16) {
    let entries: [(u16, u16, u32); 5] =
        [(1, 7, u32::MAX), (2, 7, user), (4, rest, u32::MAX), (16, 7, u32::MAX), (32, rest, u32::MAX)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (what, may, who) in entries {
        list.extend([&what.to_le_bytes()[..], &may.to_le_bytes(), &who.to_le_bytes()].concat());
    }
    rustix::fs::setxattr(path, "system.posix_acl_access", &list, rustix::fs::XattrFlags::empty()).unwrap();
}

#[test]
fn no_path_leads_through_a_folder_that_an_access_list_opens() {
    if !has_users() {
        return;
    }
    let machine = SharedMachine::new();
    let open = machine.folder("open", 0, 0, 0o755);
    machine.folder("open/next", 0, 0, 0o700);
    let path = open.join("next/locks.db");
    let_write(&open, BOB);
    is_refused(&path, "can replace the next folder");
    assert_eq!(fs::read_dir(open.join("next")).unwrap().count(), 0);
    // As without a list: the next folder cannot be replaced.
    fs::set_permissions(&open, Permissions::from_mode(0o1775)).unwrap();
    take(&path).unwrap();
}

#[test]
fn what_an_access_list_gives_to_one_user_is_not_given_to_the_group() {
    if !has_users() {
        return;
    }
    let machine = SharedMachine::new();
    // The mode of an empty file decides who may use the store; the log of an existing store is created again.
    for (folder, is_made, private) in
        [("new", false, &["", "-wal", "-shm", ".d"][..]), ("old", true, &["-wal", "-shm"])]
    {
        let path = machine.folder(folder, 0, 0, 0o755).join("locks.db");
        let beside = |suffix: &str| path.with_file_name(format!("locks.db{suffix}"));
        if is_made {
            take(&path).unwrap();
            ["-wal", "-shm"].into_iter().for_each(|suffix| fs::remove_file(beside(suffix)).unwrap());
        } else {
            fs::write(&path, "").unwrap();
        }
        chown(&path, Some(0), Some(GROUP)).unwrap();
        set_list(&path, BOB, 0);
        take(&path).unwrap();
        for suffix in private {
            let mode = fs::metadata(beside(suffix)).unwrap().mode();
            assert_eq!(mode & 0o077, 0, "{folder}: the group can use locks.db{suffix}: {mode:o}");
        }
    }
}

#[test]
fn a_group_shares_a_folder_of_roots() {
    if !has_users() {
        return;
    }
    for prepared in [false, true] {
        let machine = SharedMachine::new();
        let path = machine.shared().join("locks.db");
        if prepared {
            machine.put("shared/locks.db", "", 0, GROUP, 0o660);
        }
        for user in [MALLORY, BOB, MALLORY] {
            let taken = machine.takes(user, &path);
            assert!(taken.status.success(), "{}", String::from_utf8_lossy(&taken.stdout));
        }
        take(&path).unwrap();
        for name in ["locks.db", "locks.db-wal", "locks.db-shm", "locks.db.d/opening"] {
            let found = fs::symlink_metadata(machine.at("shared").join(name)).unwrap();
            assert_eq!((found.gid(), found.mode() & 0o7777), (GROUP, 0o660), "{name}");
        }
        let folder = fs::symlink_metadata(machine.at("shared/locks.db.d")).unwrap();
        assert_eq!((folder.gid(), folder.mode() & 0o7777), (GROUP, 0o2770));
    }
}

#[test]
fn a_new_file_is_of_its_user_alone() {
    if !has_users() {
        return;
    }
    let machine = SharedMachine::new();
    let path = machine.at("new/folder/locks.db");
    take(&path).unwrap();
    for (name, mode) in
        [("", 0o700), ("locks.db", 0o600), ("locks.db-wal", 0o600), ("locks.db-shm", 0o600), ("locks.db.d", 0o700)]
    {
        let found = fs::symlink_metadata(path.parent().unwrap().join(name)).unwrap();
        assert_eq!(found.mode() & 0o7777, mode, "{name}");
    }
    assert!(!machine.takes(BOB, &path).status.success());
}

#[test]
fn the_folders_and_links_of_others_are_refused() {
    if !has_users() {
        return;
    }
    let machine = SharedMachine::new();
    let home = machine.folder("mallory", MALLORY, MALLORY, 0o755);
    machine.folder("mallory/roots", 0, 0, 0o755);
    machine.folder("target", 0, 0, 0o755);
    is_refused(&home.join("locks.db"), "belongs to another user (id 4001)");
    is_refused(&home.join("roots/locks.db"), "belongs to another user (id 4001)");
    let temporary = machine.folder("temporary", 0, 0, 0o1777);
    for (link, target) in [("file.db", "target/locks.db"), ("folder", "target")] {
        symlink(machine.at(target), temporary.join(link)).unwrap();
        std::os::unix::fs::lchown(temporary.join(link), Some(MALLORY), Some(MALLORY)).unwrap();
    }
    is_refused(&temporary.join("file.db"), "is an untrusted link");
    is_refused(&temporary.join("folder/locks.db"), "is an untrusted link");
    let open = machine.folder("open", 0, 0, 0o777);
    is_refused(&open.join("locks.db"), "every user can replace files");
    is_refused(&open.join("new/locks.db"), "every user can replace files");
    for empty in [&open, &machine.at("target"), &machine.at("mallory/roots")] {
        assert_eq!(fs::read_dir(empty).unwrap().count(), 0, "{}", empty.display());
    }
}

#[test]
fn a_link_of_ones_own_is_followed() {
    if !has_users() {
        return;
    }
    let machine = SharedMachine::new();
    let temporary = machine.folder("temporary", 0, 0, 0o1777);
    machine.folder("target", 0, 0, 0o755);
    symlink(machine.at("target"), temporary.join("folder")).unwrap();
    take(&temporary.join("folder/locks.db")).unwrap();
    assert!(machine.at("target/locks.db").exists());
}

#[test]
fn in_a_folder_of_everybody_a_file_is_its_makers_alone() {
    if !has_users() {
        return;
    }
    let machine = SharedMachine::new();
    let temporary = machine.folder("temporary", 0, 0, 0o1777);
    let (mine, bobs) = (temporary.join("mine.db"), temporary.join("bobs.db"));
    take(&mine).unwrap();
    take(&mine).unwrap();
    for _ in 0..2 {
        assert!(machine.takes(BOB, &bobs).status.success());
    }
    assert!(!machine.takes(MALLORY, &bobs).status.success());
    is_refused(&bobs, "belongs to another user (id 4002)");
    // Names that were taken before.
    for (store, taken) in
        [("one.db", "one.db-wal"), ("two.db", "two.db-shm"), ("three.db", "three.db"), ("four.db", "four.db")]
    {
        let content = if store == "three.db" { "" } else { "something" };
        machine.put(&format!("temporary/{taken}"), content, MALLORY, MALLORY, 0o666);
        let path = temporary.join(store);
        match taken {
            // Root may remove what was left of a removed file.
            "one.db-wal" | "two.db-shm" => {
                assert!(!machine.takes(BOB, &path).status.success(), "{taken}");
            }
            _ => is_refused(&path, "belongs to another user (id 4001)"),
        }
    }
    let folder = temporary.join("five.db.d");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("opening"), "").unwrap();
    for path in [&folder, &folder.join("opening")] {
        chown(path, Some(MALLORY), Some(MALLORY)).unwrap();
    }
    is_refused(&temporary.join("five.db"), "belongs to another user (id 4001)");
}

/// Each thing that SQLite or this store opens could lead to another file.
#[test]
fn nothing_is_reached_through_links_that_a_member_put_there() {
    if !has_users() {
        return;
    }
    for hard in [false, true] {
        for name in ["locks.db", "locks.db-wal", "locks.db-shm", "locks.db-journal", "locks.db.d", "locks.db.d/opening"]
        {
            for used in [false, true] {
                let machine = SharedMachine::new();
                let path = machine.shared().join("locks.db");
                if used {
                    assert!(machine.takes(MALLORY, &path).status.success());
                } else if name.contains('/') {
                    machine.folder("shared/locks.db.d", MALLORY, GROUP, 0o2770);
                }
                let link = machine.at("shared").join(name);
                let _ = fs::remove_file(&link);
                if name == "locks.db.d" {
                    let _ = fs::remove_dir_all(&link);
                }
                if hard {
                    fs::hard_link(machine.at("secret"), &link).unwrap();
                } else {
                    symlink(machine.at("secret"), &link).unwrap();
                }
                // Some of it blocks no one.
                let _ = take(&path);
                let _ = machine.takes(BOB, &path);
                machine.secret_is_untouched();
            }
        }
    }
}

/// A file of root's in the same folder, moved by a member of the group to where root would hand it over.
#[test]
fn a_file_that_is_no_log_is_not_taken_for_one() {
    if !has_users() {
        return;
    }
    for name in ["locks.db-wal", "locks.db-shm"] {
        let machine = SharedMachine::new();
        let path = machine.shared().join("locks.db");
        assert!(machine.takes(MALLORY, &path).status.success());
        let moved = machine.put(&format!("shared/{name}"), SECRET, 0, GROUP, 0o600);
        is_refused(&path, "it was left unchanged");
        is_untouched(&moved, GROUP);
    }
}

/// An empty private folder of root's, moved by a member of the group to where the store has its own.
#[test]
fn a_folder_that_stands_there_already_is_not_given_to_the_group() {
    if !has_users() {
        return;
    }
    for is_made in [true, false] {
        let machine = SharedMachine::new();
        let path = machine.shared().join("locks.db");
        if is_made {
            assert!(machine.takes(MALLORY, &path).status.success());
            fs::remove_dir_all(machine.at("shared/locks.db.d")).unwrap();
        }
        let vault = machine.folder("shared/locks.db.d", 0, 0, 0o700);
        is_refused(&path, "locks.db.d is needed for the processes that use the file, but is not leasehold's");
        let found = fs::symlink_metadata(&vault).unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (0, 0, 0o700));
        assert_eq!(fs::read_dir(&vault).unwrap().count(), 0);
        fs::remove_dir(&vault).unwrap();
        take(&path).unwrap();
        let mut names: Vec<_> = fs::read_dir(machine.at("shared")).unwrap().map(|it| it.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["locks.db", "locks.db-shm", "locks.db-wal", "locks.db.d"], "nothing else is left");
    }
}

/// Files beside a store that does not exist yet, or is empty, must not be removed.
#[test]
fn files_that_stand_beside_a_new_file_are_left() {
    if !has_users() {
        return;
    }
    for suffix in ["-wal", "-shm", "-journal"] {
        for (is_shared, owner) in [(false, 0), (true, 0), (false, MALLORY)] {
            let machine = SharedMachine::new();
            let folder = if is_shared { machine.shared() } else { machine.folder("shared", 0, 0, 0o1777) };
            let path = folder.join("data");
            let (first, other) = (format!("shared/data{suffix}"), machine.at("shared/data-wal"));
            let beside = machine.put(&first, SECRET, owner, 0, 0o600);
            if suffix == "-shm" {
                // The log of a removed file, which could be removed; but if anything else is refused, nothing is
                // removed.
                fs::write(&other, 0x377f_0682_u32.to_be_bytes()).unwrap();
            }
            is_refused(&path, &format!("data{suffix} "));
            if is_shared {
                assert!(!machine.takes(BOB, &path).status.success());
            }
            assert_eq!(fs::read_to_string(&beside).unwrap(), SECRET);
            let found = fs::symlink_metadata(&beside).unwrap();
            assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (owner, 0, 0o600));
            assert!(suffix != "-shm" || other.exists());
            assert!(!path.exists());
            fs::remove_file(&beside).unwrap();
            take(&path).unwrap();
        }
    }
}

/// The kernel would make everyone else wait for 45 seconds.
#[test]
fn a_lease_on_a_file_is_not_waited_for_beyond_the_patience() {
    if !has_users() {
        return;
    }
    for suffix in ["", "-wal", "-shm"] {
        let machine = SharedMachine::new();
        let path = machine.shared().join("locks.db");
        assert!(machine.takes(MALLORY, &path).status.success());
        let leased = machine.at(&format!("shared/locks.db{suffix}"));
        chown(&leased, Some(MALLORY), Some(GROUP)).unwrap();
        let attacker = Attacker::start(&machine, "lease", &leased);
        let since = std::time::Instant::now();
        let error = take(&path).unwrap_err();
        assert!(since.elapsed() < Duration::from_secs(20), "{suffix}: {:?}", since.elapsed());
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{suffix}: {error}");
        assert!(error.to_string().contains("(with a lease, F_SETLEASE)") && error.hint().is_some(), "{error}");
        drop(attacker);
        take(&path).unwrap();
    }
}

/// A member of the group could move another folder of root's there.
#[test]
fn a_path_through_a_folder_of_a_group_is_refused() {
    if !has_users() {
        return;
    }
    let machine = SharedMachine::new();
    let shared = machine.shared();
    let private = machine.folder("shared/private", 0, 0, 0o700);
    for path in ["private/locks.db", "new/locks.db"] {
        is_refused(
            &shared.join(path),
            "where other users (its group, id 4711, or users in its access list) can replace the next folder",
        );
    }
    assert!(!shared.join("new").exists() && fs::read_dir(&private).unwrap().next().is_none());
    fs::set_permissions(&shared, Permissions::from_mode(0o3770)).unwrap();
    for path in ["private/locks.db", "new/locks.db"] {
        take(&shared.join(path)).unwrap();
    }
    // A user's own group, as many systems create for each user, and that of root do not count as others.
    for (user, group) in [(BOB, BOB), (0, 0)] {
        let own = machine.folder(&format!("own-{user}"), user, group, 0o775);
        let path = own.join("new/locks.db");
        let taken = if user == 0 { take(&path).is_ok() } else { machine.takes(user, &path).status.success() };
        assert!(taken, "{}", path.display());
    }
}

/// A log that belongs to root stays root's, even if the file belongs to a member.
#[test]
fn root_gives_no_file_away() {
    if !has_users() {
        return;
    }
    let machine = SharedMachine::new();
    let path = machine.shared().join("locks.db");
    assert!(machine.takes(MALLORY, &path).status.success());
    let others = ["locks.db-wal", "locks.db-shm"].map(|name| machine.at("shared").join(name));
    others.iter().for_each(|path| chown(path, Some(0), Some(GROUP)).unwrap());
    take(&path).unwrap();
    for path in others {
        assert_eq!(fs::metadata(&path).unwrap().uid(), 0, "{}", path.display());
    }
}

#[test]
fn an_empty_file_of_a_member_is_refused() {
    if !has_users() {
        return;
    }
    let machine = SharedMachine::new();
    let path = machine.shared().join("locks.db");
    machine.put("shared/locks.db", "", MALLORY, GROUP, 0o666);
    is_refused(&path, "belongs to another user (id 4001)");
    assert!(machine.takes(MALLORY, &path).status.success(), "it is its own");
}

/// Everything is swapped for links and other files while root and a member use the store: whatever happens to their
/// calls, no other file is changed or created.
#[test]
fn swaps_while_the_file_is_used_reach_nothing() {
    if !has_users() {
        return;
    }
    for role in ["swap", "swap logs"] {
        let machine = SharedMachine::new();
        let folder = machine.shared();
        let path = folder.join("locks.db");
        assert!(machine.takes(MALLORY, &path).status.success());
        machine.put("shared/private", SECRET, 0, GROUP, 0o600);
        let attacker = Attacker::start(&machine, role, &folder);
        let refused = (0..300).filter(|_| take(&path).is_err()).count();
        for _ in 0..10 {
            machine.takes(BOB, &path);
        }
        drop(attacker);
        assert!(refused > 0, "nothing was swapped");
        machine.secret_is_untouched();
        // Wherever it was moved.
        let names = ["private", "locks.db-wal", "locks.db-shm"].map(|name| folder.join(name));
        let is_private = |path: &&PathBuf| {
            fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
                && fs::read(path).is_ok_and(|bytes| bytes == SECRET.as_bytes())
        };
        let private: Vec<_> = names.iter().filter(is_private).collect();
        assert_eq!(private.len(), 1, "{private:?}");
        is_untouched(private[0], GROUP);
        let made: Vec<_> =
            fs::read_dir(machine.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(made.len(), 3, "{made:?}");
    }
}

/// A folder on the path is swapped for a link to another folder of root's, and back.
#[test]
fn a_folder_that_is_replaced_while_the_store_is_open_is_noticed() {
    if !has_users() {
        return;
    }
    let machine = SharedMachine::new();
    let shared = machine.folder("shared", 0, GROUP, 0o3770);
    let inner = machine.folder("shared/inner", 0, 0, 0o755);
    let target = machine.folder("target", 0, 0, 0o755);
    let store = File::connect(&config(&inner.join("locks.db"))).unwrap();
    let name = || Name::new("a").unwrap();
    done(store.inspect(name())).unwrap();
    fs::rename(&inner, shared.join("away")).unwrap();
    symlink(&target, &inner).unwrap();
    std::os::unix::fs::lchown(&inner, Some(MALLORY), Some(MALLORY)).unwrap();
    let error = done(store.inspect(name())).unwrap_err();
    assert!(error.kind() == ErrorKind::Unfit && error.to_string().contains("is an untrusted link"), "{error}");
    fs::remove_file(&inner).unwrap();
    machine.folder("shared/inner", MALLORY, MALLORY, 0o755);
    let error = done(store.inspect(name())).unwrap_err();
    assert!(error.to_string().contains("belongs to another user (id 4001)"), "{error}");
    assert_eq!((fs::read_dir(&target).unwrap().count(), fs::read_dir(&inner).unwrap().count()), (0, 0));
}

/// Even if no process has the file open.
#[test]
fn a_user_who_may_read_the_file_sees_the_locks() {
    if !has_users() {
        return;
    }
    let machine = SharedMachine::new();
    let path = machine.folder("readable", 0, 0, 0o755).join("locks.db");
    let store = File::connect(&config(&path)).unwrap();
    let request = RequestId { client: ClientId([1, 2]), number: 1 };
    let kept = Acquire { kept: false, ..asking(request, &Name::new("kept").unwrap()) };
    assert!(matches!(done(store.acquire(kept)).unwrap().result, Acquired::Granted(_)));
    assert!(!machine.command(BOB, "look", &path).output().unwrap().status.success(), "it is root's alone");
    for suffix in ["", "-wal", "-shm"] {
        fs::set_permissions(machine.at(&format!("readable/locks.db{suffix}")), Permissions::from_mode(0o644)).unwrap();
    }
    let looks = || machine.command(BOB, "look", &path).output().unwrap();
    let seen = looks();
    assert!(seen.status.success(), "{}", String::from_utf8_lossy(&seen.stdout));
    drop(store);
    let seen = looks();
    assert!(seen.status.success(), "{}", String::from_utf8_lossy(&seen.stdout));
    let listing: Vec<_> = fs::read_dir(machine.at("readable")).unwrap().collect();
    assert_eq!(listing.len(), 4, "{listing:?}");
}

#[test]
fn a_file_that_others_keep_busy_is_unreachable() {
    if !has_users() {
        return;
    }
    let machine = SharedMachine::new();
    let path = machine.folder("readable", 0, 0, 0o755).join("locks.db");
    let store = File::connect(&config(&path)).unwrap();
    fs::set_permissions(machine.at("readable/locks.db-shm"), Permissions::from_mode(0o644)).unwrap();
    for is_open in [true, false] {
        let blocked = Attacker::start(&machine, "block", &path);
        let request = RequestId { client: ClientId([1, 2]), number: u64::from(is_open) };
        let error = match is_open {
            true => done(store.acquire(asking(request, &Name::new("a").unwrap()))).unwrap_err(),
            false => take(&path).unwrap_err(),
        };
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unreachable, true), "{error}");
        drop(blocked);
    }
    drop(store);
    let blocked = Attacker::start(&machine, "block", &path);
    assert_eq!(take(&path).unwrap_err().kind(), ErrorKind::Unreachable);
    drop(blocked);
    take(&path).unwrap();
}

#[test]
fn with_few_files_an_error_says_so() {
    if !has_users() {
        return;
    }
    let machine = SharedMachine::new();
    let path = machine.shared().join("locks.db");
    let taken = machine.command(BOB, "few files", &path).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(taken.status.success(), "{}{}", text(&taken.stdout), text(&taken.stderr));
}
