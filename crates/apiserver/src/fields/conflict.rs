//! Apply conflicts and their error messages.

use serde_json::{Value, json};

use super::entry::{Operation, Owner};
use super::set::FieldSet;
use crate::go_text::quote;
use crate::status::ApiError;

/// Fields of one other owner that the apply would change.
#[derive(Debug)]
pub(super) struct Conflict {
    pub(super) owner: Owner,
    pub(super) fields: FieldSet,
}

/// Returns the 409 that lists all conflicts.
pub(super) fn error(mut conflicts: Vec<Conflict>) -> ApiError {
    conflicts.sort_by_key(|c| sort_key(&c.owner));
    let causes: Vec<Value> = conflicts.iter().flat_map(causes).collect();
    let message = match causes.len() {
        1 => format_single(&conflicts),
        many => format!("Apply failed with {many} conflicts: {}", format_list(&conflicts)),
    };
    ApiError::conflict_with_causes(message, causes)
}

/// Sort key of owners. upstream: owners are sorted by their identifiers.
fn sort_key(owner: &Owner) -> String {
    let mut key = format!("{:?}{:?}", owner.manager, owner.operation);
    if owner.operation == Operation::Update {
        key += &owner.api_version;
    }
    key + &owner.subresource
}

fn causes(conflict: &Conflict) -> impl Iterator<Item = Value> {
    let message = format!("conflict with {}", format_owner(&conflict.owner));
    let cause = move |field| json!({"reason": "FieldManagerConflict", "message": message, "field": field});
    conflict.fields.paths().into_iter().map(cause)
}

fn format_single(conflicts: &[Conflict]) -> String {
    let lines: Vec<String> = conflicts
        .iter()
        .map(|c| format!("conflict with {}: {}", format_owner(&c.owner), c.fields.paths().join(", ")))
        .collect();
    format!("Apply failed with 1 conflict: {}", lines.join(", "))
}

fn format_list(conflicts: &[Conflict]) -> String {
    let mut lines = Vec::new();
    for conflict in conflicts {
        lines.push(format!("conflicts with {}:", format_owner(&conflict.owner)));
        lines.extend(conflict.fields.paths().into_iter().map(|path| format!("- {path}")));
    }
    lines.join("\n")
}

/// Formats an owner: `"kubectl" with subresource "status" using v1`.
fn format_owner(owner: &Owner) -> String {
    let mut text = quote(&owner.manager);
    if !owner.subresource.is_empty() {
        text += &format!(" with subresource {}", quote(&owner.subresource));
    }
    if owner.operation == Operation::Update {
        text += &format!(" using {}", owner.api_version);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conflict(manager: &str, operation: Operation, subresource: &str, fields: &[&[&str]]) -> Conflict {
        let owner =
            Owner { manager: manager.into(), operation, api_version: "v1".into(), subresource: subresource.into() };
        Conflict { owner, fields: FieldSet::of_names(fields) }
    }

    #[test]
    fn single_conflict_has_a_one_line_message() {
        let error = error(vec![conflict("upd", Operation::Update, "status", &[&["data", "k"]])]);
        assert_eq!(
            error.message,
            "Apply failed with 1 conflict: conflict with \"upd\" with subresource \"status\" using v1: .data.k"
        );
        let cause = json!({"reason": "FieldManagerConflict", "field": ".data.k",
                           "message": "conflict with \"upd\" with subresource \"status\" using v1"});
        assert_eq!(error.details, Some(json!({"causes": [cause]})));
    }

    #[test]
    fn multiple_conflicts_are_grouped_by_owner() {
        let conflicts = vec![
            conflict("m2", Operation::Apply, "", &[&["data", "j"]]),
            conflict("m1", Operation::Apply, "", &[&["data", "k"], &["data", "l"]]),
        ];
        assert_eq!(
            error(conflicts).message,
            "Apply failed with 3 conflicts: conflicts with \"m1\":\n- .data.k\n- .data.l\nconflicts with \"m2\":\n- .data.j"
        );
    }
}
