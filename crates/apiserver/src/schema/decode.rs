//! Turns JSON, YAML or an already parsed [`Value`] into the canonical form of a type.
//!
//! The real server decodes into Go structs and encodes them again; what a client reads back is
//! shaped by that round trip. One pass over the input does the same here: it checks types, drops
//! what the type does not know (and notes it, in document order, for strict validation), drops
//! empty optional fields, adds the fields that are always written, and normalises times,
//! quantities and base64.

use std::cell::RefCell;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::{Field, Ty, TypeId, schema};
use crate::quantity;

/// Something strict validation objects to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StrictIssue {
    Unknown(String),
    Duplicate(String),
    /// A duplicate key found while reading YAML: line and key.
    YamlDuplicate(u64, String),
}

impl fmt::Display for StrictIssue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StrictIssue::Unknown(path) => write!(f, "unknown field {path:?}"),
            StrictIssue::Duplicate(path) => write!(f, "duplicate field {path:?}"),
            StrictIssue::YamlDuplicate(line, key) => write!(f, "line {line}: key {key:?} already set in map"),
        }
    }
}

/// A decoded object and what strict validation has to say about the text it came from.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) value: Value,
    pub(crate) issues: Vec<StrictIssue>,
}

/// Why a text is not an object of the wanted type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// The text is not JSON (or YAML) at all.
    Syntax(String),
    /// It is, but a value has the wrong type or form.
    Type(String),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Syntax(m) | DecodeError::Type(m) => f.write_str(m),
        }
    }
}

/// Brings an already parsed value into the canonical form of `id`.
pub(crate) fn decode(id: TypeId, value: &Value) -> Result<Decoded, DecodeError> {
    run(id, value).map_err(|e| DecodeError::Type(e.to_string()))
}

/// Decodes JSON text.
pub(crate) fn decode_json(id: TypeId, text: &[u8]) -> Result<Decoded, DecodeError> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let decoded = run(id, &mut reader).and_then(|d| reader.end().map(|()| d));
    decoded.map_err(|e| match e.classify() {
        serde_json::error::Category::Data => DecodeError::Type(without_position(&e)),
        _ => DecodeError::Syntax(e.to_string()),
    })
}

/// Decodes YAML text. As upstream, YAML becomes JSON first, so keys are visited in sorted order.
pub(crate) fn decode_yaml(id: TypeId, text: &[u8]) -> Result<Decoded, DecodeError> {
    let (value, duplicate) = super::yaml::to_value(text).map_err(DecodeError::Syntax)?;
    let mut decoded = decode(id, &value)?;
    decoded.issues.splice(0..0, duplicate);
    Ok(decoded)
}

fn run<'de, D: Deserializer<'de>>(id: TypeId, source: D) -> Result<Decoded, D::Error> {
    let cx = Cx::default();
    let value = TypedSeed { ty: &Ty::Struct(id), root: true, cx: &cx }.deserialize(source)?;
    let value = if value.is_null() { zero(&Ty::Struct(id)) } else { value };
    Ok(Decoded { value, issues: cx.issues.into_inner() })
}

/// serde_json appends " at line L column C" to errors of ours; Go has no such suffix.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

// === Where we are in the document ===

#[derive(Default)]
struct Cx {
    path: RefCell<Vec<Step>>,
    issues: RefCell<Vec<StrictIssue>>,
}

enum Step {
    Field { owner: &'static str, name: String },
    Key(String),
    Index(usize),
}

impl Cx {
    fn within<T>(&self, step: Step, work: impl FnOnce() -> T) -> T {
        self.path.borrow_mut().push(step);
        let result = work();
        self.path.borrow_mut().pop();
        result
    }

    /// `spec.ports[0].name`, the way strict errors print it.
    fn strict_path(&self, last: &str) -> String {
        let mut text = String::new();
        for step in self.path.borrow().iter() {
            match step {
                Step::Field { name, .. } | Step::Key(name) => {
                    if !text.is_empty() {
                        text.push('.');
                    }
                    text.push_str(name);
                }
                Step::Index(i) => text.push_str(&format!("[{i}]")),
            }
        }
        if !text.is_empty() {
            text.push('.');
        }
        text + last
    }

    /// `ServicePort.spec.ports.port`, the way Go names the field in type errors.
    fn go_path(&self) -> Option<String> {
        let path = self.path.borrow();
        let owner = path.iter().rev().find_map(|s| match s {
            Step::Field { owner, .. } => Some(*owner),
            _ => None,
        })?;
        let names: Vec<&str> = path
            .iter()
            .filter_map(|s| match s {
                Step::Field { name, .. } => Some(name.as_str()),
                _ => None,
            })
            .collect();
        Some(format!("{owner}.{}", names.join(".")))
    }

    fn mismatch<E: de::Error>(&self, got: &str, ty: &Ty) -> E {
        let wanted = go_type(ty);
        E::custom(match self.go_path() {
            Some(path) => format!("json: cannot unmarshal {got} into Go struct field {path} of type {wanted}"),
            None => format!("json: cannot unmarshal {got} into Go value of type {wanted}"),
        })
    }
}

fn go_type(ty: &Ty) -> String {
    match ty {
        Ty::String => "string".into(),
        Ty::Int32 => "int32".into(),
        Ty::Int64 => "int64".into(),
        Ty::Bool => "bool".into(),
        Ty::Double => "float64".into(),
        Ty::Bytes => "[]uint8".into(),
        Ty::Quantity => "resource.Quantity".into(),
        Ty::IntOrString => "intstr.IntOrString".into(),
        Ty::Time => "string".into(),
        Ty::MicroTime => "string".into(),
        Ty::Raw | Ty::Fields => "object".into(),
        Ty::Strings => "[]string".into(),
        Ty::Struct(id) => format!("v1.{}", schema().get(*id).short_name()),
        Ty::List(item) => format!("[]{}", go_type(item)),
        Ty::Map(item) => format!("map[string]{}", go_type(item)),
    }
}

// === One value ===

struct TypedSeed<'a> {
    ty: &'a Ty,
    /// The object itself, which also has `kind` and `apiVersion`.
    root: bool,
    cx: &'a Cx,
}

impl<'de> DeserializeSeed<'de> for TypedSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TypedSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&go_type(self.ty))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: de::Error>(self, v: bool) -> Result<Value, E> {
        match self.ty {
            Ty::Bool | Ty::Raw => Ok(Value::Bool(v)),
            ty => Err(self.cx.mismatch("bool", ty)),
        }
    }

    fn visit_i64<E: de::Error>(self, v: i64) -> Result<Value, E> {
        match self.ty {
            Ty::Int64 | Ty::Raw | Ty::Double => Ok(v.into()),
            Ty::Int32 | Ty::IntOrString if i32::try_from(v).is_ok() => Ok(v.into()),
            Ty::Int32 => Err(self.cx.mismatch(&format!("number {v}"), self.ty)),
            Ty::IntOrString => Err(E::custom(format!("json: cannot unmarshal number {v} into Go value of type int32"))),
            Ty::Quantity => self.quantity(&v.to_string()),
            ty => Err(self.cx.mismatch("number", ty)),
        }
    }

    fn visit_u64<E: de::Error>(self, v: u64) -> Result<Value, E> {
        match i64::try_from(v) {
            Ok(v) => self.visit_i64(v),
            Err(_) if matches!(self.ty, Ty::Raw | Ty::Double) => Ok(v.into()),
            Err(_) => Err(self.cx.mismatch(&format!("number {v}"), self.ty)),
        }
    }

    fn visit_f64<E: de::Error>(self, v: f64) -> Result<Value, E> {
        match self.ty {
            Ty::Double | Ty::Raw => Ok(v.into()),
            Ty::Quantity => self.quantity(&v.to_string()),
            Ty::Int32 | Ty::Int64 => Err(self.cx.mismatch(&format!("number {v}"), self.ty)),
            ty => Err(self.cx.mismatch("number", ty)),
        }
    }

    fn visit_str<E: de::Error>(self, v: &str) -> Result<Value, E> {
        match self.ty {
            Ty::String | Ty::IntOrString | Ty::Raw => Ok(v.into()),
            Ty::Quantity => self.quantity(v),
            Ty::Time => time(v).map_err(E::custom),
            Ty::MicroTime => micro_time(v).map_err(E::custom),
            Ty::Bytes => bytes(v).map_err(E::custom),
            ty => Err(self.cx.mismatch("string", ty)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let item_ty = match self.ty {
            Ty::List(item) => item,
            Ty::Strings => &Ty::String,
            Ty::Raw => &Ty::Raw,
            ty => return Err(self.cx.mismatch("array", ty)),
        };
        let mut items = Vec::new();
        loop {
            let seed = TypedSeed { ty: item_ty, root: false, cx: self.cx };
            match self.cx.within(Step::Index(items.len()), || seq.next_element_seed(seed))? {
                None => return Ok(Value::Array(items)),
                Some(Value::Null) => items.push(zero(item_ty)),
                Some(item) => items.push(item),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Value, A::Error> {
        match self.ty {
            Ty::Struct(id) => self.visit_struct(*id, map),
            Ty::Map(item) => self.visit_entries(item, map),
            Ty::Raw | Ty::Fields => self.visit_entries(&Ty::Raw, map),
            ty => Err(self.cx.mismatch("object", ty)),
        }
    }
}

impl TypedSeed<'_> {
    fn quantity<E: de::Error>(&self, text: &str) -> Result<Value, E> {
        quantity::canonical(text).map(Value::String).map_err(E::custom)
    }

    fn visit_entries<'de, A: MapAccess<'de>>(self, item: &Ty, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let seed = TypedSeed { ty: item, root: false, cx: self.cx };
            let value = self.cx.within(Step::Key(key.clone()), || map.next_value_seed(seed))?;
            let value = if value.is_null() { zero(item) } else { value };
            if entries.contains_key(&key) {
                let path = self.cx.strict_path(&key);
                self.cx.issues.borrow_mut().push(StrictIssue::Duplicate(path));
            }
            entries.insert(key, value);
        }
        Ok(Value::Object(entries))
    }

    fn visit_struct<'de, A: MapAccess<'de>>(self, id: TypeId, mut map: A) -> Result<Value, A::Error> {
        let ty = schema().get(id);
        let mut object = Map::new();
        let mut seen: Vec<&'static str> = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            if self.root && (key == "kind" || key == "apiVersion") {
                let seed = TypedSeed { ty: &Ty::String, root: false, cx: self.cx };
                let step = Step::Field { owner: ty.short_name(), name: key.clone() };
                let value = self.cx.within(step, || map.next_value_seed(seed))?;
                object.insert(key, value);
                continue;
            }
            let Some(field) = ty.field(&key) else {
                map.next_value::<IgnoredAny>()?;
                let path = self.cx.strict_path(&key);
                self.cx.issues.borrow_mut().push(StrictIssue::Unknown(path));
                continue;
            };
            if seen.contains(&field.name) {
                let path = self.cx.strict_path(&key);
                self.cx.issues.borrow_mut().push(StrictIssue::Duplicate(path));
            }
            seen.push(field.name);
            let seed = TypedSeed { ty: &field.ty, root: false, cx: self.cx };
            let step = Step::Field { owner: ty.short_name(), name: key.clone() };
            let value = self.cx.within(step, || map.next_value_seed(seed))?;
            match keeps(field, &value) {
                true => object.insert(key, value),
                false => object.remove(&key),
            };
        }
        fill_always(id, &mut object);
        Ok(Value::Object(object))
    }
}

// === What Go would write ===

/// Whether a given value of this field is written again.
fn keeps(field: &Field, value: &Value) -> bool {
    match value {
        Value::Null => false,
        _ if field.always || field.pointer => true,
        Value::String(s) => !s.is_empty(),
        Value::Number(n) => n.as_f64() != Some(0.0),
        Value::Bool(b) => *b,
        // upstream: an empty list of managed fields is a request of its own: it clears them.
        Value::Array(items) => !items.is_empty() || field.name == "managedFields",
        Value::Object(entries) => !entries.is_empty(),
    }
}

/// Adds the fields that are written whether or not they were given.
pub(crate) fn fill_always(id: TypeId, object: &mut Map<String, Value>) {
    for field in schema().get(id).fields.iter().filter(|f| f.always) {
        if !object.contains_key(field.name) {
            let value = if field.pointer { Value::Null } else { zero(&field.ty) };
            object.insert(field.name.to_owned(), value);
        }
    }
}

/// The zero value of a type, as Go writes it.
pub(crate) fn zero(ty: &Ty) -> Value {
    match ty {
        Ty::String => "".into(),
        Ty::Int32 | Ty::Int64 | Ty::Double | Ty::IntOrString => 0.into(),
        Ty::Bool => false.into(),
        Ty::Quantity => "0".into(),
        Ty::Struct(id) => {
            let mut object = Map::new();
            fill_always(*id, &mut object);
            Value::Object(object)
        }
        _ => Value::Null,
    }
}

/// Reads an RFC 3339 time and writes it in UTC with whole seconds.
fn time(text: &str) -> Result<Value, String> {
    if text.is_empty() {
        return Ok(Value::Null);
    }
    let stamp = parse_time(text, "2006-01-02T15:04:05Z07:00")?;
    Ok(stamp.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into())
}

/// Reads a time with exactly six digits of fraction, as Go's `MicroTime` insists.
fn micro_time(text: &str) -> Result<Value, String> {
    const LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";
    if text.is_empty() {
        return Ok(Value::Null);
    }
    let rest = text.get(19..).unwrap_or_default();
    let digits = rest.strip_prefix('.').map_or(0, |f| f.bytes().take_while(u8::is_ascii_digit).count());
    let stamp = parse_time(text, LAYOUT)?;
    if digits != 6 {
        // upstream: Go prints the rest of the layout it could not match, then the rest of the text.
        let found = if digits == 0 { rest } else { rest.get(7..).unwrap_or(rest) };
        let element = if digits > 6 { "Z07:00" } else { ".000000" };
        let found = if digits < 6 { rest } else { found };
        return Err(format!("parsing time {text:?} as {LAYOUT:?}: cannot parse {found:?} as {element:?}"));
    }
    Ok(stamp.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string().into())
}

fn parse_time(text: &str, layout: &str) -> Result<Timestamp, String> {
    let shaped = text.len() >= 20 && text.as_bytes()[10] == b'T';
    match text.parse::<Timestamp>() {
        Ok(stamp) if shaped => Ok(stamp),
        _ => Err(format!("parsing time {text:?} as {layout:?}: cannot parse {text:?} as \"2006\"")),
    }
}

fn bytes(text: &str) -> Result<Value, String> {
    // upstream: Go's decoder passes over line breaks.
    let compact: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    match BASE64.decode(compact.as_bytes()) {
        Ok(raw) => Ok(BASE64.encode(raw).into()),
        Err(e) => Err(format!("illegal base64 data at input byte {}", base64_position(&e, compact.len()))),
    }
}

fn base64_position(error: &base64::DecodeError, length: usize) -> usize {
    match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => *at,
        _ => length / 4 * 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn decoded(ty: &str, value: Value) -> Value {
        decode(schema().id(ty), &value).map(|d| d.value).unwrap_or_else(|e| Value::String(e.to_string()))
    }

    #[test]
    fn empty_optional_fields_go_and_structs_that_are_always_written_come() {
        let got = decoded("core/v1.Service", json!({"kind": "Service", "spec": {"selector": {}, "ports": []}}));
        assert_eq!(got, json!({"kind": "Service", "metadata": {}, "spec": {}, "status": {"loadBalancer": {}}}));
    }

    #[test]
    fn strict_issues_keep_document_order() {
        let text = br#"{"spec":{"foo":1,"ports":[{"port":80,"prot":"TCP"}]},"zip":1,"zip":2,"metadata":{"name":"a","name":"b"}}"#;
        let issues = decode_json(schema().id("core/v1.Service"), text).map(|d| d.issues).unwrap_or_default();
        let texts: Vec<String> = issues.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "unknown field \"spec.foo\"",
                "unknown field \"spec.ports[0].prot\"",
                "unknown field \"zip\"",
                "unknown field \"zip\"",
                "duplicate field \"metadata.name\""
            ]
        );
    }

    #[test]
    fn a_wrong_type_is_named_as_go_names_it() {
        let got = decoded("core/v1.ConfigMap", json!({"metadata": {"name": 5}}));
        assert_eq!(got, "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string");
    }

    #[test]
    fn times_are_normalised() {
        assert_eq!(time("2026-01-02T05:04:05+02:00"), Ok("2026-01-02T03:04:05Z".into()));
        assert_eq!(micro_time("2026-01-02T03:04:05.000001Z"), Ok("2026-01-02T03:04:05.000001Z".into()));
        assert!(micro_time("2026-01-02T03:04:05Z").is_err());
    }
}
