//! Credentials of the instance's role, from the metadata service.

use bowline_cloud::{Error, ErrorKind, Result};
use jiff::Timestamp;

use super::super::metadata::Metadata;
use super::super::{Issued, OPERATION};
use super::decode;

/// Reads the credentials. The service replaces them before they expire.
pub(crate) async fn issue(metadata: &Metadata, now: Timestamp) -> Result<Issued> {
    let issued = async {
        let role = metadata.role().await?;
        let response = metadata.credentials(&role).await?;
        decode(&response, format!("the role {role} of this instance"), now)
    };
    issued.await.map_err(explained)
}

/// Names all sources, because this is the last one.
fn explained(error: Error) -> Error {
    let message = format!(
        "no other source is configured (AWS_ACCESS_KEY_ID, AWS_WEB_IDENTITY_TOKEN_FILE, a profile, a container endpoint), and the \
         metadata service has none: {error}"
    );
    // A 401 or 403 of this service says nothing about the call that needs credentials.
    let kind = if error.kind() == ErrorKind::PermissionDenied { ErrorKind::Unauthenticated } else { error.kind() };
    Error::new(kind, OPERATION, message).retry(error.retry_advice())
}
