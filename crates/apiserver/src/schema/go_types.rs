//! Go type names for messages about wrong JSON types.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::{Ty, schema};

static DECLARED: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
    let lines = include_str!("go_types.txt").lines().filter(|l| !l.starts_with('#'));
    lines.filter_map(|l| l.split_once(' ')).flat_map(|(ty, fields)| fields.split(' ').map(move |f| (f, ty))).collect()
});

/// The Go type of a value.
pub(super) fn of(ty: &Ty) -> String {
    match ty {
        Ty::Int64 => "int64".into(),
        Ty::Bool => "bool".into(),
        Ty::Double => "float64".into(),
        Ty::Bytes => "[]uint8".into(),
        Ty::Quantity => "resource.Quantity".into(),
        // Their custom unmarshalers decode a number or a string first.
        Ty::Int32 | Ty::IntOrString => "int32".into(),
        Ty::String | Ty::Time | Ty::MicroTime => "string".into(),
        Ty::Raw => "runtime.RawExtension".into(),
        Ty::Fields => "v1.FieldsV1".into(),
        Ty::Strings => "[]string".into(),
        Ty::Struct(id) => format!("v1.{}", schema().get(*id).short_name()),
        Ty::List(item) => format!("[]{}", of(item)),
        Ty::Map(item) => format!("map[string]{}", of(item)),
    }
}

/// The declared Go type of a field, or of a value nested `depth` lists or maps inside it, if it is a named type.
pub(crate) fn declared(owner: &str, field: &str, depth: usize) -> Option<&'static str> {
    let ty = DECLARED.get(format!("{owner}.{field}").as_str())?;
    (0..depth).try_fold(*ty, |ty, _| ty.strip_prefix("[]").or_else(|| ty.strip_prefix("map[string]")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_declared_type_belongs_to_a_field_of_the_schema() {
        for name in DECLARED.keys() {
            let (owner, field) = name.split_once('.').unwrap();
            let known = schema().structs().any(|s| s.short_name() == owner && s.field(field).is_some());
            assert!(known, "{name}");
        }
    }

    #[test]
    fn list_items_have_the_element_type() {
        assert_eq!(declared("ServiceSpec", "type", 0), Some("v1.ServiceType"));
        assert_eq!(declared("ServiceSpec", "ipFamilies", 0), Some("[]v1.IPFamily"));
        assert_eq!(declared("ServiceSpec", "ipFamilies", 1), Some("v1.IPFamily"));
        assert_eq!(declared("NodeStatus", "capacity", 1), None);
        assert_eq!(declared("ServiceSpec", "clusterIP", 0), None);
    }
}
