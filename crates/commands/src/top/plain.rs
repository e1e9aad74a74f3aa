//! The document as plain text, printed once.

use std::fmt::Write as _;

use bowline_console::client::View;

use super::table::{SECTIONS, Table, counts_line, manager_line};
use super::values::width;

/// Maximum number of rows of the Events.
const MAX_EVENTS: usize = 20;

/// Space between columns.
const GAP: usize = 3;

pub(super) fn text(view: &View) -> String {
    let mut text = format!("{}\n{}\n", manager_line(view), counts_line(view));
    for section in SECTIONS {
        let mut table = (section.make)(view);
        if section.title == "Events" {
            table.rows.truncate(MAX_EVENTS);
        }
        let _ = write!(text, "\n{}\n{}", section.title.to_uppercase(), rows(&table));
    }
    text
}

/// Returns the rows below their headings. The last column is not padded.
fn rows(table: &Table) -> String {
    if table.rows.is_empty() {
        return format!("{}\n", table.empty);
    }
    let cells = || table.rows.iter().map(|row| row.cells.iter().map(String::as_str).collect::<Vec<_>>());
    let widths = widths(table);
    let lines = std::iter::once(table.columns.to_vec()).chain(cells());
    lines.map(|cells| line(&cells, &widths) + "\n").collect()
}

/// Width of each column: that of its longest cell.
pub(super) fn widths(table: &Table) -> Vec<usize> {
    let longest = |(column, heading): (usize, &&str)| {
        let cells = table.rows.iter().filter_map(|row| row.cells.get(column));
        cells.map(|cell| width(cell)).max().unwrap_or_default().max(width(heading))
    };
    table.columns.iter().enumerate().map(longest).collect()
}

fn line(cells: &[&str], widths: &[usize]) -> String {
    let padded = cells.iter().zip(widths).map(|(cell, columns)| {
        let padding = columns.saturating_sub(width(cell)) + GAP;
        format!("{cell}{}", " ".repeat(padding))
    });
    padded.collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::table::tests::view;

    #[test]
    fn the_text_has_a_section_for_each_table() {
        let expected = "\
bowline v0.1.0, leader, cluster blue, up 2h
Nodes: 2 (1 progressing)   Services: 1 (1 error)   Clouds: 1

ATTENTION
LEVEL         OBJECT                REASON          MESSAGE
error         service default/web   QuotaExceeded   the quota is used up
progressing   node b                Initializing    waits for its machine

NODES
NAME   STATUS         READY   CLOUD   MACHINE   ADDRESSES             AGE   MESSAGE
a      Ready          True    local   running   InternalIP 10.0.0.1   60m
b      Initializing                                                         waits for its machine

SERVICES
NAME          STATUS          ADDRESS   TARGETS   CLOUD   AGE   NEXT TRY   MESSAGE
default/web   QuotaExceeded   -         1         local   30s   in 10s     the quota is used up

CLOUDS
NAME    PROVIDER   STATUS   NOW   CALLS 5M   FAILED   THROTTLED   SLOWEST   MESSAGE
local   local      Ok       1     3          1        1           40 ms

QUEUES
NAME      STATUS   WAITING   IN WORK   DELAYED   SYNCS   FAILED   OLDEST   MESSAGE
service   Ok       2         1         1         7       2        -

EVENTS
AGE   TYPE      REASON     OBJECT                MESSAGE
10s   Warning   Failed     Service default/web   quota
60s   Normal    Ensuring   Service default/web   m
";
        assert_eq!(text(&view()), expected);
    }

    #[test]
    fn an_empty_document_says_so_in_each_section() {
        let text = text(&View::new());
        assert!(text.contains("NODES\nThe cluster has no Nodes.\n"), "{text}");
        assert!(text.contains("ATTENTION\nEverything is as desired.\n"), "{text}");
    }
}
