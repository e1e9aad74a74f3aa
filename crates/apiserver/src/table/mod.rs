//! `Table` output: the columns kubectl prints.
//!
//! A [`Printer`] per kind says which columns there are and how an object fills them; this file puts rows,
//! headers and the object of each row together. It decides nothing about *when* a table is wanted: content
//! negotiation and `includeObject` are read by the request path.
//!
//! ```text
//!  render ──► printer(resource, object) ──► columns   once, unless a watch has sent them already
//!                                      └──► cells     per object, by the kind's own module
//! ```

mod age;
mod core;
mod discovery;
mod event;
mod node;
mod pod;
mod rbac;
mod service;
mod workload;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::resources::{self, Resource};
use crate::value::Json;
use age::Clock;

/// What `includeObject` asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Include {
    #[default]
    Metadata,
    Object,
    None,
}

/// A `Table` of these objects (each with `kind` and `apiVersion`). `metadata` is the list's; `with_columns` is false
/// for all but the first event of a watch. `version` is `v1` or `v1beta1`.
pub(crate) fn render(
    resource: &Resource,
    objects: &[Value],
    metadata: Value,
    include: Include,
    with_columns: bool,
    version: &str,
) -> Value {
    let printer = printer(resource, objects.first());
    let clock = Clock::at(Timestamp::now());
    let rows: Vec<Value> = objects.iter().map(|object| row(printer, object, include, version, clock)).collect();
    json!({
        "kind": "Table",
        "apiVersion": meta_version(version),
        "metadata": metadata,
        "columnDefinitions": if with_columns { header(printer.columns) } else { Value::Null },
        // upstream: the fallback printer leaves an empty list of rows unset.
        "rows": if rows.is_empty() && std::ptr::eq(printer, &FALLBACK) { Value::Null } else { Value::Array(rows) },
    })
}

/// How the objects of one kind are shown.
struct Printer {
    columns: &'static [Column],
    cells: fn(&Value, Clock) -> Vec<Value>,
    /// What a row says about its object beside the cells.
    conditions: Option<fn(&Value) -> Option<Value>>,
}

impl Printer {
    const fn new(columns: &'static [Column], cells: fn(&Value, Clock) -> Vec<Value>) -> Printer {
        Printer { columns, cells, conditions: None }
    }
}

/// A column's definition.
struct Column {
    name: &'static str,
    ty: &'static str,
    format: &'static str,
    description: &'static str,
    /// 0 is always shown, 1 with `-o wide`.
    priority: u8,
}

const fn text(name: &'static str, description: &'static str) -> Column {
    Column { name, ty: "string", format: "", description, priority: 0 }
}

const fn number(name: &'static str, description: &'static str) -> Column {
    Column { ty: "integer", ..text(name, description) }
}

/// A column for `-o wide` only.
const fn wide(name: &'static str, description: &'static str) -> Column {
    Column { priority: 1, ..text(name, description) }
}

const NAME: Column = Column { format: "name", ..text("Name", "What the object is called; unique for its kind.") };
const AGE: Column = text("Age", "How long ago the object was made.");

/// Kinds without columns of their own.
static FALLBACK: Printer =
    Printer::new(&[NAME, Column { ty: "date", ..text("Created At", "When the object was made.") }], |object, _| {
        let created = object.at("metadata.creationTimestamp").as_str().unwrap_or("0001-01-01T00:00:00Z");
        vec![name(object), created.into()]
    });

/// The printer of a resource; answers of another kind than the resource's own (the review a subresource returns)
/// fall back, except for scales.
fn printer(resource: &Resource, first: Option<&Value>) -> &'static Printer {
    match first.map(|object| object.text("kind")) {
        Some("Scale") => return &workload::SCALE,
        Some(kind) if kind != resource.kind => return &FALLBACK,
        _ => {}
    }
    match (resource.group, resource.plural) {
        ("", "configmaps") => &core::CONFIG_MAP,
        ("", "endpoints") => &discovery::ENDPOINTS,
        ("", "events") => &event::CORE,
        ("", "namespaces") => &core::NAMESPACE,
        ("", "nodes") => &node::NODE,
        ("", "pods") => &pod::POD,
        ("", "secrets") => &core::SECRET,
        ("", "serviceaccounts") => &core::SERVICE_ACCOUNT,
        ("", "services") => &service::SERVICE,
        ("apps", "daemonsets") => &workload::DAEMON_SET,
        ("apps", "deployments") => &workload::DEPLOYMENT,
        ("coordination.k8s.io", "leases") => &core::LEASE,
        ("discovery.k8s.io", "endpointslices") => &discovery::ENDPOINT_SLICE,
        ("events.k8s.io", "events") => &event::NEW,
        ("policy", "poddisruptionbudgets") => &workload::DISRUPTION_BUDGET,
        ("rbac.authorization.k8s.io", "clusterrolebindings" | "rolebindings") => &rbac::BINDING,
        _ => &FALLBACK,
    }
}

fn header(columns: &[Column]) -> Value {
    columns
        .iter()
        .map(|c| {
            json!({
                "name": c.name,
                "type": c.ty,
                "format": c.format,
                "description": c.description,
                "priority": c.priority,
            })
        })
        .collect()
}

fn row(printer: &Printer, object: &Value, include: Include, version: &str, clock: Clock) -> Value {
    let mut row = Map::new();
    row.insert("cells".to_owned(), Value::Array((printer.cells)(object, clock)));
    if let Some(conditions) = printer.conditions.and_then(|conditions| conditions(object)) {
        row.insert("conditions".to_owned(), conditions);
    }
    row.insert("object".to_owned(), row_object(object, include, version));
    Value::Object(row)
}

fn row_object(object: &Value, include: Include, version: &str) -> Value {
    match include {
        Include::Object => object.clone(),
        // A watcher that waits for the end of the initial events has to find the mark on the bookmark.
        Include::None if !ends_initial_events(object) => Value::Null,
        _ => json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": meta_version(version),
            "metadata": resources::partial_metadata(object),
        }),
    }
}

fn ends_initial_events(object: &Value) -> bool {
    object.map("metadata.annotations").and_then(|a| a.get("k8s.io/initial-events-end")).is_some_and(|v| v == "true")
}

fn meta_version(version: &str) -> String {
    format!("meta.k8s.io/{version}")
}

// --- pieces of cells ---

fn name(object: &Value) -> Value {
    object.text("metadata.name").into()
}

/// A count, 0 where it is absent.
fn count(object: &Value, path: &str) -> Value {
    object.int(path).unwrap_or(0).into()
}

fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

/// `k=v,k=v`, or `<none>`.
fn labels(map: Option<&Map<String, Value>>) -> String {
    let pairs: Vec<String> =
        map.into_iter().flatten().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect();
    or(&pairs.join(","), "<none>").to_owned()
}

/// The first three of a list and how many were left out.
fn first_three(items: &[String]) -> String {
    let shown: Vec<&str> = items.iter().take(3).map(String::as_str).collect();
    match items.len().saturating_sub(3) {
        0 => shown.join(","),
        more => format!("{} + {more} more...", shown.join(",")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::find;

    fn names(table: &Value) -> Vec<&str> {
        table.list("columnDefinitions").iter().map(|c| c.text("name")).collect()
    }

    fn role() -> Value {
        json!({"kind": "Role", "apiVersion": "rbac.authorization.k8s.io/v1",
               "metadata": {"name": "a", "namespace": "n", "creationTimestamp": "2024-01-02T03:04:05Z"}})
    }

    fn roles() -> &'static Resource {
        find("rbac.authorization.k8s.io", "v1", "roles").unwrap()
    }

    #[test]
    fn a_kind_without_columns_of_its_own_shows_name_and_creation() {
        let table = render(roles(), &[role()], json!({"resourceVersion": "7"}), Include::Metadata, true, "v1");
        assert_eq!(names(&table), ["Name", "Created At"]);
        assert_eq!(table["columnDefinitions"][1]["type"], "date");
        assert_eq!(table["rows"][0]["cells"], json!(["a", "2024-01-02T03:04:05Z"]));
        assert_eq!(table["metadata"], json!({"resourceVersion": "7"}));
    }

    #[test]
    fn the_row_object_follows_include_object_and_version() {
        let object = |include, version| {
            let table = render(roles(), &[role()], json!({}), include, true, version);
            table["rows"][0]["object"].clone()
        };
        let partial = object(Include::Metadata, "v1beta1");
        assert_eq!(partial["apiVersion"], "meta.k8s.io/v1beta1");
        assert_eq!(partial["kind"], "PartialObjectMetadata");
        assert_eq!(partial["metadata"], role()["metadata"]);
        assert_eq!(object(Include::Object, "v1"), role());
        assert_eq!(object(Include::None, "v1"), Value::Null);
    }

    #[test]
    fn the_bookmark_that_ends_the_initial_events_keeps_its_metadata() {
        let services = find("", "v1", "services").unwrap();
        let bookmark = json!({"kind": "Service", "apiVersion": "v1", "metadata": {
            "resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}});
        let table = render(services, &[bookmark], json!({}), Include::None, false, "v1");
        assert_eq!(table["rows"][0]["object"]["metadata"]["resourceVersion"], "9");
        assert_eq!(table["columnDefinitions"], Value::Null);
    }

    #[test]
    fn an_empty_list_has_columns_and_no_rows() {
        let services = find("", "v1", "services").unwrap();
        let table = render(services, &[], json!({}), Include::Metadata, true, "v1");
        assert_eq!(names(&table).len(), 7);
        assert_eq!(table["rows"], json!([]));
        assert_eq!(render(roles(), &[], json!({}), Include::Metadata, true, "v1")["rows"], Value::Null);
    }

    #[test]
    fn every_row_has_a_cell_for_every_column() {
        for resource in crate::resources::RESOURCES {
            let bare = json!({"kind": resource.kind, "apiVersion": resource.api_version(), "metadata": {}});
            let table = render(resource, &[bare], json!({}), Include::None, true, "v1");
            assert_eq!(names(&table).len(), table["rows"][0].list("cells").len(), "{resource:?}");
        }
    }

    #[test]
    fn an_answer_of_another_kind_falls_back() {
        let accounts = find("", "v1", "serviceaccounts").unwrap();
        let answer =
            json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "metadata": {"name": "a"}});
        let table = render(accounts, &[answer], json!({}), Include::None, true, "v1");
        assert_eq!(table["rows"][0]["cells"], json!(["a", "0001-01-01T00:00:00Z"]));
    }
}
