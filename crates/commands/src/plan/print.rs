//! Output of a forecast as text and as JSON. The JSON is stable: fields are added, never renamed.

use std::fmt::Write as _;

use bowline_controllers::forecast::{Forecast, Item, Notice, NoticeKind};
use bowline_core::Plan;
use serde_json::{Value, json};

/// Version of the JSON document.
const VERSION: u32 = 1;

pub(super) fn text(forecast: &Forecast) -> String {
    let mut text = String::new();
    for item in &forecast.items {
        write_item(&mut text, item);
    }
    let summary = forecast.summary();
    let _ = match summary.is_unchanged() {
        true => write!(text, "No changes"),
        false => write!(
            text,
            "{} in clouds and {} in the cluster to apply",
            counted(summary.in_clouds, "step"),
            summary.in_cluster
        ),
    };
    let counts = [(summary.held_back, "held back"), (summary.refused, "refused"), (summary.failed, "failed")];
    for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
        let _ = write!(text, "; {count} {what}");
    }
    text + ".\n"
}

pub(crate) fn counted(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

fn write_item(text: &mut String, item: &Item) {
    let cloud = item.cloud.as_ref().map(|cloud| format!(" ({cloud})")).unwrap_or_default();
    let _ = writeln!(text, "{}{cloud}", item.object.title());
    write_plan(text, "in the cloud", &item.in_cloud);
    write_plan(text, "in the cluster", &item.in_cluster);
    for Notice { kind, message } in &item.notices {
        let _ = writeln!(text, "  {}: {message}", notice_label(*kind));
    }
    text.push('\n');
}

/// Writes the steps of a plan below a heading.
pub(crate) fn write_plan(text: &mut String, heading: &str, plan: &Plan) {
    if !plan.is_empty() {
        let _ = write!(text, "  {heading}:\n{}", indented(plan));
    }
}

/// Formats the steps, indented.
pub(crate) fn indented(plan: &Plan) -> String {
    plan.to_string().lines().map(|line| format!("    {line}\n")).collect()
}

pub(crate) fn notice_label(kind: NoticeKind) -> &'static str {
    match kind {
        NoticeKind::Note => "note",
        NoticeKind::HeldBack => "held back",
        NoticeKind::Refused => "refused",
        NoticeKind::Failed => "failed",
    }
}

/// Replaces control characters: names and messages from the cloud or the cluster must not send terminal escapes.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect()
}

pub(super) fn json(forecast: &Forecast) -> Value {
    let summary = forecast.summary();
    json!({
        "version": VERSION,
        "summary": {
            "inClouds": summary.in_clouds,
            "inCluster": summary.in_cluster,
            "heldBack": summary.held_back,
            "refused": summary.refused,
            "failed": summary.failed,
        },
        "items": forecast.items.iter().map(item_json).collect::<Vec<_>>(),
    })
}

fn item_json(item: &Item) -> Value {
    let notice = |notice: &Notice| json!({"kind": kind_name(notice.kind), "message": notice.message});
    json!({
        "kind": item.object.kind,
        "namespace": item.object.namespace,
        "name": item.object.name,
        "cloud": item.cloud.as_deref(),
        "inCloud": steps_json(&item.in_cloud),
        "inCluster": steps_json(&item.in_cluster),
        "remarks": item.notices.iter().map(notice).collect::<Vec<_>>(),
    })
}

pub(crate) fn kind_name(kind: NoticeKind) -> &'static str {
    match kind {
        NoticeKind::Note => "note",
        NoticeKind::HeldBack => "heldBack",
        NoticeKind::Refused => "refused",
        NoticeKind::Failed => "failed",
    }
}

/// Steps without their payloads, which are private to the provider.
pub(crate) fn steps_json(plan: &Plan) -> Value {
    let step = |step: &bowline_core::Step| json!({"verb": step.verb, "kind": step.kind, "name": step.name, "changes": step.changes});
    plan.steps.iter().map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_controllers::forecast::Object;
    use bowline_core::{FieldChange, Opaque, Step, Verb};

    fn step(verb: Verb, kind: &str, name: &str) -> Step {
        let changes = vec![FieldChange { field: "port".to_owned(), from: None, to: Some("80".to_owned()) }];
        Step::new(verb, kind, name, changes, Opaque::new("private to the provider"))
    }

    fn forecast() -> Forecast {
        let object = Object { kind: "Service", namespace: Some("default".to_owned()), name: "web".to_owned() };
        let item = Item {
            object,
            cloud: Some("local".into()),
            in_cloud: Plan::of(vec![step(Verb::Create, "load balancer", "lb-1")]),
            in_cluster: Plan::of(vec![step(Verb::Update, "Service", "web")]),
            notices: vec![Notice { kind: NoticeKind::HeldBack, message: "why\u{1b}[31m".to_owned() }],
        };
        Forecast { items: vec![item] }
    }

    #[test]
    fn the_text_lists_each_object_and_a_summary() {
        let expected = "Service default/web (local)
  in the cloud:
    create load balancer lb-1
        port: 80
  in the cluster:
    update Service web
        port: 80
  held back: why [31m

1 step in clouds and 1 in the cluster to apply; 1 held back.
";
        assert_eq!(plain(&text(&forecast())), expected);
        assert_eq!(text(&Forecast::default()), "No changes.\n");
    }

    #[test]
    fn the_json_document_has_no_payloads() {
        let step = |verb: &str, kind: &str, name: &str| json!([{"verb": verb, "kind": kind, "name": name, "changes": [{"field": "port", "to": "80"}]}]);
        let expected = json!({
            "version": 1,
            "summary": {"inClouds": 1, "inCluster": 1, "heldBack": 1, "refused": 0, "failed": 0},
            "items": [{
                "kind": "Service",
                "namespace": "default",
                "name": "web",
                "cloud": "local",
                "inCloud": step("create", "load balancer", "lb-1"),
                "inCluster": step("update", "Service", "web"),
                "remarks": [{"kind": "heldBack", "message": "why\u{1b}[31m"}],
            }],
        });
        assert_eq!(json(&forecast()), expected);
    }
}
