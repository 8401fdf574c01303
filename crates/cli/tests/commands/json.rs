//! docs/json.md names exactly the fields that the program prints, with their types; and the two forms of several objects.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::harness::{Place, Running};

const PAGE: &str = include_str!("../../../../docs/json.md");

/// The fields of one table of the page, with their types.
fn documented(heading: &str) -> BTreeMap<&'static str, &'static str> {
    let (_, section) = PAGE.split_once(&format!("\n## {heading}\n")).expect("a heading");
    let section = section.split("\n## ").next().unwrap();
    let field = |line: &'static str| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        Some((cells.next()?.strip_suffix('`')?, cells.next()?))
    };
    section.lines().filter_map(field).collect()
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// What was printed is on the page, with a type that the page allows; what the page promises always was printed.
fn is_as_documented(printed: &Value, heading: &str) {
    let page = documented(heading);
    for (field, value) in printed.as_object().unwrap() {
        let types = page.get(field.as_str()).unwrap_or_else(|| panic!("docs/json.md has no {field} in {heading:?}"));
        let types = types.split(", only").next().unwrap();
        assert!(types.split(" or ").any(|allowed| allowed == type_of(value)), "{field} is {types}, not {value}");
    }
    for (field, _) in page.iter().filter(|(_, types)| !types.contains("only")) {
        assert!(printed.get(field).is_some(), "{field} is missing in {printed}");
    }
}

#[test]
fn locks_are_as_documented() {
    let place = Place::new();
    let taken = place.run(&["acquire", "a", "--owner", "me", "--label", "x", "--lease", "1m", "--json"]).is(0).json();
    let mut holding = Running::start(place.command(&["hold", "b", "--json"]).stdin(std::process::Stdio::piped()));
    let held: Value = serde_json::from_str(&holding.line()).unwrap();
    let busy = place.run(&["acquire", "a", "--no-wait", "--json"]).is(75).json();
    let rows = place.run(&["list", "--json"]).is(0).json_lines();
    assert_eq!(rows.len(), 2, "{rows:?}");
    for lock in [taken, held, busy, place.shown("a"), place.shown("free")].iter().chain(&rows) {
        is_as_documented(lock, "A lock");
    }
    let several = place.run(&["show", "a,free", "--json"]).is(0).json();
    is_as_documented(&several, "Several locks");
    for lock in several["locks"].as_array().unwrap() {
        is_as_documented(lock, "A lock");
    }
}

#[test]
fn broken_locks_are_as_documented() {
    let place = Place::new();
    place.acquire("a", "me");
    let mut broke = place.run(&["break", "a", "--yes", "--json"]).is(0).json();
    let one_more = broke.as_object_mut().unwrap().remove("broke").unwrap();
    is_as_documented(&serde_json::json!({ "broke": one_more }), "A lock that was broken");
    is_as_documented(&broke, "A lock");
}

#[test]
fn checks_are_as_documented() {
    let place = Place::new();
    let lines = place.run(&["doctor", "--json"]).is(0).json_lines();
    assert!(lines.len() > 1, "{lines:?}");
    for check in lines {
        is_as_documented(&check, "A check");
    }
}

#[test]
fn reports_are_as_documented() {
    let place = Place::new();
    let report = place.path("report.json");
    let path = report.to_str().unwrap();
    for (words, code) in [
        (&["run", "a", "--report", path, "--", "true"][..], 0),
        (&["run", "a,b", "--report", path, "--", "sh", "-c", "exit 7"], 7),
        (&["run", "a", "--report", path, "--max-hold", "200ms", "--", "sleep", "60"], 76),
        (&["run", "a", "--report", path, "--", "/nowhere"], 127),
        (&["--store", "file:/proc/none/x", "run", "a", "--no-wait", "--report", path, "--", "true"], 78),
    ] {
        place.run(words).is(code);
        let written = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
        is_as_documented(&written, "A report");
        std::fs::remove_file(&report).unwrap();
    }
}

#[test]
fn measurements_are_as_documented() {
    let place = Place::new();
    for workload in ["solo", "crowd", "hold"] {
        let words = ["bench", "--workload", workload, "--for", "200ms", "--tasks", "2", "--json"];
        let words = if workload == "solo" { [&words[..5], &words[7..]].concat() } else { words.to_vec() };
        let measured = place.run(&words).is(0).json();
        is_as_documented(&measured, "A measurement");
        for (field, types) in documented("A measurement") {
            let is_of_it = types.split("only for `").nth(1).is_none_or(|of| of.trim_end_matches('`') == workload);
            assert_eq!(measured.get(field).is_some(), is_of_it, "{field} of {workload}");
        }
    }
}

#[test]
fn several_objects_are_lines_or_an_array() {
    let place = Place::new();
    let nowhere = format!("file:{}", place.path("nowhere").display());
    for store in [nowhere.as_str(), &place.store()] {
        assert_eq!(place.run(&["list", "--json", "--store", store]).is(0).out, "");
        assert_eq!(place.run(&["list", "--json=lines", "--store", store]).is(0).out, "");
        assert_eq!(place.run(&["list", "--json=array", "--store", store]).is(0).out, "[]\n");
        place.make();
    }
    place.acquire("a", "me");
    place.acquire("b", "me");
    let without_time = |mut rows: Vec<Value>| {
        rows.iter_mut().for_each(|row| row["left_ms"] = Value::Null);
        rows
    };
    let lines = place.run(&["list", "--json"]).is(0).json_lines();
    let array = place.run(&["list", "--json=array"]).is(0).json();
    assert_eq!(without_time(array.as_array().unwrap().clone()), without_time(lines));
    // What stands beside it is no value of it.
    assert_eq!(place.run(&["list", "--json", "b"]).is(0).json()["name"], "b");
    let checks = place.run(&["doctor", "--json=array"]).is(0).json();
    assert!(checks.as_array().unwrap().len() > 1, "{checks}");
    place.run(&["list", "--json=table"]).fails(64, "lines, array");
    place.run(&["show", "a", "--json=array"]).fails(64, "--json");
}
