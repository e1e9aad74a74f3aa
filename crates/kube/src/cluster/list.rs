//! Reads without a watch: for one-shot commands, and for controllers that must not act on a stale store.

use std::borrow::Cow;
use std::sync::Arc;

use bowline_core::{Node, Service, ServiceKey};
use http::StatusCode;
use k8s_openapi::api::core::v1::Namespace;
use kube::Resource;
use kube::api::{GetParams, ListParams};
use serde::Deserialize;

use super::{Cluster, WriteError, invalid_request, parse};
use crate::permissions::{Permission, Scope};
use crate::wire::{Wire, WireNode, WireService};

const KUBE_SYSTEM: &str = "kube-system";

/// Objects per page.
const PAGE: u32 = 500;

/// Maximum number of times a list is started, because its continue token has expired.
const MAX_LISTS: u32 = 3;

/// Page of a list.
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

/// Object of which only the UID is read.
#[derive(Deserialize)]
struct Identified {
    metadata: IdentifiedMetadata,
}

#[derive(Deserialize)]
struct IdentifiedMetadata {
    uid: String,
}

impl Cluster {
    /// Permission for [`Cluster::list_nodes`].
    pub const LIST_NODES: Permission = Permission::core("nodes", &["list"], "confirm that Nodes are gone");

    /// Lists all Nodes.
    pub async fn list_nodes(&self) -> Result<Vec<Arc<Node>>, WriteError> {
        self.list::<WireNode>().await
    }

    /// Lists all Services.
    pub async fn list_services(&self) -> Result<Vec<Arc<Service>>, WriteError> {
        self.list::<WireService>().await
    }

    /// Permission for [`Cluster::service`].
    pub const READ_SERVICE: Permission =
        Permission::core("services", &["get"], "read a Service again before an irreversible step")
            .without("the Service is read with a list request");

    /// Reads the Service from the API server; `None` if there is none.
    pub async fn service(&self, key: &ServiceKey) -> Result<Option<Service>, WriteError> {
        let services = kube::core::Request::new(WireService::url_path(&(), Some(&key.namespace)));
        let request = services.get(&key.name, &GetParams::default()).map_err(invalid_request)?;
        match self.send_read(&request).await {
            Ok(body) => parse::<WireService>(&body).map(Some),
            Err(WriteError::NotFound(_)) => Ok(None),
            // The default role of Go managers allows list and watch of Services, but not get.
            Err(WriteError::Rejected { code, .. }) if code == StatusCode::FORBIDDEN => self.listed_service(key).await,
            Err(error) => Err(error),
        }
    }

    /// Reads the Service with a list request and a field selector.
    async fn listed_service(&self, key: &ServiceKey) -> Result<Option<Service>, WriteError> {
        let services = kube::core::Request::new(WireService::url_path(&(), Some(&key.namespace)));
        let named = ListParams::default().fields(&format!("metadata.name={}", key.name));
        let page: Page<WireService> = self.page(&services, &named).await?;
        Ok(page.items.into_iter().filter_map(WireService::into_domain).find(|service| service.key() == *key))
    }

    /// Permission for [`Cluster::uid`].
    // For authorization, the API server treats a Namespace as an object in itself, so a Role can grant this.
    pub const READ_UID: Permission = Permission {
        group: "",
        resource: "namespaces",
        verbs: &["get"],
        scope: Scope::Named(Cow::Borrowed(KUBE_SYSTEM), Cow::Borrowed(KUBE_SYSTEM)),
        why: "mark routes with the UID of the cluster",
        without: Some("routes carry the name of the cluster only, which another cluster may have"),
    };

    /// UID of the cluster: the UID of the Namespace kube-system; `None` if it does not exist.
    pub async fn uid(&self) -> Result<Option<String>, WriteError> {
        let namespaces = kube::core::Request::new(Namespace::url_path(&(), None));
        let request = namespaces.get(KUBE_SYSTEM, &GetParams::default()).map_err(invalid_request)?;
        match self.send_read(&request).await {
            Ok(body) => {
                serde_json::from_slice::<Identified>(&body).map(|namespace| Some(namespace.metadata.uid)).map_err(
                    |error| WriteError::Unavailable(format!("the API server returned an invalid Namespace: {error}")),
                )
            }
            Err(WriteError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn list<W: Wire>(&self) -> Result<Vec<Arc<W::Domain>>, WriteError> {
        let mut attempt = 1;
        loop {
            match self.pages::<W>().await {
                Err(WriteError::Rejected { code, .. }) if code == StatusCode::GONE && attempt < MAX_LISTS => {
                    attempt += 1;
                }
                listed => return listed,
            }
        }
    }

    /// Reads all pages, or fails: a partial list must not pass for a complete one.
    async fn pages<W: Wire>(&self) -> Result<Vec<Arc<W::Domain>>, WriteError> {
        let requests = kube::core::Request::new(W::url_path(&(), None));
        let (mut objects, mut next) = (Vec::new(), None);
        loop {
            let params = ListParams { limit: Some(PAGE), continue_token: next, ..ListParams::default() };
            let page: Page<W> = self.page(&requests, &params).await?;
            objects.extend(page.items.into_iter().filter_map(W::into_domain).map(Arc::new));
            next = page.metadata.next.filter(|next| !next.is_empty());
            if next.is_none() {
                return Ok(objects);
            }
        }
    }

    async fn page<W: Wire>(&self, requests: &kube::core::Request, params: &ListParams) -> Result<Page<W>, WriteError> {
        let body = self.send_read(&requests.list(params).map_err(invalid_request)?).await?;
        serde_json::from_slice(&body).map_err(|error| {
            WriteError::Unavailable(format!("the API server returned an invalid list of {}s: {error}", W::kind(&())))
        })
    }
}
