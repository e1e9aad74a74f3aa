//! The API types as data.
//!
//! One table (`types.txt`) has the JSON and protobuf form of every field, when it is serialized, how patches merge it and
//! its list or map type for server-side apply. Decoding, patching, server-side apply, protobuf transcoding and the OpenAPI
//! documents all read this table, so they cannot disagree.
//!
//! ```text
//!  types.txt ──► Schema ──┬─► decode     JSON / YAML / Value ──► canonical Value
//!                         ├─► protobuf   wire bytes ──► Value
//!                         ├─► patch      merge keys and strategies
//!                         ├─► fields     list and map kinds for server-side apply
//!                         └─► openapi    documents for kubectl
//! ```

mod bytes;
mod decode;
mod encode;
pub(crate) mod go_types;
mod protobuf;
mod time;
pub(crate) mod yaml;

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::Value;

pub(crate) use decode::{
    DecodeError, Decoded, MAX_ISSUES, StrictIssue, decode, decode_json, decode_owned, decode_yaml, fill_always,
    json_error, strict_summary, zero,
};
pub(crate) use encode::ordered_json;
pub(crate) use protobuf::decode_protobuf;
#[cfg(test)]
pub(crate) use protobuf::encode as protobuf_encode;

/// Index of a type in the [`Schema`].
pub(crate) type TypeId = usize;

/// Type of a value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Ty {
    String,
    Int32,
    Int64,
    Bool,
    Double,
    /// Base64 text in JSON.
    Bytes,
    Quantity,
    IntOrString,
    /// RFC 3339 with second precision.
    Time,
    /// RFC 3339 with microsecond precision.
    MicroTime,
    /// Any JSON, kept unchanged.
    Raw,
    /// A `fieldsV1` tree.
    Fields,
    /// A list of strings that is a separate protobuf message (`ExtraValue`).
    Strings,
    Struct(TypeId),
    List(Box<Ty>),
    Map(Box<Ty>),
}

/// Strategic merge patch rule of a field.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PatchRule {
    pub(crate) merge: bool,
    pub(crate) retain_keys: bool,
    /// The object is replaced, not merged.
    pub(crate) replace: bool,
    /// The merge key of list items; `None` for a merged list of primitives.
    pub(crate) key: Option<&'static str>,
}

/// List type for server-side apply.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum ListKind {
    #[default]
    Atomic,
    Set,
    Map(Vec<&'static str>),
}

/// One field of a struct.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) ty: Ty,
    /// Serialized even if it has the zero value.
    pub(crate) always: bool,
    /// A Go pointer: unset differs from the zero value.
    pub(crate) pointer: bool,
    pub(crate) required: bool,
    pub(crate) patch: PatchRule,
    pub(crate) list: ListKind,
    /// Whether the list type is declared, not assumed.
    pub(crate) list_declared: bool,
    pub(crate) atomic_map: bool,
    pub(crate) default: Option<Value>,
}

/// Target of a protobuf field number.
#[derive(Debug, Clone)]
pub(crate) enum Wire {
    /// Index into [`Struct::fields`].
    Field(usize),
    /// A nested message whose fields are inlined into this type's JSON object.
    Inline(TypeId),
}

/// A struct type.
#[derive(Debug)]
pub(crate) struct Struct {
    /// `core/v1.Service`.
    pub(crate) name: &'static str,
    /// All JSON fields, including inlined ones.
    pub(crate) fields: Vec<Field>,
    pub(crate) atomic: bool,
    by_name: HashMap<&'static str, usize>,
    by_number: HashMap<u32, Wire>,
}

impl Struct {
    /// The field with this JSON name.
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        self.by_name.get(name).map(|&i| &self.fields[i])
    }

    /// The target of a protobuf field number.
    pub(crate) fn wire(&self, number: u32) -> Option<&Wire> {
        self.by_number.get(&number)
    }

    /// `Service` of `core/v1.Service`.
    pub(crate) fn short_name(&self) -> &'static str {
        self.name.rsplit('.').next().unwrap_or(self.name)
    }
}

/// All types.
#[derive(Debug)]
pub(crate) struct Schema {
    structs: Vec<Struct>,
    by_name: HashMap<&'static str, TypeId>,
}

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::parse(include_str!("types.txt")));

/// The table of all types.
pub(crate) fn schema() -> &'static Schema {
    &SCHEMA
}

impl Schema {
    /// The struct with this ID.
    pub(crate) fn get(&self, id: TypeId) -> &Struct {
        &self.structs[id]
    }

    /// Finds a type by its full name, `core/v1.Service`.
    pub(crate) fn find(&self, name: &str) -> Option<TypeId> {
        self.by_name.get(name).copied()
    }

    /// Like [`Schema::find`], for names from this crate's own tables.
    pub(crate) fn id(&self, name: &str) -> TypeId {
        match self.find(name) {
            Some(id) => id,
            None => unreachable!("the type table has no {name}"),
        }
    }

    #[cfg(test)]
    pub(crate) fn structs(&self) -> impl Iterator<Item = &Struct> {
        self.structs.iter()
    }

    fn parse(text: &'static str) -> Schema {
        let lines = || text.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty());
        let names: Vec<&'static str> =
            lines().filter_map(|l| l.strip_prefix("type ")).filter_map(|l| l.split_whitespace().next()).collect();
        let by_name: HashMap<_, _> = names.iter().enumerate().map(|(i, n)| (*n, i)).collect();
        let mut raw: Vec<RawStruct> = Vec::with_capacity(names.len());
        for line in lines() {
            if let Some(head) = line.strip_prefix("type ") {
                raw.push(RawStruct { atomic: head.contains(" map=atomic"), ..RawStruct::default() });
            } else if let Some(current) = raw.last_mut() {
                current.read_line(line, &by_name);
            }
        }
        let structs = (0..raw.len()).map(|i| flatten(names[i], i, &raw)).collect();
        Schema { structs, by_name }
    }
}

#[derive(Default)]
struct RawStruct {
    atomic: bool,
    fields: Vec<(u32, Field)>,
    inlined: Vec<(u32, TypeId)>,
}

impl RawStruct {
    fn read_line(&mut self, line: &'static str, names: &HashMap<&'static str, TypeId>) {
        let mut words = line.split_whitespace();
        let number = words.next().and_then(|w| w.parse().ok()).unwrap_or(0);
        let (name, ty) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let ty = parse_type(ty, names);
        let name = name.split('=').next().unwrap_or(name);
        let mut field = Field::new(name, ty);
        for flag in words {
            if flag == "inline" {
                if let Ty::Struct(id) = field.ty {
                    self.inlined.push((number, id));
                }
                return;
            }
            field.set_flag(flag);
        }
        self.fields.push((number, field));
    }
}

impl Field {
    fn new(name: &'static str, ty: Ty) -> Field {
        Field {
            name,
            ty,
            always: false,
            pointer: false,
            required: false,
            patch: PatchRule::default(),
            list: ListKind::Atomic,
            list_declared: false,
            atomic_map: false,
            default: None,
        }
    }

    fn set_flag(&mut self, flag: &'static str) {
        match flag.split_once('=') {
            None if flag == "always" => self.always = true,
            None if flag == "ptr" => self.pointer = true,
            None if flag == "req" => self.required = true,
            Some(("patch", rule)) => self.patch = parse_patch_rule(rule),
            Some(("list", kind)) => {
                self.list = parse_list_kind(kind);
                self.list_declared = true;
            }
            Some(("map", kind)) => self.atomic_map = kind == "atomic",
            Some(("default", json)) => self.default = serde_json::from_str(json).ok(),
            _ => unreachable!("the type table has an unknown flag {flag}"),
        }
    }
}

fn parse_patch_rule(rule: &'static str) -> PatchRule {
    let (strategies, key) = match rule.split_once(':') {
        Some((s, k)) => (s, Some(k)),
        None => (rule, None),
    };
    PatchRule {
        merge: strategies.split(',').any(|s| s == "merge"),
        retain_keys: strategies.split(',').any(|s| s == "retainKeys"),
        replace: strategies.split(',').any(|s| s == "replace"),
        key,
    }
}

fn parse_list_kind(kind: &'static str) -> ListKind {
    match kind.split_once(':') {
        Some(("map", keys)) => ListKind::Map(keys.split(',').collect()),
        _ if kind == "set" => ListKind::Set,
        _ => ListKind::Atomic,
    }
}

fn parse_type(text: &str, names: &HashMap<&'static str, TypeId>) -> Ty {
    if let Some(item) = text.strip_prefix("[]") {
        return Ty::List(Box::new(parse_type(item, names)));
    }
    if let Some(item) = text.strip_prefix("{}") {
        return Ty::Map(Box::new(parse_type(item, names)));
    }
    match text {
        "string" => Ty::String,
        "int32" => Ty::Int32,
        "int64" => Ty::Int64,
        "bool" => Ty::Bool,
        "double" => Ty::Double,
        "bytes" => Ty::Bytes,
        "quantity" => Ty::Quantity,
        "intorstring" => Ty::IntOrString,
        "time" => Ty::Time,
        "microtime" => Ty::MicroTime,
        "raw" => Ty::Raw,
        "fields" => Ty::Fields,
        "strings" => Ty::Strings,
        name => match names.get(name) {
            Some(&id) => Ty::Struct(id),
            None => unreachable!("the type table names {name} but does not define it"),
        },
    }
}

/// Adds inlined fields to the struct that inlines them.
fn flatten(name: &'static str, id: TypeId, raw: &[RawStruct]) -> Struct {
    let mut fields = Vec::new();
    let mut by_number = HashMap::new();
    for (number, field) in &raw[id].fields {
        by_number.insert(*number, Wire::Field(fields.len()));
        fields.push(field.clone());
    }
    for &(number, inlined) in &raw[id].inlined {
        by_number.insert(number, Wire::Inline(inlined));
        add_inlined(inlined, raw, &mut fields);
    }
    by_number.remove(&0);
    let by_name = fields.iter().enumerate().map(|(i, f)| (f.name, i)).collect();
    Struct { name, fields, atomic: raw[id].atomic, by_name, by_number }
}

fn add_inlined(id: TypeId, raw: &[RawStruct], into: &mut Vec<Field>) {
    into.extend(raw[id].fields.iter().map(|(_, f)| f.clone()));
    for &(_, nested) in &raw[id].inlined {
        add_inlined(nested, raw, into);
    }
}
