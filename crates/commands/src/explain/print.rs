//! Output of an explanation as text and as JSON. The JSON is stable: fields are added, never renamed.

use std::fmt::Write as _;

use bowline_controllers::forecast::{Comparison, Notice, NoticeKind};
use bowline_kube::SeenEvent;
use bowline_telemetry::statusz::duration;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Report;
use crate::plan::{counted, kind_name, notice_label, steps_json, write_plan};

/// Version of the JSON document.
const VERSION: u32 = 1;

pub(super) fn text(report: &Report, now: Timestamp) -> String {
    let explanation = &report.explanation;
    let (item, mut text) = (&explanation.item, String::new());
    let _ = writeln!(text, "{}\n  cloud: {}", item.object.title(), explanation.ownership);
    let _ = write!(text, "  state:\n{}", table(&explanation.fields));
    if let Some(count) = explanation.targets {
        let _ = writeln!(text, "  targets: {}", counted(count, "Node"));
    }
    if !explanation.left_out.is_empty() {
        let _ = writeln!(text, "  Nodes left out: {}", explanation.left_out);
    }
    let (notes, blocking): (Vec<_>, Vec<_>) = item.notices.iter().partition(|notice| notice.kind == NoticeKind::Note);
    write_notices(&mut text, "blocked by", &blocking);
    write_notices(&mut text, "notes", &notes);
    match item.in_cloud.is_empty() && item.in_cluster.is_empty() {
        true => text.push_str("  next: no changes\n"),
        false => {
            write_plan(&mut text, "next, in the cloud", &item.in_cloud);
            write_plan(&mut text, "next, in the cluster", &item.in_cluster);
        }
    }
    text + &events(&report.events, now)
}

/// Formats desired and observed state in columns; `*` marks differences.
fn table(fields: &[Comparison]) -> String {
    let shown = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let head = [" ".to_owned(), "FIELD".to_owned(), "DESIRED".to_owned(), "OBSERVED".to_owned()];
    let rows = fields.iter().map(|field| {
        let mark = if field.differs() { "*" } else { " " };
        [mark.to_owned(), field.field.clone(), shown(&field.desired), shown(&field.observed)]
    });
    let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let (field, desired) = (width(1), width(2));
    let line =
        |[mark, name, wanted, seen]: &[String; 4]| format!("  {mark} {name:field$}  {wanted:desired$}  {seen}\n");
    rows.iter().map(line).collect()
}

fn write_notices(text: &mut String, heading: &str, notices: &[&Notice]) {
    if !notices.is_empty() {
        let _ = writeln!(text, "  {heading}:");
    }
    for Notice { kind, message } in notices {
        let kind = if *kind == NoticeKind::Note { String::new() } else { format!("{}: ", notice_label(*kind)) };
        let _ = writeln!(text, "    {kind}{message}");
    }
}

fn events(events: &Result<Vec<SeenEvent>, String>, now: Timestamp) -> String {
    let events = match events {
        Err(error) => return format!("  last Events: cannot read them: {error}\n"),
        Ok(events) if events.is_empty() => return "  last Events: none\n".to_owned(),
        Ok(events) => events,
    };
    let line = |event: &SeenEvent| {
        let ago = |time: Timestamp| {
            format!("{} ago", duration(Some(now.duration_since(time).as_secs_f64().max(0.0).round())))
        };
        let age = event.time.map(ago).unwrap_or_default();
        let times = if event.count > 1 { format!(" (x{})", event.count) } else { String::new() };
        format!("    {age}  {}  {}{times}  {}: {}\n", event.kind, event.reason, event.source, event.message)
    };
    format!("  last Events:\n{}", events.iter().map(line).collect::<String>())
}

pub(super) fn json(report: &Report) -> Value {
    let explanation = &report.explanation;
    let item = &explanation.item;
    let field = |field: &Comparison| json!({"field": field.field, "desired": field.desired, "observed": field.observed, "differs": field.differs()});
    let notice = |notice: &Notice| json!({"kind": kind_name(notice.kind), "message": notice.message});
    let left_out = explanation.left_out.reasons().map(|(reason, names, count)| {
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        json!({"reason": reason.to_string(), "nodes": names, "count": count})
    });
    json!({
        "version": VERSION,
        "kind": item.object.kind,
        "namespace": item.object.namespace,
        "name": item.object.name,
        "cloud": item.cloud.as_deref(),
        "ownership": explanation.ownership,
        "fields": explanation.fields.iter().map(field).collect::<Vec<_>>(),
        "targets": explanation.targets,
        "leftOut": left_out.collect::<Vec<_>>(),
        "remarks": item.notices.iter().map(notice).collect::<Vec<_>>(),
        "next": {"inCloud": steps_json(&item.in_cloud), "inCluster": steps_json(&item.in_cluster)},
        "events": report.events.as_ref().map(|events| events.iter().map(event_json).collect::<Vec<_>>()).unwrap_or_default(),
        "eventsError": report.events.as_ref().err(),
    })
}

fn event_json(event: &SeenEvent) -> Value {
    json!({
        "time": event.time.map(|time| time.to_string()), "type": event.kind, "reason": event.reason,
        "message": event.message, "source": event.source, "count": event.count,
    })
}
