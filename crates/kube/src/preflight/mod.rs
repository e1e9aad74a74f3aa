//! Preflight checks of a cluster: connection, permissions, and other managers. Read-only.

mod objects;
mod server;

use bowline_core::with_causes;
use http::{Request, StatusCode};
use serde_json::{Value, json};

use crate::access::Access;
use crate::accounts::NAMESPACE as ACCOUNTS;
use crate::permissions::{Permission, Scope};

pub use objects::{SeenLease, SeenNode, SeenService, Writer};
pub use server::{ConnectFailure, Server};

/// Objects per page of a list.
const PAGE: usize = 500;

/// Reads the state of a cluster for preflight checks.
pub struct Preflight {
    access: Access,
    client: kube::Client,
}

/// Reason why a read failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The permission is missing.
    #[error("{0}")]
    Forbidden(String),
    /// Any other error.
    #[error("{0}")]
    Failed(String),
}

impl Preflight {
    /// Uses this access to the API server.
    pub fn new(access: Access) -> Preflight {
        Preflight { client: access.client(), access }
    }

    /// Reads the version of the API server and the user it authenticates this process as.
    pub async fn server(&self) -> Result<Server, ConnectFailure> {
        server::query(&self.access.address(), &self.client).await
    }

    /// Whether this process has the permission for this verb.
    pub async fn may(&self, permission: &Permission, verb: &str) -> Result<bool, ReadError> {
        self.review("selfsubjectaccessreviews", "SelfSubjectAccessReview", json!({}), permission, verb).await
    }

    /// Whether the service account of this controller has the permission for this verb.
    pub async fn controller_may(&self, name: &str, permission: &Permission, verb: &str) -> Result<bool, ReadError> {
        let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{ACCOUNTS}"), "system:authenticated"];
        let subject = json!({"user": format!("system:serviceaccount:{ACCOUNTS}:{name}"), "groups": groups});
        self.review("subjectaccessreviews", "SubjectAccessReview", subject, permission, verb).await
    }

    async fn review(
        &self,
        resource: &str,
        kind: &str,
        mut spec: Value,
        permission: &Permission,
        verb: &str,
    ) -> Result<bool, ReadError> {
        if let Some(spec) = spec.as_object_mut() {
            spec.insert("resourceAttributes".to_owned(), attributes(permission, verb));
        }
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec});
        let request = Request::post(format!("/apis/authorization.k8s.io/v1/{resource}"))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(review.to_string().into_bytes());
        let review = self.send(request).await?;
        Ok(review.pointer("/status/allowed").and_then(Value::as_bool).unwrap_or(false))
    }

    /// Lists all Nodes.
    pub async fn nodes(&self) -> Result<Vec<SeenNode>, ReadError> {
        Ok(self.list("/api/v1/nodes").await?.iter().map(SeenNode::read).collect())
    }

    /// Lists all Services of type LoadBalancer.
    pub async fn load_balancer_services(&self) -> Result<Vec<SeenService>, ReadError> {
        Ok(self.list("/api/v1/services").await?.iter().filter_map(SeenService::read).collect())
    }

    /// Lists all Leases of a namespace.
    pub async fn leases(&self, namespace: &str) -> Result<Vec<SeenLease>, ReadError> {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        Ok(self.list(&path).await?.iter().map(SeenLease::read).collect())
    }

    /// Reads one Lease, which RBAC may allow where it denies a list.
    pub async fn lease(&self, namespace: &str, name: &str) -> Result<Option<SeenLease>, ReadError> {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
        let request = Request::get(path).body(Vec::new());
        match self.client.request::<Value>(request.map_err(|error| ReadError::Failed(error.to_string()))?).await {
            Ok(lease) => Ok(Some(SeenLease::read(&lease))),
            Err(kube::Error::Api(status)) if status.code == StatusCode::NOT_FOUND.as_u16() => Ok(None),
            Err(error) => Err(to_read_error(&error)),
        }
    }

    async fn list(&self, path: &str) -> Result<Vec<Value>, ReadError> {
        let (mut items, mut token) = (Vec::new(), String::new());
        loop {
            let uri = format!("{path}?limit={PAGE}&continue={token}");
            let mut page = self.send(Request::get(uri).body(Vec::new())).await?;
            if let Some(Value::Array(found)) = page.get_mut("items").map(Value::take) {
                items.extend(found);
            }
            match page.pointer("/metadata/continue").and_then(Value::as_str) {
                Some(next) if !next.is_empty() => token = next.to_owned(),
                _ => return Ok(items),
            }
        }
    }

    async fn send(&self, request: http::Result<Request<Vec<u8>>>) -> Result<Value, ReadError> {
        let request = request.map_err(|error| ReadError::Failed(error.to_string()))?;
        self.client.request(request).await.map_err(|error| to_read_error(&error))
    }
}

fn to_read_error(error: &kube::Error) -> ReadError {
    match error {
        kube::Error::Api(status) if status.code == StatusCode::FORBIDDEN.as_u16() => {
            ReadError::Forbidden(status.message.clone())
        }
        error => ReadError::Failed(with_causes(error)),
    }
}

fn attributes(permission: &Permission, verb: &str) -> Value {
    let (resource, subresource) = permission.resource.split_once('/').unwrap_or((permission.resource, ""));
    let (namespace, name) = match &permission.scope {
        Scope::Cluster => ("", ""),
        Scope::Namespace(namespace) => (&**namespace, ""),
        Scope::Named(namespace, name) => (&**namespace, &**name),
    };
    json!({
        "group": permission.group, "resource": resource, "subresource": subresource, "verb": verb,
        "namespace": namespace, "name": name,
    })
}
