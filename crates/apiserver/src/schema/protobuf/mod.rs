//! Decodes protobuf requests into the same canonical values as JSON requests.
//!
//! The type table maps field numbers to fields; there is no code per kind. Responses are never protobuf, because every
//! client that sends it also accepts JSON.
//!
//! ```text
//! "k8s\0" Unknown { 1: TypeMeta { 1: apiVersion, 2: kind }, 2: raw }
//!                                                            └─► the object, decoded by its type
//! ```

mod wire;

#[cfg(test)]
pub(crate) mod encode;

use serde_json::{Map, Value};

use super::decode::{fill_always, is_serialized, zero};
use super::{DecodeError, Field, Schema, Ty, TypeId, Wire, bytes, time};
use crate::go_text;
use crate::quantity::Quantity;
use wire::{Fields, Payload};

const MAGIC: &[u8] = b"k8s\0";
/// Maximum nesting depth; no API type is nested deeper.
const MAX_DEPTH: usize = 64;

/// Decodes a protobuf body: the envelope contains `apiVersion` and `kind`, and `type_of` maps them to a type.
/// The returned value is canonical, with `apiVersion` and `kind` if the envelope has them.
///
/// An invalid envelope is a [`DecodeError::Syntax`], an invalid object a [`DecodeError::Type`].
pub(crate) fn decode_protobuf(
    schema: &Schema,
    body: &[u8],
    type_of: impl Fn(&str, &str) -> Option<TypeId>,
) -> Result<Value, DecodeError> {
    let envelope = Envelope::read(body).map_err(DecodeError::Syntax)?;
    let (version, kind) = (&envelope.api_version, &envelope.kind);
    let id = type_of(version, kind).ok_or_else(|| DecodeError::Type(not_registered(version, kind)))?;
    let mut object = Map::new();
    Reader { schema, depth: 0 }.message(id, envelope.raw, &mut object).map_err(DecodeError::Type)?;
    for (key, text) in [("apiVersion", envelope.api_version), ("kind", envelope.kind)] {
        if !text.is_empty() {
            object.insert(key.to_owned(), text.into());
        }
    }
    Ok(Value::Object(object))
}

fn not_registered(version: &str, kind: &str) -> String {
    format!("no kind {kind:?} is registered for version {version:?} in scheme \"pkg/api/legacyscheme/scheme.go:30\"")
}

/// The envelope of every object.
#[derive(Default)]
struct Envelope<'a> {
    api_version: String,
    kind: String,
    raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn read(body: &'a [u8]) -> Result<Envelope<'a>, String> {
        let message = match body.strip_prefix(MAGIC) {
            _ if body.is_empty() => return Err("empty data".to_owned()),
            None => {
                let why = "provided data does not appear to be a protobuf message";
                return Err(format!("{why}, expected prefix [107 56 115 0]"));
            }
            Some([]) => return Err("empty body".to_owned()),
            Some(message) => message,
        };
        let mut envelope = Envelope::default();
        for field in Fields::of("Unknown", message) {
            match field? {
                (1, payload) => envelope.read_type(payload.bytes("typeMeta")?)?,
                (2, payload) => envelope.raw = payload.bytes("raw")?,
                _ => {}
            }
        }
        Ok(envelope)
    }

    fn read_type(&mut self, message: &[u8]) -> Result<(), String> {
        for field in Fields::of("TypeMeta", message) {
            match field? {
                (1, payload) => self.api_version = text(payload, "apiVersion")?,
                (2, payload) => self.kind = text(payload, "kind")?,
                _ => {}
            }
        }
        Ok(())
    }
}

fn text(payload: Payload<'_>, field: &str) -> Result<String, String> {
    Ok(go_text::valid_text(payload.bytes(field)?).into_owned())
}

/// Decodes messages by type.
#[derive(Clone, Copy)]
struct Reader<'s> {
    schema: &'s Schema,
    depth: usize,
}

impl Reader<'_> {
    fn deeper(self) -> Result<Self, String> {
        match self.depth {
            MAX_DEPTH => Err("proto: message is nested too deeply".to_owned()),
            depth => Ok(Reader { depth: depth + 1, ..self }),
        }
    }

    /// Decodes a message into an object, which may have values from an earlier occurrence of the same field.
    fn message(self, id: TypeId, bytes: &[u8], object: &mut Map<String, Value>) -> Result<(), String> {
        self.fields(id, bytes, object)?;
        fill_always(id, object);
        Ok(())
    }

    fn fields(self, id: TypeId, bytes: &[u8], object: &mut Map<String, Value>) -> Result<(), String> {
        let ty = self.schema.get(id);
        for field in Fields::of(ty.short_name(), bytes) {
            let (number, payload) = field?;
            match ty.wire(number) {
                Some(Wire::Inline(inlined)) => {
                    self.deeper()?.fields(*inlined, payload.bytes(ty.short_name())?, object)?;
                }
                Some(Wire::Field(index)) => {
                    if let Some(field) = ty.fields.get(*index) {
                        self.field(field, payload, object)?;
                    }
                }
                // Newer clients may send more fields.
                None => {}
            }
        }
        Ok(())
    }

    fn field(self, field: &Field, payload: Payload<'_>, object: &mut Map<String, Value>) -> Result<(), String> {
        let earlier = object.get_mut(field.name).map(Value::take);
        let value = match &field.ty {
            Ty::List(item) => self.items(item, field.name, payload, earlier)?,
            Ty::Map(item) => self.entry(item, field.name, payload, earlier)?,
            Ty::Struct(id) => {
                let mut inner = into_object(earlier);
                self.deeper()?.message(*id, payload.bytes(field.name)?, &mut inner)?;
                Value::Object(inner)
            }
            ty => self.value(ty, field.name, payload)?,
        };
        match is_serialized(field, &value) {
            true => object.insert(field.name.to_owned(), value),
            false => object.remove(field.name),
        };
        Ok(())
    }

    /// Appends to a list: one item, or all numbers of a packed field.
    fn items(self, item: &Ty, name: &str, payload: Payload<'_>, earlier: Option<Value>) -> Result<Value, String> {
        let mut items = match earlier {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        };
        match (item, payload) {
            (Ty::Int32 | Ty::Int64 | Ty::Bool, Payload::Bytes(bytes)) => {
                for number in wire::packed(bytes) {
                    items.push(self.value(item, name, Payload::Varint(number?))?);
                }
            }
            _ => items.push(self.value(item, name, payload)?),
        }
        Ok(Value::Array(items))
    }

    /// Adds an entry to a map.
    fn entry(self, item: &Ty, name: &str, payload: Payload<'_>, earlier: Option<Value>) -> Result<Value, String> {
        let mut entries = into_object(earlier);
        let (mut key, mut value) = (String::new(), None);
        for part in Fields::of(name, payload.bytes(name)?) {
            match part? {
                (1, payload) => key = text(payload, name)?,
                (2, payload) => value = Some(self.value(item, name, payload)?),
                _ => {}
            }
        }
        entries.insert(key, value.unwrap_or_else(|| absent(item)));
        Ok(Value::Object(entries))
    }

    fn value(self, ty: &Ty, name: &str, payload: Payload<'_>) -> Result<Value, String> {
        Ok(match ty {
            Ty::String => text(payload, name)?.into(),
            Ty::Int32 => (payload.varint(name)? as i32).into(),
            Ty::Int64 => (payload.varint(name)? as i64).into(),
            Ty::Bool => (payload.varint(name)? != 0).into(),
            Ty::Double => match payload {
                Payload::Fixed64(bits) => f64::from_bits(bits).into(),
                other => return Err(other.wrong_type_error(name)),
            },
            Ty::Bytes => bytes::encode(payload.bytes(name)?).into(),
            Ty::Quantity => quantity(payload.bytes(name)?)?,
            Ty::IntOrString => int_or_string(payload.bytes(name)?)?,
            Ty::Time => timestamp(payload.bytes(name)?, |seconds, _| time::seconds_from_unix(seconds))?,
            Ty::MicroTime => timestamp(payload.bytes(name)?, time::micros_from_unix)?,
            Ty::Raw | Ty::Fields => raw_json(payload.bytes(name)?)?,
            Ty::Strings => strings(payload.bytes(name)?)?,
            Ty::Struct(id) => {
                let mut object = Map::new();
                self.deeper()?.message(*id, payload.bytes(name)?, &mut object)?;
                Value::Object(object)
            }
            // Protobuf cannot encode a list of lists.
            Ty::List(_) | Ty::Map(_) => return Err(payload.wrong_type_error(name)),
        })
    }
}

fn into_object(value: Option<Value>) -> Map<String, Value> {
    match value {
        Some(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

/// The default value of a map entry without a value.
fn absent(ty: &Ty) -> Value {
    match ty {
        Ty::Bytes => "".into(),
        ty => zero(ty),
    }
}

// === Messages with a special JSON form ===

/// `{1: string}`.
fn quantity(message: &[u8]) -> Result<Value, String> {
    let mut value = zero(&Ty::Quantity);
    for field in Fields::of("Quantity", message) {
        if let (1, payload) = field? {
            value = Quantity::parse(&text(payload, "string_")?)?.into_text().into();
        }
    }
    Ok(value)
}

/// `{1: type, 2: number, 3: string}`; type 0 is a number.
fn int_or_string(message: &[u8]) -> Result<Value, String> {
    let (mut kind, mut number, mut string) = (0, 0, String::new());
    for field in Fields::of("IntOrString", message) {
        match field? {
            (1, payload) => kind = payload.varint("type")?,
            (2, payload) => number = payload.varint("intVal")? as i32,
            (3, payload) => string = text(payload, "strVal")?,
            _ => {}
        }
    }
    match kind {
        0 => Ok(number.into()),
        1 => Ok(string.into()),
        _ => Err("impossible IntOrString.Type".to_owned()),
    }
}

/// `{1: seconds, 2: nanoseconds}`; an empty message is an unset time.
fn timestamp(message: &[u8], write: impl Fn(i64, i32) -> Result<Value, String>) -> Result<Value, String> {
    if message.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0, 0);
    for field in Fields::of("Timestamp", message) {
        match field? {
            (1, payload) => seconds = payload.varint("seconds")? as i64,
            (2, payload) => nanos = payload.varint("nanos")? as i32,
            _ => {}
        }
    }
    write(seconds, nanos)
}

/// `{1: JSON text}`.
fn raw_json(message: &[u8]) -> Result<Value, String> {
    let mut value = Value::Null;
    for field in Fields::of("RawExtension", message) {
        if let (1, payload) = field? {
            value = match payload.bytes("raw")? {
                [] => Value::Null,
                json => serde_json::from_slice(json).map_err(|e| e.to_string())?,
            };
        }
    }
    Ok(value)
}

/// `{1: string, 1: string, …}`.
fn strings(message: &[u8]) -> Result<Value, String> {
    let mut items = Vec::new();
    for field in Fields::of("ExtraValue", message) {
        if let (1, payload) = field? {
            items.push(Value::String(text(payload, "items")?));
        }
    }
    Ok(if items.is_empty() { Value::Null } else { Value::Array(items) })
}

#[cfg(test)]
mod tests {
    use super::encode::{encode, envelope};
    use super::*;
    use crate::schema::{decode, schema};
    use base64::Engine as _;
    use serde_json::json;

    fn read(ty: &str, body: &[u8]) -> Result<Value, DecodeError> {
        decode_protobuf(schema(), body, |_, _| schema().find(ty))
    }

    fn recorded(text: &str) -> Vec<u8> {
        base64::engine::general_purpose::STANDARD.decode(text).unwrap()
    }

    #[test]
    fn recorded_bodies_are_decoded() {
        let body = recorded("azhzAAoPCgJ2MRIJQ29uZmlnTWFwEg8KBQoBYRoAEgYKAWsSAXYaACIA");
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
        assert_eq!(read("core/v1.ConfigMap", &body), Ok(map));
        let body = recorded(
            "azhzAAoNCgJ2MRIHU2VydmljZRI9CgUKAWEaABIwChYKBGh0dHASA1RDUBhQIgcIABCQPxoAEggKA2FwcBIBeCIMTG9hZEJhbGFuY2VyGgIKAA==",
        );
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
            "spec": {
                "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}],
                "selector": {"app": "x"}, "type": "LoadBalancer",
            },
            "status": {"loadBalancer": {}},
        });
        assert_eq!(read("core/v1.Service", &body), Ok(service));
        let body = recorded("azhzAAoTCgJ2MRINRGVsZXRlT3B0aW9ucxIA");
        assert_eq!(read("meta/v1.DeleteOptions", &body), Ok(json!({"apiVersion": "v1", "kind": "DeleteOptions"})));
    }

    #[test]
    fn invalid_envelopes_are_rejected_with_upstream_messages() {
        for (body, want) in [
            (&b""[..], "empty data"),
            (b"notproto", "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"),
            (b"k8s\0", "empty body"),
            (b"k8s\0\x0a\x05", "unexpected EOF"),
        ] {
            assert_eq!(read("core/v1.ConfigMap", body), Err(DecodeError::Syntax(want.to_owned())));
        }
    }

    /// Asserts that an object decodes to the same value from JSON and from protobuf.
    fn assert_same(ty: &str, object: Value) {
        let id = schema().id(ty);
        let from_json = decode(id, &object).unwrap().value;
        let body =
            envelope(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap(), &encode(id, &from_json));
        assert_eq!(read(ty, &body), Ok(from_json), "{object}");
    }

    #[test]
    fn protobuf_and_json_decode_to_the_same_value() {
        assert_same(
            "core/v1.Pod",
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "p", "creationTimestamp": "2026-01-02T03:04:05Z", "labels": {"a": "", "b": "c"},
                    "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}, "time": "2026-01-02T03:04:05Z"}],
                    "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": false}]},
                "spec": {
                    "securityContext": {"supplementalGroups": [1, 0, -5]},
                    "containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}},
                        "livenessProbe": {"httpGet": {"port": "web"}, "periodSeconds": 5},
                        "readinessProbe": {"tcpSocket": {"port": 80}}}],
                    "volumes": [{"name": "v", "configMap": {"name": "cm", "defaultMode": 0}}, {"name": "e", "emptyDir": {}}],
                    "terminationGracePeriodSeconds": 0,
                },
            }),
        );
        assert_same(
            "core/v1.Node",
            json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
                "status": {"capacity": {"cpu": "4", "memory": "32973952Ki"}, "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
                    "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-02T03:04:05Z"}]},
            }),
        );
        assert_same(
            "coordination/v1.Lease",
            json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
                "spec": {"holderIdentity": "", "leaseTransitions": 0, "renewTime": "2026-01-02T03:04:05.000007Z"},
            }),
        );
        assert_same(
            "core/v1.Secret",
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {"a": "AAEC", "empty": ""}, "immutable": false,
            }),
        );
        assert_same(
            "authentication/v1.TokenReview",
            json!({
                "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
                "status": {"user": {"extra": {"k": ["a", ""]}}, "audiences": ["x"]},
            }),
        );
        assert_same(
            "core/v1.Event",
            json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "count": 3}),
        );
    }

    fn message(ty: &str, raw: &[u8]) -> Result<Value, String> {
        let mut object = Map::new();
        let read = Reader { schema: schema(), depth: 0 }.message(schema().id(ty), raw, &mut object);
        read.map(|()| Value::Object(object))
    }

    #[test]
    fn duplicate_fields_merge_messages_and_replace_scalars() {
        // metadata {name: "a", namespace: "n"}, metadata {name: ""}
        let raw = [0x0a, 6, 0x0a, 1, b'a', 0x1a, 1, b'n', 0x0a, 2, 0x0a, 0];
        assert_eq!(message("core/v1.ConfigMap", &raw), Ok(json!({"metadata": {"namespace": "n"}})));
    }

    #[test]
    fn numbers_may_be_packed_or_not() {
        let unpacked = [0x20, 1, 0x20, 2];
        let packed = [0x22, 2, 1, 2];
        for raw in [&unpacked[..], &packed] {
            let context = message("core/v1.PodSecurityContext", raw);
            assert_eq!(context, Ok(json!({"supplementalGroups": [1, 2]})));
        }
    }

    #[test]
    fn unknown_fields_are_skipped_and_wrong_wire_types_rejected() {
        assert_eq!(message("core/v1.ConfigMap", &[0xf8, 0x07, 1]), Ok(json!({"metadata": {}})));
        let wrong = message("core/v1.ConfigMap", &[0x08, 1]);
        assert_eq!(wrong, Err("proto: wrong wireType = 0 for field ObjectMeta".to_owned()));
        // data { key: "k" } without a value
        assert_eq!(message("core/v1.ConfigMap", &[0x12, 3, 0x0a, 1, b'k']).unwrap()["data"], json!({"k": ""}));
    }

    #[test]
    fn an_empty_time_is_unset_and_second_zero_is_1970() {
        let created = |raw: &[u8]| message("meta/v1.ObjectMeta", raw).unwrap()["creationTimestamp"].clone();
        assert_eq!(created(&[0x42, 0]), Value::Null);
        assert_eq!(created(&[0x42, 2, 0x08, 0]), "1970-01-01T00:00:00Z");
    }
}
