//! The text of the scripts, as a server reads it.

use leasehold_faults::servers::Redis;
use leasehold_redis::{Layout, script_texts};

use crate::scene::{Case, Checked};

pub(crate) const CASES: &[Case] = &[("scripts::every_script_compiles", every_script_compiles)];

/// `SCRIPT LOAD` compiles a script and does not run it.
fn every_script_compiles() -> Checked {
    let server = Redis::start()?;
    let mut connection = server.connection()?;
    for layout in [Layout::Redisson, Layout::Plain] {
        let mut scripts = 0;
        for (operation, text) in script_texts(layout) {
            let digest = connection.command(&["SCRIPT", "LOAD", &text]);
            let digest = digest.map_err(|error| format!("{operation}, {layout:?}: {error}"))?;
            assert_eq!(digest.text()?.len(), 40, "{operation}, {layout:?}: {digest:?}");
            scripts += 1;
        }
        assert_eq!(scripts, 12, "{layout:?}");
    }
    assert!(connection.command(&["SCRIPT", "LOAD", "local function"]).is_err(), "it would show nothing");
    Ok(())
}
