//! What a server reports about itself: INFO and CONFIG if it allows them, and otherwise the greeting.

use std::collections::HashMap;

use leasehold_core::Error;
use redis::Value;

use super::Server;

/// Fields and their values. A field that could not be read is missing.
#[derive(Default, Debug)]
pub(super) struct Info {
    words: HashMap<String, String>,
}

/// The sections of INFO that are read.
const SECTIONS: [&str; 5] = ["server", "replication", "persistence", "memory", "cluster"];
/// The settings that are read.
const SETTINGS: [&str; 4] = ["save", "appendfsync", "min-replicas-to-write", "stop-writes-on-bgsave-error"];

impl Info {
    /// Reads all of it.
    pub(super) async fn read(server: &Server, hello: &Value) -> Result<Self, Error> {
        let mut info = Self::default();
        info.put_pairs("hello ", hello);
        for section in SECTIONS {
            if let Some(answer) = server.ask_if_allowed(&["INFO", section]).await? {
                info.put_lines(&text(&answer));
            }
        }
        for setting in SETTINGS {
            if let Some(answer) = server.ask_if_allowed(&["CONFIG", "GET", setting]).await? {
                info.put_pairs("", &answer);
            }
        }
        Ok(info)
    }

    /// The value of a field, if the server reports it to us.
    pub(super) fn get(&self, word: &str) -> Option<&str> {
        self.words.get(word).map(String::as_str)
    }

    pub(super) fn number(&self, word: &str) -> Option<u64> {
        self.get(word)?.parse().ok()
    }

    fn put_lines(&mut self, lines: &str) {
        let words = lines.lines().filter_map(|line| line.trim_end().split_once(':'));
        self.words.extend(words.map(|(word, is)| (word.to_owned(), is.to_owned())));
    }

    fn put_pairs(&mut self, before: &str, answer: &Value) {
        let pairs: Vec<(String, String)> = match answer {
            Value::Map(pairs) => pairs.iter().map(|(word, is)| (text(word), text(is))).collect(),
            Value::Array(list) => list.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect(),
            _ => Vec::new(),
        };
        self.words.extend(pairs.into_iter().map(|(word, is)| (format!("{before}{word}"), is)));
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone(),
        Value::Int(number) => number.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
impl<const N: usize> From<[(&str, &str); N]> for Info {
    fn from(words: [(&str, &str); N]) -> Self {
        Self { words: words.into_iter().map(|(word, is)| (word.to_owned(), is.to_owned())).collect() }
    }
}
