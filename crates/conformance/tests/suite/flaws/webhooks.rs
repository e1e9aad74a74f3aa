//! Flaws in webhooks and endpoints.

use std::sync::Arc;

use async_trait::async_trait;
use bowline_cloud::{AdmissionRequest, AdmissionResponse, Endpoint, EndpointPurpose, Webhook};

use crate::flaws::broken::Break::{Endpoints, Webhooks};
use crate::flaws::broken::{Flaw, flaws};

/// A webhook with this name and path, and this response to a request without an object.
pub(crate) struct Hook(pub(crate) &'static str, pub(crate) &'static str, pub(crate) AdmissionResponse);

impl Hook {
    /// A correct webhook.
    pub(crate) fn correct() -> Arc<dyn Webhook> {
        Hook::at("services", "/services")
    }

    fn at(name: &'static str, path: &'static str) -> Arc<dyn Webhook> {
        Arc::new(Hook(name, path, AdmissionResponse::error(500, "no object")))
    }
}

#[async_trait]
impl Webhook for Hook {
    fn name(&self) -> &str {
        self.0
    }

    fn path(&self) -> &str {
        self.1
    }

    async fn review(&self, request: AdmissionRequest) -> AdmissionResponse {
        request.service().map_or_else(|_| self.2.clone(), |_| AdmissionResponse::allow("a Service"))
    }
}

/// A correct endpoint.
pub(crate) fn endpoint() -> Endpoint {
    Endpoint { address: "[::1]:9000".to_owned(), purpose: EndpointPurpose::Metrics }
}

flaws! {
    "has two webhooks of one name", [webhooks_are_declared], Webhooks(|_, hooks| hooks.push(Hook::at("services", "/b")));
    "has two webhooks at one path", [webhooks_are_declared], Webhooks(|_, hooks| hooks.push(Hook::at("b", "/services")));
    "names a webhook after a selector", [webhooks_are_declared], Webhooks(|_, hooks| hooks.push(Hook::at("-b", "/b")));
    "has a webhook with a relative path", [webhooks_are_declared], Webhooks(|_, hooks| hooks.push(Hook::at("b", "b")));
    "has no webhooks the second time", [webhooks_are_declared],
        Webhooks(|it, hooks| if !it.memory().created.insert("hooks".to_owned()) { hooks.clear() });
    "allows a request without an object", [empty_review_is_not_allowed],
        Webhooks(|_, hooks| hooks.push(Arc::new(Hook("b", "/b", AdmissionResponse::allow("fine")))));
    "denies without a reason", [empty_review_is_not_allowed],
        Webhooks(|_, hooks| hooks.push(Arc::new(Hook("b", "/b", AdmissionResponse::deny("")))));
    "has an endpoint without a port", [endpoints_are_declared],
        Endpoints(|endpoints| endpoints.push(Endpoint { address: "localhost".to_owned(), ..endpoint() }));
    "has two endpoints at one address", [endpoints_are_declared], Endpoints(|endpoints| endpoints.push(endpoint()));
}
