//! Admission webhooks of a provider, which decide whether the API server may store an object.
//!
//! ```text
//!  API server ── AdmissionReview ──► HTTPS server ── AdmissionRequest ──► Webhook::review ──► AdmissionResponse
//! ```
//!
//! The manager serves webhooks with `--webhooks`, and `bowline admission-server` serves them as a program of its own. Both decode
//! the review and encode the response; a provider decides.

use async_trait::async_trait;
use bowline_core::Service;
use bowline_core::wire::ServiceObject;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// An admission webhook of a provider.
///
/// A review runs on every process that serves webhooks, also without the lease, so the fence rejects calls that write. Mark a call
/// that only validates as [`Effect::Read`](crate::Effect::Read).
#[async_trait]
pub trait Webhook: Send + Sync {
    /// Returns the name, for `--webhooks` and metrics: lower-case letters, digits, `-` and `.`. Unique among the provider's webhooks.
    fn name(&self) -> &str;

    /// Returns the URL path that the API server calls, which starts with `/`. Unique among the provider's webhooks.
    fn path(&self) -> &str;

    /// Decides about a request. Called only after the cloud has started; several requests may be reviewed at once.
    async fn review(&self, request: AdmissionRequest) -> AdmissionResponse;
}

/// The request that a webhook reviews: `request` of an `AdmissionReview`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AdmissionRequest {
    /// ID of this request.
    pub uid: String,
    /// What the user does with the object.
    pub operation: AdmissionOperation,
    /// Namespace of the object; empty for a kind without namespaces.
    pub namespace: String,
    /// Name of the object; empty if the API server has not generated it yet.
    pub name: String,
    /// Whether the object will not be stored.
    pub dry_run: bool,
    /// The new object; `None` for a deletion.
    pub object: Option<Value>,
    /// The stored object; `None` for a creation.
    pub old_object: Option<Value>,
}

/// `operation` of an [`AdmissionRequest`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum AdmissionOperation {
    /// The object is created.
    Create,
    /// The object is changed.
    Update,
    /// The object is deleted.
    Delete,
    /// The object is connected to: `exec`, `proxy`.
    Connect,
    /// The request names no operation, or an unknown one.
    #[default]
    #[serde(other)]
    Unknown,
}

/// The object of an [`AdmissionRequest`] cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The request has no such object.
    // upstream: the message of controller-runtime.
    #[error("there is no content to decode")]
    Missing,
    /// The object is of another kind.
    #[error("expected an object of kind Service, found {0}")]
    Kind(String),
}

impl AdmissionRequest {
    /// Decodes [`object`](AdmissionRequest::object) as a Service. As in the watch, a field of an unexpected type counts as missing.
    /// [`desired_without_targets`](bowline_core::service::desired_without_targets) returns its desired load balancer.
    pub fn service(&self) -> Result<Service, DecodeError> {
        self.decode(self.object.as_ref().ok_or(DecodeError::Missing)?)
    }

    /// Decodes [`old_object`](AdmissionRequest::old_object) as a Service, if there is one.
    pub fn old_service(&self) -> Result<Option<Service>, DecodeError> {
        self.old_object.as_ref().map(|object| self.decode(object)).transpose()
    }

    fn decode(&self, object: &Value) -> Result<Service, DecodeError> {
        match (object, object.get("kind")) {
            (Value::Object(_), None) => {}
            (Value::Object(_), Some(kind)) if kind == "Service" => {}
            (_, Some(kind)) => return Err(DecodeError::Kind(format!("kind {kind}"))),
            (other, None) => return Err(DecodeError::Kind(other.to_string())),
        }
        let decoded = ServiceObject::deserialize(object).ok();
        let service = decoded.and_then(|decoded| decoded.or_named(&self.namespace, &self.name).into_service());
        service.ok_or_else(|| DecodeError::Kind("an object that cannot be parsed".to_owned()))
    }
}

/// The decision about an [`AdmissionRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdmissionResponse {
    /// The API server stores the object.
    Allow(String),
    /// The API server rejects the request, and the user sees the message.
    Deny(String),
    /// The request could not be reviewed. The API server rejects it.
    Error {
        /// HTTP status of the cause: 400 for an invalid request, 500 for a failed call.
        code: u16,
        /// Cause.
        message: String,
    },
}

impl AdmissionResponse {
    /// Allows the request.
    pub fn allow(message: impl Into<String>) -> AdmissionResponse {
        AdmissionResponse::Allow(message.into())
    }

    /// Denies the request.
    pub fn deny(message: impl Into<String>) -> AdmissionResponse {
        AdmissionResponse::Deny(message.into())
    }

    /// Reports that the request could not be reviewed.
    pub fn error(code: u16, message: impl Into<String>) -> AdmissionResponse {
        AdmissionResponse::Error { code, message: message.into() }
    }

    /// Returns the message.
    pub fn message(&self) -> &str {
        match self {
            AdmissionResponse::Allow(message)
            | AdmissionResponse::Deny(message)
            | AdmissionResponse::Error { message, .. } => message,
        }
    }

    /// Returns the code in the status of the response.
    pub fn code(&self) -> u16 {
        match self {
            AdmissionResponse::Allow(_) => 200,
            AdmissionResponse::Deny(_) => 403,
            AdmissionResponse::Error { code, .. } => *code,
        }
    }

    /// Encodes the response as `response` of an `AdmissionReview`, without the UID.
    pub fn to_json(&self) -> Map<String, Value> {
        let (code, message) = (self.code(), self.message());
        let status = match self {
            AdmissionResponse::Deny(_) => json!({"code": code, "message": message, "reason": "Forbidden"}),
            _ => json!({"code": code, "message": message}),
        };
        let allowed = matches!(self, AdmissionResponse::Allow(_));
        Map::from_iter([("allowed".to_owned(), allowed.into()), ("status".to_owned(), status)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(request: Value) -> AdmissionRequest {
        serde_json::from_value(request).unwrap()
    }

    #[test]
    fn a_request_is_decoded_and_missing_fields_are_empty() {
        let full = request(json!({
            "uid": "7", "operation": "UPDATE", "namespace": "default", "name": "web", "dryRun": true,
            "object": {"kind": "Service"}, "oldObject": null, "userInfo": {"username": "anna"},
        }));
        let expected = AdmissionRequest {
            uid: "7".to_owned(),
            operation: AdmissionOperation::Update,
            namespace: "default".to_owned(),
            name: "web".to_owned(),
            dry_run: true,
            object: Some(json!({"kind": "Service"})),
            old_object: None,
        };
        assert_eq!(full, expected);
        assert_eq!(request(json!({})), AdmissionRequest::default());
        assert_eq!(request(json!({"operation": "ADMIRE"})).operation, AdmissionOperation::Unknown);
    }

    #[test]
    fn a_service_is_decoded_with_the_name_of_the_request_if_it_has_none() {
        let new = json!({"kind": "Service", "metadata": {"generateName": "web-"}, "spec": {"type": "LoadBalancer"}});
        let old = json!({"kind": "Service", "metadata": {"namespace": "default", "name": "web"}});
        let request = request(json!({"namespace": "default", "object": new, "oldObject": old}));
        let service = request.service().unwrap();
        assert_eq!(
            (service.key().to_string(), service.kind),
            ("default/".to_owned(), bowline_core::ServiceType::LoadBalancer)
        );
        assert_eq!(request.old_service().unwrap().unwrap().key().to_string(), "default/web");
    }

    #[test]
    fn an_object_that_is_no_service_is_an_error() {
        assert_eq!(request(json!({})).service().unwrap_err().to_string(), "there is no content to decode");
        assert_eq!(request(json!({})).old_service(), Ok(None));
        let cases = [
            (json!({"kind": "Pod"}), "expected an object of kind Service, found kind \"Pod\""),
            (json!("text"), "expected an object of kind Service, found \"text\""),
            (json!([1]), "expected an object of kind Service, found [1]"),
        ];
        for (object, expected) in cases {
            let request = request(json!({"object": object, "oldObject": object}));
            assert_eq!(request.service().unwrap_err().to_string(), expected);
            assert_eq!(request.old_service().unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn a_response_has_the_code_the_message_and_for_a_denial_the_reason() {
        let cases = [
            (AdmissionResponse::allow("fine"), json!({"allowed": true, "status": {"code": 200, "message": "fine"}})),
            (
                AdmissionResponse::deny("no"),
                json!({"allowed": false, "status": {"code": 403, "message": "no", "reason": "Forbidden"}}),
            ),
            (
                AdmissionResponse::error(500, "down"),
                json!({"allowed": false, "status": {"code": 500, "message": "down"}}),
            ),
        ];
        for (response, expected) in cases {
            assert_eq!(Value::Object(response.to_json()), expected);
        }
    }
}
