//! Sources of credentials.

pub(super) mod container;
pub(super) mod environment;
pub(super) mod files;
pub(super) mod metadata;
pub(super) mod profile;
pub(super) mod web_identity;

use bowline_cloud::Result;
use bowline_http::ApiResponse;
use jiff::Timestamp;
use serde::Deserialize;

use super::{Issued, Keys};

/// Credentials in JSON, from a container endpoint or the metadata service.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Document {
    /// `Success`, or the code of an error; empty from a container endpoint.
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    access_key_id: String,
    #[serde(default)]
    secret_access_key: String,
    #[serde(default)]
    token: String,
    #[serde(default)]
    expiration: String,
}

/// Decodes credentials in JSON. No error quotes the response.
fn decode(response: &ApiResponse, source: String, now: Timestamp) -> Result<Issued> {
    let document =
        serde_json::from_slice(response.body()).map_err(|_| "it is not a JSON object with credentials".to_owned());
    let found: Document = response.decoded(document)?;
    if !matches!(found.code.as_str(), "" | "Success") {
        return response.decoded(Err(format!("{}: {}", found.code, found.message).trim_end_matches(": ").to_owned()));
    }
    if found.access_key_id.is_empty() || found.secret_access_key.is_empty() {
        return response.decoded(Err("it has no AccessKeyId or no SecretAccessKey"));
    }
    let session_token = Some(found.token).filter(|token| !token.is_empty()).map(Into::into);
    let (access_key_id, secret_access_key) = (found.access_key_id, found.secret_access_key.into());
    let keys = bowline_http::sign::aws::Credentials { access_key_id, secret_access_key, session_token };
    Ok(Keys::new(keys, source).issued(found.expiration.parse().ok(), now))
}
