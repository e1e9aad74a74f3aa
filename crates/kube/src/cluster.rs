//! Writing to the API server: each write is one targeted request (W-1 to W-10).

mod events;
mod list;
mod patches;

use std::collections::BTreeMap;

use bowline_core::initialize::NodeChange;
use bowline_core::node_annotations::AnnotationValues;
use bowline_core::routes::NetworkStatus;
use bowline_core::service::ServiceChange;
use bowline_core::{Address, Node, NodeName, Service, Taint};
use bowline_runtime::{Metric, Shutdown, metrics};
use http::{Request, StatusCode};
use ipnet::IpNet;
use jiff::Timestamp;
use kube::Resource;
use kube::api::{DeleteParams, GetParams, Patch, PatchParams, Preconditions};
use prometheus::{IntCounterVec, Registry};
use serde_json::{Value, json};
use tracing::Instrument as _;
use tracing::field::{Empty, display};

use crate::exchange::{Failure, exchange};
use crate::permissions::Permission;
use crate::wire::{Wire, WireNode, WireService};

metrics! {
    /// What writers count.
    pub(crate) METRICS;
    WRITES = Metric::counter("bowline_api_writes_total", "Writes to the API server, by verb, resource and how they ended.")
        .labels(&["verb", "resource", "result"]);
}

pub use events::SeenEvent;

/// Why a write did not happen.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The object has changed since it was read: read again, decide again.
    #[error("{0}")]
    Conflict(String),
    /// The object is gone, or is another one of the same name.
    #[error("{0}")]
    NotFound(String),
    /// The API server refuses, and nothing was written; trying the same again is no use before something changes.
    #[error("{message}")]
    Rejected {
        /// The HTTP status.
        code: u16,
        /// What the API server says.
        message: String,
    },
    /// The API server cannot be reached, or is broken or too busy, after several tries; or it refuses, but an earlier try
    /// that had no answer may have been carried out.
    #[error("{0}")]
    Unavailable(String),
}

/// The cluster, for writing.
#[derive(Clone)]
pub struct Cluster {
    client: kube::Client,
    /// By verb, resource and result.
    writes: Option<IntCounterVec>,
    shutdown: Shutdown,
    dry_run: bool,
}

impl Cluster {
    /// Writes through this client.
    pub fn new(client: kube::Client) -> Cluster {
        Cluster { client, writes: None, shutdown: Shutdown::new(), dry_run: false }
    }

    /// Writes through this client, and counts the writes in `bowline_api_writes_total`.
    pub fn with_metrics(client: kube::Client, registry: &Registry) -> prometheus::Result<Cluster> {
        Ok(Cluster { writes: Some(WRITES.register(registry)?), ..Cluster::new(client) })
    }

    /// The same, but through this client.
    pub fn through(self, client: kube::Client) -> Cluster {
        Cluster { client, ..self }
    }

    /// Once this is requested, a write that is under way is finished, and one that waits for its next try is given up.
    pub fn until(self, shutdown: Shutdown) -> Cluster {
        Cluster { shutdown, ..self }
    }

    /// Everything is sent with `dryRun=All`: the API server checks it and changes nothing. What would be written is logged,
    /// and what a write returns is the object as it would be.
    pub fn dry_run(self, dry_run: bool) -> Cluster {
        Cluster { dry_run, ..self }
    }

    /// Nothing that is written is kept.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// For [`Cluster::node`].
    pub const READ_NODE: Permission =
        Permission::core("nodes", &["get"], "to read a Node again when a write was refused");

    /// The Node as it is now, not as it was last heard of; `None` if there is none.
    pub async fn node(&self, name: &NodeName) -> Result<Option<Node>, WriteError> {
        let request = nodes().get(name.as_str(), &GetParams::default()).map_err(unsendable)?;
        match self.ask(&request).await {
            Ok(body) => read::<WireNode>(&body).map(Some),
            Err(WriteError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// For [`Cluster::initialize`].
    pub const INITIALIZE: Permission =
        Permission::core("nodes", &["patch"], "to initialise a Node: provider ID, labels, annotations, taints");

    /// Initialises a Node: provider ID, labels, annotations and taints in one request that fails if the Node has changed (W-1).
    pub async fn initialize(&self, change: &NodeChange) -> Result<Node, WriteError> {
        self.patch_node(&change.node, patches::initialization(change)).await
    }

    /// For [`Cluster::set_addresses`].
    pub const SET_ADDRESSES: Permission =
        Permission::core("nodes/status", &["patch"], "to write the addresses of a machine");

    /// Replaces the addresses (W-2).
    pub async fn set_addresses(&self, node: &NodeName, addresses: &[Address]) -> Result<Node, WriteError> {
        let patch = Patch::Strategic(patches::addresses(addresses));
        let request = nodes().patch_subresource("status", node.as_str(), &self.patch_params(), &patch);
        self.write_node(("patch", "nodes/status"), &request.map_err(unsendable)?).await
    }

    /// For [`Cluster::set_labels`].
    pub const SET_LABELS: Permission =
        Permission::core("nodes", &["patch"], "to keep old and new names of labels in step");

    /// Sets these labels and leaves the others (W-3).
    pub async fn set_labels(&self, node: &NodeName, labels: &BTreeMap<String, String>) -> Result<Node, WriteError> {
        self.patch_node(node, json!({"metadata": {"labels": labels}})).await
    }

    /// For [`Cluster::set_annotations`].
    pub const SET_ANNOTATIONS: Permission =
        Permission::core("nodes", &["patch"], "to keep the annotations up to date that a cloud has for a Node");

    /// Sets or removes these annotations and leaves the others, if the Node is still the one with this UID.
    pub async fn set_annotations(&self, node: &Node, values: &AnnotationValues) -> Result<Node, WriteError> {
        self.patch_node(&node.name, json!({"metadata": {"uid": node.uid, "annotations": values}})).await
    }

    /// For [`Cluster::set_taints`].
    pub const SET_TAINTS: Permission =
        Permission::core("nodes", &["patch"], "to taint the Node of a machine that is shut down");

    /// Replaces the taints, if the Node is still at this version (W-4).
    pub async fn set_taints(
        &self,
        node: &NodeName,
        resource_version: &str,
        taints: &[Taint],
    ) -> Result<Node, WriteError> {
        let version = json!({"resourceVersion": resource_version});
        self.patch_node(node, json!({"metadata": version, "spec": {"taints": taints}})).await
    }

    /// For [`Cluster::set_pod_cidrs`].
    pub const SET_POD_CIDRS: Permission = Permission::core("nodes", &["patch"], "to give a Node its pod ranges");

    /// Gives the Node its pod ranges, if it is still the one with this UID (W-9).
    pub async fn set_pod_cidrs(&self, node: &Node, ranges: &[IpNet]) -> Result<Node, WriteError> {
        self.patch_node(&node.name, patches::pod_cidrs(node, ranges)).await
    }

    /// For [`Cluster::set_network`].
    pub const SET_NETWORK: Permission =
        Permission::core("nodes/status", &["patch"], "to say whether the network of a Node is available");

    /// Sets the Node's `NetworkUnavailable` condition and leaves the others, if it is still the one with this UID (W-5).
    pub async fn set_network(&self, node: &Node, network: &NetworkStatus, now: Timestamp) -> Result<Node, WriteError> {
        let patch = Patch::Strategic(patches::network(node, network, now));
        let request = nodes().patch_subresource("status", node.name.as_str(), &self.patch_params(), &patch);
        self.write_node(("patch", "nodes/status"), &request.map_err(unsendable)?).await
    }

    /// For [`Cluster::delete_node`].
    pub const DELETE_NODE: Permission =
        Permission::core("nodes", &["delete"], "to delete the Node of a machine that is gone");

    /// Deletes the Node, if it is still the one with this UID (W-10). A Node that is gone already counts as deleted.
    pub async fn delete_node(&self, node: &NodeName, uid: &str) -> Result<(), WriteError> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params =
            DeleteParams { preconditions: Some(preconditions), dry_run: self.dry_run, ..DeleteParams::default() };
        let request = nodes().delete(node.as_str(), &params).map_err(unsendable)?;
        match self.write(("delete", "nodes"), &request).await {
            Ok(_) | Err(WriteError::NotFound(_)) => Ok(()),
            // The UID is all that a deletion can conflict about: our Node is gone, and this is another one.
            Err(WriteError::Conflict(message)) => Err(WriteError::NotFound(message)),
            Err(error) => Err(error),
        }
    }

    /// For [`Cluster::change_service`].
    pub const CHANGE_SERVICE: Permission = Permission::core(
        "services/status",
        &["patch"],
        "to write the address, the finalizer, conditions and what a cloud notes in the annotations of a Service",
    );

    /// Writes this change to the Service, of which an old copy will do: one patch of its `status` subresource, which never
    /// touches its spec and succeeds whatever others have changed meanwhile (W-6 to W-8). Another Service of the same name
    /// is not written to.
    pub async fn change_service(&self, service: &Service, change: &ServiceChange) -> Result<Service, WriteError> {
        if change.is_empty() {
            return Ok(service.clone());
        }
        let patch = Patch::Strategic(patches::service(service, change));
        let services = kube::core::Request::new(WireService::url_path(&(), Some(&service.namespace)));
        let request = services.patch_subresource("status", &service.name, &self.patch_params(), &patch);
        read::<WireService>(&self.write(("patch", "services/status"), &request.map_err(unsendable)?).await?)
    }

    async fn patch_node(&self, node: &NodeName, patch: Value) -> Result<Node, WriteError> {
        let request = nodes().patch(node.as_str(), &self.patch_params(), &Patch::Strategic(patch));
        self.write_node(("patch", "nodes"), &request.map_err(unsendable)?).await
    }

    fn patch_params(&self) -> PatchParams {
        PatchParams { dry_run: self.dry_run, ..PatchParams::default() }
    }

    async fn write_node(&self, what: (&str, &str), request: &Request<Vec<u8>>) -> Result<Node, WriteError> {
        read::<WireNode>(&self.write(what, request).await?)
    }

    pub(crate) async fn write(
        &self,
        (verb, resource): (&str, &str),
        request: &Request<Vec<u8>>,
    ) -> Result<Vec<u8>, WriteError> {
        if self.dry_run {
            tracing::info!("dry run: {verb} {}: {}", request.uri().path(), String::from_utf8_lossy(request.body()));
        }
        let span = tracing::info_span!("write", otel.kind = "client", verb, resource, code = Empty, error = Empty);
        let answer = exchange(&self.client, request, &self.shutdown).instrument(span.clone()).await;
        let answer = answer.map_err(WriteError::of_write);
        if let Err(error) = &answer {
            span.record("error", display(error));
        }
        if let Some(writes) = &self.writes {
            let done = if self.dry_run { "dry_run" } else { "success" };
            let result = answer.as_ref().map_or_else(WriteError::label, |_| done);
            writes.with_label_values(&[verb, resource, result]).inc();
        }
        answer
    }

    pub(crate) async fn ask(&self, request: &Request<Vec<u8>>) -> Result<Vec<u8>, WriteError> {
        exchange(&self.client, request, &self.shutdown).await.map_err(WriteError::from)
    }
}

fn nodes() -> kube::core::Request {
    kube::core::Request::new(WireNode::url_path(&(), None))
}

fn read<W: Wire>(body: &[u8]) -> Result<W::Kept, WriteError> {
    let object = serde_json::from_slice::<W>(body).map_err(|error| error.to_string());
    let object = object.and_then(|object| object.kept().ok_or_else(|| "it has no name".to_owned()));
    let kind = W::kind(&());
    object.map_err(|why| WriteError::Unavailable(format!("the API server's answer is not a {kind}: {why}")))
}

/// A request that cannot be put together, for instance because a name is no path segment.
pub(crate) fn unsendable(error: kube::core::request::Error) -> WriteError {
    WriteError::Rejected { code: StatusCode::BAD_REQUEST.as_u16(), message: error.to_string() }
}

impl WriteError {
    /// A refusal says nothing of an earlier try whose answer was lost: that one may have been carried out.
    fn of_write(failure: Failure) -> WriteError {
        let in_doubt = matches!(failure, Failure::Answered { in_doubt: true, .. });
        match WriteError::from(failure) {
            WriteError::Rejected { message, .. } if in_doubt => {
                WriteError::Unavailable(format!("{message}; an earlier try may have been carried out"))
            }
            error => error,
        }
    }

    fn label(&self) -> &'static str {
        match self {
            WriteError::Conflict(_) => "conflict",
            WriteError::NotFound(_) => "not_found",
            WriteError::Rejected { .. } => "rejected",
            WriteError::Unavailable(_) => "unavailable",
        }
    }
}

impl From<Failure> for WriteError {
    fn from(failure: Failure) -> WriteError {
        match failure {
            Failure::PendingCreates(why) => WriteError::Unavailable(format!("cannot reach the API server: {why}")),
            // The UID never changes, so that it is another object of the same name is all that can be wrong with it.
            Failure::Answered { message, fields, .. } if fields.iter().any(|field| field == "metadata.uid") => {
                WriteError::NotFound(message)
            }
            Failure::Answered { code, message, .. } => match code {
                StatusCode::CONFLICT => WriteError::Conflict(message),
                StatusCode::NOT_FOUND => WriteError::NotFound(message),
                StatusCode::TOO_MANY_REQUESTS => WriteError::Unavailable(message),
                code if code.is_server_error() => WriteError::Unavailable(message),
                code => WriteError::Rejected { code: code.as_u16(), message },
            },
        }
    }
}
