//! Reference page of the capabilities of each provider, generated from the capability types and the factories.

use bowline_cloud::{InstanceCapabilities, LoadBalancerCapabilities, LoadBalancerKind, Registry, RouteCapabilities};
use serde::Serialize;
use serde_json::Value;

/// Renders the page in Markdown.
pub(super) fn page(registry: &Registry) -> String {
    let (mut instances, mut balancers, mut kinds, mut routes) = (vec![], vec![], vec![], vec![]);
    for factory in registry.iter() {
        let claimed = (factory.capabilities)();
        instances.push(column(factory.name, claimed.instances.as_ref()));
        balancers.push(column(factory.name, claimed.load_balancers.as_ref()));
        for kind in claimed.load_balancers.iter().flat_map(|all| &all.kinds) {
            kinds.push(column(&format!("{} {}", factory.name, kind.name), Some(kind)));
        }
        routes.push(column(factory.name, claimed.routes.as_ref()));
    }
    let without = |fields: &[Field], left_out: &str| -> Vec<Field> {
        fields.iter().copied().filter(|(name, _)| *name != left_out).collect()
    };
    let sections = [
        section("Instances", InstanceCapabilities::FIELDS, &instances),
        section("Load balancers", &without(LoadBalancerCapabilities::FIELDS, "kinds"), &balancers),
        section("Kinds of load balancers", &without(LoadBalancerKind::FIELDS, "name"), &kinds),
        section("Routes", RouteCapabilities::FIELDS, &routes),
    ];
    HEAD.to_owned() + &sections.join("")
}

const HEAD: &str = "\
# Capabilities

<!-- Made by `cargo xtask generate` from the providers' factories; change those instead. -->

What each provider supports if its configuration and the cloud allow everything. A Service that requests a feature that its load
balancer does not support is rejected with an Event before any cloud call; `bowline plan` shows the same message.
";

/// Name and description.
type Field = (&'static str, &'static str);

/// Column of a provider, or of a kind of its load balancers, with its capabilities as JSON; null if it has none of the group.
struct Column {
    title: String,
    claimed: Value,
}

fn column(title: &str, claimed: Option<&impl Serialize>) -> Column {
    let claimed = claimed.and_then(|claimed| serde_json::to_value(claimed).ok()).unwrap_or_default();
    Column { title: title.to_owned(), claimed }
}

fn section(title: &str, fields: &[Field], columns: &[Column]) -> String {
    let titles: Vec<_> = columns.iter().map(|column| column.title.as_str()).collect();
    let mut text =
        format!("\n## {title}\n\n| capability | {} |\n|---|{}\n", titles.join(" | "), "---|".repeat(columns.len()));
    for (name, description) in fields {
        let cells: Vec<_> = columns.iter().map(|column| cell(&column.claimed[name])).collect();
        text += &format!("| `{name}`: {} | {} |\n", plain(description), cells.join(" | "));
    }
    text
}

fn cell(value: &Value) -> String {
    match value {
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(all) if all.iter().all(Value::is_array) => {
            let annotation = |pair: &Value| format!("`{}: {}`", cell(&pair[0]), cell(&pair[1]));
            all.iter().map(annotation).collect::<Vec<_>>().join(", ")
        }
        Value::Array(all) => all.iter().map(cell).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// Removes rustdoc links from a description.
fn plain(description: &str) -> String {
    let mut text = description.trim().to_owned();
    while let Some(start) = text.find("](") {
        let Some(length) = text[start..].find(')') else { break };
        text.replace_range(start..=start + length, "");
        if let Some(open) = text[..start].rfind('[') {
            text.remove(open);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_plain_text() {
        let description = " Pages of [`list`](crate::Instances::list); `None` if not. See [`x`](y).";
        assert_eq!(plain(description), "Pages of `list`; `None` if not. See `x`.");
    }
}
