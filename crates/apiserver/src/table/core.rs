//! Printers of Namespace, ConfigMap, Secret, ServiceAccount and Lease.

use serde_json::Value;

use super::{AGE, NAME, Printer, name, text};
use crate::value::Json;

pub(super) static NAMESPACE: Printer =
    Printer::new(&[NAME, text("Status", "Phase of the namespace: Active or Terminating."), AGE], |namespace, clock| {
        vec![name(namespace), namespace.text("status.phase").into(), clock.age(namespace)]
    });

pub(super) static CONFIG_MAP: Printer =
    Printer::new(&[NAME, text("Data", "Number of entries, text and binary."), AGE], |map, clock| {
        vec![name(map), (entries(map, "data") + entries(map, "binaryData")).into(), clock.age(map)]
    });

pub(super) static SECRET: Printer = Printer::new(
    &[NAME, text("Type", "Type of the secret."), text("Data", "Number of entries."), AGE],
    |secret, clock| vec![name(secret), secret.text("type").into(), entries(secret, "data").into(), clock.age(secret)],
);

pub(super) static SERVICE_ACCOUNT: Printer =
    Printer::new(&[NAME, AGE], |account, clock| vec![name(account), clock.age(account)]);

pub(super) static LEASE: Printer =
    Printer::new(&[NAME, text("Holder", "Identity of the current lease holder."), AGE], |lease, clock| {
        vec![name(lease), lease.text("spec.holderIdentity").into(), clock.age(lease)]
    });

fn entries(object: &Value, path: &str) -> usize {
    object.map(path).map_or(0, |map| map.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::table::age::Clock;

    #[test]
    fn data_column_counts_text_and_binary_entries() {
        let clock = Clock::at("2024-01-01T00:00:00Z".parse().unwrap());
        let map = json!({"metadata": {"name": "a"}, "data": {"a": "1"}, "binaryData": {"b": "AA=="}});
        assert_eq!((CONFIG_MAP.cells)(&map, clock), [json!("a"), json!(2), json!("<unknown>")]);
        let secret = json!({"metadata": {"name": "a"}, "type": "Opaque", "data": {"a": "1", "b": "2"}});
        assert_eq!((SECRET.cells)(&secret, clock)[1..3], [json!("Opaque"), json!(2)]);
    }
}
