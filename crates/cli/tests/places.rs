//! Places that are not fit for a file of locks, and users and processes apart from each other: each in namespaces of its own.
//!
//! They need root, `unshare`, `setpriv` and `bindfs`. Without them they show as ignored, unless LEASEHOLD_TEST_ALL is set, as
//! `scripts/test` does: then that is a failure.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, ExitCode, Stdio};

use libtest_mimic::{Arguments, Failed, Trial};

/// Before every script: `expect CODE WORDS command…`, and `$L` for the command, in a folder of its own.
const PRELUDE: &str = r#"
set -eu
expect() {
  want=$1; words=$2; shift 2
  code=0; out=$("$@" 2>&1 </dev/null) || code=$?
  [ "$code" = "$want" ] || { echo "exit $code instead of $want: $*: $out"; exit 1; }
  case "$out" in *"$words"*) ;; *) echo "\"$words\" is missing in: $out"; exit 1 ;; esac
}
unchanged() { sha256sum -c --quiet sums; }
export HOME="$PWD"
"#;

const CASES: &[(&str, &str)] = &[
    (
        "a_clock_of_its_own_is_refused",
        r#"
        expect 0 "" "$L" -s file:locks.db acquire a --lease 1m
        expect 78 "time namespace" unshare -T --boottime 1000 "$L" -s file:locks.db acquire b
        expect 78 "time namespace" unshare -T --boottime 1000 "$L" -s file:locks.db doctor
        expect 75 "busy" unshare -T --boottime 0 "$L" -s file:locks.db acquire a --no-wait
    "#,
    ),
    (
        "a_boot_id_of_its_own_is_refused_while_others_live",
        r#"
        "$L" -s file:locks.db hold a > held < wait & holder=$!
        exec 3> wait
        while [ ! -s held ]; do sleep 0.01; done
        cat /proc/sys/kernel/random/uuid > id; mount --bind id /proc/sys/kernel/random/boot_id
        expect 78 "boot id" "$L" -s file:locks.db acquire a --no-wait
        umount /proc/sys/kernel/random/boot_id
        expect 75 busy "$L" -s file:locks.db acquire a --no-wait
        exec 3>&-; wait $holder
    "#,
    ),
    (
        "a_report_follows_no_link_of_another_user",
        r#"
        mallory="setpriv --reuid 4001 --regid 4001 --clear-groups"
        store=file:$PWD/locks.db
        run() { "$L" -s "$store" run a --report "$1" -- true; }
        is_report() { [ ! -L "$1" ] && [ "$(stat -c %u "$1")" = 0 ] && grep -q '"outcome":"done"' "$1"; }
        echo keep > precious; chmod 600 precious; mkdir private; chmod 700 private; sha256sum precious > sums
        mkdir -m 1777 shared
        # A link in the place of the report, to a file and to one that is not there yet, is itself replaced.
        $mallory ln -s "$PWD/precious" shared/report; run shared/report; is_report shared/report; unchanged
        $mallory ln -s "$PWD/private/new" shared/other; run shared/other; is_report shared/other; [ ! -e private/new ]
        # So is a hard link, or another's file: nothing is written into it.
        ln precious shared/hard; run shared/hard; is_report shared/hard; unchanged
        $mallory sh -c 'umask 0; echo mine > shared/mine; exec 3< shared/mine'; run shared/mine; is_report shared/mine
        # A folder that another user's link leads to is refused before anything runs.
        $mallory ln -s "$PWD/private" shared/folder
        expect 64 "folder is a link of another user" "$L" -s file:locks.db run a --report shared/folder/r -- touch ran
        [ ! -e ran ] && [ ! -e private/r ]
        # Nor does a path lead up again from a folder that its owner can move elsewhere meanwhile.
        mkdir -m 755 theirs; chown 4001 theirs; $mallory mkdir theirs/sub
        expect 64 "can move sub elsewhere" "$L" -s file:locks.db run a --report theirs/sub/../../r -- touch ran
        [ ! -e ran ] && [ ! -e r ]
        (cd theirs; run ../r); is_report r; rm r
        # A pipe of another user gets nothing.
        $mallory mkfifo shared/pipe; $mallory cat shared/pipe > got & reader=$!
        expect 74 "written there: it is a pipe of another user" "$L" -s file:locks.db run a --report shared/pipe -- touch ran
        [ ! -e ran ]
        kill $reader; wait $reader || true; [ ! -s got ]
        # A file that one may not replace, and a folder that one may not write to, are found out before anything runs.
        echo mine > shared/roots; mkdir -m 755 readable
        expect 74 "belongs to user 0" $mallory "$L" -s memory: run a --report shared/roots -- touch shared/ran
        expect 74 "Permission denied" $mallory "$L" -s memory: run a --report readable/r -- touch shared/ran
        [ ! -e shared/ran ] && [ "$(cat shared/roots)" = mine ] && [ -z "$(ls -A readable)" ]
        ! ls -A shared | grep leasehold-report
        # One who swaps the place all the time wins nothing: precious files stay as they are.
        mkdir -m 777 open
        $mallory sh -c 'while [ ! -e open/stop ]; do
            rm -f open/swap; ln -s "$PWD/precious" open/swap; rm -f open/swap; mkfifo open/swap; done; true' 2>/dev/null & swapper=$!
        for i in 1 2 3 4 5 6 7 8 9 10; do run open/swap 2>/dev/null || [ $? = 74 ]; done
        touch open/stop; wait $swapper
        unchanged; [ "$(stat -c '%u %a' precious)" = "0 600" ]
        # Descriptors are written to as before.
        run /dev/stdout | grep -q '"outcome":"done"'
        run /dev/fd/3 3> three; grep -q '"outcome":"done"' three
    "#,
    ),
    (
        "a_user_without_a_number_is_not_taken_for_others_without_one",
        r#"
        mallory="setpriv --reuid 4001 --regid 4001 --clear-groups"
        mkdir -m 1777 open; chown 4001 open; mkdir -m 700 private; $mallory ln -s "$PWD/private" open/link
        # In a user namespace without a map this user and mallory have the same number.
        [ "$(unshare -U stat -c %u open)" = "$(unshare -U id -u)" ]
        expect 78 "belongs to another user" unshare -U "$L" -s file:open/locks.db acquire a
        expect 64 "link is a link of another user" unshare -U "$L" -s memory: run a --report open/link/report -- touch ran
        [ ! -e ran ] && [ ! -e private/report ] && [ ! -e open/locks.db ]
    "#,
    ),
    (
        "what_this_user_may_not_end_keeps_the_lock",
        r#"
        user="setpriv --reuid 4001 --regid 4001 --clear-groups"
        cp "$(command -v setpriv)" as-root; chmod 4755 as-root
        mkdir home; chown 4001 home; export HOME="$PWD/home"
        [ "$($user ./as-root --reuid 0 id -ru)" = 0 ] || { echo "set-uid programs do not work here"; exit 1; }
        for times in "--keep 6s --max-hold 6s" "--lease 6s"; do
            $user "$L" -s file:home/locks.db run a $times --grace 2s --report home/report -- \
                ./as-root --reuid 0 sleep 50 > /dev/null 2> err & runner=$!
            until grep -q "may not end" err; do kill -0 $runner; sleep 0.01; done
            grep -q "is kept until it ends" err; grep -q "sudo leasehold run" err
            pid=$(sed -n "s/.*'kill \([0-9]*\)'.*/\1/p" err); [ "$(cat /proc/$pid/comm)" = sleep ]
            # Longer than any lease of it was when it should have ended.
            sleep 9
            expect 75 "busy" $user "$L" -s file:home/locks.db acquire a --no-wait
            kill -0 "$pid"; kill -0 $runner
            kill "$pid"
            code=0; wait $runner || code=$?
            [ "$code" = 76 ] && grep -q "process $pid could not be ended, and the lock was kept until it ended" err
            grep -q '"reason":"time_ended"' home/report
            expect 0 "" $user "$L" -s file:home/locks.db run a --no-wait -- true
        done
    "#,
    ),
    (
        "what_this_user_may_neither_end_nor_see_keeps_the_lock",
        r#"
        user="setpriv --reuid 4001 --regid 4001 --clear-groups"
        cp "$(command -v setpriv)" as-root; chmod 4755 as-root
        mkdir home; chown 4001 home; export HOME="$PWD/home"
        mount -t proc -o hidepid=2 proc /proc
        $user sh -c '[ ! -e /proc/1 ]' || { echo "hidepid does not work here"; exit 1; }
        # In a session of its own: not reached by what is sent to the command's group either.
        $user "$L" -s file:home/locks.db run a --lease 3s --grace 1s -c './as-root --reuid 0 setsid sleep 50; true' \
            > /dev/null 2> err & runner=$!
        until grep -q "may not end" err; do kill -0 $runner; sleep 0.01; done
        pid=$(sed -n "s/.*'kill \([0-9]*\)'.*/\1/p" err); [ "$(cat /proc/$pid/comm)" = sleep ]
        # Longer than the lease.
        expect 75 "busy" $user "$L" -s file:home/locks.db acquire a --wait 5s
        kill -0 $runner; kill "$pid"
        code=0; wait $runner || code=$?
        [ "$code" = 76 ] && grep -q "process $pid could not be ended, and the lock was kept until it ended" err
    "#,
    ),
    (
        "what_this_user_may_not_end_keeps_the_lock_without_a_guardian_too",
        r#"
        user="setpriv --reuid 4001 --regid 4001 --clear-groups"
        cp "$(command -v setpriv)" as-root; chmod 4755 as-root
        mkdir home; chown 4001 home; export HOME="$PWD/home"
        [ "$($user ./as-root --reuid 0 id -ru)" = 0 ] || { echo "set-uid programs do not work here"; exit 1; }
        for times in "--keep 6s" "--lease 6s"; do
            rm -f started
            $user "$L" -s file:home/locks.db run a $times --grace 1s --report home/report -- \
                ./as-root --reuid 0 sh -c 'echo $$ > started.new; mv started.new started; exec sleep 50' > /dev/null 2> err & runner=$!
            until [ -s started ]; do kill -0 $runner; sleep 0.01; done
            pid=$(cat started); guardian=$(awk '/^PPid:/ {print $2}' /proc/$pid/status)
            [ "$(cat /proc/$guardian/comm)" = lease-guardian ]; kill -9 "$guardian"
            until grep -q "may not end" err; do kill -0 $runner || { cat err; exit 1; }; sleep 0.01; done
            grep -q "may not end $pid .*the lock is kept until it ends" err
            # Longer than any lease of it was when it should have ended.
            sleep 9
            expect 75 "busy" $user "$L" -s file:home/locks.db acquire a --no-wait
            kill -0 "$pid"; kill -0 $runner
            kill "$pid"
            code=0; wait $runner || code=$?
            [ "$code" = 76 ] && grep -q "the guardian was killed, and process $pid could not be ended, and the lock was kept" err
            expect 0 "" $user "$L" -s file:home/locks.db run a --no-wait -- true
        done
    "#,
    ),
    (
        "a_guardian_that_is_killed_before_it_has_reported_lets_nobody_in_too_soon",
        r#"
        export LEASEHOLD_STORE=file:locks.db
        # A guardian opens the terminal between starting the command and telling the runner. Nobody writes to this one, so there it stays.
        mkfifo tty; mount --bind tty /dev/tty
        # Two at one moment. Whichever is first notes that, and does not heed SIGTERM; the other looks whether that one is gone.
        line='trap : TERM; if mkdir taken 2>/dev/null; then echo $$ > new; mv new first; while :; do sleep 0.01; done; fi
            if kill -0 $(cat first) 2>/dev/null; then echo beside; else echo after; fi > second'
        "$L" run a --keep 6s --grace 1s -c "$line" > /dev/null 2> err1 & one=$!
        "$L" run a --keep 6s --grace 1s -c "$line" > /dev/null 2> err2 & two=$!
        until [ -s first ]; do kill -0 $one; kill -0 $two; sleep 0.01; done
        pid=$(cat first); trap 'kill -9 $pid 2>/dev/null || true' EXIT
        until "$L" show a --json | grep -q '"waiters":1'; do sleep 0.01; done
        guardian=$(awk '/^PPid:/ {print $2}' /proc/$pid/status)
        [ "$(cat /proc/$guardian/comm)" = lease-guardian ]
        kill -9 "$guardian"
        # From here on there is one who could write: the next guardian goes on.
        exec 4<> tty
        first=0; wait $one || first=$?; second=0; wait $two || second=$?
        case "$first $second" in "76 0" | "0 76") ;; *) echo "exit $first and $second: $(cat err1 err2)"; exit 1 ;; esac
        grep -q "the guardian was killed" err1 err2
        [ "$(cat second)" = after ] || { echo "the second ran beside the first"; exit 1; }
    "#,
    ),
    (
        "fuse_is_refused",
        r#"
        mkdir real fuse; bindfs real fuse
        expect 78 "FUSE" "$L" -s file:fuse/locks.db acquire a
        expect 78 "FUSE" "$L" -s file:fuse/locks.db doctor
        [ ! -e fuse/locks.db ]
        umount fuse
    "#,
    ),
    (
        "a_file_without_its_folder_is_refused",
        r#"
        mkdir outside inside
        expect 0 "" "$L" -s file:outside/locks.db acquire a --lease 1m
        touch inside/locks.db; mount --bind outside/locks.db inside/locks.db
        sha256sum outside/locks.db outside/locks.db-wal > sums
        expect 78 "without its folder" "$L" -s file:inside/locks.db acquire a --no-wait
        unchanged
        umount inside/locks.db; mount --bind outside inside
        expect 75 "busy" "$L" -s file:inside/locks.db acquire a --no-wait
    "#,
    ),
    (
        "a_disk_that_cannot_be_written_is_said_to_be_so",
        r#"
        mkdir here; expect 0 "" "$L" -s file:here/locks.db acquire a --lease 1m
        sha256sum here/locks.db here/locks.db-wal > sums
        mount --bind here here; mount -o remount,bind,ro here
        for command in "acquire a --no-wait" "run b -- true"; do
            expect 78 "hint: " "$L" -s file:here/locks.db $command
        done
        expect 78 "" "$L" -s file:here/new.db acquire a
        unchanged
    "#,
    ),
    (
        "a_full_disk_is_said_to_be_so_and_loses_nothing",
        r#"
        mkdir small; mount -t tmpfs -o size=2m tmpfs small
        expect 0 "" "$L" -s file:small/locks.db acquire before --lease 1h
        "$L" -s file:small/locks.db hold kept --keep 1m > held < wait & holder=$!
        exec 3> wait
        while [ ! -s held ]; do sleep 0.01; done
        head -c 4m /dev/zero > small/filler 2>/dev/null || true
        code=0; number=0
        while [ "$code" = 0 ]; do
            number=$((number + 1)); code=0
            "$L" -s file:small/locks.db acquire "a$number" --lease 1h >out 2>&1 </dev/null || code=$?
        done
        [ "$code" = 78 ] || { echo "exit $code: $(cat out)"; exit 1; }
        grep -q "no space left" out || { cat out; exit 1; }
        rm small/filler
        expect 0 "" "$L" -s file:small/locks.db acquire more --no-wait
        expect 75 busy "$L" -s file:small/locks.db acquire before --no-wait
        expect 75 busy "$L" -s file:small/locks.db acquire kept --no-wait
        expect 0 "ok" "$L" -s file:small/locks.db doctor
        exec 3>&-; wait $holder
    "#,
    ),
    (
        "no_rights_and_a_group_that_shares",
        r#"
        chmod 755 .
        mkdir private; chmod 711 private; expect 0 "" "$L" -s file:private/locks.db acquire a --lease 1m
        sha256sum private/locks.db private/locks.db-wal > sums
        expect 78 "hint: " setpriv --reuid 65534 --clear-groups "$L" -s file:private/locks.db acquire b --no-wait
        nobody="setpriv --reuid 65534 --clear-groups"
        expect 78 "fail  permissions: mode 600, user 0: this user cannot write the file" $nobody "$L" -s file:private/locks.db doctor
        expect 78 "fail  permissions: there is no file yet, and this user cannot create one" $nobody "$L" -s file:private/no.db doctor
        chmod 700 private
        expect 78 "fail  permissions: this user cannot access" $nobody "$L" -s file:private/locks.db doctor
        chmod 711 private
        chmod 666 private/locks.db*
        expect 78 "fail  permissions: this user cannot write in" $nobody "$L" -s file:private/locks.db doctor
        unchanged
        chmod 644 private/locks.db*
        expect 0 "a" $nobody "$L" -s file:private/locks.db list
        expect 0 "a" $nobody "$L" -s file:private/locks.db show a
        expect 78 "cannot be written by this user" $nobody "$L" -s file:private/locks.db acquire b --no-wait
        expect 78 "create=no" "$L" -s 'file:private/no.db?create=no' acquire a
        install -d -m 2770 -g 4711 shared
        one="setpriv --reuid 4001 --regid 4001 --groups 4711"; two="setpriv --reuid 4002 --regid 4002 --groups 4711"
        $one "$L" -s file:shared/locks.db hold a > held < wait & holder=$!
        exec 3> wait
        while [ ! -s held ]; do sleep 0.01; done
        expect 75 busy $two "$L" -s file:shared/locks.db acquire a --no-wait
        $two "$L" -s file:shared/locks.db run a -- true 3>&- & waiter=$!
        until "$L" -s file:shared/locks.db show a --json | grep -q '"waiters":1'; do sleep 0.01; done
        exec 3>&-
        wait $holder; wait $waiter
        expect 0 "" $two "$L" -s file:shared/locks.db acquire b --lease 1m
        expect 75 busy $one "$L" -s file:shared/locks.db acquire b --no-wait
    "#,
    ),
    (
        "run_where_its_process_group_has_no_number",
        r#"
        export LEASEHOLD_STORE=file:locks.db
        expect 0 hello unshare -p -f --mount-proc "$L" run a -- echo hello
        expect 7 "" unshare -p -f --mount-proc "$L" run a -- "$L" run a --no-wait -c 'exit 7'
        expect 0 joined "$L" run a -- unshare -p -f --mount-proc "$L" run a --no-wait -- echo joined
        expect 76 "" unshare -p -f --mount-proc "$L" run a --lease 1s -c 'setsid sleep 1000 & sleep 1000'
    "#,
    ),
    (
        "run_where_descendants_cannot_be_found_is_refused",
        r#"
        expect 126 "/proc" unshare -p -f "$L" -s file:locks.db run a -- touch ran
        [ ! -e ran ]
        expect 0 "" "$L" -s file:locks.db run a --no-wait -- true
    "#,
    ),
    (
        "a_holder_in_another_pid_namespace_is_seen_to_live_and_to_die",
        r#"
        unshare -p -f --kill-child "$L" -s file:locks.db hold a --keep 1h > held < wait & space=$!
        exec 3> wait
        while [ ! -s held ]; do sleep 0.01; done
        expect 75 busy "$L" -s file:locks.db acquire a --no-wait
        kill -9 $space; wait $space || true
        # Its lease is an hour: it is its liveness file that tells.
        expect 0 "" "$L" -s file:locks.db acquire a --wait 20s
    "#,
    ),
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let missing = missing();
    let must = std::env::var_os("LEASEHOLD_TEST_ALL").is_some();
    let trials = CASES.iter().map(|(name, script)| match &missing {
        Some(reason) if !must => Trial::test(format!("{name} (ignored: {reason})"), || Ok(())).with_ignored_flag(true),
        Some(reason) => {
            let reason = reason.clone();
            Trial::test(*name, move || Err(reason.into()))
        }
        None => Trial::test(*name, move || run(script)),
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// What these tests need and do not have.
fn missing() -> Option<String> {
    let works = |command: &[&str]| {
        let mut command_line = Command::new(command[0]);
        command_line.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command_line.status().is_ok_and(|status| status.success())
    };
    if !rustix::process::geteuid().is_root() {
        return Some("not root".into());
    }
    let needed: [&[&str]; 3] = [&["unshare", "-m", "-T", "true"], &["setpriv", "--version"], &["bindfs", "--version"]];
    needed.iter().find(|command| !works(command)).map(|command| format!("{} does not work", command.join(" ")))
}

fn run(script: &str) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    // Where other users can reach it.
    let binary = folder.path().join("leasehold");
    fs::copy(env!("CARGO_BIN_EXE_leasehold"), &binary)?;
    let script = format!("{PRELUDE}\nmkfifo wait\n{script}");
    let ran = Command::new("timeout")
        .args(["60", "unshare", "-m", "sh", "-c", &script])
        .current_dir(folder.path())
        .env("L", &binary)
        .env_remove("LEASEHOLD_STORE")
        .stdin(Stdio::null())
        .output()?;
    if ran.status.success() {
        return Ok(());
    }
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    Err(format!("{}\n{out}{err}", ran.status).into())
}
