//! `bench`: every workload reports what it should, and leaves nothing behind.

mod program;

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::program::Ran;

/// A store of its own, gone with its folder.
struct Place {
    store: String,
    _folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        Self { store: format!("file:{}", folder.path().join("locks.db").display()), _folder: folder }
    }

    fn nothing_is_held(&self) {
        let ran = end(program::command().args(["--store", &self.store, "list", "--json"]));
        assert_eq!(ran.is(0).out, "");
    }
}

fn bench(store: &str, args: &[&str]) -> Command {
    let mut command = program::command();
    command.args(["--store", store, "bench"]).args(args).stdin(Stdio::null());
    command
}

fn end(command: &mut Command) -> Ran {
    command.output().expect("leasehold runs").into()
}

fn report(store: &str, args: &[&str]) -> Value {
    report_of(&end(&mut bench(store, &[args, &["--json"]].concat())), 0)
}

fn report_of(ran: &Ran, code: i32) -> Value {
    assert_eq!(ran.is(code).err.is_empty(), code == 0, "nothing but data goes to a pipe: {ran:?}");
    ran.json()
}

fn number(report: &Value, field: &str) -> f64 {
    report[field].as_f64().unwrap_or_else(|| panic!("{field} is a number: {report}"))
}

/// Every field of the contract is there, and the numbers can be true.
fn check(report: &Value, workload: &str) {
    assert_eq!(report["workload"], workload);
    assert!(report["store"].as_str().is_some_and(|store| !store.is_empty()), "{report}");
    let of = |field| number(report, field);
    assert!(of("ops") > 0.0 && of("seconds") > 0.0, "{report}");
    let rate = of("ops") / of("seconds");
    assert!((of("ops_per_s") / rate - 1.0).abs() < 0.05, "{report}");
    let quantiles = ["p50_us", "p99_us", "p999_us", "max_us"].map(of);
    assert!(quantiles[0] > 0.0 && quantiles.is_sorted(), "{report}");
    assert!(of("store_calls") > 0.0, "{report}");
    assert_eq!(of("errors"), 0.0, "{report}");
}

#[test]
fn workloads_of_one_process() {
    let place = Place::new();
    for (workload, args) in [
        ("solo", &[][..]),
        ("fleet", &["--tasks", "50"]),
        ("hot", &["--tasks", "8"]),
        ("hot", &["--budget", "0ms"]),
        ("hold", &["--tasks", "500"]),
    ] {
        let report = report(&place.store, &[&["--workload", workload, "--for", "300ms"], args].concat());
        check(&report, workload);
        if workload == "hold" {
            assert_eq!((number(&report, "ops"), number(&report, "held"), number(&report, "lost")), (500.0, 500.0, 0.0));
            assert!(number(&report, "cpu_percent") >= 0.0, "{report}");
        }
        place.nothing_is_held();
    }
}

#[test]
fn several_processes_share_one_name() {
    let place = Place::new();
    let report = report(&place.store, &["--workload", "crowd", "--processes", "3", "--for", "1s"]);
    check(&report, "crowd");
    assert!(number(&report, "hand_offs") > 0.0, "{report}");
    assert!(0.0 < number(&report, "hand_off_p50_us"), "{report}");
    assert!(number(&report, "hand_off_p50_us") <= number(&report, "hand_off_p99_us"), "{report}");
    let shares: Vec<f64> = report["shares"].as_array().expect("shares").iter().filter_map(Value::as_f64).collect();
    assert_eq!(shares.len(), 3, "{report}");
    assert!(shares.iter().all(|share| *share > 0.0), "{report}");
    assert_eq!(shares.iter().sum::<f64>(), number(&report, "ops"), "{report}");
    place.nothing_is_held();
}

#[test]
fn a_signal_ends_it_and_all_is_given_back() {
    let place = Place::new();
    for (workload, signal, code) in [("hold", "INT", 130), ("hot", "TERM", 143), ("crowd", "TERM", 143)] {
        // No event shows when it has begun; on a busy machine that takes longer.
        let begun = [2, 8, 32].into_iter().any(|seconds| {
            let mut command = bench(&place.store, &["--workload", workload, "--for", "10m", "--json"]);
            let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("leasehold runs");
            std::thread::sleep(Duration::from_secs(seconds));
            kill(signal, child.id());
            let report = report_of(&child.wait_with_output().expect("its end").into(), code);
            place.nothing_is_held();
            number(&report, "ops") > 0.0
        });
        assert!(begun, "{workload} did nothing");
    }
}

#[test]
fn a_worker_that_is_killed_is_an_error() {
    let place = Place::new();
    let mut command = bench(&place.store, &["--workload", "crowd", "--processes", "3", "--for", "10m"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("leasehold runs");
    kill("KILL", a_child_of(child.id()));
    let ran = Ran::from(child.wait_with_output().expect("its end"));
    assert!(ran.is(70).err.contains("was ended by signal 9"), "{ran:?}");
    assert_eq!(ran.out, "");
}

fn kill(signal: &str, process: u32) {
    let status = Command::new("kill").arg(format!("-{signal}")).arg(process.to_string()).status().expect("kill runs");
    assert!(status.success());
}

/// Waits until it has one.
fn a_child_of(process: u32) -> u32 {
    loop {
        let output = Command::new("ps").args(["-A", "-o", "pid=,ppid="]).output().expect("ps runs");
        let text = String::from_utf8(output.stdout).expect("text");
        let pairs = text.lines().filter_map(|line| line.trim().split_once(char::is_whitespace));
        let mut children = pairs.filter(|(_, parent)| parent.trim() == process.to_string());
        if let Some(child) = children.find_map(|(child, _)| child.parse().ok()) {
            return child;
        }
        assert!(text.lines().any(|line| line.trim().starts_with(&format!("{process} "))), "it has ended");
    }
}

#[test]
fn people_get_numbers_and_a_histogram() {
    let place = Place::new();
    let ran = end(&mut bench(&place.store, &["--for", "200ms"]));
    let text = &ran.is(0).out;
    assert!(text.starts_with("solo on file:"), "{text}");
    for part in ["ops", "a second", "p99.9", "|#", "max"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains('\u{1b}'), "no colours on a pipe: {text}");
    assert!(text.lines().skip(1).all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for (args, code, says) in [
        (&["--workload", "nonsense"][..], 64, "solo, fleet, hot, crowd, hold"),
        (&["--tasks", "3"], 64, "solo"),
        (&["--workload", "hot", "--processes", "3"], 64, "crowd"),
        (&["--workload", "hot", "--tasks", "0"], 64, "from 1 to"),
        (&["--for", "0s"], 64, "--for"),
        (&["--for", "soon"], 64, "250ms"),
        (&["--workload", "crowd"], 78, "several processes"),
    ] {
        let ran = end(&mut bench("memory:", args));
        assert!(ran.is(code).err.contains(says) && ran.out.is_empty(), "{args:?}: {ran:?}");
    }
}
