//! Header `Authorization` of a REST login with a token.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bowline_cloud::{Error, ErrorKind, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderName, HeaderValue, Method, header};
use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use uuid::Uuid;

use super::{LOG_IN, Token, signing_failed};

impl Token {
    /// Returns the headers for a request without a body to a path of the vCenter at `base`, which has to name the port.
    ///
    /// The signature covers host and port of the header `Host`, so that is set as well: otherwise, the client leaves the port out if
    /// it is 443, and vCenter takes 80 for a missing one.
    pub(crate) fn rest_headers(
        &self,
        base: &str,
        method: &Method,
        path: &str,
    ) -> Result<[(HeaderName, HeaderValue); 2]> {
        let authority = base.rsplit_once('/').map_or(base, |(_, authority)| authority);
        let host = HeaderValue::try_from(authority);
        let host =
            host.map_err(|_| Error::new(ErrorKind::InvalidConfig, LOG_IN, format!("invalid server {authority:?}")))?;
        Ok([(header::HOST, host), (header::AUTHORIZATION, self.authorization(authority, method, path)?)])
    }

    fn authorization(&self, authority: &str, method: &Method, path: &str) -> Result<HeaderValue> {
        let nonce = nonce(Timestamp::now());
        let hash = digest(&SHA256, b"");
        let (host, port) = authority.rsplit_once(':').unwrap_or((authority, "443"));
        let mut signed = format!("{nonce}\n{method}\n{path}\n{}\n{port}\n", host.to_lowercase()).into_bytes();
        signed.extend_from_slice(hash.as_ref());
        signed.push(b'\n');
        let signature = self.identity.sign(&signed).map_err(signing_failed)?;
        let unusable = |reason: &dyn std::fmt::Display| {
            Error::new(ErrorKind::Unexpected, LOG_IN, format!("the token cannot be sent in a header: {reason}"))
        };
        let token = compressed(self.assertion.reveal()).map_err(|error| unusable(&error))?;
        let header = format!(
            "SIGN token=\"{}\", signature_alg=\"RSA-SHA256\", signature=\"{}\", nonce=\"{nonce}\", bodyhash=\"{}\"",
            STANDARD.encode(token),
            STANDARD.encode(signature),
            STANDARD.encode(hash),
        );
        let mut header = HeaderValue::try_from(header).map_err(|error| unusable(&error))?;
        header.set_sensitive(true);
        Ok(header)
    }
}

/// Returns a number that is used once: the time in milliseconds and a random number.
fn nonce(now: Timestamp) -> String {
    let (random, _) = Uuid::new_v4().as_u64_pair();
    // The number is read as a signed one.
    format!("{}:{}", now.as_millisecond(), random >> 1)
}

fn compressed(text: &str) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes())?;
    encoder.finish()
}
