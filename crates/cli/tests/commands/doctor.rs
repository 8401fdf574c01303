//! `doctor`: is this store fit?

use serde_json::Value;

use crate::harness::{Place, Running, fields};

fn status<'a>(lines: &'a [Value], check: &str) -> Option<&'a str> {
    lines.iter().find(|line| line["check"] == check).and_then(|line| line["status"].as_str())
}

#[test]
fn a_good_file_passes_every_check() {
    let place = Place::new();
    place.acquire("a", "me");
    let lines = place.run(&["doctor", "--json"]).is(0).json_lines();
    for check in ["clock", "file system", "permissions", "integrity", "engine", "opening", "take and release", "fences"]
    {
        assert_eq!(status(&lines, check), Some("ok"), "{check}");
    }
    assert!(lines.iter().all(|line| fields(line) == ["advice", "check", "found", "status"]));
    assert_eq!(status(&lines, "sharing"), None, "a store that was given is not called the default");
    assert_eq!(place.run(&["list", "--json"]).json_lines().len(), 1, "it left something behind");
    place.run(&["doctor"]).is(0).says("ok    integrity: ");
}

const STATE: &str = if cfg!(target_os = "macos") { "Library/Application Support" } else { ".local/state" };

#[test]
fn a_store_that_is_not_there_is_said_to_be_so() {
    let place = Place::new();
    let lines = place.run(&["doctor", "--json"]).is(0).json_lines();
    let opening = lines.iter().find(|line| line["check"] == "opening").unwrap();
    assert_eq!(opening["status"], "warn", "{opening}");
    assert!(opening["found"].as_str().unwrap().contains(&place.store()), "{opening}");
    assert!(!place.file().exists() && !place.path("locks.db.d").exists(), "looking made it");
}

#[test]
fn the_default_store_is_said_to_be_the_users_own() {
    let place = Place::new();
    let ran = Running::start(&mut place.bare(&["doctor", "--json"])).ended();
    let lines = ran.is(0).json_lines();
    let sharing = lines.iter().find(|line| line["check"] == "sharing").unwrap();
    assert!(sharing["advice"].as_str().unwrap().contains("--store"), "{sharing}");
    let noted = Running::start(&mut place.bare(&["-v", "list"])).ended();
    assert!(noted.is(0).err.contains("yours alone"), "{noted:?}");
    assert!(!place.path(STATE).join("leasehold").exists(), "looking made it");
    Running::start(&mut place.bare(&["acquire", "a"])).ended().is(0);
    assert!(place.path(STATE).join("leasehold/locks.db").is_file());
}

#[test]
fn what_is_wrong_fails_with_advice_and_stays_as_it_was() {
    let place = Place::new();
    let garbage = vec![b'x'; 5_000];
    std::fs::write(place.file(), &garbage).unwrap();
    let ran = place.run(&["doctor", "--json"]);
    let lines = ran.is(78).json_lines();
    assert_eq!(status(&lines, "opening"), Some("fail"));
    assert!(lines.iter().all(|line| line["status"] != "fail" || line["advice"].is_string()), "{ran:?}");
    assert_eq!(std::fs::read(place.file()).unwrap(), garbage);
    place.run(&["doctor"]).is(78).says("fail");
}

/// A mistyped path must not lead to advice to move another program's file away.
#[test]
fn a_file_that_is_not_ours_is_not_called_damaged() {
    let place = Place::new();
    let (text, other) = (place.path("notes.txt"), place.path("other.db"));
    std::fs::write(&text, "my notes").unwrap();
    rusqlite::Connection::open(&other).unwrap().execute_batch("CREATE TABLE mine (x)").unwrap();
    for path in [text, other] {
        let store = format!("file:{}", path.display());
        let ran = place.run(&["doctor", "--json", "--store", &store]);
        let failed: Vec<Value> = ran.is(78).json_lines().into_iter().filter(|line| line["status"] == "fail").collect();
        assert_eq!(failed.len(), 1, "{ran:?}");
        assert!(failed[0]["found"].as_str().unwrap().contains("not a leasehold store"), "{ran:?}");
        assert!(failed[0]["advice"].as_str().unwrap().contains("--store file:PATH"), "{ran:?}");
        assert!(
            !ran.out.contains("damaged") && !ran.out.contains("whole") && !ran.out.contains("can take locks"),
            "{ran:?}"
        );
    }
}

#[test]
fn what_is_no_file_is_said_before_anything_of_its_rights() {
    let place = Place::new();
    let folder = format!("file:{}", place.path("").display());
    for (store, words) in [(folder.as_str(), "is a folder"), ("file:/dev/null", "not a regular file")] {
        let ran = place.run(&["doctor", "--store", store]);
        assert_eq!(ran.is(78).says(words).out.matches("fail").count(), 1, "{ran:?}");
        assert!(!ran.out.contains("permissions"), "{ran:?}");
    }
}

/// A file of ours that was damaged later is reported as damaged.
#[test]
fn a_damaged_file_of_ours_is_called_damaged() {
    let place = Place::new();
    for at in 0..20 {
        place.acquire(&format!("name {at}"), "me");
    }
    rusqlite::Connection::open(place.file()).unwrap().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let mut bytes = std::fs::read(place.file()).unwrap();
    bytes[4096..].fill(0x5a);
    std::fs::write(place.file(), &bytes).unwrap();
    let lines = place.run(&["doctor", "--json"]).is(78).json_lines();
    assert_eq!(status(&lines, "integrity"), Some("fail"), "{lines:?}");
}

#[test]
fn a_store_of_one_process_warns() {
    let place = Place::new();
    let lines = place.run(&["doctor", "--store", "memory:", "--json"]).is(0).json_lines();
    assert_eq!(status(&lines, "sharing"), Some("warn"));
    place.run(&["doctor", "--store", "nowhere:"]).fails(64, "nowhere");
}
