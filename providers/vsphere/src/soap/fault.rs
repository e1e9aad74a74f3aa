//! Faults: error responses of the vim25 API.

use bowline_cloud::{Error, ErrorKind};
use bowline_http::{ErrorDecoder, ErrorResponse};

use super::{Element, ManagedObject};

/// Decodes faults. A fault means that vCenter itself responded, so the outcome of the call is known.
pub(crate) struct Faults;

impl ErrorDecoder for Faults {
    fn decode(&self, response: &ErrorResponse<'_>) -> Error {
        let Some(fault) = Fault::parse(response) else { return foreign(response) };
        let kind = kind_of(&fault.name);
        let message = match &fault.object {
            Some(object) => format!("{} ({}, {object})", fault.message, fault.name),
            None => format!("{} ({})", fault.message, fault.name),
        };
        let error = response.to_error_with(kind, message).outcome_known().with_code(fault.name);
        match fault.object {
            Some(object) => error.context("object", object.to_string()),
            None => error,
        }
    }

    fn tls_advice(&self) -> &'static str {
        "; fix: set caFile to the CA certificates of this vCenter, or thumbprint to the fingerprint of its certificate"
    }
}

/// Returns the error for a response that is not from the API. A proxy or a wrong address may answer 404 to everything.
fn foreign(response: &ErrorResponse<'_>) -> Error {
    match response.status() {
        404 => response.to_error_of(ErrorKind::Unexpected),
        _ => response.to_error(),
    }
}

/// Returns whether the error is a fault of this name.
pub(crate) fn is_fault(error: &Error, name: &str) -> bool {
    error.code() == Some(name)
}

/// Names of faults that the provider distinguishes.
pub(crate) mod code {
    pub(crate) const INVALID_LOGIN: &str = "InvalidLogin";
    pub(crate) const NOT_AUTHENTICATED: &str = "NotAuthenticated";
    pub(crate) const NO_PERMISSION: &str = "NoPermission";
    pub(crate) const NOT_FOUND: &str = "ManagedObjectNotFound";
    pub(crate) const INVALID_ARGUMENT: &str = "InvalidArgument";
    pub(crate) const INVALID_PROPERTY: &str = "InvalidProperty";
}

/// Returns the kind of an error for a fault.
pub(crate) fn kind_of(fault: &str) -> ErrorKind {
    match fault {
        code::INVALID_LOGIN | code::NOT_AUTHENTICATED => ErrorKind::Unauthenticated,
        code::NO_PERMISSION => ErrorKind::PermissionDenied,
        code::NOT_FOUND => ErrorKind::NotFound,
        "RequestCanceled" | "HostCommunication" | "HostNotConnected" | "HostNotReachable" => ErrorKind::Unavailable,
        "NotSupported" => ErrorKind::Unsupported,
        _ => ErrorKind::Unexpected,
    }
}

/// A fault in an error response.
struct Fault {
    /// Name, such as `NotAuthenticated`.
    name: String,
    message: String,
    /// Object that the fault is about.
    object: Option<ManagedObject>,
}

impl Fault {
    fn parse(response: &ErrorResponse<'_>) -> Option<Fault> {
        let envelope = Element::parse(response.body()?).ok()?;
        let fault = envelope.child("Body")?.child("Fault")?;
        let message = fault.child_text("faultstring").unwrap_or_default().trim().to_owned();
        let detail = fault.child("detail").and_then(|detail| detail.all().first());
        let name = detail.map(name_of).unwrap_or_else(|| "Fault".to_owned());
        let object = detail.and_then(|detail| detail.child("obj").or(detail.child("object")));
        Some(Fault { name, message, object: object.and_then(ManagedObject::of) })
    }
}

/// Returns the name of a fault: its type, or the name of its element without the suffix.
fn name_of(detail: &Element) -> String {
    match detail.type_name() {
        "" => detail.name().trim_end_matches("Fault").to_owned(),
        name => name.to_owned(),
    }
}
