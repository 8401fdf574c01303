//! The timeline of a world, for people: kept only when somebody wants to read it.

use std::fmt::Write;

/// Lines in order of true time, each about one name, or about all.
#[derive(Debug, Default)]
pub struct Story {
    told: bool,
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    at: u64,
    who: String,
    name: Option<usize>,
    what: String,
}

/// Longer stories are cut down to the name that matters.
const SHORT: usize = 120;

impl Story {
    /// A story that keeps its lines, or one that keeps nothing.
    pub fn new(told: bool) -> Self {
        Self { told, lines: Vec::new() }
    }

    /// Adds a line; costs nothing where nobody reads.
    pub fn tell(&mut self, at: u64, who: Who, name: Option<usize>, what: impl FnOnce() -> String) {
        if self.told {
            let who = match who {
                Who::Client(client) => format!("client {client}"),
                Who::Task(client, task) => format!("client {client}.{task}"),
                Who::Store => "store".into(),
                Who::World => "world".into(),
            };
            self.lines.push(Line { at, who, name, what: what() });
        }
    }

    /// The timeline; if it is long, only what concerns `name`.
    pub fn timeline(&self, name: Option<usize>) -> String {
        let long = self.lines.len() > SHORT;
        let mut text = String::new();
        for line in &self.lines {
            if long && name.is_some() && line.name.is_some() && line.name != name {
                continue;
            }
            let shown = line.name.map_or(String::new(), |name| format!("{} ", crate::plan::name_text(name)));
            let _ = writeln!(text, "{:>14.6} ms  {:<11} {shown}{}", line.at as f64 / 1e6, line.who, line.what);
        }
        text
    }
}

/// Of whom a line tells.
#[derive(Debug, Clone, Copy)]
pub enum Who {
    /// A client.
    Client(usize),
    /// A task of a client.
    Task(usize, usize),
    /// The store.
    Store,
    /// The world itself.
    World,
}
