//! `Table` output: the columns that kubectl prints.
//!
//! A [`Printer`] per kind defines the columns and converts an object to cells. This file assembles rows, column
//! definitions and the object of each row. The request path handles content negotiation and `includeObject`.
//!
//! ```text
//!  render ──► printer(resource, object) ──► columns   once per list or watch
//!                                      └──► cells     per object, in the module of the kind
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

/// Value of the `includeObject` parameter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Include {
    #[default]
    Metadata,
    Object,
    None,
}

/// Renders objects, each with `kind` and `apiVersion`, as a `Table`. `metadata` is that of the list. `with_columns` is
/// false for all but the first event of a watch. `version` is `v1` or `v1beta1`.
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
        // upstream: the fallback printer leaves empty rows unset.
        "rows": if rows.is_empty() && std::ptr::eq(printer, &FALLBACK) { Value::Null } else { Value::Array(rows) },
    })
}

/// Columns of a kind, and the conversion of an object to cells.
struct Printer {
    columns: &'static [Column],
    cells: fn(&Value, Clock) -> Vec<Value>,
    /// Returns the `conditions` of a row.
    conditions: Option<fn(&Value) -> Option<Value>>,
}

impl Printer {
    const fn new(columns: &'static [Column], cells: fn(&Value, Clock) -> Vec<Value>) -> Printer {
        Printer { columns, cells, conditions: None }
    }
}

/// Definition of a column.
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

/// Defines a column for `-o wide` only.
const fn wide(name: &'static str, description: &'static str) -> Column {
    Column { priority: 1, ..text(name, description) }
}

const NAME: Column =
    Column { format: "name", ..text("Name", "Name of the object, unique for its kind and namespace.") };
const AGE: Column = text("Age", "Time since the object was created.");

/// Printer of kinds without columns of their own.
static FALLBACK: Printer =
    Printer::new(&[NAME, Column { ty: "date", ..text("Created At", "Creation time of the object.") }], |object, _| {
        let created = object.at("metadata.creationTimestamp").as_str().unwrap_or("0001-01-01T00:00:00Z");
        vec![name(object), created.into()]
    });

/// Returns the printer of a resource. Responses of another kind, such as a TokenRequest, use [`FALLBACK`], except for
/// Scale.
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
        // The bookmark that ends the initial events keeps its metadata: the client needs the annotation.
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

// === Cell helpers ===

fn name(object: &Value) -> Value {
    object.text("metadata.name").into()
}

/// Returns a number, 0 if absent.
fn count(object: &Value, path: &str) -> Value {
    object.int(path).unwrap_or(0).into()
}

fn or<'a>(text: &'a str, fallback: &'a str) -> &'a str {
    if text.is_empty() { fallback } else { text }
}

/// Formats labels as `k=v,k=v`, or `<none>`.
fn labels(map: Option<&Map<String, Value>>) -> String {
    let pairs: Vec<String> =
        map.into_iter().flatten().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect();
    or(&pairs.join(","), "<none>").to_owned()
}

/// Formats the first three items and the number of omitted ones.
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
    fn fallback_printer_has_name_and_creation_time() {
        let table = render(roles(), &[role()], json!({"resourceVersion": "7"}), Include::Metadata, true, "v1");
        assert_eq!(names(&table), ["Name", "Created At"]);
        assert_eq!(table["columnDefinitions"][1]["type"], "date");
        assert_eq!(table["rows"][0]["cells"], json!(["a", "2024-01-02T03:04:05Z"]));
        assert_eq!(table["metadata"], json!({"resourceVersion": "7"}));
    }

    #[test]
    fn row_object_follows_include_object_and_version() {
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
    fn bookmark_that_ends_the_initial_events_keeps_its_metadata() {
        let services = find("", "v1", "services").unwrap();
        let bookmark = json!({"kind": "Service", "apiVersion": "v1", "metadata": {
            "resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}});
        let table = render(services, &[bookmark], json!({}), Include::None, false, "v1");
        assert_eq!(table["rows"][0]["object"]["metadata"]["resourceVersion"], "9");
        assert_eq!(table["columnDefinitions"], Value::Null);
    }

    #[test]
    fn empty_list_has_columns_and_no_rows() {
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
    fn response_of_another_kind_uses_the_fallback_printer() {
        let accounts = find("", "v1", "serviceaccounts").unwrap();
        let response =
            json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "metadata": {"name": "a"}});
        let table = render(accounts, &[response], json!({}), Include::None, true, "v1");
        assert_eq!(table["rows"][0]["cells"], json!(["a", "0001-01-01T00:00:00Z"]));
    }
}
