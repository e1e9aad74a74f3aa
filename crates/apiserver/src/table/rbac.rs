//! Printer of RoleBinding and ClusterRoleBinding.

use serde_json::Value;

use super::age::Clock;
use super::{AGE, Column, NAME, Printer, name, text, wide};
use crate::value::Json;

pub(super) static BINDING: Printer = Printer::new(COLUMNS, cells);

const COLUMNS: &[Column] = &[
    NAME,
    text("Role", "Kind and name of the role."),
    AGE,
    wide("Users", "Users bound to the role."),
    wide("Groups", "Groups bound to the role."),
    wide("ServiceAccounts", "Service accounts bound to the role."),
];

fn cells(binding: &Value, clock: Clock) -> Vec<Value> {
    let role = binding.at("roleRef");
    let plain = |subject: &Value| subject.text("name").to_owned();
    let qualified = |subject: &Value| format!("{}/{}", subject.text("namespace"), subject.text("name"));
    vec![
        name(binding),
        format!("{}/{}", role.text("kind"), role.text("name")).into(),
        clock.age(binding),
        subjects(binding, "User", plain).into(),
        subjects(binding, "Group", plain).into(),
        subjects(binding, "ServiceAccount", qualified).into(),
    ]
}

fn subjects(binding: &Value, kind: &str, format: impl Fn(&Value) -> String) -> String {
    let of_kind = binding.list("subjects").iter().filter(|s| s.text("kind") == kind);
    of_kind.map(format).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn subjects_are_listed_by_kind() {
        let binding = json!({"metadata": {"name": "a"}, "roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": [
            {"kind": "User", "name": "u"}, {"kind": "Group", "name": "g"}, {"kind": "User", "name": "v"},
            {"kind": "ServiceAccount", "namespace": "n", "name": "s"}]});
        let row = cells(&binding, Clock::at("2024-01-01T00:00:00Z".parse().unwrap()));
        assert_eq!(Value::Array(row), json!(["a", "ClusterRole/view", "<unknown>", "u, v", "g", "n/s"]));
    }
}
