//! Encodes protobuf from the type table, for tests only.

use base64::Engine as _;
use serde_json::{Map, Value};

use crate::schema::{Struct, Ty, TypeId, Wire, schema};

/// Builds the request body of a client.
pub(crate) fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut meta = delimited(1, api_version.as_bytes());
    meta.extend(delimited(2, kind.as_bytes()));
    [b"k8s\0".to_vec(), delimited(1, &meta), delimited(2, raw)].concat()
}

/// Encodes a canonical value as a message.
pub(crate) fn encode(id: TypeId, value: &Value) -> Vec<u8> {
    value.as_object().map(|object| message(schema().get(id), object)).unwrap_or_default()
}

fn message(ty: &Struct, object: &Map<String, Value>) -> Vec<u8> {
    let mut numbers: Vec<_> = ty.by_number.iter().collect();
    numbers.sort_by_key(|(number, _)| **number);
    let mut out = Vec::new();
    for (number, wire) in numbers {
        match wire {
            Wire::Inline(id) => out.extend(delimited(*number, &message(schema().get(*id), object))),
            Wire::Field(index) => {
                let field = &ty.fields[*index];
                if let Some(value) = object.get(field.name) {
                    out.extend(write(*number, &field.ty, value));
                }
            }
        }
    }
    out
}

fn write(number: u32, ty: &Ty, value: &Value) -> Vec<u8> {
    match (ty, value) {
        (_, Value::Null) => Vec::new(),
        (Ty::List(item), Value::Array(items)) => items.iter().flat_map(|v| write(number, item, v)).collect(),
        (Ty::Map(item), Value::Object(entries)) => entries
            .iter()
            .flat_map(|(k, v)| delimited(number, &[delimited(1, k.as_bytes()), write(2, item, v)].concat()))
            .collect(),
        (Ty::Int32 | Ty::Int64, value) => varint(number, value.as_i64().unwrap_or_default() as u64),
        (Ty::Bool, value) => varint(number, u64::from(value == true)),
        (Ty::Double, value) => {
            let bits = value.as_f64().unwrap_or_default().to_bits();
            [raw_varint(u64::from(number) << 3 | 1), bits.to_le_bytes().to_vec()].concat()
        }
        (ty, value) => delimited(number, &content(ty, value)),
    }
}

fn content(ty: &Ty, value: &Value) -> Vec<u8> {
    let text = value.as_str().unwrap_or_default();
    match ty {
        Ty::String => text.as_bytes().to_vec(),
        Ty::Bytes => base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default(),
        Ty::Quantity => delimited(1, text.as_bytes()),
        Ty::IntOrString if value.is_string() => [varint(1, 1), delimited(3, text.as_bytes())].concat(),
        Ty::IntOrString => varint(2, value.as_i64().unwrap_or_default() as u64),
        Ty::Time | Ty::MicroTime => {
            let at: jiff::Timestamp = text.parse().unwrap_or_default();
            [varint(1, at.as_second() as u64), varint(2, at.subsec_nanosecond() as u64)].concat()
        }
        Ty::Raw | Ty::Fields => delimited(1, value.to_string().as_bytes()),
        Ty::Strings => {
            let items = value.as_array().into_iter().flatten();
            items.flat_map(|v| delimited(1, v.as_str().unwrap_or_default().as_bytes())).collect()
        }
        Ty::Struct(id) => encode(*id, value),
        _ => Vec::new(),
    }
}

fn varint(number: u32, value: u64) -> Vec<u8> {
    [raw_varint(u64::from(number) << 3), raw_varint(value)].concat()
}

fn delimited(number: u32, bytes: &[u8]) -> Vec<u8> {
    [raw_varint(u64::from(number) << 3 | 2), raw_varint(bytes.len() as u64), bytes.to_vec()].concat()
}

fn raw_varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}
