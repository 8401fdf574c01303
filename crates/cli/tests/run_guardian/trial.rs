//! One trial: a command under a lock, a fault, the next holder, and the check.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use leasehold::{Attempt, Client};
use leasehold_core::Moment;
use rustix::process::{Pid, Signal, kill_process};

use crate::beating::{Kind, WORD};
use crate::wall;

/// Nothing here takes longer, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the next holder looks for those who work on.
const LOOK: Duration = Duration::from_millis(40);

/// What happens to the runner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    RunnerStopped,
    RunnerKilled,
    GuardianKilled,
    LeaseEnds,
    WallClockSteps,
    /// The planted one: runner and guardian are both stopped.
    NobodyGuards,
}

impl Fault {
    /// All that `run` stands.
    pub(crate) const ALL: [Self; 5] =
        [Self::RunnerStopped, Self::RunnerKilled, Self::GuardianKilled, Self::LeaseEnds, Self::WallClockSteps];
}

/// Runs it. The error is what the check found.
pub(crate) fn run(fault: Fault, kind: Kind, round: u64) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let stamps = path("stamps");
    fs::write(&stamps, "").unwrap();
    let store = format!("file:{}", path("locks.db").display());
    let lease = ["600ms", "1s", "800ms"][usize::try_from(round % 3).unwrap()];
    let term = if fault == Fault::LeaseEnds { "--lease" } else { "--keep" };
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(["--store", &store, "run", "x", term, lease, "--"]);
    command.arg(std::env::current_exe().unwrap()).args([WORD, &format!("{kind:?}")]).arg(&stamps);
    wall::steppable(&mut command, &path("step"));
    let mut runner = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let guardian = started(&mut runner, kind)?;
    while fs::metadata(&stamps).unwrap().len() == 0 {
        std::thread::yield_now();
    }
    let next = next_holder(store);
    // Anywhere between two renewals.
    std::thread::sleep(Duration::from_millis(round * 41 % 300));
    let runner_pid = Pid::from_child(&runner);
    strike(fault, runner_pid, guardian, &path("step"), round);
    let granted = next.recv_timeout(PATIENCE).map_err(|_| "nobody got the lock".to_owned())?;
    let survivors = survivors(&stamps, runner_pid);
    std::thread::sleep(LOOK);
    let checked = check(&stamps, granted, &survivors);
    for pid in [guardian, runner_pid] {
        let _ = kill_process(pid, Signal::CONT);
    }
    let status = runner.wait().unwrap();
    let expected = if fault == Fault::RunnerKilled { None } else { Some(76) };
    match checked {
        Ok(()) if status.code() != expected => Err(format!("the runner ended with {status}")),
        checked => checked,
    }
}

/// Waits until the command and all that it starts are there. The guardian is the parent of the first.
fn started(runner: &mut Child, kind: Kind) -> Result<Pid, String> {
    let (sender, lines) = mpsc::channel();
    let output = BufReader::new(runner.stdout.take().unwrap());
    std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let line = || lines.recv_timeout(PATIENCE).map_err(|_| "the command did not start".to_owned());
    let guardian = Pid::from_raw(line()?.parse().unwrap()).unwrap();
    for _ in 1..kind.lines() {
        line()?;
    }
    // A comet goes on printing.
    std::thread::spawn(move || lines.iter().for_each(drop));
    Ok(guardian)
}

fn strike(fault: Fault, runner: Pid, guardian: Pid, step: &Path, round: u64) {
    let send = |pid, signal| kill_process(pid, signal).unwrap();
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
        Fault::NobodyGuards => {
            send(guardian, Signal::STOP);
            send(runner, Signal::STOP);
        }
    }
}

/// Waits for the lock beside the trial, says when it had it, and keeps it for a while.
fn next_holder(store: String) -> mpsc::Receiver<Moment> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = Client::connect(&store).await.unwrap();
            let Attempt::Granted(guard) = client.lock("x").acquire_within(PATIENCE).await.unwrap() else { return };
            sender.send(leasehold_clock::now()).unwrap();
            tokio::time::sleep(LOOK * 2).await;
            let _ = guard.release().await;
        });
    });
    receiver
}

/// Those of the trial that still run. The runner has the same words, and does no work.
fn survivors(stamps: &Path, runner: Pid) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        let is_runner = entry.file_name().to_string_lossy() == runner.as_raw_nonzero().to_string();
        if words.contains(&*stamps.to_string_lossy()) && !is_runner {
            found.push(format!("{} {words}", entry.file_name().display()));
        }
    }
    found
}

fn check(stamps: &Path, granted: Moment, survivors: &[String]) -> Result<(), String> {
    let bytes = fs::read(stamps).unwrap();
    let (all, _) = bytes.as_chunks::<8>();
    let last = all.iter().map(|stamp| Moment::from_nanos(u64::from_le_bytes(*stamp))).max().ok_or("no stamps")?;
    if last >= granted {
        return Err(format!("a descendant worked {:?} after the grant", last.since(granted)));
    }
    match survivors {
        [] => Ok(()),
        left => Err(format!("still there: {left:?}")),
    }
}
