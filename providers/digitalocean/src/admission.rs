//! Webhook `lb-service`: lets the API validate the load balancer of a Service before the Service is stored.
//!
//! ```text
//!  Service ──► request without Nodes ──► cannot be built: deny
//!                     ├─ equal to that of the old Service: allow, without a call
//!                     └─ API with validate_only ──► 2xx: allow; 4xx: deny; 5xx: allow; no response: error
//! ```

use async_trait::async_trait;
use bowline_cloud::{AdmissionRequest, AdmissionResponse, Error, Webhook};
use bowline_core::Service;
use bowline_core::service::{ServiceType, desired_without_targets};

use crate::DigitalOcean;
use crate::api::LoadBalancerRequest;
use crate::load_balancers::{Annotations, LOAD_BALANCER_ID};

const BUILD: &str = "failed to build DO API request: failed to build base load balancer request";

/// The webhook.
pub(crate) struct LoadBalancerReview {
    pub(crate) cloud: DigitalOcean,
}

impl LoadBalancerReview {
    /// Builds the request of a Service without Nodes.
    async fn request(&self, service: &Service) -> Result<LoadBalancerRequest, String> {
        let joined = |errors: Vec<bowline_core::annotations::FieldError>| {
            errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        let desired = desired_without_targets(&self.cloud.cluster, service).map_err(joined)?;
        self.cloud.validation_request(&desired).await
    }

    async fn review_new(&self, request: &AdmissionRequest, service: &Service) -> AdmissionResponse {
        let new = match self.request(service).await {
            Ok(new) => new,
            Err(why) => return AdmissionResponse::deny(format!("{BUILD}: {why}")),
        };
        let old = match request.old_service() {
            Ok(old) => old,
            Err(error) => return AdmissionResponse::error(400, format!("failed to decode old object: {error}")),
        };
        if let Some(old) = &old
            && self.request(old).await.is_ok_and(|old| old == new)
        {
            return AdmissionResponse::allow("new service has irrelevant changes");
        }
        let id_of = |service: &Service| Annotations(&service.annotations).text(&LOAD_BALANCER_ID).map(str::to_owned);
        let id = old.as_ref().and_then(|old| id_of(service).or_else(|| id_of(old)));
        judge(self.cloud.client.validate_load_balancer(id.as_deref(), &new).await)
    }
}

#[async_trait]
impl Webhook for LoadBalancerReview {
    fn name(&self) -> &str {
        "lb-service"
    }

    fn path(&self) -> &str {
        "/lb-service"
    }

    async fn review(&self, request: AdmissionRequest) -> AdmissionResponse {
        let service = match request.service() {
            Ok(service) => service,
            Err(error) => return AdmissionResponse::error(500, format!("failed to decode admission request: {error}")),
        };
        if service.kind != ServiceType::LoadBalancer {
            return AdmissionResponse::allow("allowing service that is not a load balancer");
        }
        if service.deleting {
            return AdmissionResponse::allow("allowing service that is being deleted");
        }
        self.review_new(&request, &service).await
    }
}

/// Decides by the response of the API. An API that is out of order must not block changes of Services.
fn judge(validated: Result<(), Error>) -> AdmissionResponse {
    let Err(error) = validated else { return AdmissionResponse::allow("valid load balancer definition") };
    match error.status() {
        Some(400..=499) => AdmissionResponse::deny(format!("invalid load balancer definition: {}", error.message())),
        Some(status @ 500..) => AdmissionResponse::allow(format!(
            "received unexpected status code ({status}) from DO API, allowing to prevent blocking: {}",
            error.message()
        )),
        _ => AdmissionResponse::error(500, format!("failed to get a response from DO API: {}", error.message())),
    }
}
