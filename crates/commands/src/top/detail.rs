//! All fields of one item, as indented lines.

use serde_json::Value;

use super::values::{Level, text};
use crate::terminal::style::{Role, Style};

/// What an item is and which controller is responsible, by kind.
const MEANINGS: [(&str, &str); 9] = [
    ("manager", "The manager process. Of several, one is the leader, and the others are standby."),
    (
        "cloud",
        "A cloud that the manager reconciles the cluster with. Controllers call it for Nodes, load balancers and routes.",
    ),
    (
        "node",
        "A Node. The cloud-node-controller initialises it from its machine, and the cloud-node-lifecycle-controller deletes it when the \
         machine is gone.",
    ),
    (
        "service",
        "A Service. The service-controller creates its load balancer, keeps its targets up to date, and writes its address.",
    ),
    ("loadBalancer", "A load balancer in its cloud, with the state of its targets."),
    ("route", "A route from the cloud's network to the pod CIDR of a Node, which the route-controller creates."),
    ("controller", "A controller: a part of the manager that reconciles one kind of object."),
    ("queue", "The work queue of a controller: keys of objects that it will sync, each at most once at a time."),
    ("event", "An Event that the manager has emitted; kubectl describe shows it on its object."),
];

/// Returns the lines for an item.
pub(super) fn lines(kind: &str, name: &str, item: Option<&Value>, style: Style) -> Vec<String> {
    let title = text(&format!("{kind} {name}").into(), &[]);
    let mut lines = vec![style.paint(Role::Title, &style.cut(&title, 0))];
    let Some(item) = item else {
        lines.push("It no longer exists.".to_owned());
        return lines;
    };
    if let Some((_, meaning)) = MEANINGS.iter().find(|(known, _)| *known == kind) {
        let meaning = style.wrap(meaning, 0);
        lines.extend(meaning.iter().map(|line| style.paint(Role::Secondary, line)));
    }
    if let Some(level) = Level::of(item) {
        lines.push(String::new());
        let health = format!("{}: {}", level.word(), text(item, &["health", "reason"]));
        lines.push(format!("{} {}", level.mark(style), level.paint(style, &health)));
        lines.extend(style.wrap(&text(item, &["health", "message"]), 2));
    }
    lines.push(String::new());
    for (field, value) in item.as_object().into_iter().flatten().filter(|(field, _)| *field != "health") {
        write(&mut lines, field, value, 0, style);
    }
    lines
}

/// Writes a field, and those in it below.
fn write(lines: &mut Vec<String>, field: &str, value: &Value, indent: usize, style: Style) {
    let label = text(&field.into(), &[]);
    let is_flat = |values: &[Value]| !values.iter().any(|value| value.is_object() || value.is_array());
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            lines.push(format!("{:indent$}{label}:", ""));
            fields.iter().for_each(|(field, value)| write(lines, field, value, indent + 2, style));
        }
        Value::Array(values) if !is_flat(values) => {
            lines.push(format!("{:indent$}{label}:", ""));
            for value in values {
                lines.push(element(value, indent + 2, style));
            }
        }
        Value::Object(_) | Value::Null => {}
        value => lines.extend(hanging(&format!("{label}: {}", text(value, &[])), indent, style)),
    }
}

/// An element of a list, on one line.
fn element(value: &Value, indent: usize, style: Style) -> String {
    let parts = match value {
        Value::Object(fields) => {
            let parts = fields
                .iter()
                .map(|(field, value)| format!("{}={}", text(&field.as_str().into(), &[]), text(value, &[])));
            parts.collect::<Vec<_>>().join(" ")
        }
        value => text(value, &[]),
    };
    format!("{:indent$}- {}", "", style.cut(&parts, indent + 2))
}

/// Wraps a text; lines after the first are indented further.
fn hanging(text: &str, indent: usize, style: Style) -> Vec<String> {
    let lines = style.wrap(text, indent + 2);
    let first = |line: &String| line.get(2..).unwrap_or(line).to_owned();
    lines.iter().enumerate().map(|(at, line)| if at == 0 { first(line) } else { line.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::top::table::tests::view;

    const PLAIN: Style = Style { columns: 60, rows: 24, colours: false, in_place: true, unicode: false };

    #[test]
    fn an_item_is_explained_and_all_its_fields_are_shown() {
        let view = view();
        let text = lines("service", "default/web", view.get("service", "default/web"), PLAIN).join("\n");
        let expected = "\
service default/web
A Service. The service-controller creates its load balancer,
keeps its targets up to date, and writes its address.

x error: QuotaExceeded
  the quota is used up

addresses: 
cloud: local
created: 2026-01-01T11:59:30Z
targets:
  - node=a
work:
  failures: 2
  next: 2026-01-01T12:00:10Z
  state: delayed";
        assert_eq!(text.replace("addresses:\n", "addresses: \n"), expected);
    }

    #[test]
    fn a_deleted_item_is_not_an_error() {
        assert_eq!(lines("node", "a", None, PLAIN), ["node a", "It no longer exists."]);
    }

    #[test]
    fn hostile_names_stay_on_their_line() {
        let item =
            json!({"health": {"level": "error", "reason": "R\u{1b}[2J"}, "a\nb": "c\nd", "list": [{"x\r": "y\r\nz"}]});
        for line in lines("node", "evil\n\u{1b}[31m", Some(&item), PLAIN) {
            assert!(!line.contains(['\n', '\r', '\u{1b}']), "{line:?}");
        }
    }

    #[test]
    fn long_values_are_wrapped() {
        let item = json!({"error": "one two three four five six seven eight nine ten eleven twelve thirteen"});
        let lines = lines("other", "a", Some(&item), PLAIN);
        assert_eq!(lines[2], "error: one two three four five six seven eight nine ten");
        assert_eq!(lines[3], "  eleven twelve thirteen");
    }
}
