//! Reading once, without a watch: for commands that look, tell and end, and for controllers that have to be sure.

use std::borrow::Cow;
use std::sync::Arc;

use bowline_core::{Node, Service, ServiceKey};
use http::StatusCode;
use k8s_openapi::api::core::v1::Namespace;
use kube::Resource;
use kube::api::{GetParams, ListParams};
use serde::Deserialize;

use super::{Cluster, WriteError, read, unsendable};
use crate::permissions::{Permission, Scope};
use crate::wire::{Wire, WireNode, WireService};

const KUBE_SYSTEM: &str = "kube-system";

/// Objects per page.
const PAGE: u32 = 500;

/// How often a list is begun again because the API server has forgotten where it stood.
const BEGINNINGS: u32 = 3;

/// A page of a list.
#[derive(Deserialize)]
struct Page<W> {
    #[serde(default)]
    metadata: PageMetadata,
    items: Vec<W>,
}

#[derive(Default, Deserialize)]
struct PageMetadata {
    #[serde(rename = "continue", default)]
    next: Option<String>,
}

/// An object with its UID.
#[derive(Deserialize)]
struct Identified {
    metadata: IdentifiedMetadata,
}

#[derive(Deserialize)]
struct IdentifiedMetadata {
    uid: String,
}

impl Cluster {
    /// For [`Cluster::list_nodes`].
    pub const LIST_NODES: Permission =
        Permission::core("nodes", &["list"], "to make sure of Nodes that seem to be gone");

    /// All Nodes, as they are now.
    pub async fn list_nodes(&self) -> Result<Vec<Arc<Node>>, WriteError> {
        self.list::<WireNode>().await
    }

    /// All Services, as they are now.
    pub async fn list_services(&self) -> Result<Vec<Arc<Service>>, WriteError> {
        self.list::<WireService>().await
    }

    /// For [`Cluster::service`].
    pub const READ_SERVICE: Permission = Permission::core(
        "services",
        &["get"],
        "to read a Service again before something is done that cannot be undone",
    )
    .without("the Service is read by a list");

    /// The Service as it is now; `None` if there is none.
    pub async fn service(&self, key: &ServiceKey) -> Result<Option<Service>, WriteError> {
        let services = kube::core::Request::new(WireService::url_path(&(), Some(&key.namespace)));
        let request = services.get(&key.name, &GetParams::default()).map_err(unsendable)?;
        match self.ask(&request).await {
            Ok(body) => read::<WireService>(&body).map(Some),
            Err(WriteError::NotFound(_)) => Ok(None),
            // The usual role of a Go manager may list Services, and not get one.
            Err(WriteError::Rejected { code, .. }) if code == StatusCode::FORBIDDEN => self.listed_service(key).await,
            Err(error) => Err(error),
        }
    }

    /// The Service as a list shows it.
    async fn listed_service(&self, key: &ServiceKey) -> Result<Option<Service>, WriteError> {
        let services = kube::core::Request::new(WireService::url_path(&(), Some(&key.namespace)));
        let named = ListParams::default().fields(&format!("metadata.name={}", key.name));
        let page: Page<WireService> = self.page(&services, &named).await?;
        Ok(page.items.into_iter().filter_map(WireService::kept).find(|service| service.key() == *key))
    }

    /// For [`Cluster::uid`].
    // The API server takes a namespace to be in itself, so that a Role can allow this.
    pub const READ_UID: Permission = Permission {
        group: "",
        resource: "namespaces",
        verbs: &["get"],
        scope: Scope::Named(Cow::Borrowed(KUBE_SYSTEM), Cow::Borrowed(KUBE_SYSTEM)),
        why: "to mark routes with the UID of the cluster",
        without: Some("routes carry the name of the cluster only, which another cluster may have"),
    };

    /// UID of the cluster, which is that of its namespace kube-system; `None` if there is no such namespace.
    pub async fn uid(&self) -> Result<Option<String>, WriteError> {
        let namespaces = kube::core::Request::new(Namespace::url_path(&(), None));
        let request = namespaces.get(KUBE_SYSTEM, &GetParams::default()).map_err(unsendable)?;
        match self.ask(&request).await {
            Ok(body) => serde_json::from_slice::<Identified>(&body).map(|it| Some(it.metadata.uid)).map_err(|error| {
                WriteError::Unavailable(format!("the API server's answer is not a Namespace: {error}"))
            }),
            Err(WriteError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn list<W: Wire>(&self) -> Result<Vec<Arc<W::Kept>>, WriteError> {
        let mut beginning = 1;
        loop {
            match self.pages::<W>().await {
                Err(WriteError::Rejected { code, .. }) if code == StatusCode::GONE && beginning < BEGINNINGS => {
                    beginning += 1;
                }
                listed => return listed,
            }
        }
    }

    /// All pages, or nothing: half a list must not be taken for a whole one.
    async fn pages<W: Wire>(&self) -> Result<Vec<Arc<W::Kept>>, WriteError> {
        let requests = kube::core::Request::new(W::url_path(&(), None));
        let (mut objects, mut next) = (Vec::new(), None);
        loop {
            let params = ListParams { limit: Some(PAGE), continue_token: next, ..ListParams::default() };
            let page: Page<W> = self.page(&requests, &params).await?;
            objects.extend(page.items.into_iter().filter_map(W::kept).map(Arc::new));
            next = page.metadata.next.filter(|next| !next.is_empty());
            if next.is_none() {
                return Ok(objects);
            }
        }
    }
    async fn page<W: Wire>(&self, requests: &kube::core::Request, params: &ListParams) -> Result<Page<W>, WriteError> {
        let body = self.ask(&requests.list(params).map_err(unsendable)?).await?;
        serde_json::from_slice(&body).map_err(|error| {
            WriteError::Unavailable(format!("the API server's answer is not a list of {}s: {error}", W::kind(&())))
        })
    }
}
