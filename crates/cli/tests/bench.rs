//! `bench`: every workload tells what it should, and leaves nothing behind.

use std::process::{Command, Output};

use serde_json::Value;

fn bench(store: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(["--store", store, "bench"]).args(args).output().expect("leasehold runs")
}

fn report(store: &str, args: &[&str]) -> Value {
    let output = bench(store, &[args, &["--json"]].concat());
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{args:?}: {out}{err}");
    assert_eq!(err, "", "nothing but data goes to a pipe");
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
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
    for (workload, args) in [
        ("solo", &[][..]),
        ("fleet", &["--tasks", "50"]),
        ("hot", &["--tasks", "8"]),
        ("hot", &["--budget", "0ms"]),
        ("hold", &["--tasks", "500"]),
    ] {
        let report = report("memory:", &[&["--workload", workload, "--for", "200ms"], args].concat());
        check(&report, workload);
        if workload == "hold" {
            assert_eq!((number(&report, "ops"), number(&report, "held"), number(&report, "lost")), (500.0, 500.0, 0.0));
        }
    }
}

#[test]
fn people_get_numbers_and_a_histogram() {
    let output = bench("memory:", &["--for", "100ms"]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.starts_with("solo on memory:"), "{text}");
    for part in ["ops", "a second", "p99.9", "|#", "max"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains('\u{1b}'), "no colours on a pipe: {text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
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
        let output = bench("memory:", args);
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {err}");
        assert!(err.contains(says), "{args:?}: {err}");
        assert!(output.stdout.is_empty());
    }
}
