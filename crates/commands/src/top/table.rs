//! Tables of the document.

use bowline_console::client::View;
use jiff::Timestamp;
use serde_json::Value;

use super::values::{Level, age, count, field, number, text, until};

/// Time of the calls that are summed up, in seconds.
const CALLS_SECONDS: i64 = 300;

/// A table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) columns: &'static [&'static str],
    pub(super) rows: Vec<Row>,
    /// What to say if there are no rows.
    pub(super) empty: &'static str,
}

/// An item of the document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) level: Level,
    pub(super) cells: Vec<String>,
}

/// A table of the document.
pub(super) struct Section {
    pub(super) title: &'static str,
    pub(super) make: fn(&View) -> Table,
    /// Number of rows, without making them: a cluster may have thousands of Nodes.
    pub(super) count: fn(&View) -> usize,
}

/// All tables, in the order of the tabs.
pub(super) const SECTIONS: [Section; 6] = [
    Section { title: "Attention", make: attention, count: |view| not_ok(view).count() },
    Section { title: "Nodes", make: nodes, count: |view| view.items("node").count() },
    Section { title: "Services", make: services, count: |view| view.items("service").count() },
    Section { title: "Clouds", make: clouds, count: |view| view.items("cloud").count() },
    Section { title: "Queues", make: queues, count: |view| view.items("queue").count() },
    Section { title: "Events", make: events, count: |view| view.items("event").count() },
];

impl Row {
    fn new(kind: &str, name: &str, item: &Value, cells: Vec<String>) -> Row {
        let level = Level::of(item).unwrap_or(Level::Ok);
        Row { kind: kind.to_owned(), name: name.to_owned(), level, cells }
    }

    /// Whether a cell contains the text, in any case.
    pub(super) fn contains(&self, lower: &str) -> bool {
        self.cells.iter().any(|cell| cell.to_lowercase().contains(lower))
    }
}

/// Items that are not in order, with kind and name.
fn not_ok(view: &View) -> impl Iterator<Item = (&str, &str, &Value)> {
    let items = view.kinds().flat_map(|kind| view.items(kind).map(move |(name, item)| (kind, name, item)));
    items.filter(|(_, _, item)| Level::of(item).is_some_and(|level| level != Level::Ok))
}

/// Items that are not in order, the worst first.
fn attention(view: &View) -> Table {
    let mut rows: Vec<Row> = not_ok(view)
        .map(|(kind, name, item)| {
            let level = Level::of(item).unwrap_or_default();
            let cells = vec![level.word().to_owned(), object(kind, name), reason(item), message(item)];
            Row::new(kind, name, item, cells)
        })
        .collect();
    rows.sort_by(|a, b| (b.level, &a.kind, &a.name).cmp(&(a.level, &b.kind, &b.name)));
    Table { columns: &["LEVEL", "OBJECT", "REASON", "MESSAGE"], rows, empty: "Everything is as desired." }
}

fn nodes(view: &View) -> Table {
    let row = |(name, item): (&str, &Value)| {
        let cells = vec![
            text(&name.into(), &[]),
            reason(item),
            text(item, &["ready"]),
            text(item, &["cloud"]),
            text(item, &["machineState"]),
            text(item, &["addresses"]),
            age(item, &["created"], view.time()),
            message(item),
        ];
        Row::new("node", name, item, cells)
    };
    Table {
        columns: &["NAME", "STATUS", "READY", "CLOUD", "MACHINE", "ADDRESSES", "AGE", "MESSAGE"],
        rows: view.items("node").map(row).collect(),
        empty: "The cluster has no Nodes.",
    }
}

fn services(view: &View) -> Table {
    let row = |(name, item): (&str, &Value)| {
        let cells = vec![
            text(&name.into(), &[]),
            reason(item),
            or_dash(text(item, &["addresses"])),
            targets(item).to_string(),
            text(item, &["cloud"]),
            age(item, &["created"], view.time()),
            next(item.get("work").unwrap_or(&Value::Null), view.time()),
            message(item),
        ];
        Row::new("service", name, item, cells)
    };
    Table {
        columns: &["NAME", "STATUS", "ADDRESS", "TARGETS", "CLOUD", "AGE", "NEXT TRY", "MESSAGE"],
        rows: view.items("service").map(row).collect(),
        empty: "The cluster has no Service with a load balancer.",
    }
}

/// Number of targets: a list that is cut has its length beside it.
fn targets(item: &Value) -> u64 {
    let listed = count(item, &["targets"]) as u64;
    listed.max(number(item, &["targetCount"]))
}

fn clouds(view: &View) -> Table {
    let row = |(name, item): (&str, &Value)| {
        let calls = Calls::of(item, view.time());
        let cells = vec![
            text(&name.into(), &[]),
            text(item, &["provider"]),
            reason(item),
            number(item, &["calls", "inProgress"]).to_string(),
            calls.calls.to_string(),
            calls.failed.to_string(),
            calls.throttled.to_string(),
            if calls.calls == 0 { "-".to_owned() } else { format!("{} ms", calls.max_ms) },
            message(item),
        ];
        Row::new("cloud", name, item, cells)
    };
    Table {
        columns: &["NAME", "PROVIDER", "STATUS", "NOW", "CALLS 5M", "FAILED", "THROTTLED", "SLOWEST", "MESSAGE"],
        rows: view.items("cloud").map(row).collect(),
        empty: "The manager has no cloud.",
    }
}

/// Sums of the calls of the last minutes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Calls {
    calls: u64,
    failed: u64,
    throttled: u64,
    max_ms: u64,
}

impl Calls {
    fn of(cloud: &Value, now: Option<Timestamp>) -> Calls {
        let since = now.map_or(i64::MIN, |now| now.as_second() - CALLS_SECONDS);
        let intervals = field(cloud, &["calls", "intervals"]).as_array().into_iter().flatten();
        let recent = intervals.filter(|interval| field(interval, &["at"]).as_i64().is_some_and(|at| at >= since));
        recent.fold(Calls::default(), |sum, interval| Calls {
            calls: sum.calls + number(interval, &["calls"]),
            failed: sum.failed + number(interval, &["failed"]),
            throttled: sum.throttled + number(interval, &["throttled"]),
            max_ms: sum.max_ms.max(number(interval, &["maxMs"])),
        })
    }
}

fn queues(view: &View) -> Table {
    let row = |(name, item): (&str, &Value)| {
        let cells = vec![
            text(&name.into(), &[]),
            reason(item),
            number(item, &["waiting"]).to_string(),
            number(item, &["inWork"]).to_string(),
            number(item, &["delayed"]).to_string(),
            number(item, &["finished"]).to_string(),
            number(item, &["failed"]).to_string(),
            or_dash(age(item, &["oldest"], view.time())),
            message(item),
        ];
        Row::new("queue", name, item, cells)
    };
    Table {
        columns: &["NAME", "STATUS", "WAITING", "IN WORK", "DELAYED", "SYNCS", "FAILED", "OLDEST", "MESSAGE"],
        rows: view.items("queue").map(row).collect(),
        empty: "No controller runs in this process.",
    }
}

/// The Events that the manager has emitted, the latest first.
fn events(view: &View) -> Table {
    let mut events: Vec<(&str, &Value)> = view.items("event").collect();
    events.sort_by(|(a, first), (b, second)| {
        let at = |item: &Value| field(item, &["at"]).as_str().and_then(|at| at.parse::<Timestamp>().ok());
        (at(second), b).cmp(&(at(first), a))
    });
    let row = |(name, item): (&str, &Value)| {
        let is_warning = field(item, &["type"]) == "Warning";
        let cells = vec![
            age(item, &["at"], view.time()),
            text(item, &["type"]),
            text(item, &["reason"]),
            format!("{} {}", text(item, &["objectKind"]), text(item, &["object"])),
            text(item, &["message"]),
        ];
        let level = if is_warning { Level::Warning } else { Level::Ok };
        Row { level, ..Row::new("event", name, item, cells) }
    };
    Table {
        columns: &["AGE", "TYPE", "REASON", "OBJECT", "MESSAGE"],
        rows: events.into_iter().map(row).collect(),
        empty: "The manager has emitted no Event.",
    }
}

fn object(kind: &str, name: &str) -> String {
    text(&format!("{kind} {name}").trim_end_matches(" self").into(), &[])
}

fn reason(item: &Value) -> String {
    text(item, &["health", "reason"])
}

fn message(item: &Value) -> String {
    text(item, &["health", "message"])
}

/// When an object is synced again, and why it is not idle.
fn next(work: &Value, now: Option<Timestamp>) -> String {
    match field(work, &["state"]).as_str() {
        Some("inWork") => "in work".to_owned(),
        Some("waiting") => "queued".to_owned(),
        _ => or_dash(until(work, &["next"], now)),
    }
}

fn or_dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}

// === Summary ===

/// The manager in one line.
pub(super) fn manager_line(view: &View) -> String {
    let Some(manager) = view.get("manager", "self") else { return "The manager sends no summary.".to_owned() };
    let role = if field(manager, &["leader"]) == true { "leader" } else { "standby" };
    let mut parts = vec![format!("bowline {}", text(manager, &["version"])), role.to_owned()];
    parts.extend(holder(manager));
    let cluster = text(manager, &["cluster"]);
    if !cluster.is_empty() {
        parts.push(format!("cluster {cluster}"));
    }
    let up = age(manager, &["started"], view.time());
    if !up.is_empty() {
        parts.push(format!("up {up}"));
    }
    if field(manager, &["dryRun"]) == true {
        parts.push("DRY RUN".to_owned());
    }
    parts.join(", ")
}

/// Holder of the first Lease.
fn holder(manager: &Value) -> Option<String> {
    let leases = field(manager, &["leases"]).as_object()?;
    let holder = leases.values().find_map(|lease| lease.get("holder").or_else(|| lease.get("identity")))?;
    Some(text(holder, &[])).filter(|holder| !holder.is_empty())
}

/// Numbers of Nodes and Services by level, in one line.
pub(super) fn counts_line(view: &View) -> String {
    let count = |what: &str, kind: &str| {
        let levels: Vec<Level> = view.items(kind).filter_map(|(_, item)| Level::of(item)).collect();
        let of = |level: Level| levels.iter().filter(|other| **other == level).count();
        let bad = [Level::Error, Level::Warning, Level::Progressing, Level::Unknown];
        let bad: Vec<String> = bad
            .into_iter()
            .filter(|level| of(*level) > 0)
            .map(|level| format!("{} {}", of(level), level.word()))
            .collect();
        match bad.is_empty() {
            true => format!("{what}: {}", levels.len()),
            false => format!("{what}: {} ({})", levels.len(), bad.join(", ")),
        }
    };
    [count("Nodes", "node"), count("Services", "service"), count("Clouds", "cloud")].join("   ")
}

#[cfg(test)]
pub(super) mod tests {
    use bowline_console::client::ReceivedChanges;
    use serde_json::json;

    use super::*;

    /// A document with a failed Service, a Node, a cloud, a queue and Events.
    pub(in crate::top) fn view() -> View {
        let changes = json!({
            "epoch": "e", "revision": 1, "complete": true, "time": "2026-01-01T12:00:00Z",
            "items": {
                "manager/self": {
                    "health": {"level": "ok", "reason": "Ok"}, "version": "v0.1.0", "leader": true, "cluster": "blue", "dryRun": false,
                    "started": "2026-01-01T10:00:00Z",
                },
                "node/a": {
                    "health": {"level": "ok", "reason": "Ready"}, "ready": "True", "cloud": "local", "machineState": "running",
                    "addresses": ["InternalIP 10.0.0.1"], "created": "2026-01-01T11:00:00Z",
                },
                "node/b": {"health": {"level": "progressing", "reason": "Initializing", "message": "waits for its machine"}},
                "service/default/web": {
                    "health": {"level": "error", "reason": "QuotaExceeded", "message": "the quota is used up"},
                    "addresses": [], "targets": [{"node": "a"}], "cloud": "local", "created": "2026-01-01T11:59:30Z",
                    "work": {"state": "delayed", "failures": 2, "next": "2026-01-01T12:00:10Z"},
                },
                "cloud/local": {
                    "health": {"level": "ok", "reason": "Ok"}, "provider": "local",
                    "calls": {"inProgress": 1, "recent": [], "intervals": [
                        {"at": 1767268200, "calls": 9, "failed": 9, "throttled": 0, "meanMs": 1, "maxMs": 900},
                        {"at": 1767268790, "calls": 3, "failed": 1, "throttled": 1, "meanMs": 10, "maxMs": 40},
                    ]},
                },
                "queue/service": {"health": {"level": "ok", "reason": "Ok"}, "waiting": 2, "inWork": 1, "delayed": 1, "finished": 7, "failed": 2, "keys": {}},
                "event/1": {"at": "2026-01-01T11:59:00Z", "type": "Normal", "reason": "Ensuring", "message": "m", "objectKind": "Service", "object": "default/web"},
                "event/2": {"at": "2026-01-01T11:59:50Z", "type": "Warning", "reason": "Failed", "message": "quota", "objectKind": "Service", "object": "default/web"},
            },
        });
        let mut view = View::new();
        view.apply(serde_json::from_value::<ReceivedChanges>(changes).unwrap());
        view
    }

    fn cells(table: &Table) -> Vec<Vec<&str>> {
        table.rows.iter().map(|row| row.cells.iter().map(String::as_str).collect()).collect()
    }

    #[test]
    fn the_worst_items_come_first_and_those_in_order_are_left_out() {
        assert_eq!(
            cells(&attention(&view())),
            [
                ["error", "service default/web", "QuotaExceeded", "the quota is used up"],
                ["progressing", "node b", "Initializing", "waits for its machine"],
            ]
        );
    }

    #[test]
    fn a_service_shows_what_is_waited_for_and_when_it_is_tried_again() {
        let expected = ["default/web", "QuotaExceeded", "-", "1", "local", "30s", "in 10s", "the quota is used up"];
        assert_eq!(cells(&services(&view())), [expected]);
    }

    #[test]
    fn calls_of_the_last_minutes_are_summed_up() {
        let expected = ["local", "local", "Ok", "1", "3", "1", "1", "40 ms", ""];
        assert_eq!(cells(&clouds(&view())), [expected]);
    }

    #[test]
    fn the_latest_event_is_the_first() {
        let table = events(&view());
        assert_eq!(cells(&table)[0], ["10s", "Warning", "Failed", "Service default/web", "quota"]);
        assert_eq!((table.rows[0].level, table.rows[1].level), (Level::Warning, Level::Ok));
    }

    #[test]
    fn every_row_has_a_cell_for_each_column() {
        for section in SECTIONS {
            let table = (section.make)(&view());
            assert!(!table.rows.is_empty(), "{}", section.title);
            assert_eq!(table.rows.len(), (section.count)(&view()), "{}", section.title);
            assert!(table.rows.iter().all(|row| row.cells.len() == table.columns.len()), "{}", section.title);
        }
    }

    #[test]
    fn the_summary_has_the_manager_and_numbers_by_level() {
        assert_eq!(manager_line(&view()), "bowline v0.1.0, leader, cluster blue, up 2h");
        assert_eq!(counts_line(&view()), "Nodes: 2 (1 progressing)   Services: 1 (1 error)   Clouds: 1");
        assert_eq!(manager_line(&View::new()), "The manager sends no summary.");
    }
}
