//! Writes to the API server, each one a single targeted request (W-1 to W-10).

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

use crate::permissions::Permission;
use crate::retry::{Failure, send_with_retry};
use crate::wire::{Wire, WireNode, WireService};

metrics! {
    /// Metrics of writes.
    pub(crate) METRICS;
    WRITES = Metric::counter("bowline_api_writes_total", "Writes to the API server, by verb, resource and result.")
        .labels(&["verb", "resource", "result"]);
}

pub use events::SeenEvent;

/// Reason why a write failed.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The object has changed since it was read: read it again and decide again.
    #[error("{0}")]
    Conflict(String),
    /// The object is gone, or another object has its name.
    #[error("{0}")]
    NotFound(String),
    /// The API server rejected the request and wrote nothing. A retry fails until something changes.
    #[error("{message}")]
    Rejected {
        /// HTTP status.
        code: u16,
        /// Message of the API server.
        message: String,
    },
    /// The API server is unreachable, failing or overloaded after several attempts; or it rejected the request after an attempt
    /// without an answer, which may have been executed.
    #[error("{0}")]
    Unavailable(String),
}

/// Kubernetes cluster: targeted writes, and reads that bypass the store.
#[derive(Clone)]
pub struct Cluster {
    client: kube::Client,
    /// `bowline_api_writes_total`, by verb, resource and result.
    writes: Option<IntCounterVec>,
    shutdown: Shutdown,
    dry_run: bool,
}

impl Cluster {
    /// Writes with this client.
    pub fn new(client: kube::Client) -> Cluster {
        Cluster { client, writes: None, shutdown: Shutdown::new(), dry_run: false }
    }

    /// Writes with this client and counts the writes in `bowline_api_writes_total`.
    pub fn with_metrics(client: kube::Client, registry: &Registry) -> prometheus::Result<Cluster> {
        Ok(Cluster { writes: Some(WRITES.register(registry)?), ..Cluster::new(client) })
    }

    /// Replaces the client.
    pub fn with_client(self, client: kube::Client) -> Cluster {
        Cluster { client, ..self }
    }

    /// Stops retries once shutdown is requested; a request in flight is finished.
    pub fn with_shutdown(self, shutdown: Shutdown) -> Cluster {
        Cluster { shutdown, ..self }
    }

    /// Sends every write with `dryRun=All`: the API server validates it and persists nothing. Each write is logged, and returns
    /// the object as it would be.
    pub fn dry_run(self, dry_run: bool) -> Cluster {
        Cluster { dry_run, ..self }
    }

    /// Whether writes are only validated.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Permission for [`Cluster::node`].
    pub const READ_NODE: Permission =
        Permission::core("nodes", &["get"], "read a Node again after the API server rejected a write");

    /// Reads the Node from the API server, not from the store; `None` if there is none.
    pub async fn node(&self, name: &NodeName) -> Result<Option<Node>, WriteError> {
        let request = nodes().get(name.as_str(), &GetParams::default()).map_err(invalid_request)?;
        match self.send_read(&request).await {
            Ok(body) => parse::<WireNode>(&body).map(Some),
            Err(WriteError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Permission for [`Cluster::initialize`].
    pub const INITIALIZE: Permission =
        Permission::core("nodes", &["patch"], "initialise a Node: provider ID, labels, annotations, taints");

    /// Initialises a Node: writes provider ID, labels, annotations and taints in one request that fails if the Node has changed
    /// (W-1).
    pub async fn initialize(&self, change: &NodeChange) -> Result<Node, WriteError> {
        self.patch_node(&change.node, patches::initialization(change)).await
    }

    /// Permission for [`Cluster::set_addresses`].
    pub const SET_ADDRESSES: Permission =
        Permission::core("nodes/status", &["patch"], "write the addresses of a machine");

    /// Replaces the addresses (W-2).
    pub async fn set_addresses(&self, node: &NodeName, addresses: &[Address]) -> Result<Node, WriteError> {
        let patch = Patch::Strategic(patches::addresses(addresses));
        let request = nodes().patch_subresource("status", node.as_str(), &self.patch_params(), &patch);
        self.write_node(("patch", "nodes/status"), &request.map_err(invalid_request)?).await
    }

    /// Permission for [`Cluster::set_labels`].
    pub const SET_LABELS: Permission =
        Permission::core("nodes", &["patch"], "keep deprecated and current labels in sync");

    /// Sets these labels and leaves all other labels (W-3).
    pub async fn set_labels(&self, node: &NodeName, labels: &BTreeMap<String, String>) -> Result<Node, WriteError> {
        self.patch_node(node, json!({"metadata": {"labels": labels}})).await
    }

    /// Permission for [`Cluster::set_annotations`].
    pub const SET_ANNOTATIONS: Permission =
        Permission::core("nodes", &["patch"], "keep the cloud's annotations of a Node up to date");

    /// Sets or removes these annotations and leaves all other annotations, if the Node still has this UID.
    pub async fn set_annotations(&self, node: &Node, values: &AnnotationValues) -> Result<Node, WriteError> {
        self.patch_node(&node.name, json!({"metadata": {"uid": node.uid, "annotations": values}})).await
    }

    /// Sets annotations as [`set_annotations`](Cluster::set_annotations) does, and these labels, in one request.
    pub async fn set_metadata(
        &self,
        node: &Node,
        annotations: &AnnotationValues,
        labels: &BTreeMap<String, String>,
    ) -> Result<Node, WriteError> {
        let metadata = json!({"uid": node.uid, "annotations": annotations, "labels": labels});
        self.patch_node(&node.name, json!({"metadata": metadata})).await
    }

    /// Permission for [`Cluster::set_taints`].
    pub const SET_TAINTS: Permission =
        Permission::core("nodes", &["patch"], "taint the Node of a machine that is shut down");

    /// Replaces the taints, if the Node still has this resource version (W-4).
    pub async fn set_taints(
        &self,
        node: &NodeName,
        resource_version: &str,
        taints: &[Taint],
    ) -> Result<Node, WriteError> {
        let version = json!({"resourceVersion": resource_version});
        self.patch_node(node, json!({"metadata": version, "spec": {"taints": taints}})).await
    }

    /// Permission for [`Cluster::set_pod_cidrs`].
    pub const SET_POD_CIDRS: Permission = Permission::core("nodes", &["patch"], "set the pod CIDRs of a Node");

    /// Sets the pod CIDRs, if the Node still has this UID (W-9).
    pub async fn set_pod_cidrs(&self, node: &Node, pod_cidrs: &[IpNet]) -> Result<Node, WriteError> {
        self.patch_node(&node.name, patches::pod_cidrs(node, pod_cidrs)).await
    }

    /// Permission for [`Cluster::set_network`].
    pub const SET_NETWORK: Permission =
        Permission::core("nodes/status", &["patch"], "set the NetworkUnavailable condition of a Node");

    /// Sets the `NetworkUnavailable` condition and leaves all other conditions, if the Node still has this UID (W-5).
    pub async fn set_network(&self, node: &Node, network: &NetworkStatus, now: Timestamp) -> Result<Node, WriteError> {
        let patch = Patch::Strategic(patches::network(node, network, now));
        let request = nodes().patch_subresource("status", node.name.as_str(), &self.patch_params(), &patch);
        self.write_node(("patch", "nodes/status"), &request.map_err(invalid_request)?).await
    }

    /// Permission for [`Cluster::delete_node`].
    pub const DELETE_NODE: Permission =
        Permission::core("nodes", &["delete"], "delete the Node of a machine that is gone");

    /// Deletes the Node, if it still has this UID (W-10). Succeeds if the Node is already gone.
    pub async fn delete_node(&self, node: &NodeName, uid: &str) -> Result<(), WriteError> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params =
            DeleteParams { preconditions: Some(preconditions), dry_run: self.dry_run, ..DeleteParams::default() };
        let request = nodes().delete(node.as_str(), &params).map_err(invalid_request)?;
        match self.write(("delete", "nodes"), &request).await {
            Ok(_) | Err(WriteError::NotFound(_)) => Ok(()),
            // The UID is the only precondition: the Node is gone, and another one has its name.
            Err(WriteError::Conflict(message)) => Err(WriteError::NotFound(message)),
            Err(error) => Err(error),
        }
    }

    /// Permission for [`Cluster::change_service`].
    pub const CHANGE_SERVICE: Permission = Permission::core(
        "services/status",
        &["patch"],
        "write the addresses, the finalizer, conditions and the cloud's annotations of a Service",
    );

    /// Applies this change with one patch of the `status` subresource (W-6 to W-8). The copy of the Service may be stale: the patch
    /// never touches the spec and has no resource version. It fails if another Service has the name.
    pub async fn change_service(&self, service: &Service, change: &ServiceChange) -> Result<Service, WriteError> {
        if change.is_empty() {
            return Ok(service.clone());
        }
        let patch = Patch::Strategic(patches::service(service, change));
        let services = kube::core::Request::new(WireService::url_path(&(), Some(&service.namespace)));
        let request = services.patch_subresource("status", &service.name, &self.patch_params(), &patch);
        parse::<WireService>(&self.write(("patch", "services/status"), &request.map_err(invalid_request)?).await?)
    }

    async fn patch_node(&self, node: &NodeName, patch: Value) -> Result<Node, WriteError> {
        let request = nodes().patch(node.as_str(), &self.patch_params(), &Patch::Strategic(patch));
        self.write_node(("patch", "nodes"), &request.map_err(invalid_request)?).await
    }

    fn patch_params(&self) -> PatchParams {
        PatchParams { dry_run: self.dry_run, ..PatchParams::default() }
    }

    async fn write_node(&self, what: (&str, &str), request: &Request<Vec<u8>>) -> Result<Node, WriteError> {
        parse::<WireNode>(&self.write(what, request).await?)
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
        let result = send_with_retry(&self.client, request, &self.shutdown).instrument(span.clone()).await;
        let result = result.map_err(WriteError::of_write);
        if let Err(error) = &result {
            span.record("error", display(error));
        }
        if let Some(writes) = &self.writes {
            let done = if self.dry_run { "dry_run" } else { "success" };
            let label = result.as_ref().map_or_else(WriteError::label, |_| done);
            writes.with_label_values(&[verb, resource, label]).inc();
        }
        result
    }

    pub(crate) async fn send_read(&self, request: &Request<Vec<u8>>) -> Result<Vec<u8>, WriteError> {
        send_with_retry(&self.client, request, &self.shutdown).await.map_err(WriteError::from)
    }
}

fn nodes() -> kube::core::Request {
    kube::core::Request::new(WireNode::url_path(&(), None))
}

fn parse<W: Wire>(body: &[u8]) -> Result<W::Domain, WriteError> {
    let object = serde_json::from_slice::<W>(body).map_err(|error| error.to_string());
    let object = object.and_then(|object| object.into_domain().ok_or_else(|| "it has no name".to_owned()));
    let kind = W::kind(&());
    object.map_err(|why| WriteError::Unavailable(format!("the API server returned an invalid {kind}: {why}")))
}

/// Error for a request that cannot be built, for instance because a name is not a valid path segment.
pub(crate) fn invalid_request(error: kube::core::request::Error) -> WriteError {
    WriteError::Rejected { code: StatusCode::BAD_REQUEST.as_u16(), message: error.to_string() }
}

impl WriteError {
    /// A rejection after an attempt without an answer is not final: the API server may have executed that attempt.
    fn of_write(failure: Failure) -> WriteError {
        let outcome_unknown = matches!(failure, Failure::Answered { outcome_unknown: true, .. });
        match WriteError::from(failure) {
            WriteError::Rejected { message, .. } if outcome_unknown => {
                WriteError::Unavailable(format!("{message}; an earlier attempt may have been executed"))
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
            Failure::NoAnswer(why) => WriteError::Unavailable(format!("no answer from the API server: {why}")),
            // A UID never changes, so another object has the name.
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
