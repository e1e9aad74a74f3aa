//! Authentication: maps client certificates and bearer tokens to a [`User`].
//!
//! A request without credentials is anonymous under RBAC and rejected under `AlwaysAllow`. Invalid credentials are always
//! rejected; they never fall back to the anonymous user.

use std::sync::Arc;

use x509_cert::Certificate;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::Decode as _;
use x509_cert::der::asn1::ObjectIdentifier;

use super::service_account::{self, AuthenticatedToken};
use super::{ANONYMOUS, AUTHENTICATED, Auth, CREDENTIAL_ID, UNAUTHENTICATED, User, digest_cache, joined};
use crate::options::AuthorizationMode;
use crate::state::State;
use crate::status::{ApiError, ApiResult};
use crate::tls::{COMMON_NAME, ORGANIZATION};

pub(super) const INVALID_TOKEN: &str = "invalid bearer token";

const KUBERNETES_UID: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.57683.2");

/// Authenticates the client by its certificate (DER, already verified against our CA) or its bearer token.
pub(crate) fn authenticate(state: &State, certificate: Option<&[u8]>, authorization: Option<&str>) -> ApiResult<User> {
    let by_certificate = certificate.map(|der| certificate_user(&state.auth, der));
    if let Some(Ok(Some(user))) = by_certificate {
        return Ok(user.as_ref().clone());
    }
    match (authorization.and_then(bearer), by_certificate) {
        (Some(token), _) => match authenticate_token(state, token, state.auth.audiences()) {
            Ok(recognised) => Ok(recognised.user),
            Err(_) => Err(ApiError::unauthorized()),
        },
        (None, Some(Err(Unreadable))) => Err(ApiError::unauthorized()),
        // upstream: AlwaysAllow disables anonymous requests, because they would be allowed everything.
        (None, _) if state.auth.mode == AuthorizationMode::AlwaysAllow => Err(ApiError::unauthorized()),
        (None, _) => Ok(anonymous()),
    }
}

fn anonymous() -> User {
    User { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..User::default() }
}

/// The token of an `Authorization` header; `None` for other schemes and for an empty token.
fn bearer(header: &str) -> Option<&str> {
    let mut parts = header.trim().splitn(3, ' ');
    let scheme = parts.next().filter(|s| s.eq_ignore_ascii_case("bearer"));
    scheme.and(parts.next()).filter(|token| !token.is_empty())
}

/// Adds the group `system:authenticated`, except to anonymous users.
fn authenticated(mut user: User) -> User {
    if user.name != ANONYMOUS && !user.in_group(UNAUTHENTICATED) {
        user.join(AUTHENTICATED);
    }
    user
}

// === Tokens ===

/// Authenticates a bearer token for one of `audiences`. The error is the text that a TokenReview returns.
pub(super) fn authenticate_token(
    state: &State,
    token: &str,
    audiences: &[String],
) -> Result<AuthenticatedToken, String> {
    if let Some(user) = state.auth.static_token_user(&digest_cache::digest(token.as_bytes())) {
        // A static token is valid for all audiences of this server.
        let ours: Vec<String> = state.auth.audiences().iter().filter(|a| audiences.contains(a)).cloned().collect();
        if ours.is_empty() {
            return Err(INVALID_TOKEN.to_owned());
        }
        return Ok(AuthenticatedToken { user: authenticated(user.as_ref().clone()), audiences: ours });
    }
    match service_account::authenticate(state, token, audiences) {
        Ok(found) => Ok(AuthenticatedToken { user: authenticated(found.user), ..found }),
        // upstream: the loopback token authenticator runs first, and its error stays in the message.
        Err(why) => Err(joined(&[INVALID_TOKEN.to_owned(), why])),
    }
}

// === Certificates ===

/// The certificate cannot be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Unreadable;

/// The user named by the subject of a certificate; `None` without a common name.
fn certificate_user(auth: &Auth, der: &[u8]) -> Result<Option<Arc<User>>, Unreadable> {
    let key = digest_cache::digest(der);
    if let Some(user) = auth.certificates.get(&key) {
        return Ok(Some(user));
    }
    let Some(mut user) = subject(der)? else { return Ok(None) };
    let fingerprint: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    user.extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={fingerprint}")]);
    let user = Arc::new(authenticated(user));
    auth.certificates.insert(key, user.clone());
    Ok(Some(user))
}

/// Reads the user name from the common name and a group from each organization.
fn subject(der: &[u8]) -> Result<Option<User>, Unreadable> {
    let certificate = Certificate::from_der(der).map_err(|_| Unreadable)?;
    let names = || certificate.tbs_certificate.subject.0.iter().flat_map(|rdn| rdn.0.iter());
    let texts = |oid: ObjectIdentifier| names().filter(move |n| n.oid == oid).filter_map(text);
    let name = match texts(COMMON_NAME).next_back() {
        Some(name) if !name.is_empty() => name,
        _ => return Ok(None),
    };
    let mut uids = texts(KUBERNETES_UID);
    let uid = match (uids.next(), uids.next()) {
        (None, _) => String::new(),
        (Some(uid), None) if !uid.is_empty() => uid,
        _ => return Err(Unreadable),
    };
    let groups = texts(ORGANIZATION).collect();
    Ok(Some(User { name, uid, groups, ..User::default() }))
}

fn text(name: &AttributeTypeAndValue) -> Option<String> {
    String::from_utf8(name.value.value().to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;
    use crate::auth::fixture::{always_allow_state, state, store};
    use serde_json::json;

    fn certificate(names: &[(DnType, &str)]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, text) in names {
            params.distinguished_name.push(kind.clone(), *text);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn a_certificate_sets_user_and_groups() {
        let state = state();
        let der = certificate(&[(DnType::CommonName, "admin"), (DnType::OrganizationName, "system:masters")]);
        for _ in 0..2 {
            let user = authenticate(&state, Some(&der), None).unwrap();
            assert_eq!(user.name, "admin");
            assert_eq!(user.groups, ["system:masters", "system:authenticated"]);
            assert!(user.extra[CREDENTIAL_ID][0].starts_with("X509SHA256="));
        }
    }

    #[test]
    fn the_certificate_takes_precedence_over_the_token() {
        let state = state();
        let der = certificate(&[(DnType::CommonName, "jane")]);
        assert_eq!(authenticate(&state, Some(&der), Some("Bearer garbage")).unwrap().name, "jane");
    }

    #[test]
    fn a_certificate_without_a_common_name_is_anonymous_and_a_malformed_one_is_rejected() {
        let state = state();
        let der = certificate(&[(DnType::OrganizationName, "x")]);
        assert_eq!(authenticate(&state, Some(&der), None).unwrap(), anonymous());
        assert_eq!(authenticate(&state, Some(b"nonsense"), None), Err(ApiError::unauthorized()));
    }

    #[test]
    fn missing_credentials_are_anonymous_and_invalid_ones_are_rejected() {
        let state = state();
        for header in [None, Some(""), Some("Basic YTpi"), Some("Bearer"), Some("Bearer "), Some("Bearer  x")] {
            assert_eq!(authenticate(&state, None, header), Ok(anonymous()), "{header:?}");
        }
        for header in ["Bearer garbage", "bearer a.b.c", "BEARER x y"] {
            assert_eq!(authenticate(&state, None, Some(header)), Err(ApiError::unauthorized()), "{header}");
        }
    }

    #[test]
    fn always_allow_requires_credentials() {
        let state = always_allow_state();
        let nameless = certificate(&[(DnType::OrganizationName, "x")]);
        for (certificate, header) in [(None, None), (None, Some("Basic YTpi")), (Some(nameless.as_slice()), None)] {
            assert_eq!(authenticate(&state, certificate, header), Err(ApiError::unauthorized()), "{header:?}");
        }
        let der = certificate(&[(DnType::CommonName, "jane")]);
        assert_eq!(authenticate(&state, Some(&der), None).unwrap().name, "jane");
    }

    #[test]
    fn a_static_token_is_accepted() {
        let state = state();
        let jane = User { name: "jane".into(), groups: vec!["dev".into()], ..User::default() };
        state.auth.add_token("secret", jane);
        let user = authenticate(&state, None, Some("Bearer secret")).unwrap();
        assert_eq!(
            (user.name.as_str(), user.groups.as_slice()),
            ("jane", ["dev", AUTHENTICATED].map(String::from).as_slice())
        );
        let elsewhere = authenticate_token(&state, "secret", &["other".to_owned()]);
        assert_eq!(elsewhere, Err(INVALID_TOKEN.to_owned()));
    }

    #[test]
    fn authenticated_users_are_in_the_authenticated_group() {
        let state = state();
        store(
            &state,
            json!({"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "bot", "namespace": "n"}}),
        );
        let token = crate::auth::fixture::token(&state, "n", "bot");
        let user = authenticate(&state, None, Some(&format!("Bearer {token}"))).unwrap();
        assert_eq!(user.name, "system:serviceaccount:n:bot");
        assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"]);
    }
}
