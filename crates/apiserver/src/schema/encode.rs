//! Serializes a canonical value with its fields in declaration order, as upstream does.
//!
//! A [`Value`] sorts its keys, which is valid JSON; only output that clients compare as text needs declaration order.

use serde::ser::{Serialize, SerializeMap as _, SerializeSeq as _, Serializer};
use serde_json::{Map, Value};

use super::{Ty, TypeId, schema};

/// Serializes an object of type `id` as JSON.
pub(crate) fn ordered_json(id: TypeId, value: &Value) -> String {
    // Serializing a Value to memory cannot fail.
    serde_json::to_string(&InOrder { ty: &Ty::Struct(id), value }).unwrap_or_default()
}

struct InOrder<'a> {
    ty: &'a Ty,
    value: &'a Value,
}

impl Serialize for InOrder<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self.ty, self.value) {
            (Ty::Struct(id), Value::Object(object)) => write_struct(*id, object, serializer),
            (Ty::List(ty), Value::Array(items)) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for value in items {
                    list.serialize_element(&InOrder { ty, value })?;
                }
                list.end()
            }
            (_, value) => value.serialize(serializer),
        }
    }
}

fn write_struct<S: Serializer>(id: TypeId, object: &Map<String, Value>, serializer: S) -> Result<S::Ok, S::Error> {
    let ty = schema().get(id);
    let mut map = serializer.serialize_map(Some(object.len()))?;
    // Every object has these two fields, and the type table does not list them.
    for name in ["kind", "apiVersion"].into_iter().filter(|name| ty.field(name).is_none()) {
        if let Some(value) = object.get(name) {
            map.serialize_entry(name, value)?;
        }
    }
    for field in &ty.fields {
        if let Some(value) = object.get(field.name) {
            map.serialize_entry(field.name, &InOrder { ty: &field.ty, value })?;
        }
    }
    map.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_are_serialized_in_declaration_order() {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "metadata": {},
            "spec": {},
            "status": {
                "incomplete": false,
                "nonResourceRules": [],
                "resourceRules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
            },
        });
        assert_eq!(
            ordered_json(schema().id("authorization/v1.SelfSubjectRulesReview"), &review),
            r#"{"kind":"SelfSubjectRulesReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{},"#
                .to_owned()
                + r#""status":{"resourceRules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}],"#
                + r#""nonResourceRules":[],"incomplete":false}}"#
        );
    }
}
