//! `list` and `show`: holders and waiters.

use serde_json::Value;

use crate::harness::{FIELDS, Place, Running, fields};

#[test]
fn a_free_name_is_said_to_be_free() {
    let place = Place::new();
    let row = place.shown("a");
    let mut expected = FIELDS;
    expected.sort_unstable();
    assert_eq!(fields(&row), expected);
    assert_eq!((&row["held"], &row["granted"]), (&Value::from(false), &Value::from(false)));
    for unknown in ["owner", "label", "fence", "holds", "broken", "lease_ms", "left_ms", "host", "pid", "since"] {
        assert_eq!(row[unknown], Value::Null, "{unknown}");
    }
    assert_eq!(place.run(&["show", "a"]).is(0).out, format!("\"a\" is free on {}\n", place.store()));
}

#[test]
fn show_says_all_that_is_known() {
    let place = Place::new();
    place.run(&["acquire", "a", "--owner", "me", "--label", "nightly", "--lease", "1m"]).is(0);
    let text = place.run(&["show", "a"]);
    for words in
        ["\"a\" is held", "me", "nightly", "process:", "fence:", "holds:", "since:", "lease:   1m", "left:", "waiters:"]
    {
        text.is(0).says(words);
    }
    let both = place.run(&["show", "a,b", "--json"]).is(0).json();
    assert_eq!((&both["locks"][0]["held"], &both["locks"][1]["held"]), (&Value::from(true), &Value::from(false)));
}

/// A mistyped path does not create a store, and is reported.
#[test]
fn looking_makes_no_store() {
    let place = Place::new();
    let nowhere = place.path("mistyped");
    let store = format!("file:{}/locks.db", nowhere.display());
    for (args, code, out) in [
        (&["list"][..], 0, ""),
        (&["list", "--json"], 0, ""),
        (&["show", "a"], 0, &*format!("\"a\" is free on {store}\n")),
        (&["break", "a", "--yes"], 0, "\"a\" is free: there was nothing to break\n"),
        (&["break", "a"], 64, ""),
        (&["renew", "a", "--owner", "me"], 77, ""),
        (&["release", "a", "--owner", "me"], 77, ""),
    ] {
        let ran = place.run(&[args, &["--store", &store]].concat());
        assert_eq!(ran.is(code).out, out, "{args:?}");
        assert!(ran.err.contains(&format!("{store} does not exist yet")), "{ran:?}");
        assert!(code == 0 || ran.err.contains("\nhint: "), "{ran:?}");
        assert!(!nowhere.exists(), "{args:?} made it");
    }
    let row = place.run(&["show", "a", "--json", "--store", &store]).is(0).json();
    assert_eq!((&row["held"], &row["waiters"], &row["store"]), (&false.into(), &0.into(), &store.into()));
}

/// An empty file says by its mode who may use the store; the first lock fills it.
#[test]
fn looking_leaves_an_empty_file_as_it_is() {
    let place = Place::new();
    std::fs::write(place.file(), "").unwrap();
    place.run(&["list"]).is(0);
    assert_eq!(std::fs::metadata(place.file()).unwrap().len(), 0);
    assert!(!place.path("locks.db.d").exists());
}

/// It is not free, although it has no holder: until when, and who left it so.
#[test]
fn a_lock_that_lingers_is_shown_as_taken_with_who_held_it_last() {
    let place = Place::new();
    place.run(&["run", "a", "--at-least", "5m", "--owner", "me", "--label", "nightly", "--", "true"]).is(0);
    let row = place.shown("a");
    assert_eq!((&row["held"], &row["holds"], &row["granted"]), (&true.into(), &0.into(), &false.into()));
    assert_eq!((&row["owner"], &row["label"]), (&"me".into(), &"nightly".into()));
    assert!((1..=300_000).contains(&row["left_ms"].as_u64().unwrap()), "{row}");
    assert!(row["pid"].is_u64() && row["host"].is_string() && row["fence"].is_u64(), "{row}");
    let listed = place.run(&["list", "--json"]).is(0).json_lines();
    assert_eq!((listed.len(), &listed[0]["owner"], &listed[0]["held"]), (1, &"me".into(), &true.into()));
    place.run(&["list"]).is(0).says("nightly").says("lingers");
    place.run(&["show", "a"]).is(0).says("\"a\" lingers").says("nightly").says("left:");
    place.run(&["acquire", "a", "--no-wait"]).fails(75, "lingering");
    place.run(&["release", "a", "--owner", "me"]).fails(77, "it lingers");
    place.run(&["break", "a"]).fails(64, "nightly");
    place.run(&["break", "a", "--yes"]).is(0).says("has no holder").says("at once with --now");
    assert!(place.is_held("a"));
    place.run(&["break", "a", "--yes", "--now"]).is(0).says("lingering").says("nightly").says("free now");
    assert!(!place.is_held("a"));
}

#[test]
fn waiters_are_counted() {
    let place = Place::new();
    place.acquire("a", "me");
    let mut waiting = Running::start(&mut place.command(&["acquire", "a", "-vv"]));
    waiting.until_it_says("waits for");
    assert_eq!(place.shown("a")["waiters"], 1);
}

#[test]
fn list_has_a_row_for_every_lock_under_the_prefix() {
    let place = Place::new();
    place.run(&["list"]).is(0);
    for name in ["jobs/b", "jobs/a", "other"] {
        place.acquire(name, "me");
    }
    let names = |ran: &[&str]| -> Vec<String> {
        let rows = place.run(ran).is(0).json_lines();
        let mut expected = FIELDS;
        expected.sort_unstable();
        assert!(rows.iter().all(|row| fields(row) == expected && row["held"] == true));
        rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&["list", "--json"]), ["jobs/a", "jobs/b", "other"]);
    assert_eq!(names(&["list", "jobs/", "--json"]), ["jobs/a", "jobs/b"]);
    assert!(names(&["list", "none", "--json"]).is_empty());
    let table = place.run(&["list", "jobs/"]);
    table.is(0).says("NAME").says("WAITERS").says("jobs/a").says("me");
    assert_eq!(table.out.lines().count(), 3, "{table:?}");
    assert!(!table.out.contains("other"));
}

#[test]
fn an_empty_list_says_so_beside_the_data() {
    let place = Place::new();
    place.make();
    let ran = place.run(&["list"]);
    assert_eq!(ran.is(0).out, "");
    assert!(ran.err.contains("no lock is held"), "{ran:?}");
}

/// A generated owner is for scripts, not for people.
#[test]
fn random_owners_are_shown_short_and_processes_once() {
    let place = Place::new();
    let taken = place.run(&["acquire", "a", "--json"]).is(0).json();
    let table = place.run(&["list"]);
    let owner = taken["owner"].as_str().unwrap();
    table.is(0).says(&format!(" {}… ", &owner[..8]));
    assert_eq!(table.out.matches(&format!(" {} ", taken["pid"])).count(), 1, "{table:?}");
    assert!(!table.out.contains(owner), "{table:?}");
    let busy = place.run(&["acquire", "a", "--no-wait"]);
    busy.fails(75, &format!("is held by owner {}… (acquired by process {} on ", &owner[..8], taken["pid"]));
    assert_eq!(place.run(&["list", "--json"]).json_lines()[0]["owner"], taken["owner"]);
}

/// `run 'a, b'` does not exclude a run of b.
#[test]
fn a_space_that_belongs_to_a_name_is_told() {
    let place = Place::new();
    for words in [&["acquire", "a, b", "--owner", "me"][..], &["show", "a, b"], &["release", "a, b", "--owner", "me"]] {
        let ran = place.run(words);
        assert!(ran.is(0).err.contains("the name \" b\" begins or ends with a space"), "{ran:?}");
    }
    let plain = place.run(&["acquire", "a b,c", "--owner", "me"]);
    assert_eq!(plain.is(0).err, "");
}
