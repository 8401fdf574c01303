//! What was found, as a table of libraries and cases.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use comfy_table::{Table, presets};

use crate::cases::CASES;
use crate::peer::PEERS;

/// Filled by cases as they end.
#[derive(Default)]
pub(crate) struct Found(Mutex<State>);

#[derive(Default)]
struct State {
    titles: BTreeMap<&'static str, String>,
    cells: BTreeMap<(&'static str, &'static str), String>,
}

impl Found {
    /// What the library calls itself.
    pub(crate) fn title(&self, peer: &'static str, title: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).titles.insert(peer, title.to_owned());
    }

    /// What a case came to.
    pub(crate) fn cell(&self, peer: &'static str, case: &'static str, what: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).cells.insert((peer, case), what);
    }

    /// The whole, in Markdown, so that docs can have it as it is.
    pub(crate) fn print(&self) {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_header(std::iter::once("library").chain(CASES.iter().map(|case| case.name)));
        for peer in PEERS.iter().filter(|peer| state.cells.keys().any(|(tried, _)| *tried == peer.name)) {
            let title = state.titles.get(peer.name).cloned().unwrap_or_else(|| peer.name.to_owned());
            let cell = |case: &str| state.cells.get(&(peer.name, case)).cloned().unwrap_or_else(|| "–".to_owned());
            table.add_row(std::iter::once(title).chain(CASES.iter().map(|case| cell(case.name))));
        }
        println!("{table}");
        println!(
            "\nTimes: median / 99th percentile from the call of the release; «after»: ours / theirs has it so long after the end or the killing."
        );
    }
}
