//! Answers that no script of ours would give: each is read, or refused with an error that does not call it a bug of
//! ours.

use std::time::Duration;

use leasehold_core::{Error, ErrorKind, Name};
use leasehold_fuzz::Target;
use redis::Value;

use crate::reply;

const WORDS: &[&str] =
    &["*1\r\n", ":1\r\n", ":-1\r\n", "$1\r\nx\r\n", "+granted\r\n", "+busy\r\n", "_\r\n", "#t\r\n", "~1\r\n", ">1\r\n"];

/// Every reader reads it.
fn read(value: &Value) -> [Result<(), Error>; 8] {
    let name = Name::new("a").unwrap();
    let names = [name.clone(), Name::new("b").unwrap()];
    let span = Duration::from_secs(60);
    [
        reply::acquired(value.clone(), &names[..1]).map(|_| ()),
        reply::acquired(value.clone(), &names).map(|_| ()),
        reply::voted(value.clone(), &names, span).map(|_| ()),
        reply::renewed_vote(value.clone(), span).map(|_| ()),
        reply::renewed(value.clone()).map(|_| ()),
        reply::released(value.clone()).map(|_| ()),
        reply::broken(value.clone(), name).map(|_| ()),
        reply::inspected(value.clone(), names.to_vec()).map(|_| ()),
    ]
}

#[test]
fn fuzzed_replies() {
    let mut understood = [0; 8];
    Target::new("replies", 20_000).words(WORDS).run(|input| {
        let Ok(value) = redis::parse_redis_value(input) else { return };
        for (reader, read) in read(&value).into_iter().enumerate() {
            match read {
                Ok(()) => understood[reader] += 1,
                Err(error) => assert_ne!(error.kind(), ErrorKind::Internal, "{error}"),
            }
        }
    });
    assert!(understood.iter().all(|count| *count > 0), "the corpus is stale: {understood:?} answers were understood");
}
