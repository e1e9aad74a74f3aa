//! HTTP signatures of Oracle Cloud Infrastructure, RSA with SHA-256.

use bowline_config::Secret;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, DATE};
use http::{HeaderMap, HeaderName, Method, Request};
use jiff::Timestamp;

use super::canonical;
use super::{RsaKey, SignError};

const BODY_DIGEST: HeaderName = HeaderName::from_static("x-content-sha256");

/// Registered key pair.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// Key ID: [`api_key_id`], or `ST$` and the session token of an instance or a workload.
    pub key_id: Secret,
    /// Private key.
    pub key: RsaKey,
}

/// Key ID of a user's API key.
pub fn api_key_id(tenancy: &str, user: &str, fingerprint: &str) -> Secret {
    format!("{tenancy}/{user}/{fingerprint}").into()
}

/// Headers that sign the request: `authorization` and `date`, and for POST, PUT and PATCH those that describe the body.
/// A body without `content-type` is sent as JSON.
pub fn headers(request: &Request<Bytes>, credentials: &Credentials, at: Timestamp) -> Result<HeaderMap, SignError> {
    sign(request, credentials, &at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string())
}

fn sign(request: &Request<Bytes>, credentials: &Credentials, date: &str) -> Result<HeaderMap, SignError> {
    let (mut added, lines) = signing_lines(request, date)?;
    let signature = canonical::base64(&credentials.key.sign(signing_string(&lines).as_bytes())?);
    let names: Vec<&str> = lines.iter().map(|(name, _)| *name).collect();
    let authorization = format!(
        r#"Signature version="1",headers="{}",keyId="{}",algorithm="rsa-sha256",signature="{signature}""#,
        names.join(" "),
        credentials.key_id.reveal()
    );
    added.insert(AUTHORIZATION, canonical::sensitive(&AUTHORIZATION, &authorization)?);
    Ok(added)
}

/// Names and values to sign, in order.
type Lines = Vec<(&'static str, String)>;

fn signing_string(lines: &Lines) -> String {
    lines.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join("\n")
}

/// Headers to add, and everything that is signed.
fn signing_lines(request: &Request<Bytes>, date: &str) -> Result<(HeaderMap, Lines), SignError> {
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let mut lines: Lines = vec![
        ("date", date.to_owned()),
        ("(request-target)", format!("{} {target}", request.method().as_str().to_ascii_lowercase())),
        ("host", canonical::host(request)?),
    ];
    let mut added = HeaderMap::from_iter([(DATE, canonical::value(&DATE, date)?)]);
    if [Method::POST, Method::PUT, Method::PATCH].contains(request.method()) {
        for (name, header, text) in body_headers(request)? {
            added.insert(header.clone(), canonical::value(&header, &text)?);
            lines.push((name, text));
        }
    }
    Ok((added, lines))
}

fn body_headers(request: &Request<Bytes>) -> Result<[(&'static str, HeaderName, String); 3], SignError> {
    let given = request.headers().get(CONTENT_TYPE).map(|given| canonical::text(&CONTENT_TYPE, given)).transpose()?;
    let digest = canonical::base64(canonical::sha256(request.body()).as_ref());
    Ok([
        ("content-length", CONTENT_LENGTH, request.body().len().to_string()),
        ("content-type", CONTENT_TYPE, given.unwrap_or("application/json").to_owned()),
        ("x-content-sha256", BODY_DIGEST, digest),
    ])
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use ring::signature::{RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, UnparsedPublicKey};

    use super::super::rsa::tests::PKCS1;
    use super::*;

    /// Date of the published examples, which has the wrong day of the week.
    const PUBLISHED_DATE: &str = "Thu, 05 Jan 2014 21:31:40 GMT";

    /// Public half of the published key (`testdata/rsa-1024.pem`), which is too small to sign with here.
    const PUBLISHED_KEY: &str = "MIGJAoGBAMIUQ0bDffIaKHL3akONlCGXQLfqs8mP4K99ILz6rbyHEDXrVAU1R3XfC4JNRyrRB3aqwF7/aEXJzYMIkmDSHUvvz7pn\
        hQxHsQ5yl91QT0d/eb+Gz4VRHjm4El4MrUdIUcPxscoPqS/wU8Z8lOi1z7bGMnChiL7WGqnV8h6RrGzJAgMBAAE=";

    /// Signatures of the published examples, GET and POST.
    const GET_SIGNATURE: &str = "GBas7grhyrhSKHP6AVIj/h5/Vp8bd/peM79H9Wv8kjoaCivujVXlpbKLjMPeDUhxkFIWtTtLBj3sUzaFj34XE6YZAHc9r2DmE4pM\
        wOAy/kiITcZxa1oHPOeRheC0jP2dqbTll8fmTZVwKZOKHYPtrLJIJQHJjNvxFWeHQjMaR7M=";
    const POST_SIGNATURE: &str = "Mje8vIDPlwIHmD/cTDwRxE7HaAvBg16JnVcsuqaNRim23fFPgQfLoOOxae6WqKb1uPjYEl0qIdazWaBy/Ml8DRhqlocMwoSXv0fb\
        ukP8J5N80LCmzT/FFBvIvTB91XuXI3hYfP9Zt1l7S6ieVadHUfqBedWH0itrtPJBgKmrWso=";

    fn get_example() -> Request<Bytes> {
        let url = "https://iaas.us-phoenix-1.oraclecloud.com/20160918/instances?availabilityDomain=Pjwf%3A%20PHX-AD-1\
            &compartmentId=ocid1.compartment.oc1..aaaaaaaam3we6vgnherjq5q2idnccdflvjsnog7mlr6rtdb25gilchfeyjxa\
            &displayName=TeamXInstances&volumeId=ocid1.volume.oc1.phx.abyhqljrgvttnlx73nmrwfaux7kcvzfs3s66izvxf2h4lgvyndsdsnoiwr5q";
        Request::get(url).body(Bytes::new()).unwrap()
    }

    fn post_example() -> Request<Bytes> {
        let body = r#"{
    "compartmentId": "ocid1.compartment.oc1..aaaaaaaam3we6vgnherjq5q2idnccdflvjsnog7mlr6rtdb25gilchfeyjxa",
    "instanceId": "ocid1.instance.oc1.phx.abuw4ljrlsfiqw6vzzxb43vyypt4pkodawglp3wqxjqofakrwvou52gb6s5a",
    "volumeId": "ocid1.volume.oc1.phx.abyhqljrgvttnlx73nmrwfaux7kcvzfs3s66izvxf2h4lgvyndsdsnoiwr5q"
}"#;
        let request = Request::post("https://iaas.us-phoenix-1.oraclecloud.com/20160918/volumeAttachments");
        request.header(CONTENT_TYPE, "application/json").body(body.into()).unwrap()
    }

    fn credentials() -> Credentials {
        let key_id = api_key_id("ocid1.tenancy.oc1..a", "ocid1.user.oc1..b", "20:3b:97:13");
        Credentials { key_id, key: RsaKey::from_pem(&PKCS1.into()).unwrap() }
    }

    #[test]
    fn the_signing_string_matches_the_published_signatures() {
        let key = STANDARD.decode(PUBLISHED_KEY).unwrap();
        let key = UnparsedPublicKey::new(&RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, key);
        for (request, signature) in [(get_example(), GET_SIGNATURE), (post_example(), POST_SIGNATURE)] {
            let (_, lines) = signing_lines(&request, PUBLISHED_DATE).unwrap();
            let signature = STANDARD.decode(signature).unwrap();
            key.verify(signing_string(&lines).as_bytes(), &signature).unwrap();
        }
    }

    #[test]
    fn the_authorization_header_has_key_id_and_signature() {
        let request = get_example();
        let added = sign(&request, &credentials(), PUBLISHED_DATE).unwrap();
        let (_, lines) = signing_lines(&request, PUBLISHED_DATE).unwrap();
        let signature = STANDARD.encode(credentials().key.sign(signing_string(&lines).as_bytes()).unwrap());
        let expected = format!(
            "Signature version=\"1\",headers=\"date (request-target) host\",\
            keyId=\"ocid1.tenancy.oc1..a/ocid1.user.oc1..b/20:3b:97:13\",algorithm=\"rsa-sha256\",signature=\"{signature}\""
        );
        assert_eq!(added[AUTHORIZATION], expected);
        assert_eq!(added.len(), 2);
    }

    #[test]
    fn body_headers_are_signed_even_if_the_body_is_empty() {
        let request = Request::put("https://localhost:7000/api").body(Bytes::new()).unwrap();
        let added = headers(&request, &credentials(), Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(added[DATE], "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(added[CONTENT_LENGTH], "0");
        assert_eq!(added[CONTENT_TYPE], "application/json");
        assert_eq!(added[BODY_DIGEST], "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
        let names = "date (request-target) host content-length content-type x-content-sha256";
        assert!(added[AUTHORIZATION].to_str().unwrap().contains(&format!("headers=\"{names}\"")));
        let (_, lines) = signing_lines(&request, PUBLISHED_DATE).unwrap();
        assert!(signing_string(&lines).contains("(request-target): put /api\nhost: localhost:7000\n"));
    }
}
