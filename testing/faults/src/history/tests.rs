//! Each check on a history that it must object to, and on one beside it that is right.

use std::time::Duration;

use super::*;

const PROMISE: Promise = Promise { known_within: Duration::from_nanos(30), told_late: Duration::from_nanos(2) };

/// Granted, and valid and untold until then.
fn held(who: u64, fence: u64, granted: Stamp, until: Stamp) -> Hold {
    let name = "a".to_owned();
    Hold { who, name, fence, asked: 1, granted, valid: Some(until), untold: Some(until), told: None }
}

fn checked(holds: &[Hold], forgot: &[Forgot]) -> Result<(), String> {
    let mut text = String::new();
    for hold in holds {
        // First as it was granted, then as it ended.
        text += &format!("{}\n", wait_order::of_hold(&Hold { valid: None, untold: None, told: None, ..hold.clone() }));
        text += &format!("{}\n", wait_order::of_hold(hold));
    }
    for forgot in forgot {
        text += &format!("{}\n", wait_order::of_forgot(*forgot));
    }
    let story = Story::read(&text).unwrap();
    assert_eq!(story.grants(), holds.len());
    story.check(PROMISE).map_err(|error| error.to_string())
}

fn objects(holds: &[Hold], forgot: &[Forgot], words: &str) {
    let said = checked(holds, forgot).unwrap_err();
    assert!(said.contains(words), "{said}");
}

const EVERYTHING: Forgot = Forgot { from: 100, to: 110, everything: true };

#[test]
fn one_after_another() {
    assert_eq!(checked(&[held(1, 5, 10, 20), held(2, 6, 21, 30), held(1, 7, 31, 31)], &[]), Ok(()));
}

#[test]
fn two_at_the_same_time() {
    objects(&[held(1, 5, 10, 20), held(2, 6, 20, 30)], &[], "at the same time");
    // Also where one between them was short.
    objects(&[held(1, 5, 10, 40), held(2, 6, 20, 21)], &[], "at the same time");
    // One that was never seen to be valid holds nothing.
    let late = Hold { valid: None, untold: None, ..held(2, 6, 15, 0) };
    assert_eq!(checked(&[held(1, 5, 10, 16), late], &[]), Ok(()));
    // Nor one of another name.
    let other = Hold { name: "b".into(), ..held(2, 6, 15, 30) };
    assert_eq!(checked(&[held(1, 5, 10, 20), other], &[]), Ok(()));
}

#[test]
fn fences_grow() {
    objects(&[held(1, 5, 10, 20), held(2, 5, 21, 30)], &[], "did not grow");
    objects(&[held(1, 5, 10, 20), held(2, 9, 21, 30), held(2, 7, 31, 32)], &[], "did not grow");
}

#[test]
fn told_before_the_next() {
    let deaf = |until| Hold { valid: Some(15), ..held(1, 5, 10, until) };
    assert_eq!(checked(&[deaf(22), held(2, 6, 21, 30)], &[]), Ok(()));
    objects(&[deaf(23), held(2, 6, 21, 30)], &[], "not told when the next had it");
}

#[test]
fn told_and_holding() {
    let told = |told| Hold { told: Some(told), ..held(1, 5, 10, 20) };
    assert_eq!(checked(&[told(21)], &[]), Ok(()));
    objects(&[told(20)], &[], "and holds it");
}

#[test]
fn a_store_that_forgot() {
    // Until it is known, two may believe in it; and the older hands it on under an older fence.
    let story = [held(1, 5, 90, 130), held(2, 9, 112, 140), held(1, 6, 131, 135)];
    assert_eq!(checked(&story, &[EVERYTHING]), Ok(()));
    objects(&story, &[Forgot { from: 60, to: 61, ..EVERYTHING }], "at the same time");
    // Then no more.
    objects(&[held(1, 5, 90, 142), held(2, 9, 112, 120)], &[EVERYTHING], "nobody told");
    objects(&[held(2, 9, 112, 150), held(3, 10, 141, 150)], &[EVERYTHING], "at the same time");
    // Where it may still be there, it may be kept.
    assert_eq!(checked(&[held(1, 5, 90, 142)], &[Forgot { everything: false, ..EVERYTHING }]), Ok(()));
    // Fences grow over it all the same.
    objects(&[held(1, 5, 90, 95), held(2, 4, 112, 120)], &[EVERYTHING], "did not grow");
    objects(&[held(2, 9, 112, 120), held(1, 8, 141, 150)], &[EVERYTHING], "did not grow");
    objects(&[held(2, 9, 112, 120), held(1, 9, 121, 130)], &[EVERYTHING], "given twice");
}

#[test]
fn a_line_that_is_not_written_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history");
    let history = History::at(&path);
    assert_eq!(history.check(PROMISE).unwrap(), 0);
    history.hold(&held(1, 5, 10, 20)).unwrap();
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"hold\t1\ta").unwrap();
    assert_eq!(history.check(PROMISE).unwrap(), 1);
    file.write_all(b"\n").unwrap();
    assert!(history.check(PROMISE).unwrap_err().to_string().contains("no line"));
}
