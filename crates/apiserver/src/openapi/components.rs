//! The type schemas that the operations of a document refer to.

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::descriptions;
use crate::discovery::GroupVersion;
use crate::resources::{RESOURCES, Resource};
use crate::schema::{Field, ListKind, PatchRule, Struct, Ty, TypeId, schema};

/// The target of a `$ref`.
#[derive(Debug, Clone)]
pub(super) enum Component {
    Type(TypeId),
    List(&'static Resource),
    Patch,
    WatchEvent,
    Quantity,
    IntOrString,
    Time,
    MicroTime,
    FieldsV1,
    RawExtension,
}

impl Component {
    /// A type of the schema table, by name.
    pub(super) fn named(type_name: &str) -> Component {
        Component::Type(schema().id(type_name))
    }

    /// The name under `components.schemas`.
    fn name(&self) -> String {
        let special = match self {
            Component::Type(id) => return type_name(schema().get(*id).name),
            Component::List(resource) => return format!("{}List", type_name(resource.type_name)),
            Component::Patch => "apis.meta.v1.Patch",
            Component::WatchEvent => "apis.meta.v1.WatchEvent",
            Component::Quantity => "api.resource.Quantity",
            Component::IntOrString => "util.intstr.IntOrString",
            Component::Time => "apis.meta.v1.Time",
            Component::MicroTime => "apis.meta.v1.MicroTime",
            Component::FieldsV1 => "apis.meta.v1.FieldsV1",
            Component::RawExtension => "runtime.RawExtension",
        };
        format!("io.k8s.apimachinery.pkg.{special}")
    }
}

/// `io.k8s.api.core.v1.Service` of `core/v1.Service`.
fn type_name(name: &str) -> String {
    let dotted = name.replacen('/', ".", 1);
    match dotted.starts_with("meta.") {
        true => format!("io.k8s.apimachinery.pkg.apis.{dotted}"),
        false => format!("io.k8s.api.{dotted}"),
    }
}

/// Collects references and then generates their definitions.
pub(super) struct Components {
    group_version: GroupVersion,
    seen: BTreeSet<String>,
    undefined: Vec<Component>,
}

impl Components {
    pub(super) fn new(group_version: GroupVersion) -> Components {
        Components { group_version, seen: BTreeSet::new(), undefined: Vec::new() }
    }

    /// Returns a `$ref` and records its target for definition.
    pub(super) fn reference(&mut self, component: Component) -> Value {
        let name = component.name();
        let reference = json!({"$ref": format!("#/components/schemas/{name}")});
        if self.seen.insert(name) {
            self.undefined.push(component);
        }
        reference
    }

    /// The definitions of all referenced components, by name.
    pub(super) fn finish(mut self) -> Map<String, Value> {
        let mut defined = Map::new();
        while let Some(component) = self.undefined.pop() {
            defined.insert(component.name(), self.define(&component));
        }
        defined
    }

    fn define(&mut self, component: &Component) -> Value {
        match component {
            Component::Type(id) => self.define_struct(schema().get(*id)),
            Component::List(resource) => self.define_list(resource),
            Component::WatchEvent => self.define_watch_event(),
            Component::Patch => {
                json!({"type": "object", "description": "A patch of an object, in one of the four patch types."})
            }
            Component::Quantity => json!({
                "oneOf": [{"type": "string"}, {"type": "number"}],
                "description": "An amount with an optional suffix: 500m, 2, 1.5Gi, 1e3.",
            }),
            Component::IntOrString => json!({
                "oneOf": [{"type": "integer"}, {"type": "string"}],
                "format": "int-or-string",
                "description": "An integer, or a string such as a name or a percentage.",
            }),
            Component::Time => date_time("A timestamp with second precision: 2006-01-02T15:04:05Z."),
            Component::MicroTime => date_time("A timestamp with microsecond precision: 2006-01-02T15:04:05.000000Z."),
            Component::FieldsV1 => json!({
                "type": "object",
                "description": "A set of fields: f:NAME is a field, k:{KEYS} a list item, v:VALUE a set member, . the object or list itself.",
            }),
            Component::RawExtension => json!({"type": "object", "description": "An object of any kind."}),
        }
    }

    fn define_struct(&mut self, ty: &Struct) -> Value {
        let kinds = self.kinds(ty);
        let mut properties: Map<String, Value> =
            ty.fields.iter().map(|field| (field.name.to_owned(), self.property(ty, field))).collect();
        if !kinds.is_empty() {
            add_type_meta(&mut properties);
        }
        let mut definition = object(descriptions::of_type(ty.name), properties);
        let required: Vec<&str> = ty.fields.iter().filter(|f| f.required).map(|f| f.name).collect();
        if !required.is_empty() {
            definition["required"] = json!(required);
        }
        if ty.atomic {
            definition["x-kubernetes-map-type"] = "atomic".into();
        }
        if !kinds.is_empty() {
            definition["x-kubernetes-group-version-kind"] = Value::Array(kinds);
        }
        definition
    }

    fn define_list(&mut self, resource: &'static Resource) -> Value {
        // No operation returns a WatchEvent explicitly, but resources that support list also support watch.
        self.reference(Component::WatchEvent);
        let mut properties = Map::new();
        add_type_meta(&mut properties);
        let metadata = self.reference(Component::named("meta/v1.ListMeta"));
        properties.insert(
            "metadata".to_owned(),
            json!({"allOf": [metadata], "default": {}, "description": "Standard list metadata."}),
        );
        let items = self.reference(Component::named(resource.type_name));
        properties.insert(
            "items".to_owned(),
            json!({"type": "array", "items": items, "description": "The objects of the list."}),
        );
        let mut definition = object(Some(&format!("A list of objects of kind {}.", resource.kind)), properties);
        definition["required"] = json!(["items"]);
        let kind = format!("{}List", resource.kind);
        definition["x-kubernetes-group-version-kind"] = json!([gvk(resource.group, resource.version, &kind)]);
        definition
    }

    fn define_watch_event(&mut self) -> Value {
        let object = self.reference(Component::RawExtension);
        json!({
            "type": "object",
            "description": "One event of a watch.",
            "properties": {
                "type": {
                    "type": "string",
                    "default": "",
                    "description": "ADDED, MODIFIED, DELETED, BOOKMARK or ERROR.",
                },
                "object": {
                    "allOf": [object],
                    "description": "The object after the change, the deleted object in its last state, or a Status.",
                },
            },
            "required": ["type", "object"],
            "x-kubernetes-group-version-kind": self.in_every_group("WatchEvent"),
        })
    }

    /// The kinds of this type; empty for types that are only parts of objects.
    fn kinds(&self, ty: &Struct) -> Vec<Value> {
        match ty.name {
            "meta/v1.DeleteOptions" => self.in_every_group("DeleteOptions"),
            "meta/v1.Status" => vec![gvk("", "v1", "Status")],
            name => KINDS.get(name).into_iter().map(|(group, version)| gvk(group, version, ty.short_name())).collect(),
        }
    }

    /// A kind registered in every group: in the core group and in the group of this document.
    fn in_every_group(&self, kind: &str) -> Vec<Value> {
        let GroupVersion { group, version } = self.group_version;
        let mut kinds = vec![gvk("", "v1", kind), gvk(group, version, kind)];
        kinds.dedup();
        kinds
    }

    fn property(&mut self, ty: &Struct, field: &Field) -> Value {
        let mut property = match self.schema_of(&field.ty) {
            // Siblings of `$ref` are ignored, so wrap it in `allOf`.
            reference if reference.get("$ref").is_some() => json!({"allOf": [reference]}),
            plain => plain,
        };
        if let Some(description) = descriptions::of_field(ty.name, field) {
            property["description"] = description.into();
        }
        if let Some(values) = descriptions::values_of_field(ty.name, field) {
            property["enum"] = json!(values);
        }
        if let Some(default) = field.default.clone().or_else(|| zero_default(field)) {
            property["default"] = default;
        }
        add_list_extensions(&mut property, field);
        add_patch_extensions(&mut property, &field.patch);
        if field.atomic_map {
            property["x-kubernetes-map-type"] = "atomic".into();
        }
        property
    }

    fn schema_of(&mut self, ty: &Ty) -> Value {
        match ty {
            Ty::String => json!({"type": "string"}),
            Ty::Int32 => json!({"type": "integer", "format": "int32"}),
            Ty::Int64 => json!({"type": "integer", "format": "int64"}),
            Ty::Bool => json!({"type": "boolean"}),
            Ty::Double => json!({"type": "number", "format": "double"}),
            Ty::Bytes => json!({"type": "string", "format": "byte"}),
            Ty::Strings => json!({"type": "array", "items": {"type": "string"}}),
            Ty::List(item) => json!({"type": "array", "items": self.schema_of(item)}),
            Ty::Map(item) => json!({"type": "object", "additionalProperties": self.schema_of(item)}),
            Ty::Quantity => self.reference(Component::Quantity),
            Ty::IntOrString => self.reference(Component::IntOrString),
            Ty::Time => self.reference(Component::Time),
            Ty::MicroTime => self.reference(Component::MicroTime),
            Ty::Raw => self.reference(Component::RawExtension),
            Ty::Fields => self.reference(Component::FieldsV1),
            Ty::Struct(id) => self.reference(Component::Type(*id)),
        }
    }
}

/// Group and version of every type that is the kind of a resource or subresource.
static KINDS: LazyLock<HashMap<String, (&'static str, &'static str)>> = LazyLock::new(|| {
    let mut kinds = HashMap::new();
    for resource in RESOURCES {
        kinds.insert(resource.type_name.to_owned(), (resource.group, resource.version));
        for sub in resource.subresources {
            let (group, version) = (sub.group.unwrap_or(resource.group), sub.version.unwrap_or(resource.version));
            kinds.insert(super::operations::subresource_type(group, version, sub.kind), (group, version));
        }
    }
    kinds
});

fn gvk(group: &str, version: &str, kind: &str) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}

fn object(description: Option<&str>, properties: Map<String, Value>) -> Value {
    let mut definition = json!({"type": "object", "properties": properties});
    if let Some(description) = description {
        definition["description"] = description.into();
    }
    definition
}

fn date_time(description: &str) -> Value {
    json!({"type": "string", "format": "date-time", "description": description})
}

fn add_type_meta(properties: &mut Map<String, Value>) {
    let text = |description: &str| json!({"type": "string", "description": description});
    properties.insert("kind".to_owned(), text("Kind of the object. The server infers it from the endpoint."));
    properties.insert("apiVersion".to_owned(), text("API group and version of this representation of the object."));
}

/// The zero value of fields that are always serialized.
fn zero_default(field: &Field) -> Option<Value> {
    match &field.ty {
        _ if !field.always || field.pointer => None,
        Ty::String => Some("".into()),
        Ty::Int32 | Ty::Int64 => Some(0.into()),
        Ty::Bool => Some(false.into()),
        Ty::Struct(_) => Some(json!({})),
        _ => None,
    }
}

fn add_list_extensions(property: &mut Value, field: &Field) {
    if !field.list_declared {
        return;
    }
    let kind = match &field.list {
        ListKind::Atomic => "atomic",
        ListKind::Set => "set",
        ListKind::Map(keys) => {
            property["x-kubernetes-list-map-keys"] = json!(keys);
            "map"
        }
    };
    property["x-kubernetes-list-type"] = kind.into();
}

fn add_patch_extensions(property: &mut Value, rule: &PatchRule) {
    let strategies = [(rule.merge, "merge"), (rule.retain_keys, "retainKeys"), (rule.replace, "replace")];
    let strategies: Vec<&str> = strategies.into_iter().filter(|(on, _)| *on).map(|(_, name)| name).collect();
    if !strategies.is_empty() {
        property["x-kubernetes-patch-strategy"] = strategies.join(",").into();
    }
    if let Some(key) = rule.key {
        property["x-kubernetes-patch-merge-key"] = key.into();
    }
}
