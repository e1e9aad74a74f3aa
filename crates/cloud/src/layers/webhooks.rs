//! Reviews by a provider's webhooks, and the endpoints of a provider.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;

use crate::layers::Layered;
use crate::{AdmissionRequest, AdmissionResponse, Endpoint, Webhook};

/// Code of a response without a decision: the request is not the cause.
const FAILED: u16 = 500;

impl Layered {
    /// Returns the webhooks of the provider.
    pub fn webhooks(&self) -> Vec<Arc<dyn Webhook>> {
        self.provider.webhooks()
    }

    /// Returns the plain HTTP endpoints of the provider.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        self.provider.endpoints()
    }

    /// Reviews a request with the webhook of this name. Returns an error response until the cloud has started, and for a webhook that
    /// panics.
    pub async fn review(&self, webhook: &str, request: AdmissionRequest) -> AdmissionResponse {
        if let Err(error) = self.starter.ready().await {
            return AdmissionResponse::error(FAILED, error.message());
        }
        // The provider may have been rebuilt since the last request, so its webhooks are looked up each time.
        let Some(found) = self.webhooks().into_iter().find(|found| found.name() == webhook) else {
            return AdmissionResponse::error(FAILED, format!("the provider no longer has a webhook {webhook}"));
        };
        match AssertUnwindSafe(found.review(request)).catch_unwind().await {
            Ok(response) => response,
            Err(_) => AdmissionResponse::error(FAILED, format!("the webhook {webhook} panicked; see the log")),
        }
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use crate::fake::Fake;
    use crate::layers::LayerOptions;
    use crate::{Error, ErrorKind};

    /// Allows every request but one for `panic`.
    struct Gate;

    #[async_trait]
    impl Webhook for Gate {
        fn name(&self) -> &str {
            "gate"
        }

        fn path(&self) -> &str {
            "/gate"
        }

        async fn review(&self, request: AdmissionRequest) -> AdmissionResponse {
            assert_ne!(request.name, "panic", "the test panics here");
            AdmissionResponse::allow(request.name)
        }
    }

    fn layered(mut fake: Fake) -> Layered {
        fake.webhooks = vec![Arc::new(Gate)];
        Layered::new(Arc::new(fake), "harbour", &LayerOptions::default(), &prometheus::Registry::new())
    }

    async fn review(layered: &Layered, webhook: &str, name: &str) -> AdmissionResponse {
        layered.review(webhook, AdmissionRequest { name: name.to_owned(), ..AdmissionRequest::default() }).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_reviewed_by_the_webhook_of_that_name() {
        let layered = layered(Fake::new("a"));
        assert_eq!(review(&layered, "gate", "web").await, AdmissionResponse::allow("web"));
        let missing = AdmissionResponse::error(500, "the provider no longer has a webhook lock");
        assert_eq!(review(&layered, "lock", "web").await, missing);
        let panicked = AdmissionResponse::error(500, "the webhook gate panicked; see the log");
        assert_eq!(review(&layered, "gate", "panic").await, panicked);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_before_the_start_of_the_cloud_gets_an_error_response() {
        let fake = Fake::new("a");
        fake.fail_start([Err(Error::new(ErrorKind::Unauthenticated, "authenticate", "unknown key"))]);
        let layered = layered(fake);
        let response = review(&layered, "gate", "web").await;
        assert_eq!(response.code(), 500);
        assert!(response.message().contains("harbour is not ready: authenticate: unknown key"), "{response:?}");
        layered.start().await.unwrap();
        assert_eq!(review(&layered, "gate", "web").await, AdmissionResponse::allow("web"));
    }
}
