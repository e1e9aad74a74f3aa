//! Google service accounts: an assertion (JWT, RS256) that the token endpoint exchanges for an access token.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_config::Secret;
use jiff::Timestamp;
use serde_json::Value;

use super::{RsaKey, SignError};

/// Lifetime of an assertion in seconds, the longest that Google accepts.
const LIFETIME: i64 = 3600;

/// Service account with its key.
#[derive(Debug, Clone)]
pub struct ServiceAccount {
    /// Email address of the account, `client_email` of a key file.
    pub email: String,
    /// ID of the key, `private_key_id` of a key file.
    pub key_id: Option<String>,
    /// Private key, `private_key` of a key file.
    pub key: RsaKey,
}

/// Assertion that asks for `scopes` (separated by spaces). `audience` is the URL of the token endpoint, `token_uri` of a key
/// file, to which it is sent as `assertion` with the grant type `urn:ietf:params:oauth:grant-type:jwt-bearer`.
pub fn assertion(account: &ServiceAccount, scopes: &str, audience: &str, at: Timestamp) -> Result<Secret, SignError> {
    let input = format!("{}.{}", encode(&header(account)), encode(&claims(account, scopes, audience, at)));
    let signature = URL_SAFE_NO_PAD.encode(account.key.sign(input.as_bytes())?);
    Ok(format!("{input}.{signature}").into())
}

fn header(account: &ServiceAccount) -> String {
    let key_id = account.key_id.as_ref().map(|id| format!(r#","kid":{}"#, json(id))).unwrap_or_default();
    format!(r#"{{"alg":"RS256","typ":"JWT"{key_id}}}"#)
}

fn claims(account: &ServiceAccount, scopes: &str, audience: &str, at: Timestamp) -> String {
    let issued = at.as_second();
    format!(
        r#"{{"iss":{},"scope":{},"aud":{},"exp":{},"iat":{issued}}}"#,
        json(&account.email),
        json(scopes),
        json(audience),
        issued + LIFETIME
    )
}

fn json(text: &str) -> Value {
    Value::from(text)
}

fn encode(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(text)
}

#[cfg(test)]
mod tests {
    use ring::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
    use rustls::pki_types::PrivatePkcs1KeyDer;
    use rustls::pki_types::pem::PemObject as _;

    use super::super::rsa::tests::PKCS1;
    use super::*;

    /// Header and claims of Google's documentation (Using OAuth 2.0 for Server to Server Applications).
    const HEADER: &str = "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9";
    const CLAIMS: &str = "eyJpc3MiOiI3NjEzMjY3OTgwNjktcjVtbGpsbG4xcmQ0bHJiaGc3NWVmZ2lncDM2bTc4ajVAZGV2ZWxvcGVyLmdzZXJ2aWNlYWNjb3Vu\
        dC5jb20iLCJzY29wZSI6Imh0dHBzOi8vd3d3Lmdvb2dsZWFwaXMuY29tL2F1dGgvcHJlZGljdGlvbiIsImF1ZCI6Imh0dHBzOi8vYWNjb3VudHMuZ29v\
        Z2xlLmNvbS9vL29hdXRoMi90b2tlbiIsImV4cCI6MTMyODU1NDM4NSwiaWF0IjoxMzI4NTUwNzg1fQ";

    fn account(email: &str, key_id: Option<&str>) -> ServiceAccount {
        let key = RsaKey::from_pem(&PKCS1.into()).unwrap();
        ServiceAccount { email: email.into(), key_id: key_id.map(str::to_owned), key }
    }

    fn verify(input: &str, signature: &str) {
        let der = PrivatePkcs1KeyDer::from_pem_slice(PKCS1.as_bytes()).unwrap();
        let pair = RsaKeyPair::from_der(der.secret_pkcs1_der()).unwrap();
        let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public_key());
        key.verify(input.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
    }

    #[test]
    fn header_and_claims_match_the_documentation() {
        let account = account("761326798069-r5mljlln1rd4lrbhg75efgigp36m78j5@developer.gserviceaccount.com", None);
        let at = Timestamp::from_second(1_328_550_785).unwrap();
        let (scope, audience) =
            ("https://www.googleapis.com/auth/prediction", "https://accounts.google.com/o/oauth2/token");
        let jwt = assertion(&account, scope, audience, at).unwrap();
        let (input, signature) = jwt.reveal().rsplit_once('.').unwrap();
        assert_eq!(input, format!("{HEADER}.{CLAIMS}"));
        verify(input, signature);
    }

    #[test]
    fn special_characters_are_escaped() {
        let account = account("a\"b\\c", Some("key \"1\""));
        let header: Value = serde_json::from_str(&header(&account)).unwrap();
        assert_eq!(header["kid"], "key \"1\"");
        let claims: Value = serde_json::from_str(&claims(&account, "one two", "x", Timestamp::UNIX_EPOCH)).unwrap();
        assert_eq!((&claims["iss"], &claims["scope"]), (&"a\"b\\c".into(), &"one two".into()));
    }
}
