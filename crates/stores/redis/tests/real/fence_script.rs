//! The script that checks a fence at a resource in Redis: docs/fences/redis.lua.

use leasehold_faults::servers::Redis;
use leasehold_faults::servers::resp::{Connection, Reply};

use crate::scene::{Case, Checked, MS, block_on, client};

pub(crate) const CASES: &[Case] = &[
    ("fence_script::an_older_holder_is_refused", an_older_holder_is_refused),
    ("fence_script::what_is_no_fence_is_refused", what_is_no_fence_is_refused),
    ("fence_script::a_holder_that_slept_cannot_write", || block_on(a_holder_that_slept_cannot_write())),
];

const SCRIPT: &str = include_str!("../../../../../docs/fences/redis.lua");

/// Whether it was written, and the largest fence then.
fn write(connection: &mut Connection, fence: u64, value: &str) -> Result<(bool, u64), leasehold_faults::Failure> {
    let fence = fence.to_string();
    match connection.command(&["EVAL", SCRIPT, "2", "account", "account:fence", &fence, value])? {
        Reply::List(answer) if answer.len() == 2 => Ok((answer[0].number()? == 1, answer[1].text()?.parse()?)),
        other => Err(format!("an answer that was not expected: {other:?}").into()),
    }
}

fn an_older_holder_is_refused() -> Checked {
    let server = Redis::start()?;
    let mut connection = server.connection()?;
    // As large as they get: no digit may be lost.
    let newest = (1 << 53) - 1;
    for (fence, value, expected) in [
        (7, "a", (true, 7)),
        (7, "the same holder again", (true, 7)),
        (6, "late", (false, 7)),
        (newest - 1, "b", (true, newest - 1)),
        (newest, "c", (true, newest)),
        (newest - 1, "late", (false, newest)),
    ] {
        let before = connection.command(&["GET", "account"])?;
        assert_eq!(write(&mut connection, fence, value)?, expected, "{fence} {value}");
        let after = if expected.0 { Reply::Text(value.to_owned()) } else { before };
        assert_eq!(connection.command(&["GET", "account"])?, after);
        assert_eq!(connection.command(&["GET", "account:fence"])?, Reply::Text(expected.1.to_string()));
    }
    assert_eq!(connection.command(&["PTTL", "account:fence"])?, Reply::Number(-1), "it has to outlive the late");
    Ok(())
}

fn what_is_no_fence_is_refused() -> Checked {
    let server = Redis::start()?;
    let mut connection = server.connection()?;
    for fence in ["", "x", "0", "-1", "9007199254740992"] {
        let refused = connection.command(&["EVAL", SCRIPT, "2", "account", "account:fence", fence, "value"]);
        assert!(refused.expect_err("an error").to_string().contains("not a fence"), "{fence}");
    }
    connection.command(&["SET", "account:fence", "not a number"])?;
    let refused = connection.command(&["EVAL", SCRIPT, "2", "account", "account:fence", "1", "value"]);
    assert!(refused.expect_err("an error").to_string().contains("is none"));
    assert_eq!(connection.command(&["GET", "account"])?, Reply::Nil);
    Ok(())
}

/// The whole of it: a lease ends unnoticed, another holder comes, and the first one wakes up.
async fn a_holder_that_slept_cannot_write() -> Checked {
    let server = Redis::start()?;
    let (sleeper, next) = (client(&server).await?, client(&server).await?);
    let old = sleeper.lock("account").lease(200 * MS).acquire().await?;
    let new = next.lock("account").acquire().await?;
    assert!(new.fence() > old.fence());
    let mut connection = server.connection()?;
    assert_eq!(write(&mut connection, new.fence().get(), "new")?, (true, new.fence().get()));
    assert_eq!(write(&mut connection, old.fence().get(), "old")?, (false, new.fence().get()));
    assert_eq!(connection.command(&["GET", "account"])?, Reply::Text("new".into()));
    Ok(())
}
