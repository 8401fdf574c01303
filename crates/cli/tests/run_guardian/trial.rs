//! One trial: a command under a lock, a fault, the next holder, and the check.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{PoisonError, RwLock, mpsc};
use std::time::Duration;

use leasehold::{Attempt, Client, Error, ErrorKind};
use leasehold_core::Moment;
use rustix::process::{Pid, Signal, kill_process};

use crate::heartbeat::{Kind, WORD};
use crate::{crowd, program, wall};

/// Nothing here takes longer, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest lease that is tried.
const LEASE_MAX: Duration = Duration::from_secs(24);
/// The lease for a crowd, which a busy machine does not make in less.
const LEASE_OF_CROWD: Duration = Duration::from_secs(12);
/// A crowd has the machine for itself: it is the guardian that is tried.
static MACHINE: RwLock<()> = RwLock::new(());
/// How long the next holder watches for processes that still run.
const LOOK: Duration = Duration::from_millis(40);

/// What the check says when the worst has happened.
pub(crate) const BESIDE: &str = "beside the next holder";

/// What happens to the runner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    RunnerStopped,
    RunnerKilled,
    GuardianKilled,
    LeaseEnds,
    WallClockSteps,
    /// An operator takes the lock away.
    Broken,
    /// Runner and guardian are both stopped: the check must find it.
    NobodyGuards,
}

impl Fault {
    /// All that `run` stands.
    pub(crate) const ALL: [Self; 6] = [
        Self::RunnerStopped,
        Self::RunnerKilled,
        Self::GuardianKilled,
        Self::LeaseEnds,
        Self::WallClockSteps,
        Self::Broken,
    ];
}

/// Runs it. The error is what the check found.
///
/// Leases are short, to have many trials: on a busy machine the lock may be lost before the fault. Then it is tried again with a
/// longer one.
pub(crate) fn run(fault: Fault, kind: Kind, round: u64) -> Result<(), String> {
    let mut lease = Duration::from_millis([600, 1_000, 800][usize::try_from(round % 3).unwrap()]);
    let (_alone, _together);
    if kind == Kind::Crowd {
        _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
        lease = LEASE_OF_CROWD;
    } else {
        _together = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    }
    loop {
        match run_with(fault, kind, round, lease) {
            Err(TooBusy) if lease < LEASE_MAX => lease *= 2,
            Err(TooBusy) => return Err("the command was never there as a whole".to_owned()),
            Ok(checked) => return checked,
        }
    }
}

/// The lock was lost before the command and all that it starts were there.
struct TooBusy;

fn run_with(fault: Fault, kind: Kind, round: u64, lease: Duration) -> Result<Result<(), String>, TooBusy> {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let stamps = path("stamps");
    fs::write(&stamps, "").unwrap();
    let store = format!("file:{}", path("locks.db").display());
    let lease = format!("{}ms", lease.as_millis());
    let term = if fault == Fault::LeaseEnds { "--lease" } else { "--keep" };
    let mut command = program::command();
    command.args(["--store", &store, "run", "x", term, &lease, "--"]);
    command.arg(std::env::current_exe().unwrap()).args([WORD, &format!("{kind:?}")]).arg(&stamps);
    wall::steppable(&mut command, &path("step"));
    if kind == Kind::Crowd {
        crowd::tell(&mut command);
    }
    let mut runner = command.stdout(Stdio::piped()).stderr(fs::File::create(path("errors")).unwrap()).spawn().unwrap();
    let guardian = match started(&mut runner, kind) {
        Ok(guardian) => guardian,
        Err(busy) => {
            runner.wait().unwrap();
            return Err(busy);
        }
    };
    while fs::metadata(&stamps).unwrap().len() == 0 {
        // On a busy machine its lease may be over before it has written anything.
        if runner.try_wait().unwrap().is_some() {
            return Err(TooBusy);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let next = next_holder(store.clone());
    // Anywhere between two renewals.
    std::thread::sleep(Duration::from_millis(round * 41 % 300));
    let runner_pid = Pid::from_child(&runner);
    match runner.try_wait().unwrap() {
        Some(status) if status.code() == Some(76) => return Err(TooBusy),
        // What it guards does not end by itself.
        Some(status) => {
            let left = end_all(&stamps, runner_pid);
            return Ok(Err(format!("it ended with {status}, {left} work on {BESIDE}")));
        }
        None => strike(fault, runner_pid, guardian, &path("step"), &store, round),
    }
    let granted = match next.recv_timeout(PATIENCE * 2) {
        Ok(Ok(granted)) => granted,
        // A runner that was stopped in the middle of a write blocks the file for all.
        Ok(Err(error)) if error.kind() == ErrorKind::Unreachable => {
            let _ = kill_process(runner_pid, Signal::CONT);
            runner.wait().unwrap();
            return Err(TooBusy);
        }
        other => return Ok(Err(format!("the next holder: {other:?}"))),
    };
    let survivors = survivors(&stamps, runner_pid);
    std::thread::sleep(LOOK);
    let checked = check(&stamps, granted, &survivors);
    for pid in [guardian, runner_pid] {
        let _ = kill_process(pid, Signal::CONT);
    }
    if checked.is_err() {
        end_all(&stamps, runner_pid);
    }
    let status = runner.wait().unwrap();
    let expected = if fault == Fault::RunnerKilled { None } else { Some(76) };
    Ok(match checked {
        Ok(()) if status.code() != expected => {
            Err(format!("the runner ended with {status}: {}", fs::read_to_string(path("errors")).unwrap_or_default()))
        }
        checked => checked,
    })
}

/// Waits until the command and all that it starts are there. The guardian is the parent of the first.
fn started(runner: &mut Child, kind: Kind) -> Result<Pid, TooBusy> {
    let (sender, lines) = mpsc::channel();
    let output = BufReader::new(runner.stdout.take().unwrap());
    std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let line = || lines.recv_timeout(PATIENCE).map_err(|_| TooBusy);
    let guardian = Pid::from_raw(line()?.parse().unwrap()).unwrap();
    for _ in 1..kind.lines() {
        line()?;
    }
    // A comet goes on printing.
    std::thread::spawn(move || lines.iter().for_each(drop));
    Ok(guardian)
}

fn strike(fault: Fault, runner: Pid, guardian: Pid, step: &Path, store: &str, round: u64) {
    // It may be over already, on a busy machine.
    let send = |pid, signal| {
        let _ = kill_process(pid, signal);
    };
    match fault {
        Fault::RunnerStopped => send(runner, Signal::STOP),
        Fault::RunnerKilled => send(runner, Signal::KILL),
        Fault::GuardianKilled => send(guardian, Signal::KILL),
        Fault::LeaseEnds => {}
        Fault::WallClockSteps if round.is_multiple_of(2) => fs::write(step, "3600").unwrap(),
        Fault::WallClockSteps => {
            // A clock that goes back ends nothing, and prolongs nothing.
            fs::write(step, "-3600").unwrap();
            std::thread::sleep(Duration::from_millis(150));
            send(runner, Signal::STOP);
        }
        Fault::Broken => {
            let mut taken = program::command();
            let output = taken.args(["--store", store, "break", "x", "--yes"]).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
        Fault::NobodyGuards => {
            send(guardian, Signal::STOP);
            send(runner, Signal::STOP);
        }
    }
}

/// Waits for the lock beside the trial, says when it had it, and keeps it for a while.
fn next_holder(store: String) -> mpsc::Receiver<Result<Moment, Error>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = Client::connect(&store).await.unwrap();
            let taken = client.lock("x").expect("a name").acquire_within(PATIENCE).await;
            let _ = sender.send(taken.as_ref().map(|_| leasehold_clock::now()).map_err(Clone::clone));
            if let Ok(Attempt::Granted(guard)) = taken {
                tokio::time::sleep(LOOK * 2).await;
                let _ = guard.release().await;
            }
        });
    });
    receiver
}

/// Those of the trial that still run. The runner has the same words, and does no work.
fn survivors(stamps: &Path, runner: Pid) -> Vec<(Pid, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        let Some(pid) = entry.file_name().to_str().and_then(|name| Pid::from_raw(name.parse().ok()?)) else { continue };
        if words.contains(&*stamps.to_string_lossy()) && pid != runner {
            found.push((pid, words));
        }
    }
    found
}

/// Ends what the guardian should have ended, and says how many there were.
fn end_all(stamps: &Path, runner: Pid) -> usize {
    let mut count = 0;
    loop {
        let left = survivors(stamps, runner);
        for (pid, _) in &left {
            let _ = kill_process(*pid, Signal::KILL);
        }
        if left.is_empty() {
            return count;
        }
        count = count.max(left.len());
    }
}

fn check(stamps: &Path, granted: Moment, survivors: &[(Pid, String)]) -> Result<(), String> {
    let bytes = fs::read(stamps).unwrap();
    let (all, _) = bytes.as_chunks::<8>();
    let last = all.iter().map(|stamp| Moment::from_nanos(u64::from_le_bytes(*stamp))).max().ok_or("no stamps")?;
    if last >= granted {
        return Err(format!("a descendant worked {BESIDE}, {:?} after the grant", last.since(granted)));
    }
    match survivors {
        [] => Ok(()),
        left => Err(format!("{} are still there {BESIDE}, such as {:?}", left.len(), left[0])),
    }
}
