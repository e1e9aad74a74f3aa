//! Values of the document as text for cells.

use jiff::Timestamp;
use serde_json::Value;

use crate::terminal::style::{Role, Style};

/// Severity of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Level {
    Ok,
    Progressing,
    #[default]
    Unknown,
    Warning,
    Error,
}

impl Level {
    /// Level of an item's health; `None` for an item without health.
    pub(super) fn of(item: &Value) -> Option<Level> {
        Some(match item.get("health")?.get("level")?.as_str()? {
            "ok" => Level::Ok,
            "progressing" => Level::Progressing,
            "warning" => Level::Warning,
            "error" => Level::Error,
            _ => Level::Unknown,
        })
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Progressing => "progressing",
            Level::Unknown => "unknown",
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }

    /// A mark of one column, so that levels differ without colours, too.
    pub(super) fn mark(self, style: Style) -> String {
        let (mark, ascii) = match self {
            Level::Ok => ("✓", " "),
            Level::Progressing => ("…", "~"),
            Level::Unknown => ("?", "?"),
            Level::Warning => ("!", "!"),
            Level::Error => ("✗", "x"),
        };
        self.paint(style, if style.unicode { mark } else { ascii })
    }

    pub(super) fn paint(self, style: Style, text: &str) -> String {
        match self {
            Level::Ok => style.paint(Role::Passed, text),
            Level::Progressing => style.paint(Role::Command, text),
            Level::Unknown => style.paint(Role::Secondary, text),
            Level::Warning => style.paint(Role::Warning, text),
            Level::Error => style.paint(Role::Failed, text),
        }
    }
}

/// Text of a field, by its path.
pub(super) fn text(item: &Value, path: &[&str]) -> String {
    match field(item, path) {
        Value::String(text) => safe(text),
        Value::Null => String::new(),
        Value::Array(values) => values.iter().map(|value| text(value, &[])).collect::<Vec<_>>().join(" "),
        other => safe(&other.to_string()),
    }
}

/// A number; 0 if there is none.
pub(super) fn number(item: &Value, path: &[&str]) -> u64 {
    field(item, path).as_u64().unwrap_or_default()
}

/// Number of elements of a list.
pub(super) fn count(item: &Value, path: &[&str]) -> usize {
    field(item, path).as_array().map_or(0, Vec::len)
}

pub(super) fn field<'a>(item: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(item, |value, name| &value[*name])
}

/// Texts come from users and clouds: they must not move the cursor, break the line, or change its direction.
pub(super) fn safe(text: &str) -> String {
    let is_harmful = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    text.chars().map(|c| if is_harmful(c) { ' ' } else { c }).collect()
}

/// Time since, as kubectl prints it; empty without a time.
pub(super) fn age(item: &Value, path: &[&str], now: Option<Timestamp>) -> String {
    elapsed(item, path, now).map(|seconds| duration(seconds.max(0))).unwrap_or_default()
}

/// Time until, such as `in 12s`; empty without a time.
pub(super) fn until(item: &Value, path: &[&str], now: Option<Timestamp>) -> String {
    match elapsed(item, path, now) {
        Some(seconds) if seconds >= 0 => "now".to_owned(),
        Some(seconds) => format!("in {}", duration(-seconds)),
        None => String::new(),
    }
}

fn elapsed(item: &Value, path: &[&str], now: Option<Timestamp>) -> Option<i64> {
    let at: Timestamp = field(item, path).as_str()?.parse().ok()?;
    Some(now?.as_second() - at.as_second())
}

fn duration(seconds: i64) -> String {
    let (minute, hour, day) = (60, 3_600, 86_400);
    match seconds {
        ..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / minute),
        7_200..172_800 => format!("{}h", seconds / hour),
        _ => format!("{}d", seconds / day),
    }
}

/// Number of columns of a text.
pub(super) fn width(text: &str) -> usize {
    text.chars().count()
}

/// Fills or cuts a text to this width.
pub(super) fn fit(text: &str, columns: usize, style: Style) -> String {
    let length = width(text);
    if length <= columns {
        return format!("{text}{}", " ".repeat(columns - length));
    }
    let more = if style.unicode { "…" } else { "." };
    text.chars().take(columns.saturating_sub(1)).chain(more.chars().take(columns)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ages_are_printed_as_by_kubectl() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let cases = [
            ("2026-01-01T23:59:50Z", "10s", "now"),
            ("2026-01-01T23:58:00Z", "2m", "now"),
            ("2026-01-01T20:00:00Z", "4h", "now"),
            ("2025-12-01T00:00:00Z", "32d", "now"),
            ("2026-01-02T00:00:30Z", "0s", "in 30s"),
            ("rubbish", "", ""),
        ];
        for (at, since, next) in cases {
            let item = json!({"at": at});
            assert_eq!(
                (age(&item, &["at"], Some(now)).as_str(), until(&item, &["at"], Some(now)).as_str()),
                (since, next),
                "{at}"
            );
        }
        assert_eq!(age(&json!({}), &["at"], Some(now)), "");
        assert_eq!(age(&json!({"at": "2026-01-01T23:59:50Z"}), &["at"], None), "");
    }

    #[test]
    fn texts_cannot_send_terminal_escapes_or_change_direction() {
        assert_eq!(text(&json!({"a": {"b": "x\u{1b}[2J\n\u{202e}y"}}), &["a", "b"]), "x [2J  y");
        assert_eq!(text(&json!(["a", "b\r"]), &[]), "a b ");
    }

    #[test]
    fn cells_have_a_fixed_width() {
        let style = Style { columns: 80, rows: 24, colours: false, in_place: true, unicode: false };
        assert_eq!(fit("abc", 5, style), "abc  ");
        assert_eq!(fit("abcdef", 5, style), "abcd.");
        assert_eq!(fit("abcdef", 5, Style { unicode: true, ..style }), "abcd…");
        assert_eq!(fit("abc", 0, style), "");
    }
}
