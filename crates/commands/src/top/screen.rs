//! The screen of `bowline top`: what is selected, and the lines of a frame. Pure: it reads no terminal and writes to none.
//!
//! ```text
//!  title                       manager, cluster
//!  counts
//!  tabs
//!  headings                    ┐
//!  rows, one selected          ├ or the details of an item, or the keys
//!  …                           ┘
//!  search, failure or keys
//! ```

use bowline_console::client::View;

use super::detail;
use super::plain::widths;
use super::table::{Row, SECTIONS, Table, counts_line, manager_line};
use super::values::{fit, safe, width};
use crate::terminal::key::Key;
use crate::terminal::style::{Role, Style};

/// Number of lines that are not rows of the table.
const OTHER_LINES: usize = 5;

/// Maximum number of lines of a failure.
const MAX_STATUS: usize = 4;

/// Maximum width of a column, except the last one.
const MAX_COLUMN: usize = 32;

/// Width that the last column should have, and to which the others can be narrowed for it.
const MIN_MESSAGE: usize = 24;
const MIN_COLUMN: usize = 8;

/// Columns that are left out on a narrow terminal, the first of them first. Details of a row have their values.
const OPTIONAL: [&str; 6] = ["ADDRESSES", "READY", "NOW", "CLOUD", "TARGETS", "AGE"];

/// Width of the marks before a row, and the last column of the terminal.
const MARGIN: usize = 5;

/// Space between columns.
const GAP: usize = 2;

/// Keys, and what they do.
const HELP: [(&str, &str); 9] = [
    ("Tab, right, left, 1-6", "select a table"),
    ("up, down, j, k", "select a row"),
    ("PageUp, PageDown, g, G", "go further, to the start, to the end"),
    ("Enter", "show details of the row"),
    ("Escape", "go back; end the search"),
    ("/", "search in the table"),
    ("Ctrl-L", "draw the screen again"),
    ("?", "show these keys"),
    ("q, Ctrl-C", "quit"),
];

/// Whether the program goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Continue,
    Quit,
}

/// What fills the screen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum Body {
    #[default]
    Table,
    /// Details of an item, by kind and name, scrolled by a number of lines.
    Detail {
        kind: String,
        name: String,
        top: usize,
    },
    Keys,
}

/// The selected row of a tab, and its search.
#[derive(Debug, Clone, Default)]
struct Tab {
    /// Kind and name, so that the selection follows its item when rows are added.
    selected: Option<(String, String)>,
    /// Number of the row, if the item no longer exists.
    at: usize,
    /// First visible row.
    top: usize,
}

/// State of the screen.
#[derive(Debug, Clone, Default)]
pub(super) struct Screen {
    tab: usize,
    tabs: [Tab; SECTIONS.len()],
    body: Body,
    search: String,
    /// Keys are characters of the search.
    is_typing: bool,
}

impl Screen {
    pub(super) fn new() -> Screen {
        Screen::default()
    }

    /// Handles a key. `rows` is the height of the terminal.
    pub(super) fn key(&mut self, key: Key, view: &View, rows: usize) -> Flow {
        let page = rows.saturating_sub(OTHER_LINES).max(1);
        match key {
            Key::Closed => return Flow::Quit,
            Key::Redraw => {}
            key if self.is_typing => self.type_key(key),
            Key::Char('q' | 'Q') => return Flow::Quit,
            Key::Char('?') => self.body = if self.body == Body::Keys { Body::Table } else { Body::Keys },
            Key::Escape | Key::Backspace => self.go_back(),
            Key::Char('/') => (self.body, self.is_typing) = (Body::Table, true),
            Key::Tab | Key::Right | Key::Char('l') => self.select_tab((self.tab + 1) % SECTIONS.len()),
            Key::BackTab | Key::Left | Key::Char('h') => {
                self.select_tab((self.tab + SECTIONS.len() - 1) % SECTIONS.len())
            }
            Key::Char(digit @ '1'..='9') => {
                let number = digit as usize - '1' as usize;
                if number < SECTIONS.len() {
                    self.select_tab(number);
                }
            }
            Key::Enter => self.open(view),
            key => self.scroll(key, page, view),
        }
        Flow::Continue
    }

    fn type_key(&mut self, key: Key) {
        match key {
            Key::Enter => self.is_typing = false,
            Key::Escape => (self.is_typing, self.search) = (false, String::new()),
            Key::Backspace => drop(self.search.pop()),
            Key::Char(c) => self.search.push(c),
            _ => {}
        }
    }

    fn go_back(&mut self) {
        match self.body {
            Body::Table => self.search.clear(),
            _ => self.body = Body::Table,
        }
    }

    fn select_tab(&mut self, tab: usize) {
        (self.tab, self.body) = (tab, Body::Table);
    }

    fn open(&mut self, view: &View) {
        let table = self.table(view);
        if let Some(row) = self.selected_row(&table).and_then(|at| table.rows.get(at)) {
            self.body = Body::Detail { kind: row.kind.clone(), name: row.name.clone(), top: 0 };
        }
    }

    fn scroll(&mut self, key: Key, page: usize, view: &View) {
        let moved = |at: usize, last: usize| {
            Some(match key {
                Key::Up | Key::Char('k') => at.saturating_sub(1),
                Key::Down | Key::Char('j') => at + 1,
                Key::PageUp => at.saturating_sub(page),
                Key::PageDown | Key::Char(' ') => at + page,
                Key::Home | Key::Char('g') => 0,
                Key::End | Key::Char('G') => last,
                _ => return None,
            })
        };
        if let Body::Detail { top, .. } = &mut self.body {
            // The end is not known before the frame is made, which limits it.
            *top = moved(*top, usize::MAX / 2).unwrap_or(*top);
            return;
        }
        let table = self.table(view);
        let last = table.rows.len().saturating_sub(1);
        let Some(at) = moved(self.selected_row(&table).unwrap_or_default(), last) else { return };
        let at = at.min(last);
        if let (Some(tab), Some(row)) = (self.tabs.get_mut(self.tab), table.rows.get(at)) {
            (tab.selected, tab.at) = (Some((row.kind.clone(), row.name.clone())), at);
        }
    }

    /// The table of the current tab, with the rows that the search finds.
    fn table(&self, view: &View) -> Table {
        let mut table = (SECTIONS.get(self.tab).unwrap_or(&SECTIONS[0]).make)(view);
        let search = self.search.to_lowercase();
        table.rows.retain(|row| row.contains(&search));
        table
    }

    /// Number of the selected row: that of its item, or where this was.
    fn selected_row(&self, table: &Table) -> Option<usize> {
        let tab = self.tabs.get(self.tab)?;
        let is_selected =
            |row: &Row| tab.selected.as_ref().is_some_and(|(kind, name)| (kind, name) == (&row.kind, &row.name));
        let found = table.rows.iter().position(is_selected);
        (!table.rows.is_empty()).then(|| found.unwrap_or(tab.at.min(table.rows.len() - 1)))
    }

    // === Frame ===

    /// Returns the lines of the screen, none wider than the terminal.
    pub(super) fn frame(&mut self, view: &View, title: &str, error: Option<&str>, style: Style) -> Vec<String> {
        let status = self.status_lines(error, style);
        let space = style.rows.saturating_sub(OTHER_LINES - 1 + status.len()).max(1);
        let manager = format!("{}   {}", manager_line(view), safe(title));
        let mut lines = vec![style.paint(Role::Title, &style.cut(&manager, 0)), style.cut(&counts_line(view), 0)];
        lines.push(self.tab_line(view, style));
        let body = match &self.body {
            Body::Table => self.table_lines(view, space, style),
            Body::Keys => keys_lines(style),
            Body::Detail { kind, name, top } => {
                let all = detail::lines(kind, name, view.get(kind, name), style);
                let top = (*top).min(all.len().saturating_sub(space + 1));
                let shown = all.into_iter().skip(top).collect();
                if let Body::Detail { top: limited, .. } = &mut self.body {
                    *limited = top;
                }
                shown
            }
        };
        lines.extend(body.into_iter().chain(std::iter::repeat(String::new())).take(space + 1));
        lines.extend(status);
        lines.truncate(style.rows.max(1));
        lines
    }

    fn tab_line(&self, view: &View, style: Style) -> String {
        let (mut line, mut used) = (String::new(), 0);
        for (number, section) in (1..).zip(SECTIONS) {
            let count = match (section.count)(view) {
                0 => String::new(),
                count => format!(" {count}"),
            };
            let is_current = number == self.tab + 1;
            let text = match is_current {
                true => format!("[{number} {}{count}]", section.title),
                false => format!(" {number} {}{count} ", section.title),
            };
            used += width(&text);
            if used >= style.columns {
                break;
            }
            line += &if is_current { style.paint(Role::Title, &text) } else { style.paint(Role::Secondary, &text) };
        }
        line
    }

    fn table_lines(&mut self, view: &View, space: usize, style: Style) -> Vec<String> {
        let table = self.table(view);
        if table.rows.is_empty() {
            let text = if self.search.is_empty() { table.empty } else { "The search finds nothing." };
            return vec![String::new(), style.cut(text, 0)];
        }
        let widths = limited_widths(&table, style);
        let selected = self.selected_row(&table).unwrap_or_default();
        let top = self.visible_from(selected, space);
        let headings = cells_line(table.columns.iter().copied(), &widths, style);
        let mut lines = vec![style.paint(Role::Title, &format!("    {headings}"))];
        let visible = table.rows.iter().enumerate().skip(top).take(space);
        lines.extend(visible.map(|(at, row)| row_line(row, at == selected, &widths, style)));
        lines
    }

    /// First visible row, so that the selected one is visible. The rows move only as far as needed.
    fn visible_from(&mut self, selected: usize, space: usize) -> usize {
        let Some(tab) = self.tabs.get_mut(self.tab) else { return 0 };
        tab.top = tab.top.clamp((selected + 1).saturating_sub(space), selected);
        tab.top
    }

    /// The search, the failure of the last request with its remedy, or the keys.
    fn status_lines(&self, error: Option<&str>, style: Style) -> Vec<String> {
        let cut = |text: &str| vec![style.cut(text, 0)];
        match (error, self.is_typing) {
            (_, true) => cut(&format!("Search: {}_", safe(&self.search))),
            (Some(error), false) => {
                // The last column stays free.
                let narrower = Style { columns: style.columns.saturating_sub(1), ..style };
                let lines = narrower.wrap(&safe(error), 0).into_iter().take(MAX_STATUS);
                lines.map(|line| style.paint(Role::Failed, &style.cut(&line, 0))).collect()
            }
            (None, false) if !self.search.is_empty() => cut(&format!("Search: {}   Escape: all", safe(&self.search))),
            (None, false) => cut("Tab: table   Up, Down: row   Enter: details   /: search   ?: keys   q: quit"),
        }
    }
}

fn keys_lines(style: Style) -> Vec<String> {
    let line = |(keys, what): &(&str, &str)| style.cut(&format!("  {keys:<26}{what}"), 0);
    std::iter::once(String::new()).chain(HELP.iter().map(line)).collect()
}

/// Widths of the columns; `None` for one that is left out. The last one, which has the message, has the rest of the line. If that is
/// little, other columns are left out or become narrower.
fn limited_widths(table: &Table, style: Style) -> Vec<Option<usize>> {
    let mut widths: Vec<Option<usize>> = widths(table).into_iter().map(|width| Some(width.min(MAX_COLUMN))).collect();
    let available = style.columns.saturating_sub(MARGIN);
    let Some((last, others)) = widths.split_last_mut() else { return widths };
    let rest =
        |others: &[Option<usize>]| available.saturating_sub(others.iter().flatten().map(|width| width + GAP).sum());
    for optional in OPTIONAL {
        let at = table.columns.iter().position(|heading| *heading == optional);
        let is_narrow = rest(others) < MIN_MESSAGE;
        if let Some(width) = at.and_then(|at| others.get_mut(at)).filter(|_| is_narrow) {
            *width = None;
        }
    }
    while rest(others) < MIN_MESSAGE {
        match others.iter_mut().flatten().max() {
            Some(widest) if *widest > MIN_COLUMN => *widest -= 1,
            _ => break,
        }
    }
    *last = Some(rest(others));
    widths
}

fn cells_line<'a>(cells: impl Iterator<Item = &'a str>, widths: &[Option<usize>], style: Style) -> String {
    let cells = cells.zip(widths).filter_map(|(cell, width)| Some(fit(cell, (*width)?, style)));
    let line = cells.collect::<Vec<_>>().join(&" ".repeat(GAP));
    // On a narrow terminal, the last columns do not fit.
    line.chars().take(style.columns.saturating_sub(MARGIN)).collect()
}

fn row_line(row: &Row, is_selected: bool, widths: &[Option<usize>], style: Style) -> String {
    let cells = cells_line(row.cells.iter().map(String::as_str), widths, style);
    let cells = if is_selected { style.paint(Role::Selected, &cells) } else { cells };
    format!("{} {} {cells}", if is_selected { ">" } else { " " }, row.level.mark(style))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::table::tests::view;

    const PLAIN: Style = Style { columns: 80, rows: 12, colours: false, in_place: true, unicode: false };

    fn frame(screen: &mut Screen, style: Style) -> Vec<String> {
        screen.frame(&view(), "blue (https://a:6443)", None, style)
    }

    fn press(screen: &mut Screen, keys: &[Key]) {
        for key in keys {
            assert_eq!(screen.key(*key, &view(), PLAIN.rows), Flow::Continue, "{key:?}");
        }
    }

    #[test]
    fn a_frame_fills_the_terminal_and_no_line_is_wider() {
        for (columns, rows) in [(80, 24), (80, 12), (40, 10), (20, 3), (200, 50), (20, 1)] {
            let style = Style { columns, rows, ..PLAIN };
            for number in '1'..='6' {
                for key in [Key::Redraw, Key::Enter, Key::Char('?'), Key::Char('/')] {
                    let mut screen = Screen::new();
                    press(&mut screen, &[Key::Char(number), key]);
                    let lines = frame(&mut screen, style);
                    assert_eq!(lines.len(), rows, "{columns}x{rows}, {number}, {key:?}");
                    assert!(lines.iter().all(|line| width(line) <= columns), "{columns}x{rows}: {lines:#?}");
                }
            }
        }
    }

    #[test]
    fn the_first_screen_shows_what_needs_attention() {
        let lines = frame(&mut Screen::new(), PLAIN);
        let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
        let expected = [
            "bowline v0.1.0, leader, cluster blue, up 2h   blue (https://a:6443)",
            "Nodes: 2 (1 progressing)   Services: 1 (1 error)   Clouds: 1",
            "[1 Attention 2] 2 Nodes 2  3 Services 1  4 Clouds 1  5 Queues 1  6 Events 2",
            "    LEVEL        OBJECT               REASON         MESSAGE",
            "> x error        service default/web  QuotaExceeded  the quota is used up",
            "  ~ progressing  node b               Initializing   waits for its machine",
        ];
        assert_eq!(lines[..6], expected);
        assert!(lines.last().unwrap().ends_with("q: quit"));
    }

    #[test]
    fn columns_are_left_out_or_narrowed_so_that_the_message_has_space() {
        let (mut screen, mut view) = (Screen::new(), view());
        let item = serde_json::json!({
            "health": {"level": "error", "reason": "MachineIsUnreachable", "message": "the message is read"}, "ready": "Unknown",
            "cloud": "a-cloud-with-a-long-name", "machineState": "running", "addresses": ["InternalIP 192.168.100.100", "Hostname h"],
        });
        let changes = serde_json::json!({
            "epoch": "e", "revision": 2, "complete": false, "time": "2026-01-01T12:00:00Z",
            "items": {"node/a-name-that-is-longer-than-it-has-to-be": item},
        });
        view.apply(serde_json::from_value(changes).unwrap());
        press(&mut screen, &[Key::Char('2')]);
        let lines = screen.frame(&view, "", None, PLAIN);
        assert!(lines.iter().any(|line| line.contains("the message is read")), "{lines:#?}");
        assert!(!lines[3].contains("ADDRESSES") && lines[5].contains("MachineIsUnreach"), "{lines:#?}");
        let wide = screen.frame(&view, "", None, Style { columns: 240, ..PLAIN });
        assert!(wide[5].contains("InternalIP 192.168.100.100"), "{wide:#?}");
    }

    #[test]
    fn keys_select_tables_rows_and_details() {
        let mut screen = Screen::new();
        press(&mut screen, &[Key::Down, Key::Down, Key::Down, Key::Enter]);
        assert_eq!(frame(&mut screen, PLAIN)[3], "node b", "the selection stops at the last row");
        press(&mut screen, &[Key::Escape, Key::Tab]);
        assert!(frame(&mut screen, PLAIN)[4].starts_with(">   a   "));
        press(&mut screen, &[Key::BackTab, Key::Left]);
        assert!(frame(&mut screen, PLAIN)[2].contains("[6 Events 2]"), "around the start");
        press(&mut screen, &[Key::Char('3'), Key::Enter, Key::End]);
        let lines = frame(&mut screen, PLAIN);
        assert!(lines.iter().any(|line| line.contains("state: delayed")), "{lines:#?}");
        press(&mut screen, &[Key::Char('?')]);
        assert!(frame(&mut screen, PLAIN)[4].contains("select a table"));
        assert_eq!(screen.key(Key::Char('q'), &view(), 12), Flow::Quit);
        assert_eq!(Screen::new().key(Key::Closed, &view(), 12), Flow::Quit);
    }

    #[test]
    fn the_search_hides_rows_until_escape() {
        let mut screen = Screen::new();
        press(&mut screen, &[Key::Char('2'), Key::Char('/'), Key::Char('q'), Key::Backspace]);
        press(&mut screen, &['W', 'a', 'i', 't'].map(Key::Char));
        assert_eq!(frame(&mut screen, PLAIN).last().unwrap(), "Search: Wait_");
        press(&mut screen, &[Key::Enter]);
        let lines = frame(&mut screen, PLAIN);
        assert!(lines[4].starts_with("> ~ b") && lines[5].is_empty(), "{lines:#?}");
        press(&mut screen, &[Key::Escape]);
        assert!(frame(&mut screen, PLAIN)[5].contains("~ b"));
        press(&mut screen, &[Key::Char('/'), Key::Char('x'), Key::Char('x')]);
        assert!(frame(&mut screen, PLAIN)[4].contains("The search finds nothing."));
    }

    #[test]
    fn the_selection_follows_its_item() {
        let (mut screen, mut view) = (Screen::new(), view());
        press(&mut screen, &[Key::Char('2'), Key::Down]);
        let item = serde_json::json!({"health": {"level": "ok", "reason": "Ready"}});
        let changes = serde_json::json!({
            "epoch": "e", "revision": 2, "complete": false, "time": "2026-01-01T12:00:00Z", "items": {"node/aa": item},
            "removed": [],
        });
        view.apply(serde_json::from_value(changes).unwrap());
        let lines = screen.frame(&view, "", None, PLAIN);
        assert!(lines[6].starts_with("> ~ b"), "{lines:#?}");
        let changes = serde_json::json!({
            "epoch": "e", "revision": 3, "complete": false, "time": "2026-01-01T12:00:00Z", "items": {}, "removed": ["node/b"],
        });
        view.apply(serde_json::from_value(changes).unwrap());
        let lines = screen.frame(&view, "", None, PLAIN);
        assert!(lines.iter().any(|line| line.starts_with('>')), "another row is selected: {lines:#?}");
    }

    #[test]
    fn a_failure_is_shown_beside_the_last_document() {
        let error = "no manager holds\u{1b}[2J the Lease kube-system/cloud-controller-manager; fix: see the Pods of the manager";
        let lines = Screen::new().frame(&view(), "", Some(error), PLAIN);
        let expected = [
            "no manager holds [2J the Lease kube-system/cloud-controller-manager; fix: see",
            "the Pods of the manager",
        ];
        assert_eq!(lines[lines.len() - 2..], expected.map(|line| line.to_owned()));
        assert_eq!(lines.len(), PLAIN.rows);
        assert!(lines[4].contains("QuotaExceeded"));
    }
}
