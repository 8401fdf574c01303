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
fn write(
    connection: &mut Connection,
    fence: u64,
    owner: &str,
    value: &str,
) -> Result<(bool, u64), leasehold_faults::Failure> {
    let fence = fence.to_string();
    match connection.command(&["EVAL", SCRIPT, "2", "account", "account:fence", &fence, owner, value])? {
        Reply::List(answer) if answer.len() == 2 => Ok((answer[0].number()? == 1, answer[1].text()?.parse()?)),
        other => Err(format!("an answer that was not expected: {other:?}").into()),
    }
}

fn an_older_holder_is_refused() -> Checked {
    let server = Redis::start()?;
    let mut connection = server.connection()?;
    // As large as they get: no digit may be lost.
    let newest = (1 << 53) - 1;
    for (fence, owner, value, expected) in [
        (7, "blue", "a", (true, 7)),
        (7, "blue", "the same holder again", (true, 7)),
        (7, "green", "another one with the same fence", (false, 7)),
        (6, "blue", "late", (false, 7)),
        (newest - 1, "green sea", "b", (true, newest - 1)),
        (newest, "blue", "c", (true, newest)),
        (newest - 1, "green sea", "late", (false, newest)),
    ] {
        let before = connection.command(&["GET", "account"])?;
        assert_eq!(write(&mut connection, fence, owner, value)?, expected, "{fence} {value}");
        let after = if expected.0 { Reply::Text(value.to_owned()) } else { before };
        assert_eq!(connection.command(&["GET", "account"])?, after);
        let newest = connection.command(&["GET", "account:fence"])?.text()?.to_owned();
        assert!(newest.starts_with(&format!("{} ", expected.1)), "{newest}");
    }
    // As an earlier form of the script left it, without an owner.
    connection.command(&["SET", "account:fence", &(newest - 1).to_string()])?;
    assert_eq!(write(&mut connection, newest - 1, "blue", "d")?, (true, newest - 1));
    assert_eq!(write(&mut connection, newest - 1, "green", "e")?, (false, newest - 1));
    assert_eq!(connection.command(&["PTTL", "account:fence"])?, Reply::Number(-1), "it has to outlive the late");
    Ok(())
}

fn what_is_no_fence_is_refused() -> Checked {
    let server = Redis::start()?;
    let mut connection = server.connection()?;
    for fence in ["", "x", "0", "-1", "9007199254740992", "nan", "inf", "12.6", "0x20", "1e3", " 7"] {
        let refused = connection.command(&["EVAL", SCRIPT, "2", "account", "account:fence", fence, "blue", "value"]);
        assert!(refused.expect_err("an error").to_string().contains("not a fence"), "{fence}");
    }
    connection.command(&["SET", "account:fence", "not a number"])?;
    let refused = connection.command(&["EVAL", SCRIPT, "2", "account", "account:fence", "1", "blue", "value"]);
    assert!(refused.expect_err("an error").to_string().contains("holds something else"));
    let refused = connection.command(&["EVAL", SCRIPT, "2", "account", "account:fence", "1", "value"]);
    assert!(refused.expect_err("an error").to_string().contains("the owner and the value"));
    assert_eq!(connection.command(&["GET", "account"])?, Reply::Nil);
    Ok(())
}

/// The whole of it: a lease ends unnoticed, another holder comes, and the first one wakes up.
async fn a_holder_that_slept_cannot_write() -> Checked {
    let server = Redis::start()?;
    let (sleeper, next) = (client(&server).await?, client(&server).await?);
    let old = sleeper.lock("account")?.lease(200 * MS).acquire().await?;
    let new = next.lock("account")?.acquire().await?;
    assert!(new.fence() > old.fence());
    let mut connection = server.connection()?;
    let (new_owner, old_owner) = (new.owner().to_string(), old.owner().to_string());
    assert_eq!(write(&mut connection, new.fence().get(), &new_owner, "new")?, (true, new.fence().get()));
    assert_eq!(write(&mut connection, old.fence().get(), &old_owner, "old")?, (false, new.fence().get()));
    assert_eq!(connection.command(&["GET", "account"])?, Reply::Text("new".into()));
    Ok(())
}
