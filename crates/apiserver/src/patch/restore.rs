//! Error messages for strategic merge patches whose result does not match the type.
//!
//! kube-apiserver converts the result of such a patch to a typed object by reflection, not with its JSON decoder, and their
//! error messages differ. Decoding determines whether there is an error; this module only finds upstream's message.

use serde_json::{Map, Value};

use super::go_values::{kind_name, type_name};
use crate::schema::{Struct, Ty, TypeId, go_types, schema};

/// Returns the first error of the conversion, in the field order of the types.
pub(super) fn first_error(id: TypeId, object: &Value) -> Option<String> {
    restore(&Ty::Struct(id), Location::default(), object).err()
}

/// Field that contains a value, and the number of lists or maps around the value in that field.
#[derive(Clone, Copy, Default)]
struct Location<'a> {
    owner: &'a str,
    field: &'a str,
    depth: usize,
}

impl Location<'_> {
    fn nested(self) -> Self {
        Location { depth: self.depth + 1, ..self }
    }
}

fn restore(ty: &Ty, location: Location<'_>, value: &Value) -> Result<(), String> {
    match (ty, value) {
        (_, Value::Null) | (Ty::Raw | Ty::Fields, _) => Ok(()),
        (Ty::Struct(id), Value::Object(fields)) => restore_struct(schema().get(*id), fields),
        (Ty::Struct(_), other) => Err(format!("cannot restore struct from: {}", kind_name(other))),
        (Ty::Map(item), Value::Object(entries)) => {
            entries.values().try_for_each(|v| restore(item, location.nested(), v))
        }
        (Ty::Map(_), other) => Err(format!("cannot restore map from {}", kind_name(other))),
        (Ty::List(item), Value::Array(items)) => items.iter().try_for_each(|v| restore(item, location.nested(), v)),
        (Ty::Strings, Value::Array(items)) => items.iter().try_for_each(|v| restore(&Ty::String, location.nested(), v)),
        (Ty::Bytes, Value::String(_) | Value::Array(_)) => Ok(()),
        (Ty::List(_) | Ty::Strings | Ty::Bytes, other) => {
            Err(format!("cannot restore slice from {}", kind_name(other)))
        }
        (scalar, value) => restore_scalar(scalar, location, value),
    }
}

fn restore_struct(ty: &Struct, fields: &Map<String, Value>) -> Result<(), String> {
    ty.fields.iter().try_for_each(|field| match fields.get(field.name) {
        Some(value) => restore(&field.ty, Location { owner: ty.short_name(), field: field.name, depth: 0 }, value),
        None => Ok(()),
    })
}

fn restore_scalar(ty: &Ty, location: Location<'_>, value: &Value) -> Result<(), String> {
    let is_whole = value.as_f64().is_some_and(|f| f.fract() == 0.0);
    match (ty, value) {
        (Ty::String, Value::String(_)) | (Ty::Bool, Value::Bool(_)) | (Ty::Double, Value::Number(_)) => Ok(()),
        (Ty::Int32 | Ty::Int64, Value::Number(_)) if is_whole => Ok(()),
        (Ty::Int32 | Ty::Int64, Value::Number(_)) => Err(format!("cannot convert float64 to {}", go_kind(ty))),
        (Ty::String, Value::Number(n)) if !n.is_f64() => {
            let target = go_types::declared(location.owner, location.field, location.depth).unwrap_or("string");
            Err(format!("cannot convert {} to {target}", type_name(value)))
        }
        (Ty::Quantity | Ty::IntOrString, Value::String(_) | Value::Number(_)) => Ok(()),
        (Ty::Quantity, _) => Err("quantities must match the regular expression \
                                  '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            .to_owned()),
        (Ty::Time | Ty::MicroTime, Value::String(_)) => Ok(()),
        (Ty::IntOrString | Ty::Time | Ty::MicroTime, other) => {
            Err(format!("json: cannot unmarshal {} into Go value of type {}", super::json_kind(other), go_kind(ty)))
        }
        _ => Err(format!("unrecognized type: {}", go_kind(ty))),
    }
}

/// Returns the Go kind of a scalar.
fn go_kind(ty: &Ty) -> &'static str {
    match ty {
        Ty::Int32 | Ty::IntOrString => "int32",
        Ty::Int64 => "int64",
        Ty::Bool => "bool",
        Ty::Double => "float64",
        _ => "string",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_match_upstream_conversion() {
        let cases = [
            (json!({"spec": {"ports": "x"}}), "cannot restore slice from string"),
            (json!({"spec": {"type": 5}}), "cannot convert int64 to v1.ServiceType"),
            (json!({"spec": {"clusterIP": 5}}), "cannot convert int64 to string"),
            (json!({"spec": {"clusterIP": true}}), "unrecognized type: string"),
            (json!({"spec": {"ports": [{"port": "x"}]}}), "unrecognized type: int32"),
            (json!({"spec": {"ports": [{"port": 1.5}]}}), "cannot convert float64 to int32"),
            (
                json!({"spec": {"ports": [{"targetPort": true}]}}),
                "json: cannot unmarshal bool into Go value of type int32",
            ),
            (json!({"spec": "x"}), "cannot restore struct from: string"),
            (json!({"spec": {"selector": [1]}}), "cannot restore map from slice"),
            (json!({"spec": {"selector": {"a": 1}}}), "cannot convert int64 to string"),
        ];
        for (object, expected) in cases {
            assert_eq!(first_error(schema().id("core/v1.Service"), &object).as_deref(), Some(expected));
        }
        assert_eq!(first_error(schema().id("core/v1.Service"), &json!({"spec": {"type": null, "foo": 1}})), None);
    }
}
