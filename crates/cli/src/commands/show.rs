//! `show`: who holds a lock.

use leasehold::{Client, Name};

use crate::args::ShowArgs;
use crate::exit::{Exit, Failure};
use crate::output::{self, Row, Rows};
use crate::settings::Settings;
use crate::store::StoreState;
use crate::{human, names, runtime, store};

pub(crate) fn run(args: &ShowArgs, settings: &Settings) -> Result<Exit, Failure> {
    let names = names::given(&args.names)?;
    runtime::block_on(async {
        let rows = match store::look(settings).await? {
            StoreState::Store(client) => rows(&client, &names).await?,
            StoreState::NotCreated(label) => {
                names.iter().map(|name| Row { waiters: Some(0), ..Row::free(name, &label) }).collect()
            }
        };
        match args.json {
            true => Rows::new(false, rows).print()?,
            false => rows.iter().try_for_each(|row| output::line(&text(row)))?,
        }
        Ok(Exit::DONE)
    })
}

async fn rows(client: &Client, names: &[Name]) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for name in names {
        rows.extend(Row::all_of(&client.inspect(name.as_str()).await?, client.store_label()));
    }
    Ok(rows)
}

/// A lock without a holder that is not free was released early, with a time during which others are kept out. A broken
/// lock has lost its holder and is not free yet.
fn how(row: &Row) -> &'static str {
    match row.holds {
        Some(0) => "lingers (--at-least): it was released, and is free when the time left is over. It was last held by",
        _ if row.broken == Some(true) => {
            "was broken: its holder cannot renew it, and it is free when the time left is over. It was held by"
        }
        _ => "is held",
    }
}

/// Of several acquires of one holder, the longest keeps others out.
fn longer(row: &Row) -> &'static str {
    let is_longer = row.left_ms.zip(row.lease_ms).is_some_and(|(left, lease)| left > lease);
    if is_longer { " (of the last acquire; an earlier one is longer)" } else { "" }
}

fn text(row: &Row) -> String {
    if row.held != Some(true) {
        return format!("{:?} is free on {}", row.name, human::plain(&row.store));
    }
    let milliseconds = |span: Option<u64>| span.map(|span| human::span(std::time::Duration::from_millis(span)));
    let facts = [
        ("label", row.label.as_deref().map(human::plain)),
        ("owner", row.owner.as_deref().map(human::plain)),
        ("host", row.host.as_deref().map(human::plain)),
        ("process", row.pid.map(|pid| pid.to_string())),
        ("fence", row.fence.map(|fence| fence.to_string())),
        ("holds", row.holds.map(|holds| holds.to_string())),
        ("since", row.since.clone()),
        ("lease", milliseconds(row.lease_ms).map(|lease| lease + longer(row))),
        ("left", Some(milliseconds(row.left_ms).unwrap_or_else(|| "no expiry".into()))),
        ("waiters", row.waiters.map(|waiters| waiters.to_string())),
        ("store", Some(human::plain(&row.store))),
    ];
    let known = facts.into_iter().filter_map(|(fact, value)| Some(format!("\n  {:<9}{}", format!("{fact}:"), value?)));
    format!("{:?} {}{}", row.name, how(row), known.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_is_shorter_than_what_is_left_says_why() {
        let row = |left_ms| {
            let free = Row::free(&Name::new("a").unwrap(), "x");
            text(&Row { held: Some(true), lease_ms: Some(60_000), left_ms: Some(left_ms), ..free })
        };
        let longer = row(3_600_000);
        assert!(longer.contains("lease:   1m (of the last acquire; an earlier one is longer)"), "{longer}");
        assert!(longer.contains("left:    1h"), "{longer}");
        assert!(!row(60_000).contains("longer"), "{}", row(60_000));
    }
}
