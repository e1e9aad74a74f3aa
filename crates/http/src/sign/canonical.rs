//! Canonical forms, digests and encodings shared by several schemes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bowline_config::Secret;
use bytes::Bytes;
use http::header::HOST;
use http::{HeaderName, HeaderValue, Method, Request, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use ring::{digest, hmac};

use super::SignError;

/// Every character but the unreserved ones of RFC 3986.
pub(super) const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Headers of a signature by lower-case name, repeated values joined by commas.
pub(super) type Headers = BTreeMap<String, String>;

/// Percent-encodes all but the unreserved characters.
pub(super) fn encode(text: &[u8]) -> String {
    percent_encode(text, RESERVED).to_string()
}

/// Parameters percent-encoded, sorted by their encoded names and values, and joined.
pub(super) fn query<'a>(parameters: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> String {
    let mut pairs: Vec<_> = parameters.into_iter().map(|(name, value)| (encode(name), encode(value))).collect();
    pairs.sort_unstable();
    let pairs: Vec<String> = pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join("&")
}

/// Query parameters of the URL, decoded, in the order in which they are sent.
pub(super) fn parameters(uri: &Uri) -> Vec<(Vec<u8>, Vec<u8>)> {
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.map(|(name, value)| (percent_decode_str(name).collect(), percent_decode_str(value).collect())).collect()
}

/// Query of the URL in canonical form.
pub(super) fn query_of(uri: &Uri) -> String {
    query(parameters(uri).iter().map(|(name, value)| (name.as_slice(), value.as_slice())))
}

/// Value of the `Host` header as the client sends it: without the scheme's default port.
pub(super) fn host(request: &Request<Bytes>) -> Result<String, SignError> {
    if let Some(host) = request.headers().get(HOST) {
        return text(&HOST, host).map(str::to_owned);
    }
    let host = request.uri().host().ok_or(SignError::NoHost)?;
    match (request.uri().port_u16(), request.uri().scheme_str()) {
        (None, _) | (Some(443), Some("https")) | (Some(80), Some("http")) => Ok(host.to_owned()),
        (Some(port), _) => Ok(format!("{host}:{port}")),
    }
}

/// Text of a header of the request.
pub(super) fn text<'a>(name: &HeaderName, value: &'a HeaderValue) -> Result<&'a str, SignError> {
    value.to_str().map_err(|_| SignError::Header(name.clone()))
}

/// Value for a header to add.
pub(super) fn value(name: &HeaderName, text: &str) -> Result<HeaderValue, SignError> {
    HeaderValue::from_str(text).map_err(|_| SignError::Value(name.clone()))
}

/// Value for a header that contains credentials; it is left out of debug output.
pub(super) fn sensitive(name: &HeaderName, text: &str) -> Result<HeaderValue, SignError> {
    let mut value = value(name, text)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Canonical request of Signature Version 4, which ACS3 shares.
pub(super) fn request(method: &Method, path: &str, query: &str, headers: &Headers, body_digest: &str) -> String {
    let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    format!("{method}\n{path}\n{query}\n{lines}\n{}\n{body_digest}", names(headers))
}

/// Names of the signed headers.
pub(super) fn names(headers: &Headers) -> String {
    headers.keys().map(String::as_str).collect::<Vec<_>>().join(";")
}

pub(super) fn sha256(bytes: &[u8]) -> digest::Digest {
    digest::digest(&digest::SHA256, bytes)
}

pub(super) fn hmac_sha256(key: &[u8], message: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message.as_bytes())
}

/// HMAC-SHA1 in base64, which older schemes still require.
pub(super) fn hmac_sha1(key: &Secret, message: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key.reveal().as_bytes());
    base64(hmac::sign(&key, message.as_bytes()).as_ref())
}

pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Lower-case hexadecimal digits.
pub(super) fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
