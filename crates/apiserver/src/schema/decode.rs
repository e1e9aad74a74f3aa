//! Decodes JSON, YAML or a parsed [`Value`] into the canonical form of a type.
//!
//! kube-apiserver decodes into Go structs and encodes them again, and clients see the result of that round trip. One pass
//! over the input does the same here: it checks types, drops unknown fields (recording them, in document order, for strict
//! validation), drops empty optional fields, adds the fields that are always serialized, and normalises times, quantities
//! and base64.

use std::cell::RefCell;
use std::fmt;
use std::sync::LazyLock;

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::{Field, Ty, TypeId, bytes, go_types, schema, time};
use crate::{go_text, quantity};

/// Maximum number of reported strict decoding issues.
pub(crate) const MAX_ISSUES: usize = 100;

/// An issue that strict validation reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StrictIssue {
    Unknown(String),
    Duplicate(String),
    /// A duplicate key in YAML: line, and key as Go prints it (quoted if it is a string).
    YamlDuplicate(u64, String),
}

impl fmt::Display for StrictIssue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StrictIssue::Unknown(path) => write!(f, "unknown field {}", go_text::quote(path)),
            StrictIssue::Duplicate(path) => write!(f, "duplicate field {}", go_text::quote(path)),
            StrictIssue::YamlDuplicate(line, key) => write!(f, "line {line}: key {key} already set in map"),
        }
    }
}

/// All issues in one message, as strict validation reports them.
pub(crate) fn strict_summary(issues: &[StrictIssue]) -> String {
    let yaml = |issue: &&StrictIssue| matches!(issue, StrictIssue::YamlDuplicate(..));
    let lines: Vec<String> = issues.iter().filter(yaml).map(|issue| format!("\n  {issue}")).collect();
    let mut parts = Vec::new();
    if !lines.is_empty() {
        // The YAML library reports all its duplicates as one error.
        parts.push(format!("yaml: unmarshal errors:{}", lines.concat()));
    }
    parts.extend(issues.iter().filter(|issue| !yaml(issue)).map(ToString::to_string));
    parts.join(", ")
}

/// A decoded object, with the strict validation issues of its input.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) value: Value,
    pub(crate) issues: Vec<StrictIssue>,
}

/// Why an input is not an object of the expected type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// The text is not JSON or YAML.
    Syntax(String),
    /// A value has the wrong type or form.
    Type(String),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Syntax(m) | DecodeError::Type(m) => f.write_str(m),
        }
    }
}

/// Converts a parsed value to the canonical form of `id`.
pub(crate) fn decode(id: TypeId, value: &Value) -> Result<Decoded, DecodeError> {
    run(id, value).map_err(|e| DecodeError::Type(e.to_string()))
}

/// Like [`decode`], but moves strings out of the value instead of copying them.
pub(crate) fn decode_owned(id: TypeId, value: Value) -> Result<Decoded, DecodeError> {
    run(id, value).map_err(|e| DecodeError::Type(e.to_string()))
}

/// Decodes JSON text.
pub(crate) fn decode_json(id: TypeId, text: &[u8]) -> Result<Decoded, DecodeError> {
    decode_text(id, text).map_err(|error| match serde_json::from_slice::<IgnoredAny>(text) {
        // upstream: a syntax error is reported first, even if an earlier value has the wrong type.
        Err(syntax) => DecodeError::Syntax(json_error(text, &syntax)),
        Ok(_) => DecodeError::Type(without_position(&error)),
    })
}

fn decode_text(id: TypeId, text: &[u8]) -> Result<Decoded, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let decoded = run(id, &mut reader)?;
    reader.end()?;
    Ok(decoded)
}

/// Decodes YAML text. As upstream, YAML is converted to JSON first, so keys are visited in sorted order.
pub(crate) fn decode_yaml(id: TypeId, text: &[u8]) -> Result<Decoded, DecodeError> {
    let (value, duplicates) = super::yaml::to_value(text).map_err(DecodeError::Syntax)?;
    let mut decoded = decode(id, &value)?;
    decoded.issues.splice(0..0, duplicates);
    Ok(decoded)
}

fn run<'de, D: Deserializer<'de>>(id: TypeId, source: D) -> Result<Decoded, D::Error> {
    let cx = Cx::default();
    let value = TypedSeed { ty: &Ty::Struct(id), root: true, start: None, cx: &cx }.deserialize(source)?;
    let value = if value.is_null() { zero(&Ty::Struct(id)) } else { value };
    Ok(Decoded { value, issues: cx.issues.into_inner() })
}

/// The message for a JSON syntax error: that of Go's `encoding/json` for common errors, that of serde_json for the rest.
pub(crate) fn json_error(text: &[u8], error: &serde_json::Error) -> String {
    let message = without_position(error);
    let context = match message.as_str() {
        _ if error.is_eof() => return "unexpected end of JSON input".to_owned(),
        "key must be a string" => "looking for beginning of object key string",
        "expected value" => "looking for beginning of value",
        "trailing characters" => "after top-level value",
        _ => return message,
    };
    let line = text.split(|byte| *byte == b'\n').nth(error.line().saturating_sub(1));
    match line.and_then(|line| line.get(error.column().checked_sub(1)?)) {
        Some(byte) => format!("invalid character {} {context}", go_text::quote_byte(*byte)),
        None => message,
    }
}

/// Removes the suffix " at line L column C" of serde_json, which Go does not have.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

// === Position in the document ===

#[derive(Default)]
struct Cx {
    path: RefCell<Vec<Step>>,
    issues: RefCell<Vec<StrictIssue>>,
}

enum Step {
    Field { owner: &'static str, name: &'static str },
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

    /// Records an issue unless it is a duplicate.
    fn record(&self, issue: StrictIssue) {
        let mut issues = self.issues.borrow_mut();
        if issues.len() < MAX_ISSUES && !issues.contains(&issue) {
            issues.push(issue);
        }
    }

    /// The path as strict errors print it: `spec.ports[0].name`.
    fn strict_path(&self, last: &str) -> String {
        let mut text = String::new();
        for step in self.path.borrow().iter() {
            match step {
                Step::Field { name, .. } => push_name(&mut text, name),
                Step::Key(name) => push_name(&mut text, name),
                Step::Index(i) => text.push_str(&format!("[{i}]")),
            }
        }
        push_name(&mut text, last);
        text
    }

    /// Go's error for a value of the wrong type, which names the field as `ServicePort.spec.ports.port`.
    fn mismatch<E: de::Error>(&self, got: &str, ty: &Ty) -> E {
        let path = self.path.borrow();
        let fields: Vec<_> = path.iter().filter_map(Step::field).collect();
        let Some((owner, name)) = fields.last() else {
            return E::custom(format!("json: cannot unmarshal {got} into Go value of type {}", go_types::of(ty)));
        };
        let inside = path.iter().rev().take_while(|step| step.field().is_none()).count();
        let wanted = match go_types::declared(owner, name, inside) {
            Some(declared) => declared.to_owned(),
            None => go_types::of(ty),
        };
        let names: Vec<&str> = fields.iter().map(|(_, name)| *name).collect();
        let field = names.join(".");
        E::custom(format!("json: cannot unmarshal {got} into Go struct field {owner}.{field} of type {wanted}"))
    }
}

impl Step {
    fn field(&self) -> Option<(&'static str, &'static str)> {
        match self {
            Step::Field { owner, name } => Some((owner, name)),
            _ => None,
        }
    }
}

fn push_name(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

// === One value ===

struct TypedSeed<'a> {
    ty: &'a Ty,
    /// Whether this is the top-level object, which also has `kind` and `apiVersion`.
    root: bool,
    /// The value of an earlier field with the same name: a duplicate struct or map is merged into the first one.
    start: Option<Map<String, Value>>,
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
        f.write_str(&go_types::of(self.ty))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        match (self.ty, self.start) {
            (Ty::Struct(_), Some(start)) => Ok(Value::Object(start)),
            _ => Ok(Value::Null),
        }
    }

    fn visit_none<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: de::Error>(self, v: bool) -> Result<Value, E> {
        match self.ty {
            Ty::Bool | Ty::Raw | Ty::Fields => Ok(Value::Bool(v)),
            Ty::Quantity => self.quantity("true"),
            ty => Err(self.cx.mismatch("bool", ty)),
        }
    }

    fn visit_i64<E: de::Error>(self, v: i64) -> Result<Value, E> {
        match self.ty {
            Ty::Int64 | Ty::Raw | Ty::Fields | Ty::Double => Ok(v.into()),
            Ty::Int32 | Ty::IntOrString if i32::try_from(v).is_ok() => Ok(v.into()),
            Ty::Int32 | Ty::IntOrString => Err(self.cx.mismatch(&format!("number {v}"), self.ty)),
            Ty::Quantity => self.quantity(&v.to_string()),
            ty => Err(self.cx.mismatch("number", ty)),
        }
    }

    fn visit_u64<E: de::Error>(self, v: u64) -> Result<Value, E> {
        match (i64::try_from(v), self.ty) {
            (Ok(v), _) => self.visit_i64(v),
            (_, Ty::Raw | Ty::Fields | Ty::Double) => Ok(v.into()),
            (_, Ty::Quantity) => self.quantity(&v.to_string()),
            (_, Ty::Int32 | Ty::Int64 | Ty::IntOrString) => Err(self.cx.mismatch(&format!("number {v}"), self.ty)),
            (_, ty) => Err(self.cx.mismatch("number", ty)),
        }
    }

    fn visit_f64<E: de::Error>(self, v: f64) -> Result<Value, E> {
        match self.ty {
            Ty::Double | Ty::Raw | Ty::Fields => Ok(v.into()),
            Ty::Quantity => self.quantity(&v.to_string()),
            Ty::Int32 | Ty::Int64 | Ty::IntOrString => {
                Err(self.cx.mismatch(&format!("number {}", Value::from(v)), self.ty))
            }
            ty => Err(self.cx.mismatch("number", ty)),
        }
    }

    fn visit_str<E: de::Error>(self, v: &str) -> Result<Value, E> {
        match self.ty {
            Ty::String | Ty::IntOrString | Ty::Raw | Ty::Fields => Ok(v.into()),
            Ty::Quantity => self.quantity(v),
            Ty::Time => time::seconds(v).map_err(E::custom),
            Ty::MicroTime => time::micros(v).map_err(E::custom),
            Ty::Bytes => bytes::canonical(v).map(Value::String).map_err(E::custom),
            ty => Err(self.cx.mismatch("string", ty)),
        }
    }

    fn visit_string<E: de::Error>(self, v: String) -> Result<Value, E> {
        match self.ty {
            Ty::String | Ty::IntOrString | Ty::Raw | Ty::Fields => Ok(Value::String(v)),
            _ => self.visit_str(&v),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let item_ty = match self.ty {
            Ty::List(item) => item,
            Ty::Strings => &Ty::String,
            Ty::Raw | Ty::Fields => &Ty::Raw,
            Ty::Quantity => return self.quantity("[]"),
            ty => return Err(self.cx.mismatch("array", ty)),
        };
        let mut items = Vec::new();
        loop {
            let seed = TypedSeed { ty: item_ty, root: false, start: None, cx: self.cx };
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
            Ty::Raw | Ty::Fields => visit_raw(map),
            Ty::Quantity => self.quantity("{}"),
            ty => Err(self.cx.mismatch("object", ty)),
        }
    }
}

/// Keeps an object unchanged, without decoding its fields.
fn visit_raw<'de, A: MapAccess<'de>>(mut map: A) -> Result<Value, A::Error> {
    let mut entries = Map::new();
    while let Some((key, value)) = map.next_entry::<String, Value>()? {
        entries.insert(key, value);
    }
    Ok(Value::Object(entries))
}

impl TypedSeed<'_> {
    fn quantity<E: de::Error>(&self, text: &str) -> Result<Value, E> {
        quantity::canonical(text).map(Value::String).map_err(E::custom)
    }

    fn visit_entries<'de, A: MapAccess<'de>>(self, item: &Ty, mut map: A) -> Result<Value, A::Error> {
        // Only values with nested fields need the key in their path.
        let deep = matches!(item, Ty::Struct(_) | Ty::Map(_) | Ty::List(_));
        let mut entries = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if entries.contains_key(&key) {
                self.cx.record(StrictIssue::Duplicate(self.cx.strict_path(&key)));
            }
            let seed = TypedSeed { ty: item, root: false, start: None, cx: self.cx };
            let step = Step::Key(if deep { key.clone() } else { String::new() });
            let value = self.cx.within(step, || map.next_value_seed(seed))?;
            entries.insert(key, if value.is_null() { zero(item) } else { value });
        }
        if let Some(mut start) = self.start {
            start.append(&mut entries);
            entries = start;
        }
        Ok(Value::Object(entries))
    }

    fn visit_struct<'de, A: MapAccess<'de>>(self, id: TypeId, mut map: A) -> Result<Value, A::Error> {
        let ty = schema().get(id);
        let mut object = self.start.unwrap_or_default();
        let mut seen: Vec<&'static str> = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            let Some(field) = ty.field(&key).or_else(|| type_meta(self.root, &key)) else {
                self.cx.record(StrictIssue::Unknown(self.cx.strict_path(&key)));
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if seen.contains(&field.name) {
                self.cx.record(StrictIssue::Duplicate(self.cx.strict_path(&key)));
            }
            seen.push(field.name);
            let start = earlier(&mut object, &key);
            let seed = TypedSeed { ty: &field.ty, root: false, start, cx: self.cx };
            let step = Step::Field { owner: ty.short_name(), name: field.name };
            let value = self.cx.within(step, || map.next_value_seed(seed))?;
            match is_serialized(field, &value) {
                true => object.insert(key, value),
                false => object.remove(&key),
            };
        }
        fill_always(id, &mut object);
        Ok(Value::Object(object))
    }
}

/// `kind` and `apiVersion`, which only the top-level object has.
fn type_meta(root: bool, key: &str) -> Option<&'static Field> {
    static FIELDS: LazyLock<[Field; 2]> =
        LazyLock::new(|| ["kind", "apiVersion"].map(|name| Field::new(name, Ty::String)));
    FIELDS.iter().find(|field| root && field.name == key)
}

/// Takes the object of an earlier field with the same name.
fn earlier(object: &mut Map<String, Value>, key: &str) -> Option<Map<String, Value>> {
    match object.get_mut(key).map(Value::take) {
        Some(Value::Object(earlier)) => Some(earlier),
        _ => None,
    }
}

// === Serialization rules of Go ===

/// Whether Go would serialize this value of the field.
pub(super) fn is_serialized(field: &Field, value: &Value) -> bool {
    match value {
        Value::Null => false,
        _ if field.always || field.pointer => true,
        Value::String(s) => !s.is_empty(),
        Value::Number(n) => n.as_f64() != Some(0.0),
        Value::Bool(b) => *b,
        // upstream: an empty list of managed fields is kept, because it clears them.
        Value::Array(items) => !items.is_empty() || field.name == "managedFields",
        Value::Object(entries) => !entries.is_empty(),
    }
}

/// Adds the fields that are serialized even if they are not set.
pub(crate) fn fill_always(id: TypeId, object: &mut Map<String, Value>) {
    for field in schema().get(id).fields.iter().filter(|f| f.always) {
        if !object.contains_key(field.name) {
            let value = if field.pointer { Value::Null } else { zero(&field.ty) };
            object.insert(field.name.to_owned(), value);
        }
    }
}

/// The zero value of a type, as Go serializes it.
pub(crate) fn zero(ty: &Ty) -> Value {
    match ty {
        Ty::String | Ty::Bytes => "".into(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn decoded(ty: &str, value: Value) -> Value {
        decode(schema().id(ty), &value).map(|d| d.value).unwrap_or_else(|e| Value::String(e.to_string()))
    }

    #[test]
    fn empty_optional_fields_are_dropped_and_required_structs_are_added() {
        let got = decoded("core/v1.Service", json!({"kind": "Service", "spec": {"selector": {}, "ports": []}}));
        assert_eq!(got, json!({"kind": "Service", "metadata": {}, "spec": {}, "status": {"loadBalancer": {}}}));
    }

    fn issues(ty: &str, text: &str) -> Vec<String> {
        let decoded = decode_json(schema().id(ty), text.as_bytes()).unwrap();
        decoded.issues.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn strict_issues_keep_document_order_and_are_reported_once() {
        let text = r#"{"spec":{"foo":1,"ports":[{"port":80,"prot":"TCP"}]},"zip":1,"zip":2,
            "metadata":{"name":"a","name":"b"},"kind":"Service","kind":"Service"}"#;
        assert_eq!(
            issues("core/v1.Service", text),
            [
                "unknown field \"spec.foo\"",
                "unknown field \"spec.ports[0].prot\"",
                "unknown field \"zip\"",
                "duplicate field \"metadata.name\"",
                "duplicate field \"kind\""
            ]
        );
        let many: Vec<String> = (0..200).map(|i| format!("\"f{i}\":1")).collect();
        assert_eq!(issues("core/v1.Service", &format!("{{{}}}", many.join(","))).len(), 100);
    }

    #[test]
    fn yaml_duplicates_are_one_error_with_several_lines() {
        let text = b"metadata: {name: a}\ndata: {k: '1', k: '2'}\nbogus: 1\ndata: {}\n";
        let decoded = decode_yaml(schema().id("core/v1.ConfigMap"), text).unwrap();
        assert_eq!(
            strict_summary(&decoded.issues),
            "yaml: unmarshal errors:\n  line 2: key \"k\" already set in map\n  \
             line 4: key \"data\" already set in map, unknown field \"bogus\""
        );
    }

    #[test]
    fn duplicate_structs_and_maps_are_merged() {
        let text = r#"{"metadata":{"name":"a","labels":{"x":"1"}},"data":{"a":"1"},
            "metadata":{"labels":{"y":"2"},"namespace":"n"},"data":{"b":"2"}}"#;
        let decoded = decode_json(schema().id("core/v1.ConfigMap"), text.as_bytes()).unwrap();
        let metadata = json!({"name": "a", "namespace": "n", "labels": {"x": "1", "y": "2"}});
        assert_eq!(decoded.value, json!({"metadata": metadata, "data": {"a": "1", "b": "2"}}));
        assert_eq!(issues("core/v1.ConfigMap", text), ["duplicate field \"metadata\"", "duplicate field \"data\""]);
    }

    #[test]
    fn syntax_errors_are_reported_before_wrong_types() {
        let error = decode_json(schema().id("core/v1.ConfigMap"), br#"{"metadata":{"name":5}} x"#).unwrap_err();
        assert_eq!(error, DecodeError::Syntax("invalid character 'x' after top-level value".into()));
    }

    #[test]
    fn common_syntax_errors_have_the_messages_of_go() {
        for (text, want) in [
            ("{bad", "invalid character 'b' looking for beginning of object key string"),
            ("", "unexpected end of JSON input"),
            ("x", "invalid character 'x' looking for beginning of value"),
            ("{}\n  trailing", "invalid character 't' after top-level value"),
            ("[1 2]", "expected `,` or `]`"),
        ] {
            let error = decode_json(schema().id("core/v1.ConfigMap"), text.as_bytes()).unwrap_err();
            assert_eq!(error, DecodeError::Syntax(want.into()), "{text:?}");
        }
    }

    #[test]
    fn wrong_types_are_named_as_go_declares_them() {
        for (ty, value, want) in [
            (
                "core/v1.Service",
                json!({"spec": {"type": 5}}),
                "number into Go struct field ServiceSpec.spec.type of type v1.ServiceType",
            ),
            (
                "core/v1.Service",
                json!({"spec": {"ipFamilies": [1]}}),
                "number into Go struct field ServiceSpec.spec.ipFamilies of type v1.IPFamily",
            ),
            (
                "core/v1.Service",
                json!({"spec": {"ports": {}}}),
                "object into Go struct field ServiceSpec.spec.ports of type []v1.ServicePort",
            ),
            (
                "core/v1.Service",
                json!({"spec": {"ports": [{"port": "x"}]}}),
                "string into Go struct field ServicePort.spec.ports.port of type int32",
            ),
            (
                "core/v1.Service",
                json!({"spec": {"ports": [{"targetPort": 1.5}]}}),
                "number 1.5 into Go struct field ServicePort.spec.ports.targetPort of type int32",
            ),
            (
                "core/v1.ConfigMap",
                json!({"data": {"k": 1}}),
                "number into Go struct field ConfigMap.data of type string",
            ),
            (
                "core/v1.ConfigMap",
                json!({"data": []}),
                "array into Go struct field ConfigMap.data of type map[string]string",
            ),
            (
                "core/v1.ConfigMap",
                json!({"metadata": "x"}),
                "string into Go struct field ConfigMap.metadata of type v1.ObjectMeta",
            ),
            (
                "core/v1.Node",
                json!({"metadata": {"creationTimestamp": 1}}),
                "number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
            ),
        ] {
            assert_eq!(decoded(ty, value), format!("json: cannot unmarshal {want}"));
        }
    }

    #[test]
    fn a_wrong_type_is_named_as_go_names_it() {
        let got = decoded("core/v1.ConfigMap", json!({"metadata": {"name": 5}}));
        assert_eq!(got, "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string");
    }
}
