//! Registry of the resources this server serves: discovery data and the rules of each kind.
//!
//! The request path is generic over [`Resource`]. Rules of a single kind are in its [`Strategy`], one module per kind.

mod apps;
mod check;
mod configmap;
mod disruption_budget;
mod endpoints;
mod event;
pub(crate) mod label_selector;
mod lease;
pub(crate) mod meta;
mod namespace;
mod node;
mod pod;
mod rbac;
mod secret;
pub(crate) mod service;
mod serviceaccount;
mod strategy;
pub(crate) mod subresources;

use serde_json::Value;

use crate::schema::{TypeId, schema};
use crate::status::Named;

pub(crate) use apps::partial_metadata;
pub(crate) use strategy::{Grace, Reservation, Strategy, WriteCx};

/// One resource of one group and version.
pub(crate) struct Resource {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) short_names: &'static [&'static str],
    pub(crate) categories: &'static [&'static str],
    pub(crate) namespaced: bool,
    pub(crate) verbs: &'static [&'static str],
    pub(crate) subresources: &'static [Subresource],
    /// Type name in the schema.
    pub(crate) type_name: &'static str,
    /// Storage name. Two resources with the same storage name are two views of the same objects.
    pub(crate) storage: &'static str,
    pub(crate) strategy: &'static dyn Strategy,
    /// An immediate DELETE returns the object instead of a Status.
    pub(crate) returns_deleted: bool,
    /// PUT of an absent object creates it.
    pub(crate) put_creates: bool,
    /// PUT without a resourceVersion overwrites (unconditional update).
    pub(crate) unconditional_put: bool,
    /// Conversion to and from the stored form, if this resource is a view of another one.
    pub(crate) view: Option<View>,
}

/// Conversions between a resource's own form and the stored form.
#[derive(Clone, Copy)]
pub(crate) struct View {
    pub(crate) to_stored: fn(Value) -> Value,
    pub(crate) from_stored: fn(Value) -> Value,
}

/// A subresource such as `status` or `scale`.
#[derive(Debug)]
pub(crate) struct Subresource {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    /// Set if group and version differ from the parent's (`pods/eviction`).
    pub(crate) group: Option<&'static str>,
    pub(crate) version: Option<&'static str>,
    pub(crate) verbs: &'static [&'static str],
}

impl std::fmt::Debug for Resource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.named().qualified())
    }
}

impl Resource {
    /// `v1` or `apps/v1`.
    pub(crate) fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Group and plural, for error messages.
    pub(crate) fn named(&self) -> Named<'static> {
        Named { group: self.group, kind: self.plural }
    }

    /// Group and kind, as validation errors name them.
    pub(crate) fn named_kind(&self) -> Named<'static> {
        Named { group: self.group, kind: self.kind }
    }

    pub(crate) fn type_id(&self) -> TypeId {
        schema().id(self.type_name)
    }

    pub(crate) fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    pub(crate) fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    pub(crate) fn allows(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }

    /// True for kinds that are never stored, such as reviews.
    pub(crate) fn is_virtual(&self) -> bool {
        !self.allows("get")
    }
}

/// Finds a resource by its path segments.
pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|r| r.plural == plural && r.group == group && r.version == version)
}

/// Finds a resource by the `apiVersion` and `kind` of its objects.
pub(crate) fn find_kind(api_version: &str, kind: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|r| r.kind == kind && r.api_version() == api_version)
}

/// Returns the resource that owns a storage name.
pub(crate) fn find_storage(storage: &str) -> &'static Resource {
    match RESOURCES.iter().find(|r| r.storage == storage && r.view.is_none()) {
        Some(resource) => resource,
        None => unreachable!("no resource is stored as {storage}"),
    }
}

const ALL: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const NO_COLLECTION_DELETE: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
const CREATE: &[&str] = &["create"];
const STATUS_VERBS: &[&str] = &["get", "patch", "update"];

const fn sub(name: &'static str, kind: &'static str, verbs: &'static [&'static str]) -> Subresource {
    Subresource { name, kind, group: None, version: None, verbs }
}

const fn status(kind: &'static str) -> Subresource {
    sub("status", kind, STATUS_VERBS)
}

const SCALE: Subresource =
    Subresource { name: "scale", kind: "Scale", group: Some("autoscaling"), version: Some("v1"), verbs: STATUS_VERBS };
const EVICTION: Subresource =
    Subresource { name: "eviction", kind: "Eviction", group: Some("policy"), version: Some("v1"), verbs: CREATE };
const TOKEN: Subresource = Subresource {
    name: "token",
    kind: "TokenRequest",
    group: Some("authentication.k8s.io"),
    version: Some("v1"),
    verbs: CREATE,
};

/// Defaults for the entries of [`RESOURCES`].
const BASE: Resource = Resource {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    singular: "",
    short_names: &[],
    categories: &[],
    namespaced: true,
    verbs: ALL,
    subresources: &[],
    type_name: "",
    storage: "",
    strategy: &strategy::Plain,
    returns_deleted: false,
    put_creates: false,
    unconditional_put: true,
    view: None,
};

/// A kind that supports POST only and is never stored.
const REVIEW: Resource = Resource { verbs: CREATE, namespaced: false, ..BASE };

/// All resources, in the order discovery lists their groups.
pub(crate) static RESOURCES: &[Resource] = &[
    Resource {
        kind: "ConfigMap",
        plural: "configmaps",
        singular: "configmap",
        short_names: &["cm"],
        type_name: "core/v1.ConfigMap",
        storage: "configmaps",
        strategy: &configmap::ConfigMap,
        ..BASE
    },
    Resource {
        kind: "Endpoints",
        plural: "endpoints",
        singular: "endpoints",
        short_names: &["ep"],
        type_name: "core/v1.Endpoints",
        storage: "endpoints",
        strategy: &endpoints::Endpoints,
        put_creates: true,
        ..BASE
    },
    Resource {
        kind: "Event",
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        type_name: "core/v1.Event",
        storage: "events",
        strategy: &event::CoreEvent,
        put_creates: true,
        ..BASE
    },
    Resource {
        kind: "Namespace",
        plural: "namespaces",
        singular: "namespace",
        short_names: &["ns"],
        namespaced: false,
        verbs: NO_COLLECTION_DELETE,
        subresources: &[sub("finalize", "Namespace", &["update"]), status("Namespace")],
        type_name: "core/v1.Namespace",
        storage: "namespaces",
        strategy: &namespace::Namespace,
        returns_deleted: true,
        ..BASE
    },
    Resource {
        kind: "Node",
        plural: "nodes",
        singular: "node",
        short_names: &["no"],
        namespaced: false,
        subresources: &[status("Node")],
        type_name: "core/v1.Node",
        storage: "nodes",
        strategy: &node::Node,
        ..BASE
    },
    Resource {
        kind: "Pod",
        plural: "pods",
        singular: "pod",
        short_names: &["po"],
        categories: &["all"],
        subresources: &[
            sub("binding", "Binding", CREATE),
            EVICTION,
            sub("log", "Pod", &["get"]),
            sub("proxy", "PodProxyOptions", &["create", "delete", "get", "patch", "update"]),
            status("Pod"),
        ],
        type_name: "core/v1.Pod",
        storage: "pods",
        strategy: &pod::Pod,
        returns_deleted: true,
        ..BASE
    },
    Resource {
        kind: "Secret",
        plural: "secrets",
        singular: "secret",
        type_name: "core/v1.Secret",
        storage: "secrets",
        strategy: &secret::Secret,
        ..BASE
    },
    Resource {
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        singular: "serviceaccount",
        short_names: &["sa"],
        subresources: &[TOKEN],
        type_name: "core/v1.ServiceAccount",
        storage: "serviceaccounts",
        strategy: &serviceaccount::ServiceAccount,
        returns_deleted: true,
        ..BASE
    },
    Resource {
        kind: "Service",
        plural: "services",
        singular: "service",
        short_names: &["svc"],
        categories: &["all"],
        subresources: &[status("Service")],
        type_name: "core/v1.Service",
        storage: "services",
        strategy: &service::Service,
        returns_deleted: true,
        put_creates: true,
        ..BASE
    },
    Resource {
        group: "apps",
        kind: "DaemonSet",
        plural: "daemonsets",
        singular: "daemonset",
        short_names: &["ds"],
        categories: &["all"],
        subresources: &[status("DaemonSet")],
        type_name: "apps/v1.DaemonSet",
        storage: "daemonsets",
        strategy: &apps::DaemonSet,
        ..BASE
    },
    Resource {
        group: "apps",
        kind: "Deployment",
        plural: "deployments",
        singular: "deployment",
        short_names: &["deploy"],
        categories: &["all"],
        subresources: &[SCALE, status("Deployment")],
        type_name: "apps/v1.Deployment",
        storage: "deployments",
        strategy: &apps::Deployment,
        ..BASE
    },
    Resource {
        group: "events.k8s.io",
        kind: "Event",
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        type_name: "events/v1.Event",
        storage: "events",
        strategy: &event::NewEvent,
        put_creates: true,
        view: Some(event::VIEW),
        ..BASE
    },
    Resource {
        group: "authentication.k8s.io",
        kind: "SelfSubjectReview",
        plural: "selfsubjectreviews",
        singular: "selfsubjectreview",
        type_name: "authentication/v1.SelfSubjectReview",
        ..REVIEW
    },
    Resource {
        group: "authentication.k8s.io",
        kind: "TokenReview",
        plural: "tokenreviews",
        singular: "tokenreview",
        type_name: "authentication/v1.TokenReview",
        ..REVIEW
    },
    Resource {
        group: "authorization.k8s.io",
        kind: "LocalSubjectAccessReview",
        plural: "localsubjectaccessreviews",
        singular: "localsubjectaccessreview",
        namespaced: true,
        type_name: "authorization/v1.LocalSubjectAccessReview",
        ..REVIEW
    },
    Resource {
        group: "authorization.k8s.io",
        kind: "SelfSubjectAccessReview",
        plural: "selfsubjectaccessreviews",
        singular: "selfsubjectaccessreview",
        type_name: "authorization/v1.SelfSubjectAccessReview",
        ..REVIEW
    },
    Resource {
        group: "authorization.k8s.io",
        kind: "SelfSubjectRulesReview",
        plural: "selfsubjectrulesreviews",
        singular: "selfsubjectrulesreview",
        type_name: "authorization/v1.SelfSubjectRulesReview",
        ..REVIEW
    },
    Resource {
        group: "authorization.k8s.io",
        kind: "SubjectAccessReview",
        plural: "subjectaccessreviews",
        singular: "subjectaccessreview",
        type_name: "authorization/v1.SubjectAccessReview",
        ..REVIEW
    },
    Resource {
        group: "policy",
        kind: "PodDisruptionBudget",
        plural: "poddisruptionbudgets",
        singular: "poddisruptionbudget",
        short_names: &["pdb"],
        subresources: &[status("PodDisruptionBudget")],
        type_name: "policy/v1.PodDisruptionBudget",
        storage: "poddisruptionbudgets",
        strategy: &disruption_budget::PodDisruptionBudget,
        returns_deleted: true,
        unconditional_put: false,
        ..BASE
    },
    Resource {
        group: "rbac.authorization.k8s.io",
        kind: "ClusterRoleBinding",
        plural: "clusterrolebindings",
        singular: "clusterrolebinding",
        namespaced: false,
        type_name: "rbac/v1.ClusterRoleBinding",
        storage: "clusterrolebindings",
        strategy: &rbac::Binding,
        put_creates: true,
        ..BASE
    },
    Resource {
        group: "rbac.authorization.k8s.io",
        kind: "ClusterRole",
        plural: "clusterroles",
        singular: "clusterrole",
        namespaced: false,
        type_name: "rbac/v1.ClusterRole",
        storage: "clusterroles",
        strategy: &rbac::Role,
        put_creates: true,
        ..BASE
    },
    Resource {
        group: "rbac.authorization.k8s.io",
        kind: "RoleBinding",
        plural: "rolebindings",
        singular: "rolebinding",
        type_name: "rbac/v1.RoleBinding",
        storage: "rolebindings",
        strategy: &rbac::Binding,
        put_creates: true,
        ..BASE
    },
    Resource {
        group: "rbac.authorization.k8s.io",
        kind: "Role",
        plural: "roles",
        singular: "role",
        type_name: "rbac/v1.Role",
        storage: "roles",
        strategy: &rbac::Role,
        put_creates: true,
        ..BASE
    },
    Resource {
        group: "coordination.k8s.io",
        kind: "Lease",
        plural: "leases",
        singular: "lease",
        type_name: "coordination/v1.Lease",
        storage: "leases",
        strategy: &lease::Lease,
        put_creates: true,
        unconditional_put: false,
        ..BASE
    },
    Resource {
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        plural: "endpointslices",
        singular: "endpointslice",
        type_name: "discovery/v1.EndpointSlice",
        storage: "endpointslices",
        strategy: &endpoints::EndpointSlice,
        ..BASE
    },
];
