//! A forecast as text for people and as JSON for programs. The JSON is a promise: fields are added, never renamed.

use std::fmt::Write as _;

use bowline_controllers::forecast::{Forecast, Item, Remark, RemarkKind};
use bowline_core::Plan;
use serde_json::{Value, json};

/// The version of the JSON document.
const VERSION: u32 = 1;

pub(super) fn text(forecast: &Forecast) -> String {
    let mut text = String::new();
    for item in &forecast.items {
        write_item(&mut text, item);
    }
    let summary = forecast.summary();
    let _ = match summary.is_unchanged() {
        true => write!(text, "Nothing would change"),
        false => write!(
            text,
            "{} in clouds and {} in the cluster would be taken",
            counted(summary.in_clouds, "step"),
            summary.in_cluster
        ),
    };
    let others = [(summary.held_back, "held back"), (summary.refused, "refused"), (summary.failed, "failed")];
    for (count, what) in others.into_iter().filter(|(count, _)| *count > 0) {
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
    for Remark { kind, message } in &item.remarks {
        let _ = writeln!(text, "  {}: {message}", words(*kind));
    }
    text.push('\n');
}

/// The steps of a plan below their heading.
pub(crate) fn write_plan(text: &mut String, heading: &str, plan: &Plan) {
    if !plan.is_empty() {
        let _ = write!(text, "  {heading}:\n{}", indented(plan));
    }
}

/// The steps, each line further in.
pub(crate) fn indented(plan: &Plan) -> String {
    plan.to_string().lines().map(|line| format!("    {line}\n")).collect()
}

pub(crate) fn words(kind: RemarkKind) -> &'static str {
    match kind {
        RemarkKind::Note => "note",
        RemarkKind::HeldBack => "held back",
        RemarkKind::Refused => "refused",
        RemarkKind::Failed => "failed",
    }
}

/// Names and messages are of others: none of them may move the cursor or colour the screen.
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
    let remark = |remark: &Remark| json!({"kind": kind_name(remark.kind), "message": remark.message});
    json!({
        "kind": item.object.kind,
        "namespace": item.object.namespace,
        "name": item.object.name,
        "cloud": item.cloud.as_deref(),
        "inCloud": steps_json(&item.in_cloud),
        "inCluster": steps_json(&item.in_cluster),
        "remarks": item.remarks.iter().map(remark).collect::<Vec<_>>(),
    })
}

pub(crate) fn kind_name(kind: RemarkKind) -> &'static str {
    match kind {
        RemarkKind::Note => "note",
        RemarkKind::HeldBack => "heldBack",
        RemarkKind::Refused => "refused",
        RemarkKind::Failed => "failed",
    }
}

/// The steps without their payloads, which are between a provider and itself.
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
        Step::new(verb, kind, name, changes, Opaque::new("between a provider and itself"))
    }

    fn forecast() -> Forecast {
        let object = Object { kind: "Service", namespace: Some("default".to_owned()), name: "web".to_owned() };
        let item = Item {
            object,
            cloud: Some("local".into()),
            in_cloud: Plan::of(vec![step(Verb::Create, "balancer", "lb-1")]),
            in_cluster: Plan::of(vec![step(Verb::Update, "Service", "web")]),
            remarks: vec![Remark { kind: RemarkKind::HeldBack, message: "why\u{1b}[31m".to_owned() }],
        };
        Forecast { items: vec![item] }
    }

    #[test]
    fn people_read_one_object_after_the_other_and_what_it_comes_to() {
        let expected = "Service default/web (local)
  in the cloud:
    create balancer lb-1
        port: 80
  in the cluster:
    update Service web
        port: 80
  held back: why [31m

1 step in clouds and 1 in the cluster would be taken; 1 held back.
";
        assert_eq!(plain(&text(&forecast())), expected);
        assert_eq!(text(&Forecast::default()), "Nothing would change.\n");
    }

    #[test]
    fn programs_read_a_document_without_payloads() {
        let step = |verb: &str, kind: &str, name: &str| json!([{"verb": verb, "kind": kind, "name": name, "changes": [{"field": "port", "to": "80"}]}]);
        let expected = json!({
            "version": 1,
            "summary": {"inClouds": 1, "inCluster": 1, "heldBack": 1, "refused": 0, "failed": 0},
            "items": [{
                "kind": "Service",
                "namespace": "default",
                "name": "web",
                "cloud": "local",
                "inCloud": step("create", "balancer", "lb-1"),
                "inCluster": step("update", "Service", "web"),
                "remarks": [{"kind": "heldBack", "message": "why\u{1b}[31m"}],
            }],
        });
        assert_eq!(json(&forecast()), expected);
    }
}
