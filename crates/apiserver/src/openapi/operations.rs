//! Paths and their operations.
//!
//! Deprecated `/watch/` paths and proxy subresources are not listed.

use serde_json::{Map, Value, json};

use super::components::{Component, Components};
use super::parameters::{self, parameter};
use crate::resources::{Resource, Subresource};

/// Media types of responses.
const MEDIA_TYPES: &[&str] = &["application/json", "application/yaml"];
const STREAMED_MEDIA_TYPES: &[&str] = &["application/json", "application/json;stream=watch", "application/yaml"];
const PATCHES: &[&str] = &[
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

/// All paths of a resource below the root of its group version.
pub(super) fn paths(resource: &'static Resource, root: &str, components: &mut Components) -> Vec<(String, Value)> {
    let mut path_kinds = vec![PathKind::Collection, PathKind::Item];
    if resource.namespaced {
        path_kinds.insert(0, PathKind::AllNamespaces);
    }
    let listed = resource.subresources.iter().filter(|subresource| subresource.name != "proxy");
    path_kinds.extend(listed.map(PathKind::Subresource));
    let item = |path_kind: &PathKind| Some((path_kind.path(resource, root), path_kind.item(resource, components)?));
    path_kinds.iter().filter_map(item).collect()
}

/// The target of a path.
enum PathKind {
    AllNamespaces,
    Collection,
    Item,
    Subresource(&'static Subresource),
}

impl PathKind {
    fn path(&self, resource: &Resource, root: &str) -> String {
        let plural = resource.plural;
        let scope = if resource.namespaced { "namespaces/{namespace}/" } else { "" };
        match self {
            PathKind::AllNamespaces => format!("/{root}/{plural}"),
            PathKind::Collection => format!("/{root}/{scope}{plural}"),
            PathKind::Item => format!("/{root}/{scope}{plural}/{{name}}"),
            PathKind::Subresource(sub) => format!("/{root}/{scope}{plural}/{{name}}/{}", sub.name),
        }
    }

    fn actions(&self, resource: &Resource) -> Vec<Action> {
        let (available, verbs): (&[Action], _) = match self {
            PathKind::AllNamespaces => (&[Action::List], resource.verbs),
            PathKind::Collection => (&[Action::List, Action::Create, Action::DeleteCollection], resource.verbs),
            PathKind::Item => (&[Action::Get, Action::Update, Action::Patch, Action::Delete], resource.verbs),
            PathKind::Subresource(sub) => (&[Action::Get, Action::Create, Action::Update, Action::Patch], sub.verbs),
        };
        available.iter().copied().filter(|action| verbs.contains(&action.verb())).collect()
    }

    /// The parameters in the path.
    fn path_parameters(&self, resource: &Resource) -> Vec<&'static str> {
        let name = matches!(self, PathKind::Item | PathKind::Subresource(_));
        let namespace = resource.namespaced && !matches!(self, PathKind::AllNamespaces);
        [(name, "name"), (namespace, "namespace")].into_iter().filter(|(present, _)| *present).map(|(_, n)| n).collect()
    }

    /// The path item; `None` if the path has no operations.
    fn item(&self, resource: &'static Resource, components: &mut Components) -> Option<Value> {
        let operations: Vec<Operation<'_>> = self
            .actions(resource)
            .into_iter()
            .map(|action| Operation {
                action,
                path_kind: self,
                resource,
                parameters: self.parameters(action, resource),
            })
            .collect();
        let shared = shared_parameters(&operations)?;
        let mut item = Map::new();
        for operation in &operations {
            item.insert(operation.action.method().to_owned(), operation.definition(&shared, components));
        }
        item.insert("parameters".to_owned(), definitions(&shared));
        Some(Value::Object(item))
    }

    fn parameters(&self, action: Action, resource: &Resource) -> Vec<&'static str> {
        let query = match (self, action) {
            (PathKind::Subresource(sub), Action::Get) if sub.name == "log" => parameters::LOG,
            _ => action.parameters(),
        };
        let mut all = [query, &self.path_parameters(resource), &["pretty"]].concat();
        all.sort_unstable();
        all
    }
}

/// The parameters common to all operations of a path, which are listed once for the path.
fn shared_parameters(operations: &[Operation<'_>]) -> Option<Vec<&'static str>> {
    let (first, rest) = operations.split_first()?;
    let is_common = |name: &&&str| rest.iter().all(|operation| operation.parameters.contains(name));
    Some(first.parameters.iter().filter(is_common).copied().collect())
}

fn definitions(names: &[&str]) -> Value {
    names.iter().map(|name| parameter(name)).collect()
}

/// The action of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Get,
    List,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Action {
    /// The verb in API discovery.
    fn verb(self) -> &'static str {
        match self {
            Action::Get => "get",
            Action::List => "list",
            Action::Create => "create",
            Action::Update => "update",
            Action::Patch => "patch",
            Action::Delete => "delete",
            Action::DeleteCollection => "deletecollection",
        }
    }

    fn method(self) -> &'static str {
        match self {
            Action::Get | Action::List => "get",
            Action::Create => "post",
            Action::Update => "put",
            Action::Patch => "patch",
            Action::Delete | Action::DeleteCollection => "delete",
        }
    }

    /// The value of `x-kubernetes-action`: the method, except where it would be ambiguous.
    fn name(self) -> &'static str {
        match self {
            Action::List => "list",
            Action::DeleteCollection => "deletecollection",
            other => other.method(),
        }
    }

    /// The prefix of operation IDs.
    fn id_prefix(self) -> &'static str {
        match self {
            Action::Get => "read",
            Action::List => "list",
            Action::Create => "create",
            Action::Update => "replace",
            Action::Patch => "patch",
            Action::Delete | Action::DeleteCollection => "delete",
        }
    }

    fn parameters(self) -> &'static [&'static str] {
        match self {
            Action::Get => &[],
            Action::List => parameters::LIST,
            Action::Create | Action::Update => parameters::WRITE,
            Action::Patch => parameters::PATCH,
            Action::Delete => parameters::DELETE,
            Action::DeleteCollection => parameters::DELETE_COLLECTION,
        }
    }

    /// Status codes of success, with their descriptions.
    fn codes(self) -> &'static [(&'static str, &'static str)] {
        const OK: (&str, &str) = ("200", "OK");
        const CREATED: (&str, &str) = ("201", "Created");
        const ACCEPTED: (&str, &str) = ("202", "Accepted");
        match self {
            Action::Get | Action::List | Action::DeleteCollection => &[OK],
            Action::Create => &[OK, CREATED, ACCEPTED],
            Action::Update | Action::Patch => &[OK, CREATED],
            Action::Delete => &[OK, ACCEPTED],
        }
    }
}

/// An action on a path.
struct Operation<'a> {
    action: Action,
    path_kind: &'a PathKind,
    resource: &'static Resource,
    parameters: Vec<&'static str>,
}

impl Operation<'_> {
    fn definition(&self, shared: &[&str], components: &mut Components) -> Value {
        let (group, version, kind) = self.kind();
        let mut operation = json!({
            "description": self.description(),
            "operationId": self.id(),
            "tags": [format!("{}_{}", group_words(self.resource.group), self.resource.version)],
            "responses": self.responses(components),
            "x-kubernetes-action": self.action.name(),
            "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
        });
        let own: Vec<&str> = self.parameters.iter().copied().filter(|name| !shared.contains(name)).collect();
        if !own.is_empty() {
            operation["parameters"] = definitions(&own);
        }
        if let Some(body) = self.body(components) {
            operation["requestBody"] = body;
        }
        operation
    }

    /// Group, version and kind of the object that is read or written.
    fn kind(&self) -> (&'static str, &'static str, &'static str) {
        let resource = self.resource;
        match self.path_kind {
            PathKind::Subresource(sub) => {
                (sub.group.unwrap_or(resource.group), sub.version.unwrap_or(resource.version), sub.kind)
            }
            _ => (resource.group, resource.version, resource.kind),
        }
    }

    fn description(&self) -> String {
        let part = match self.path_kind {
            PathKind::Subresource(sub) => format!("the {} of ", sub.name),
            _ => String::new(),
        };
        let kind = self.resource.kind;
        match self.action {
            Action::Get => format!("Reads {part}one {kind}."),
            Action::List => format!("Lists or watches objects of kind {kind}."),
            Action::Create if part.is_empty() => format!("Creates one {kind}."),
            Action::Create => format!("Creates {part}one {kind}."),
            Action::Update => format!("Replaces {part}one {kind}."),
            Action::Patch => format!("Partially updates {part}one {kind}."),
            Action::Delete => format!("Deletes one {kind}."),
            Action::DeleteCollection => format!("Deletes a collection of objects of kind {kind}."),
        }
    }

    /// `listCoreV1NamespacedService`.
    fn id(&self) -> String {
        let resource = self.resource;
        let (before, after) = match self.path_kind {
            PathKind::AllNamespaces => ("", "ForAllNamespaces".to_owned()),
            PathKind::Subresource(sub) => (scope_word(resource), capitalised(sub.name)),
            _ => (scope_word(resource), String::new()),
        };
        let collection = if self.action == Action::DeleteCollection { "Collection" } else { "" };
        let group = capitalised(&group_words(resource.group));
        let version = capitalised(resource.version);
        format!("{}{group}{version}{collection}{before}{}{after}", self.action.id_prefix(), resource.kind)
    }

    fn body(&self, components: &mut Components) -> Option<Value> {
        let (types, component, required): (&[&str], _, _) = match self.action {
            Action::Get | Action::List => return None,
            Action::Create | Action::Update => (&["*/*"], self.object(), true),
            Action::Patch => (PATCHES, Component::Patch, true),
            Action::Delete | Action::DeleteCollection => (&["*/*"], Component::named("meta/v1.DeleteOptions"), false),
        };
        let mut body = json!({"content": content(types, &components.reference(component))});
        if required {
            body["required"] = true.into();
        }
        Some(body)
    }

    fn responses(&self, components: &mut Components) -> Value {
        let content = self.response_content(components);
        let mut responses = Map::new();
        for (code, meaning) in self.action.codes() {
            responses.insert((*code).to_owned(), json!({"description": meaning, "content": content}));
        }
        responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
        Value::Object(responses)
    }

    fn response_content(&self, components: &mut Components) -> Value {
        let component = match (self.action, self.path_kind) {
            (Action::Get, PathKind::Subresource(sub)) if sub.name == "log" => {
                return content(&["text/plain"], &json!({"type": "string"}));
            }
            (Action::List, _) => Component::List(self.resource),
            (Action::Delete, _) if !self.resource.returns_deleted => Component::named("meta/v1.Status"),
            (Action::DeleteCollection, _) => Component::named("meta/v1.Status"),
            _ => self.object(),
        };
        let types = if self.action == Action::List { STREAMED_MEDIA_TYPES } else { MEDIA_TYPES };
        content(types, &components.reference(component))
    }

    /// The type of the object that is read or written.
    fn object(&self) -> Component {
        let (group, version, kind) = self.kind();
        match self.path_kind {
            PathKind::Subresource(_) => Component::named(&subresource_type(group, version, kind)),
            _ => Component::named(self.resource.type_name),
        }
    }
}

fn content(types: &[&str], schema: &Value) -> Value {
    types.iter().map(|ty| ((*ty).to_owned(), json!({"schema": schema}))).collect::<Map<_, _>>().into()
}

/// The schema type name of a subresource's kind. Packages are named after the first part of their group.
pub(super) fn subresource_type(group: &str, version: &str, kind: &str) -> String {
    let package = match group.split('.').next() {
        None | Some("") => "core",
        Some(package) => package,
    };
    format!("{package}/{version}.{kind}")
}

/// `rbacAuthorization` of `rbac.authorization.k8s.io`.
fn group_words(group: &str) -> String {
    let mut words = group.trim_end_matches(".k8s.io").split('.');
    let first = words.next().filter(|word| !word.is_empty()).unwrap_or("core");
    words.fold(first.to_owned(), |all, word| all + &capitalised(word))
}

fn scope_word(resource: &Resource) -> &'static str {
    if resource.namespaced { "Namespaced" } else { "" }
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}
