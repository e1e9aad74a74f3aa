//! A look at a cluster before anything is done in it: whether it can be reached, what is allowed, and who else is at work.
//!
//! Nothing here changes anything.

mod objects;
mod reach;

use bowline_core::with_causes;
use http::{Request, StatusCode};
use serde_json::{Value, json};

use crate::access::Access;
use crate::accounts::NAMESPACE as ACCOUNTS;
use crate::permissions::{Permission, Scope};

pub use objects::{SeenLease, SeenNode, SeenService, Writer};
pub use reach::{ConnectFailure, Server};

/// How many objects a page of a list has.
const PAGE: usize = 500;

/// Looks at the cluster that this leads to.
pub struct Preflight {
    access: Access,
    client: kube::Client,
}

/// Why something could not be seen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// That is not allowed.
    #[error("{0}")]
    Forbidden(String),
    /// Something went wrong.
    #[error("{0}")]
    Failed(String),
}

impl Preflight {
    /// On this way.
    pub fn new(access: Access) -> Preflight {
        Preflight { client: access.client(), access }
    }

    /// Whether the API server answers, and who it takes this process for.
    pub async fn server(&self) -> Result<Server, ConnectFailure> {
        reach::server(&self.access.address(), &self.client).await
    }

    /// Whether this process may do this: the answer for each verb.
    pub async fn may(&self, permission: &Permission, verb: &str) -> Result<bool, ReadError> {
        self.review("selfsubjectaccessreviews", "SelfSubjectAccessReview", json!({}), permission, verb).await
    }

    /// Whether the controller of this name may do this with its own service account.
    pub async fn controller_may(&self, name: &str, permission: &Permission, verb: &str) -> Result<bool, ReadError> {
        let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{ACCOUNTS}"), "system:authenticated"];
        let who = json!({"user": format!("system:serviceaccount:{ACCOUNTS}:{name}"), "groups": groups});
        self.review("subjectaccessreviews", "SubjectAccessReview", who, permission, verb).await
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
        let answer = self.ask(request).await?;
        Ok(answer.pointer("/status/allowed").and_then(Value::as_bool).unwrap_or(false))
    }

    /// All nodes.
    pub async fn nodes(&self) -> Result<Vec<SeenNode>, ReadError> {
        Ok(self.list("/api/v1/nodes").await?.iter().map(SeenNode::read).collect())
    }

    /// All Services of type LoadBalancer.
    pub async fn load_balancer_services(&self) -> Result<Vec<SeenService>, ReadError> {
        Ok(self.list("/api/v1/services").await?.iter().filter_map(SeenService::read).collect())
    }

    /// All leases of a namespace.
    pub async fn leases(&self, namespace: &str) -> Result<Vec<SeenLease>, ReadError> {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        Ok(self.list(&path).await?.iter().map(SeenLease::read).collect())
    }

    /// The lease of this name, which may be allowed where a list is not.
    pub async fn lease(&self, namespace: &str, name: &str) -> Result<Option<SeenLease>, ReadError> {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
        let request = Request::get(path).body(Vec::new());
        match self.client.request::<Value>(request.map_err(|error| ReadError::Failed(error.to_string()))?).await {
            Ok(lease) => Ok(Some(SeenLease::read(&lease))),
            Err(kube::Error::Api(status)) if status.code == StatusCode::NOT_FOUND.as_u16() => Ok(None),
            Err(error) => Err(unseen(&error)),
        }
    }

    async fn list(&self, path: &str) -> Result<Vec<Value>, ReadError> {
        let (mut items, mut token) = (Vec::new(), String::new());
        loop {
            let uri = format!("{path}?limit={PAGE}&continue={token}");
            let mut page = self.ask(Request::get(uri).body(Vec::new())).await?;
            if let Some(Value::Array(found)) = page.get_mut("items").map(Value::take) {
                items.extend(found);
            }
            match page.pointer("/metadata/continue").and_then(Value::as_str) {
                Some(next) if !next.is_empty() => token = next.to_owned(),
                _ => return Ok(items),
            }
        }
    }

    async fn ask(&self, request: http::Result<Request<Vec<u8>>>) -> Result<Value, ReadError> {
        let request = request.map_err(|error| ReadError::Failed(error.to_string()))?;
        self.client.request(request).await.map_err(|error| unseen(&error))
    }
}

fn unseen(error: &kube::Error) -> ReadError {
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
