//! `list`: the locks that are held.

use comfy_table::{ColumnConstraint, ContentArrangement, Table, presets};
use leasehold::{Holder, Name, Status};

use crate::args::ListArgs;
use crate::exit::{Exit, Failure};
use crate::output::{self, Row};
use crate::settings::Settings;
use crate::store::StoreState;
use crate::{hints, human, runtime, settings, store};

pub(crate) fn run(args: &ListArgs, settings: &Settings) -> Result<Exit, Failure> {
    runtime::block_on(async {
        // Checked as the store would, even if there is no store to call.
        (!args.prefix.is_empty()).then(|| Name::new(&args.prefix)).transpose()?;
        let StoreState::Store(client) = store::look(settings).await? else {
            return args.json.map_or(Ok(()), |form| output::objects(&[] as &[Row], form)).map(|()| Exit::DONE);
        };
        let held = client.list(&args.prefix).await?;
        if let Some(form) = args.json {
            let rows: Vec<Row> = held.iter().flat_map(|status| Row::all_of(status, client.store_label())).collect();
            output::objects(&rows, form)?;
        } else if held.is_empty() {
            output::note(&nothing(&args.prefix, client.store_label()));
        } else {
            output::line(&table(&held))?;
        }
        Ok(Exit::DONE)
    })
}

/// Says where it looked, for a user who expected locks.
fn nothing(prefix: &str, label: &str) -> String {
    let which = match prefix {
        "" => "no lock".to_owned(),
        prefix => format!("no lock that begins with {prefix:?}"),
    };
    let layout = match label.split_once("layout=plain") {
        _ if !label.starts_with("redis") => String::new(),
        Some(_) if label.contains("prefix=") => {
            "; locks of the layout redisson are listed without layout=plain".to_owned()
        }
        Some(_) => format!(
            "; locks of other programs are seen only at names that leasehold has used in the last eight days, or behind a ?prefix=: \
             {} looks at one. Those of the layout redisson are seen without layout=plain",
            hints::show_any()
        ),
        None => " in the layout redisson; locks of the other layout are listed with ?layout=plain".to_owned(),
    };
    format!("{which} is held on {label}{layout}")
}

const HEADER: [&str; 9] = ["NAME", "HOLDER", "HOST", "PROCESS", "HOLDS", "FENCE", "HELD FOR", "LEFT", "WAITERS"];
/// Columns that a narrow terminal omits, the least important first.
const SPARED: [&str; 6] = ["HOLDS", "FENCE", "HOST", "WAITERS", "HELD FOR", "PROCESS"];
/// Width of a terminal that does not report one.
const USUAL_WIDTH: u16 = 80;
/// Blanks around a cell.
const BLANKS: u16 = 2;

/// Words stay whole, so that a name can be copied: if the last columns are still too wide, the terminal wraps the line.
fn table(held: &[Status]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(HEADER);
    for status in held {
        for holder in status.holders.iter().chain(&status.cooldown) {
            table.add_row(cells(status, holder));
        }
    }
    if let Some(width) = terminal_width() {
        leave_out(&mut table, width);
    }
    table.trim_fmt()
}

/// `None` if the output is not a terminal.
fn terminal_width() -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(if size.ws_col == 0 { USUAL_WIDTH } else { size.ws_col })
}

/// Omits columns until the rest fits.
fn leave_out(table: &mut Table, width: u16) {
    let widths = table.column_max_content_widths();
    let mut needed: u32 = widths.iter().map(|width| u32::from(width.saturating_add(BLANKS))).sum();
    for spared in SPARED {
        let Some(at) = HEADER.iter().position(|header| *header == spared) else { continue };
        // The last blank of a line is not printed.
        if needed <= u32::from(width) + 1 {
            return;
        }
        needed -= u32::from(widths[at].saturating_add(BLANKS));
        if let Some(column) = table.column_mut(at) {
            column.set_constraint(ColumnConstraint::Hidden);
        }
    }
}

/// Random digits mean nothing to people; then the process, in its own column, identifies the holder.
fn who(holder: &Holder) -> Option<String> {
    match (human::name_of(holder), holder.owner.as_deref()) {
        (Some(name), _) => Some(human::plain(name)),
        (None, Some(owner)) if settings::is_of_run(owner) => Some("run".to_owned()),
        (None, Some(owner)) if settings::is_of_acquire(owner) => Some(human::short(owner)),
        (None, owner) if holder.pid.is_none() => owner.map(human::plain),
        (None, _) => None,
    }
}

/// Shown beside the time left if that is not the holder's.
fn how(holder: &Holder) -> &'static str {
    match (holder.is_cooldown(), holder.is_broken()) {
        (true, _) => ", lingers",
        (false, true) => ", broken",
        (false, false) => "",
    }
}

fn cells(status: &Status, holder: &Holder) -> [String; 9] {
    let known = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    [
        human::plain(status.name.as_str()),
        known(who(holder)),
        known(holder.host.as_deref().map(human::plain)),
        known(holder.pid.map(|pid| pid.to_string())),
        known(holder.holds.map(|holds| holds.to_string())),
        known(holder.fence.map(|fence| fence.to_string())),
        known(human::held_for(holder).map(human::span)),
        known(holder.left.map(human::span)) + how(holder),
        known(status.waiters.map(|waiters| waiters.to_string())),
    ]
}
