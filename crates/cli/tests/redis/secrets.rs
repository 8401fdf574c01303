//! Passwords: from files that are read again, not in the command's environment, and never shown.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use leasehold_faults::servers::Redis;
use leasehold_faults::servers::redis::Settings;

use crate::harness::{Case, Checked, Held, Ran, run, url, url_of};
use crate::program;

pub(crate) const CASES: &[Case] = &[
    ("secrets::a_password_file_is_read_again_with_every_connection", a_password_file_is_read_again),
    ("secrets::a_password_may_come_through_a_pipe", a_password_may_come_through_a_pipe),
    ("secrets::a_file_without_a_password_is_refused", a_file_without_a_password_is_refused),
    ("secrets::a_file_that_all_can_read_is_told_of", a_file_that_all_can_read_is_told_of),
    ("secrets::a_command_gets_no_password", a_command_gets_no_password),
    ("secrets::a_password_that_ended_too_soon_leads_nowhere", a_password_that_ended_too_soon_leads_nowhere),
];

fn private(path: &Path, text: &str) -> Checked {
    fs::write(path, text)?;
    Ok(fs::set_permissions(path, Permissions::from_mode(0o600))?)
}

/// The program on that store, not yet started.
fn on(url: &str, args: &[&str]) -> Command {
    let mut command = program::command();
    command.env_clear().env("LEASEHOLD_STORE", url).args(args).stdin(Stdio::null());
    command
}

fn ran(mut command: Command) -> Ran {
    command.output().expect("the command").into()
}

fn a_password_file_is_read_again() -> Checked {
    let server =
        Redis::with(Settings::default().users("user ada on >one ~* &* +@all\nuser default on nopass ~* &* +@all\n"))?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("password");
    private(&path, "one\n")?;
    let file = path.to_str().ok_or("not UTF-8")?;
    let store = url_of(&server, "ada", "");
    let held = Held::start(&store, &["run", "a", "--keep", "6s", "--password-file", file]);
    server.command(&["ACL", "SETUSER", "ada", "resetpass", ">two"])?;
    private(&path, "two\n")?;
    server.command(&["CLIENT", "KILL", "USER", "ada"])?;
    let began = Instant::now();
    // It renews within two seconds, and logs in for that.
    while !server.command(&["CLIENT", "LIST"])?.text()?.contains("user=ada") {
        assert!(began.elapsed() < Duration::from_secs(60), "it never logged in again");
        std::thread::sleep(Duration::from_millis(10));
    }
    let err = held.ends(0);
    assert!(!err.contains("released") && !err.contains("two"), "{err}");
    run(&url(&server), &["acquire", "a", "--no-wait"]).is(0);
    // Without the new password every login is refused.
    private(&path, "one\n")?;
    let mut late = on(&store, &["show", "a"]);
    late.env("LEASEHOLD_PASSWORD_FILE", &path);
    ran(late).fails(78, "login refused", "password");
    Ok(())
}

fn a_password_may_come_through_a_pipe() -> Checked {
    let server = Redis::with(Settings::default().password("secret"))?;
    let mut shell = program::bare(Command::new("sh"));
    let line = r#"printf 'secret\n' | "$0" run a --password-file /dev/stdin -c 'echo "<$LEASEHOLD_PASSWORD_FILE>"'"#;
    shell.args(["-c", line, program::PATH]).env("LEASEHOLD_STORE", url(&server));
    assert_eq!(ran(shell).is(0).out, "<>\n");
    Ok(())
}

fn a_file_without_a_password_is_refused() -> Checked {
    let server = Redis::with(Settings::default().password("secret"))?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("password");
    let file = path.to_str().ok_or("not UTF-8")?;
    let began = Instant::now();
    let acquire = || run(&url(&server), &["acquire", "a", "--password-file", file]);
    acquire().fails(64, "cannot be read", "may read");
    private(&path, "\n")?;
    acquire().fails(64, "is empty", "UTF-8");
    fs::write(&path, b"secret\xff")?;
    assert!(!acquire().fails(64, "not valid UTF-8", "UTF-8").err.contains("secret"));
    assert!(began.elapsed() < Duration::from_secs(30), "it was waited for");
    let mut command = on(&url(&server), &["acquire", "a"]);
    command.env("LEASEHOLD_PASSWORD", OsStr::from_bytes(b"secret\xff"));
    assert!(!ran(command).fails(64, "LEASEHOLD_PASSWORD is not valid UTF-8", "--password-file").err.contains("secret"));
    // Without a login, the password file is not checked.
    let store = format!("file:{}", folder.path().join("locks.db").display());
    run(&store, &["acquire", "a", "--password-file", "/no/such/file"]).is(0);
    Ok(())
}

fn a_file_that_all_can_read_is_told_of() -> Checked {
    let server = Redis::with(Settings::default().password("secret"))?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("password");
    private(&path, "secret")?;
    let file = path.to_str().ok_or("not UTF-8")?;
    let show = || run(&url(&server), &["show", "a", "--password-file", file]);
    assert_eq!(show().is(0).err, "");
    fs::set_permissions(&path, Permissions::from_mode(0o644))?;
    let told = show();
    assert!(
        told.is(0).err.contains("every user can read the password file") && told.err.lines().count() == 1,
        "{told:?}"
    );
    Ok(())
}

fn a_command_gets_no_password() -> Checked {
    let server = Redis::with(
        Settings::default().users("user ada on >se%cret ~* &* +@all\nuser default on >se%cret ~* &* +@all\n"),
    )?;
    let with_password = url_of(&server, "ada:se%25cret", "?prefix=app:");
    let without = url_of(&server, "ada", "?prefix=app:");
    let inside = |mut command: Command, flags: &[&str]| {
        command.args(["run", "a"]).args(flags).args(["-c", "env; cat /proc/$PPID/environ | tr '\\0' '\\n'"]);
        ran(command).is(0).out.clone()
    };
    let by_url = inside(on(&with_password, &[]), &[]);
    assert!(by_url.contains(&format!("LEASEHOLD_STORE={without}\n")), "{by_url}");
    assert!(!by_url.contains("cret"), "{by_url}");
    // Also where the flag names another store.
    let by_flag = inside(on("redis://u:cret@other", &["--store", &with_password]), &[]);
    assert!(by_flag.contains("LEASEHOLD_STORE=redis://u@other\n") && !by_flag.contains("cret"), "{by_flag}");
    let odd = inside(on("redis://u:?cret@other", &["--store", &with_password]), &[]);
    assert!(!odd.contains("LEASEHOLD_STORE=") && !odd.contains("cret"), "{odd}");
    let mut variable = on(&without, &[]);
    variable.env("LEASEHOLD_PASSWORD", "se%cret");
    let by_variable = inside(variable, &[]);
    assert!(!by_variable.contains("cret") && !by_variable.contains("LEASEHOLD_PASSWORD"), "{by_variable}");
    let passed = inside(on(&with_password, &[]), &["--pass-secrets"]);
    assert!(passed.contains(&format!("LEASEHOLD_STORE={with_password}\n")), "{passed}");
    Ok(())
}

fn a_password_that_ended_too_soon_leads_nowhere() -> Checked {
    let server = Redis::start()?;
    let port = server.address().port();
    // Taken for a URL of a server, it would lead to the one on this machine.
    for login in [format!("127.0.0.1:{port}?cret"), format!("127.0.0.1:{port}#cret"), format!("127.0.0.1:{port}/cret")]
    {
        for args in [
            &["acquire", "a", "--no-wait"][..],
            &["list"],
            &["-vv", "doctor"],
            &["run", "a", "-c", "true"],
            &["schema"],
        ] {
            let refused = run(&format!("redis://{login}@host:6379/0"), args);
            refused.fails(64, "ambiguous", "%3F");
            assert!(!refused.err.contains("cret") && !refused.out.contains("cret"), "{refused:?}");
        }
    }
    Ok(())
}
