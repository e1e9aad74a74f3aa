//! Expiry of the credentials in a kubeconfig: client certificate, and token file.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use kube::config::AuthInfo;
use serde_json::Value;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

/// Earliest expiry of the credentials; `None` if unknown.
pub(crate) fn expiry(user: &AuthInfo) -> Option<Timestamp> {
    let certificate = certificate(user).and_then(|pem| of_certificate(&pem));
    let token = user.token_file.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
    certificate.into_iter().chain(token.and_then(|token| of_token(&token))).min()
}

/// Client certificate as PEM.
fn certificate(user: &AuthInfo) -> Option<String> {
    match &user.client_certificate_data {
        Some(data) => String::from_utf8(STANDARD.decode(data.trim()).ok()?).ok(),
        None => std::fs::read_to_string(Path::new(user.client_certificate.as_ref()?)).ok(),
    }
}

/// Expiry of the first certificate, the client's own; intermediates follow it.
fn of_certificate(pem: &str) -> Option<Timestamp> {
    let (_, rest) = pem.split_once("-----BEGIN CERTIFICATE-----")?;
    let (text, _) = rest.split_once("-----END CERTIFICATE-----")?;
    let der = STANDARD.decode(text.split_whitespace().collect::<String>()).ok()?;
    let end = Certificate::from_der(&der).ok()?.tbs_certificate.validity.not_after.to_system_time();
    Timestamp::try_from(end).ok()
}

/// Expiry of a JWT, such as a service account token; `None` for opaque tokens.
fn of_token(token: &str) -> Option<Timestamp> {
    let claims = URL_SAFE_NO_PAD.decode(token.trim().split('.').nth(1)?).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    Timestamp::from_second(claims["exp"].as_i64()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expiry_of_a_jwt_is_read() {
        let token = |claims: &str| format!("e30.{}.c2ln\n", URL_SAFE_NO_PAD.encode(claims));
        let end = of_token(&token(r#"{"exp": 1893456000, "sub": "x"}"#));
        assert_eq!(end.map(|end| end.to_string()).as_deref(), Some("2030-01-01T00:00:00Z"));
        for other in ["opaque", "", "a.b.c", &token("[]"), &token(r#"{"exp": "soon"}"#), &token(r#"{"exp": 1e300}"#)] {
            assert_eq!(of_token(other), None, "{other}");
        }
    }

    #[test]
    fn an_invalid_certificate_has_no_expiry() {
        for pem in ["", "-----BEGIN CERTIFICATE-----", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"] {
            assert_eq!(of_certificate(pem), None, "{pem}");
        }
        assert_eq!(expiry(&AuthInfo::default()), None);
    }
}
