//! Alibaba Cloud: `ACS3-HMAC-SHA256` for all services, and the older RPC signature with HMAC-SHA1.

use bowline_config::Secret;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderName, Method, Request};
use jiff::Timestamp;

use super::SignError;
use super::canonical::{self, Headers};

const ALGORITHM: &str = "ACS3-HMAC-SHA256";
const BODY_DIGEST: HeaderName = HeaderName::from_static("x-acs-content-sha256");
const DATE: HeaderName = HeaderName::from_static("x-acs-date");
const NONCE: HeaderName = HeaderName::from_static("x-acs-signature-nonce");
const TOKEN: HeaderName = HeaderName::from_static("x-acs-security-token");

/// Access key, with a security token if it is temporary.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// Access key ID.
    pub access_key_id: String,
    /// Access key secret.
    pub access_key_secret: Secret,
    /// Security token of temporary credentials.
    pub security_token: Option<Secret>,
}

/// Headers that sign the request with `ACS3-HMAC-SHA256`.
///
/// The request already has `x-acs-action` and `x-acs-version`. Signed are `host`, `content-type` and every `x-acs-` header.
/// `nonce` is different for each request.
pub fn headers(
    request: &Request<Bytes>,
    credentials: &Credentials,
    nonce: &str,
    at: Timestamp,
) -> Result<HeaderMap, SignError> {
    let digest = canonical::hex(canonical::sha256(request.body()));
    let mut added = HeaderMap::new();
    for (name, text) in [(BODY_DIGEST, digest.as_str()), (DATE, &time(at)), (NONCE, nonce)] {
        added.insert(name.clone(), canonical::value(&name, text)?);
    }
    if let Some(token) = &credentials.security_token {
        added.insert(TOKEN, canonical::sensitive(&TOKEN, token.reveal())?);
    }
    let signed = signed_headers(request, &added)?;
    let query = canonical::query_of(request.uri());
    let canonical = canonical::request(request.method(), request.uri().path(), &query, &signed, &digest);
    let message = format!("{ALGORITHM}\n{}", canonical::hex(canonical::sha256(canonical.as_bytes())));
    let signature = canonical::hmac_sha256(credentials.access_key_secret.reveal().as_bytes(), &message);
    let authorization = format!(
        "{ALGORITHM} Credential={},SignedHeaders={},Signature={}",
        credentials.access_key_id,
        canonical::names(&signed),
        canonical::hex(signature)
    );
    added.insert(AUTHORIZATION, canonical::sensitive(&AUTHORIZATION, &authorization)?);
    Ok(added)
}

fn signed_headers(request: &Request<Bytes>, added: &HeaderMap) -> Result<Headers, SignError> {
    let mut headers = Headers::from([(HOST.to_string(), canonical::host(request)?)]);
    let signed = |name: &HeaderName| *name == CONTENT_TYPE || name.as_str().starts_with("x-acs-");
    for (name, value) in request.headers().iter().chain(added).filter(|(name, _)| signed(name)) {
        headers.insert(name.to_string(), canonical::text(name, value)?.trim().to_owned());
    }
    Ok(headers)
}

/// Signed query of an RPC call, or its form body: `parameters` (`Action`, `Version` and those of the action) and the ones
/// that sign them with HMAC-SHA1. `nonce` is different for each request.
pub fn rpc_query<N: AsRef<str>, V: AsRef<str>>(
    method: &Method,
    parameters: &[(N, V)],
    credentials: &Credentials,
    nonce: &str,
    at: Timestamp,
) -> String {
    let time = time(at);
    let mut all: Vec<_> = parameters.iter().map(|(name, value)| (name.as_ref(), value.as_ref())).collect();
    all.extend([
        ("AccessKeyId", credentials.access_key_id.as_str()),
        ("SignatureMethod", "HMAC-SHA1"),
        ("SignatureNonce", nonce),
        ("SignatureVersion", "1.0"),
        ("Timestamp", &time),
    ]);
    all.extend(credentials.security_token.as_ref().map(|token| ("SecurityToken", token.reveal())));
    let query = canonical::query(all.into_iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())));
    let message = format!("{method}&%2F&{}", canonical::encode(query.as_bytes()));
    let key = format!("{}&", credentials.access_key_secret.reveal()).into();
    let signature = canonical::hmac_sha1(&key, &message);
    format!("{query}&Signature={}", canonical::encode(signature.as_bytes()))
}

fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(id: &str, secret: &str, token: Option<&str>) -> Credentials {
        Credentials {
            access_key_id: id.into(),
            access_key_secret: secret.into(),
            security_token: token.map(Secret::from),
        }
    }

    /// The vendor's example, `RunInstances` (Request syntax and signature method V3), with further headers.
    fn run_instances(further: &[(&str, &str)], token: Option<&str>) -> HeaderMap {
        let url = "https://ecs.cn-shanghai.aliyuncs.com/\
            ?RegionId=cn-shanghai&ImageId=win2019_1809_x64_dtc_zh-cn_40G_alibase_20230811.vhd";
        let mut request =
            Request::post(url).header("x-acs-action", "RunInstances").header("x-acs-version", "2014-05-26");
        for (name, value) in further {
            request = request.header(*name, *value);
        }
        let request = request.body(Bytes::new()).unwrap();
        let credentials = credentials("YourAccessKeyId", "YourAccessKeySecret", token);
        let at = "2023-10-26T10:22:32Z".parse().unwrap();
        headers(&request, &credentials, "3156853299f313e23d1673dc12e1703d", at).unwrap()
    }

    #[test]
    fn acs3_matches_the_vendors_example() {
        let expected = "ACS3-HMAC-SHA256 Credential=YourAccessKeyId,\
            SignedHeaders=host;x-acs-action;x-acs-content-sha256;x-acs-date;x-acs-signature-nonce;x-acs-version,\
            Signature=06563a9e1b43f5dfe96b81484da74bceab24a1d853912eee15083a6f0f3283c0";
        let added = run_instances(&[("accept", "application/json")], None);
        assert_eq!(added[AUTHORIZATION], expected);
        assert_eq!(added[DATE], "2023-10-26T10:22:32Z");
        // A request that is signed again has the headers of its first signature.
        assert_eq!(run_instances(&[("x-acs-date", "2023-10-26T00:00:00Z")], None)[AUTHORIZATION], expected);
    }

    #[test]
    fn acs3_signs_the_content_type_and_the_security_token() {
        let added = run_instances(&[("content-type", "application/json")], Some("token"));
        assert_eq!(added[TOKEN], "token");
        let authorization = added[AUTHORIZATION].to_str().unwrap();
        let names = "content-type;host;x-acs-action;x-acs-content-sha256;x-acs-date;x-acs-security-token;\
            x-acs-signature-nonce;x-acs-version";
        assert!(authorization.contains(&format!("SignedHeaders={names},")), "{authorization}");
    }

    /// The vendor's example, `DescribeRegions`.
    fn describe_regions(method: &Method, token: Option<&str>) -> String {
        let parameters = [("Action", "DescribeRegions"), ("Version", "2014-05-26"), ("Format", "XML")];
        let at = "2016-02-23T12:46:24Z".parse().unwrap();
        let credentials = credentials("testid", "testsecret", token);
        rpc_query(method, &parameters, &credentials, "3ee8c1b8-83d3-44af-a94f-4e0ad82fd6cf", at)
    }

    #[test]
    fn rpc_matches_the_vendors_example() {
        let expected = "AccessKeyId=testid&Action=DescribeRegions&Format=XML&SignatureMethod=HMAC-SHA1\
            &SignatureNonce=3ee8c1b8-83d3-44af-a94f-4e0ad82fd6cf&SignatureVersion=1.0\
            &Timestamp=2016-02-23T12%3A46%3A24Z&Version=2014-05-26&Signature=OLeaidS1JvxuMvnyHOwuJ%2BuX5qY%3D";
        assert_eq!(describe_regions(&Method::GET, None), expected);
    }

    #[test]
    fn rpc_signs_the_method_and_the_security_token() {
        let signature = |query: &str| query.rsplit_once("&Signature=").unwrap().1.to_owned();
        let get = describe_regions(&Method::GET, None);
        assert_ne!(signature(&describe_regions(&Method::POST, None)), signature(&get));
        let temporary = describe_regions(&Method::GET, Some("a token*~"));
        assert!(temporary.contains("&SecurityToken=a%20token%2A~&"), "{temporary}");
        assert_ne!(signature(&temporary), signature(&get));
    }
}
