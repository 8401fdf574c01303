//! Fences of leasehold and tokens of Redisson's fenced lock are one row of numbers that only grows.

use serde::Deserialize;

use crate::Failure;
use crate::driver::Driver;
use crate::encounter::Meeting;

const ROUNDS: usize = 10;

pub(super) fn grow_across(meeting: &mut Meeting) -> Result<String, Failure> {
    let key = meeting.key("fenced");
    let mut last = 0;
    for round in 0..ROUNDS {
        let driver = if round % 2 == 0 { &mut meeting.theirs } else { &mut meeting.ours };
        let token = token(driver, &key)?;
        if token <= last {
            return Err(format!("{} was given {token} after {last}", driver.peer.name).into());
        }
        last = token;
    }
    Ok("grow across".into())
}

fn token(driver: &mut Driver, key: &str) -> Result<u64, Failure> {
    #[derive(Deserialize)]
    struct Token {
        token: u64,
    }
    driver.tell(&format!("token {}", driver.peer.name_of(key)?))?;
    Ok(driver.answer::<Token>(std::time::Duration::ZERO)?.token)
}
