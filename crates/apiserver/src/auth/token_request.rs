//! The TokenRequest API: POST `serviceaccounts/NAME/token`.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::service_account::{Bound, Claims, ObjectRef, username};
use crate::field_error::FieldError;
use crate::state::State;
use crate::status::{ApiError, ApiResult, Named};
use crate::store::Stored;
use crate::value::Json;

const TOKEN_REQUEST: Named<'static> = Named { group: "authentication.k8s.io", kind: "TokenRequest" };

const DEFAULT_SECONDS: i64 = 60 * 60;
const MIN_SECONDS: i64 = 10 * 60;
const MAX_SECONDS: i64 = 1 << 32;

/// The expiration that the kubelet requests by default instead of an hour. A pod-bound token with it is valid for a year
/// and only marked as stale after the hour, so that workloads that never reload their token keep working.
const WARN_AFTER_SECONDS: i64 = 60 * 60 + 7;
const EXTENDED_SECONDS: i64 = 365 * 24 * 60 * 60;

/// Handles POST `serviceaccounts/NAME/token`. Nothing is stored, so a dry run also returns a token.
pub(crate) fn request_token(state: &State, namespace: &str, name: &str, mut request: Value) -> ApiResult<Value> {
    check_path(&request, namespace, name)?;
    let account = find(state, "serviceaccounts", namespace, name)?;
    check_uid(&request, name, &account)?;
    let now = Timestamp::now().as_second();
    apply_defaults(&mut request, state, namespace, name, &account, now);
    let errors = validate(&request);
    if !errors.is_empty() {
        return Err(ApiError::invalid(TOKEN_REQUEST, "", &errors));
    }
    let account = ObjectRef { name: name.to_owned(), uid: account.uid.to_string() };
    let mut bound = Bound { namespace: namespace.to_owned(), serviceaccount: account, ..Bound::default() };
    if request.has("spec.boundObjectRef") {
        bind(state, request.at("spec.boundObjectRef"), &mut bound)?;
    }
    let claims = claims(state, &request, bound, now);
    let Some(token) = state.auth.key.sign(&claims) else {
        return Err(ApiError::internal("failed to generate token: no signing key"));
    };
    // upstream: the status of an extended token has the requested expiration.
    let expires = now.saturating_add(seconds(&request));
    request.put("status", json!({"token": token, "expirationTimestamp": time(expires)}));
    Ok(request)
}

// === Request ===

/// Checks that name and namespace in the body, if set, match those in the path.
fn check_path(request: &Value, namespace: &str, name: &str) -> ApiResult<()> {
    let (given_name, given_namespace) = (request.text("metadata.name"), request.text("metadata.namespace"));
    if !given_namespace.is_empty() && given_namespace != namespace {
        let why = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(ApiError::bad_request(why));
    }
    if !given_name.is_empty() && given_name != name {
        let why = "must match the service account name if specified";
        let error = FieldError::invalid("metadata.name", given_name, why);
        return Err(ApiError::invalid(TOKEN_REQUEST, name, &[error]));
    }
    Ok(())
}

fn check_uid(request: &Value, name: &str, account: &Stored) -> ApiResult<()> {
    let (given, uid) = (request.text("metadata.uid"), &account.uid);
    if given.is_empty() || *given == **uid {
        return Ok(());
    }
    let why = format!("the UID in the token request ({given}) does not match the UID of the service account ({uid})");
    Err(ApiError::conflict(TOKEN_REQUEST, name, &why))
}

fn apply_defaults(request: &mut Value, state: &State, namespace: &str, name: &str, account: &Stored, now: i64) {
    request.put("metadata.name", name);
    request.put("metadata.namespace", namespace);
    request.put("metadata.uid", account.uid.as_ref());
    request.put("metadata.creationTimestamp", time(now));
    if request.list("spec.audiences").is_empty() {
        request.put("spec.audiences", json!(state.auth.audiences()));
    }
    if !request.has("spec.expirationSeconds") {
        request.put("spec.expirationSeconds", DEFAULT_SECONDS);
    }
    if !request.has("spec.boundObjectRef") {
        request.put("spec.boundObjectRef", Value::Null);
    }
}

fn seconds(request: &Value) -> i64 {
    request.int("spec.expirationSeconds").unwrap_or(DEFAULT_SECONDS)
}

fn validate(request: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut invalid = |field: &str, why: &str| errors.push(FieldError::invalid(field, request.at(field).clone(), why));
    if seconds(request) < MIN_SECONDS {
        invalid("spec.expirationSeconds", "may not specify a duration less than 10 minutes");
    }
    if seconds(request) > MAX_SECONDS {
        invalid("spec.expirationSeconds", "may not specify a duration larger than 2^32 seconds");
    }
    let attestations = request.map("spec.attestations").map_or(0, |a| a.len());
    if is_webhook(request.at("spec.boundObjectRef")) {
        if request.list("spec.audiences").len() != 1 {
            invalid("spec.audiences", "must be length 1 when bound to a webhook config");
        }
        if attestations != 1 {
            let why = "webhook bound requests require exactly one admissionReviewAPIGroups attestation";
            invalid("spec.attestations", why);
        }
    } else if attestations != 0 {
        // upstream: this error replaces all others.
        let why = "attestations may only be specified with a webhook bound object reference";
        return vec![FieldError::invalid("spec.attestations", request.at("spec.attestations").clone(), why)];
    }
    errors
}

fn is_webhook(reference: &Value) -> bool {
    matches!(reference.text("kind"), "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration")
        && reference.text("apiVersion") == "admissionregistration.k8s.io/v1"
}

// === Bound objects ===

/// Adds the referenced object to the claims.
fn bind(state: &State, reference: &Value, bound: &mut Bound) -> ApiResult<()> {
    let (group, version) = group_version(reference.text("apiVersion"));
    let (kind, name) = (reference.text("kind"), reference.text("name"));
    let object = match (group, kind) {
        ("", "Pod") => {
            let pod = find(state, "pods", &bound.namespace, name)?;
            check_pod(&pod, &bound.serviceaccount.name)?;
            bound.node = node_of(state, &pod);
            bound.pod.insert(reference_to(&pod)).clone()
        }
        ("", "Node") => {
            let node = find(state, "nodes", "", name)?;
            bound.node.insert(reference_to(&node)).clone()
        }
        ("", "Secret") => {
            let secret = find(state, "secrets", &bound.namespace, name)?;
            bound.secret.insert(reference_to(&secret)).clone()
        }
        _ => {
            let gate = match is_webhook(reference) {
                true => " (feature gate APIServerWebhookAuthenticationToken is disabled)",
                false => "",
            };
            let why = format!("cannot bind token to object of type {group}/{version}, Kind={kind}{gate}");
            return Err(ApiError::bad_request(why));
        }
    };
    let wanted = reference.text("uid");
    if !wanted.is_empty() && wanted != object.uid {
        let why = format!(
            "the UID in the bound object reference ({wanted}) does not match the UID in record. \
             The object might have been deleted and then recreated"
        );
        return Err(ApiError::conflict(Named { group, kind }, name, &why));
    }
    Ok(())
}

fn check_pod(pod: &Stored, account: &str) -> ApiResult<()> {
    match pod.value().text("spec.serviceAccountName") == account {
        true => Ok(()),
        false => Err(ApiError::bad_request(format!(
            "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
        ))),
    }
}

/// The Node that a Pod is assigned to; without a UID if the Node does not exist.
fn node_of(state: &State, pod: &Stored) -> Option<ObjectRef> {
    let pod = pod.value();
    let name = Some(pod.text("spec.nodeName")).filter(|name| !name.is_empty())?;
    let known = state.store.get("nodes", "", name);
    Some(known.map_or_else(|| ObjectRef { name: name.to_owned(), uid: String::new() }, |node| reference_to(&node)))
}

fn find(state: &State, storage: &'static str, namespace: &str, name: &str) -> ApiResult<Arc<Stored>> {
    let found = state.store.get(storage, namespace, name);
    found.ok_or_else(|| ApiError::not_found(Named { group: "", kind: storage }, name))
}

fn reference_to(object: &Stored) -> ObjectRef {
    ObjectRef { name: object.key.name.to_string(), uid: object.uid.to_string() }
}

/// Splits an `apiVersion` into group and version; both are empty if it is malformed.
fn group_version(api_version: &str) -> (&str, &str) {
    match api_version.split_once('/') {
        Some((_, rest)) if rest.contains('/') => ("", ""),
        Some(halves) => halves,
        None => ("", api_version),
    }
}

// === Token ===

fn claims(state: &State, request: &Value, mut bound: Bound, now: i64) -> Claims {
    let aud: Vec<String> = request.texts("spec.audiences").into_iter().map(str::to_owned).collect();
    let mut exp = seconds(request);
    if bound.pod.is_some() && exp == WARN_AFTER_SECONDS && aud.iter().all(|a| state.auth.audiences().contains(a)) {
        bound.warnafter = Some(now + exp);
        exp = EXTENDED_SECONDS;
    }
    Claims {
        aud,
        exp: now.saturating_add(exp),
        iat: now,
        iss: state.auth.issuer.clone(),
        jti: Uuid::new_v4().to_string(),
        sub: username(&bound.namespace, &bound.serviceaccount.name),
        kubernetes: bound,
        nbf: now,
    }
}

fn time(seconds: i64) -> String {
    Timestamp::from_second(seconds).map(|t| t.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::fixture::{account, state, store};

    fn request(state: &State, spec: Value) -> ApiResult<Value> {
        let request =
            json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "metadata": {}, "spec": spec});
        request_token(state, "n", "bot", request)
    }

    fn rejection(state: &State, spec: Value) -> (u16, String) {
        let error = request(state, spec).unwrap_err();
        (error.code.as_u16(), error.message)
    }

    fn with_account() -> State {
        let state = state();
        account(&state, "n", "bot");
        state
    }

    fn claims_of(state: &State, response: &Value) -> Value {
        state.auth.key.verify(response.text("status.token"), &state.auth.issuer).unwrap()
    }

    #[test]
    fn a_request_is_defaulted_as_recorded() {
        let state = with_account();
        let response = request(&state, json!({})).unwrap();
        assert_eq!(
            response["spec"],
            json!({"audiences": ["https://kubernetes.default.svc"], "boundObjectRef": null, "expirationSeconds": 3600})
        );
        let metadata = &response["metadata"];
        assert_eq!((metadata.text("name"), metadata.text("namespace"), metadata.text("uid")), ("bot", "n", "bot"));
        let claims = claims_of(&state, &response);
        let iat = claims.int("iat").unwrap();
        assert_eq!(
            claims,
            json!({
                "aud": ["https://kubernetes.default.svc"],
                "exp": iat + 3600,
                "iat": iat,
                "iss": "https://kubernetes.default.svc",
                "jti": claims["jti"],
                "kubernetes.io": {"namespace": "n", "serviceaccount": {"name": "bot", "uid": "bot"}},
                "nbf": iat,
                "sub": "system:serviceaccount:n:bot",
            })
        );
        assert_eq!(response.text("status.expirationTimestamp"), time(iat + 3600));
        assert_eq!(metadata.text("creationTimestamp"), time(iat));
    }

    #[test]
    fn a_bound_token_has_the_object_in_its_claims() {
        let state = with_account();
        store(
            &state,
            json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s", "namespace": "n", "uid": "7"}}),
        );
        let reference = json!({"kind": "Secret", "apiVersion": "v1", "name": "s", "uid": "7"});
        let response = request(&state, json!({"boundObjectRef": reference})).unwrap();
        assert_eq!(response["spec"]["boundObjectRef"], reference);
        let claims = claims_of(&state, &response);
        assert_eq!(claims["kubernetes.io"]["secret"], json!({"name": "s", "uid": "7"}));
    }

    #[test]
    fn invalid_requests_are_rejected_with_the_recorded_messages() {
        let state = with_account();
        store(&state, json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s", "namespace": "n"}}));
        let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "namespace": "n"},
                         "spec": {"serviceAccountName": "other"}});
        store(&state, pod);
        let bound = |kind: &str, api: &str, name: &str, uid: &str| json!({"boundObjectRef": {"kind": kind, "apiVersion": api, "name": name, "uid": uid}});
        let short = "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 599: \
                     may not specify a duration less than 10 minutes";
        let long = "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: \
                    4294967297: may not specify a duration larger than 2^32 seconds";
        let attested = "TokenRequest.authentication.k8s.io \"\" is invalid: spec.attestations: Invalid value: \
                        {\"a\":[\"b\"]}: attestations may only be specified with a webhook bound object reference";
        let changed = "Operation cannot be fulfilled on Secret \"s\": the UID in the bound object reference (x) does not \
                       match the UID in record. The object might have been deleted and then recreated";
        let different =
            "cannot bind token for serviceaccount \"bot\" to pod running with different serviceaccount name.";
        let cases = [
            (json!({"expirationSeconds": 599}), 422, short),
            (json!({"expirationSeconds": 4294967297i64}), 422, long),
            (json!({"expirationSeconds": 1, "attestations": {"a": ["b"]}}), 422, attested),
            (bound("Secret", "v1", "gone", ""), 404, "secrets \"gone\" not found"),
            (bound("Secret", "v1", "s", "x"), 409, changed),
            (bound("Pod", "v1", "p", ""), 400, different),
            (bound("ConfigMap", "v1", "x", ""), 400, "cannot bind token to object of type /v1, Kind=ConfigMap"),
            (bound("Pod", "apps/v1", "p", ""), 400, "cannot bind token to object of type apps/v1, Kind=Pod"),
            (bound("X", "a/b/c", "p", ""), 400, "cannot bind token to object of type /, Kind=X"),
        ];
        for (spec, code, message) in cases {
            assert_eq!(rejection(&state, spec), (code, message.to_owned()));
        }
    }

    #[test]
    fn the_body_must_match_the_path() {
        let state = with_account();
        let cases = [
            (json!({"namespace": "other"}), 400, "the namespace of the provided object does not match"),
            (
                json!({"name": "x"}),
                422,
                "TokenRequest.authentication.k8s.io \"bot\" is invalid: metadata.name: Invalid",
            ),
            (
                json!({"uid": "x"}),
                409,
                "Operation cannot be fulfilled on TokenRequest.authentication.k8s.io \"bot\": the UID",
            ),
        ];
        for (metadata, code, message) in cases {
            let request = json!({"metadata": metadata, "spec": {}});
            let error = request_token(&state, "n", "bot", request).unwrap_err();
            assert_eq!(error.code.as_u16(), code);
            assert!(error.message.starts_with(message), "{}", error.message);
        }
        let absent = request_token(&state, "n", "gone", json!({"metadata": {}, "spec": {}})).unwrap_err();
        assert_eq!(absent.message, "serviceaccounts \"gone\" not found");
    }

    #[test]
    fn the_default_kubelet_token_has_an_extended_lifetime() {
        let state = with_account();
        let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "namespace": "n"},
                         "spec": {"serviceAccountName": "bot"}});
        store(&state, pod);
        let reference = json!({"kind": "Pod", "apiVersion": "v1", "name": "p"});
        let response = request(&state, json!({"boundObjectRef": reference, "expirationSeconds": 3607})).unwrap();
        let claims = claims_of(&state, &response);
        let iat = claims.int("iat").unwrap();
        assert_eq!(claims.int("exp"), Some(iat + EXTENDED_SECONDS));
        assert_eq!(claims["kubernetes.io"]["warnafter"], json!(iat + 3607));
        assert_eq!(response.text("status.expirationTimestamp"), time(iat + 3607));
    }
}
