//! PUT: replaces an object, or creates it where the kind allows.

use serde_json::Value;

use super::{Call, UpdateError, create, create_object, created, ok, update_object};
use crate::auth::{self, Attributes};
use crate::field_error::FieldError;
use crate::go_text;
use crate::http::body::{self, Expected};
use crate::http::query::WriteOptions;
use crate::http::respond::{Object, ResponseContent};
use crate::resources::WriteCx;
use crate::status::{ApiError, ApiResult};
use crate::store::Stored;
use crate::value::Json;

pub(super) fn update(call: &mut Call) -> ApiResult<ResponseContent> {
    let options = WriteOptions::parse(&call.query, "UpdateOptions", false)?;
    let api_version = call.resource().api_version();
    let expected = Expected::resource(call.resource(), &api_version);
    let mut warnings = Vec::new();
    let mut object = body::decode_object(&call.headers, &call.body, expected, options.field_validation, &mut warnings)?;
    create::check_body_namespace(&mut object, &call.path.namespace)?;
    check_name(&object, &call.path.name)?;
    let manager = call.manager(options.field_manager.as_deref());
    let response = put(call, object, &manager, options.dry_run, &mut warnings);
    call.warnings.append(&mut warnings);
    response
}

/// Checks that the body has the name of the path.
pub(super) fn check_name(object: &Value, name: &str) -> ApiResult<()> {
    match object.text("metadata.name") {
        given if given == name => Ok(()),
        "" => Err(ApiError::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        given => Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        ))),
    }
}

fn put(
    call: &Call,
    object: Value,
    manager: &str,
    dry_run: bool,
    warnings: &mut Vec<String>,
) -> ApiResult<ResponseContent> {
    let write = call.writer(manager, dry_run);
    loop {
        let result = match call.stored() {
            None => create_by_put(call, object.clone(), &write, warnings),
            Some(current) => {
                check_preconditions(call, &object, &current)?;
                let old = call.to_view(&current);
                update_object(&write, &current, &old, object.clone(), false, warnings).map(ok)
            }
        };
        match result {
            Ok(response) => return Ok(response),
            Err(UpdateError::Rejected(error)) => return Err(error),
            // Retry: either the write is unconditional, or the precondition fails this time.
            Err(UpdateError::Conflict) => warnings.clear(),
        }
    }
}

fn create_by_put(
    call: &Call,
    mut object: Value,
    write: &WriteCx<'_>,
    warnings: &mut Vec<String>,
) -> Result<ResponseContent, UpdateError> {
    let resource = call.resource();
    // upstream: a PUT of the status of a missing Service creates the Service, with the rules for its creation.
    if !resource.put_creates || call.path.subresource.is_some_and(|sub| sub.name != "status") {
        return Err(ApiError::not_found(resource.named(), &call.path.name).into());
    }
    if !matches!(object.text("metadata.uid"), "") {
        return Err(uid_conflict(call, object.text("metadata.uid"), "").into());
    }
    // Any valid version is ignored here.
    given_version(&object)?;
    object.take_at("metadata.resourceVersion");
    authorize_create(call)?;
    created_or_conflict(call, create_object(write, object, false, warnings))
}

/// Turns `AlreadyExists` into a conflict: a create by PUT or apply is then retried as an update.
pub(super) fn created_or_conflict(call: &Call, result: ApiResult<Object>) -> Result<ResponseContent, UpdateError> {
    result.map(created).map_err(|error| match error.reason {
        Some("AlreadyExists") if call.stored().is_some() => UpdateError::Conflict,
        _ => UpdateError::Rejected(error),
    })
}

/// Checks the permission to create, which the permission to update does not include.
pub(super) fn authorize_create(call: &Call) -> ApiResult<()> {
    authorize_verb(call, "create")
}

/// Checks an additional permission of the user on the object.
pub(super) fn authorize_verb(call: &Call, verb: &str) -> ApiResult<()> {
    let resource = call.resource();
    let attributes = Attributes {
        verb: verb.into(),
        group: resource.group.into(),
        version: resource.version.into(),
        resource: resource.plural.into(),
        subresource: call.path.subresource.map_or("", |sub| sub.name).into(),
        namespace: call.path.namespace.clone(),
        name: call.path.name.clone(),
        ..Attributes::default()
    };
    auth::authorize(&call.state, &call.user, &attributes)
}

/// Checks that UID and resourceVersion in the body, if set, match the stored object.
fn check_preconditions(call: &Call, object: &Value, current: &Stored) -> ApiResult<()> {
    check_uid(call, object, current)?;
    check_version(call, object, current)
}

/// Checks that the UID in the body, if set, matches the stored object.
pub(super) fn check_uid(call: &Call, object: &Value, current: &Stored) -> ApiResult<()> {
    match object.text("metadata.uid") {
        "" => Ok(()),
        uid if *uid == *current.uid => Ok(()),
        uid => Err(uid_conflict(call, uid, &current.uid)),
    }
}

/// Checks that the resourceVersion in the body matches the stored object. Some kinds allow it to be absent.
pub(super) fn check_version(call: &Call, object: &Value, current: &Stored) -> ApiResult<()> {
    let resource = call.resource();
    match given_version(object)? {
        0 if resource.unconditional_put => Ok(()),
        0 => {
            let error = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
            Err(ApiError::invalid(resource.named(), &call.path.name, &[error]))
        }
        version if version == current.revision => Ok(()),
        _ => Err(ApiError::modified(resource.named(), &call.path.name)),
    }
}

/// The resourceVersion of the body as a number; 0 if absent.
fn given_version(object: &Value) -> ApiResult<u64> {
    match object.text("metadata.resourceVersion") {
        "" => Ok(0),
        text => go_text::parse_uint(text).map_err(ApiError::plain),
    }
}

fn uid_conflict(call: &Call, given: &str, found: &str) -> ApiError {
    let why = format!("Precondition failed: UID in precondition: {given}, UID in object meta: {found}");
    storage_conflict(call, &why)
}

/// A conflict with the message of upstream's etcd storage.
pub(super) fn storage_conflict(call: &Call, why: &str) -> ApiError {
    let folder = registry_folder(call.resource().storage);
    let key = match call.path.namespace.as_str() {
        "" => format!("/registry/{folder}/{}", call.path.name),
        namespace => format!("/registry/{folder}/{namespace}/{}", call.path.name),
    };
    let why =
        format!("StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}");
    ApiError::conflict(call.resource().named(), &call.path.name, &why)
}

/// upstream: the etcd prefixes of kinds that were renamed.
fn registry_folder(storage: &str) -> &str {
    match storage {
        "nodes" => "minions",
        "services" => "services/specs",
        "endpoints" => "services/endpoints",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use crate::fuzz_tests::send;
    use crate::state::State;
    use crate::{ApiServer, Options};

    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    const SERVICES: &str = "/api/v1/namespaces/default/services";
    const NODES: &str = "/api/v1/nodes";

    /// Sends a body (for PATCH as a merge patch). Returns status code and message.
    async fn request(state: &Arc<State>, method: &str, path: &str, body: Value) -> (u16, String) {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let (code, response) = send(state, method, path, kind, body.to_string().into_bytes()).await.unwrap();
        (code, response["message"].as_str().unwrap_or_default().to_owned())
    }

    async fn server() -> (ApiServer, Arc<State>) {
        let server = ApiServer::start(Options { built_in_controllers: false, ..Options::default() }).await.unwrap();
        let state = server.state_for_tests();
        (server, state)
    }

    fn named(name: &str, version: &str) -> Value {
        json!({"metadata": {"name": name, "resourceVersion": version}})
    }

    #[tokio::test]
    async fn a_new_object_must_not_have_a_resource_version() {
        let (_server, state) = server().await;
        for (name, version, code) in [("a", "1", 500), ("b", "0", 201), ("c", "x", 201)] {
            assert_eq!(request(&state, "POST", MAPS, named(name, version)).await.0, code, "{version}");
        }
        let dry = format!("{MAPS}?dryRun=All");
        let (code, response) =
            send(&state, "POST", &dry, "application/json", named("d", "7").to_string().into_bytes()).await.unwrap();
        assert_eq!((code, &response["metadata"]["resourceVersion"]), (201, &json!("7")));
    }

    #[tokio::test]
    async fn a_name_conflict_with_generate_name_is_retriable() {
        let (_server, state) = server().await;
        let body = json!({"metadata": {"name": "a", "generateName": "a-"}}).to_string().into_bytes();
        send(&state, "POST", MAPS, "application/json", body.clone()).await;
        let (code, response) = send(&state, "POST", MAPS, "application/json", body).await.unwrap();
        assert_eq!((code, &response["details"]["retryAfterSeconds"]), (409, &json!(1)));
        let text = "configmaps \"a\" already exists, the server was not able to generate a unique name for the object";
        assert_eq!(response["message"], text);
    }

    #[tokio::test]
    async fn a_resource_version_must_be_valid_and_current() {
        let (_server, state) = server().await;
        request(&state, "POST", MAPS, json!({"metadata": {"name": "a"}})).await;
        let path = format!("{MAPS}/a");
        let huge = "99999999999999999999";
        for method in ["PUT", "PATCH"] {
            let (code, text) = request(&state, method, &path, named("a", "+5")).await;
            assert_eq!((code, text.as_str()), (500, "strconv.ParseUint: parsing \"+5\": invalid syntax"));
            let (code, text) = request(&state, method, &path, named("a", huge)).await;
            assert_eq!((code, text), (500, format!("strconv.ParseUint: parsing {huge:?}: value out of range")));
            assert_eq!(request(&state, method, &path, named("a", "1")).await.0, 409);
            assert_eq!(request(&state, method, &path, named("a", "0")).await.0, 200);
        }
    }

    #[tokio::test]
    async fn a_lease_update_requires_a_resource_version() {
        let (_server, state) = server().await;
        let path = format!("{LEASES}/a");
        let bad = request(&state, "PUT", &path, named("a", "x")).await;
        assert_eq!(bad, (500, "strconv.ParseUint: parsing \"x\": invalid syntax".to_owned()));
        assert_eq!(request(&state, "PUT", &path, named("a", "7")).await.0, 201);
        assert_eq!(request(&state, "PUT", &path, named("a", "")).await.0, 422);
        let removed = json!({"metadata": {"resourceVersion": null}});
        assert_eq!(request(&state, "PATCH", &path, removed).await.0, 422);
        assert_eq!(request(&state, "PATCH", &path, json!({"spec": {"holderIdentity": "h"}})).await.0, 200);
    }

    #[tokio::test]
    async fn the_namespace_of_a_cluster_scoped_body_is_ignored() {
        let (_server, state) = server().await;
        let node = json!({"metadata": {"name": "n", "namespace": "x"}});
        assert_eq!(request(&state, "POST", NODES, node.clone()).await.0, 201);
        assert_eq!(request(&state, "PUT", &format!("{NODES}/n"), node.clone()).await.0, 200);
        assert_eq!(request(&state, "PATCH", &format!("{NODES}/n"), node).await.0, 200);
    }

    #[tokio::test]
    async fn the_grace_period_is_immutable() {
        let (_server, state) = server().await;
        request(&state, "POST", MAPS, json!({"metadata": {"name": "a", "finalizers": ["ex.com/f"]}})).await;
        let path = format!("{MAPS}/a");
        request(&state, "DELETE", &path, json!({})).await;
        let (code, text) =
            request(&state, "PATCH", &path, json!({"metadata": {"deletionGracePeriodSeconds": 7}})).await;
        let wanted = "metadata.deletionGracePeriodSeconds: Invalid value: 7: field is immutable";
        assert_eq!((code, text), (422, format!("ConfigMap \"a\" is invalid: {wanted}")));
        assert_eq!(
            request(&state, "PATCH", &path, json!({"metadata": {"deletionGracePeriodSeconds": null}})).await.0,
            200
        );
    }

    #[tokio::test]
    async fn a_uid_in_the_body_must_match_the_object() {
        let (_server, state) = server().await;
        let body = json!({"metadata": {"name": "a", "uid": "u"}});
        let (code, text) = request(&state, "PUT", &format!("{SERVICES}/a"), body.clone()).await;
        assert!(code == 409 && text.contains("Key: /registry/services/specs/default/a,"), "{code} {text}");
        assert_eq!(request(&state, "PUT", &format!("{MAPS}/a"), body).await.0, 404);
    }

    #[tokio::test]
    async fn updating_the_status_of_a_missing_service_creates_it() {
        let (_server, state) = server().await;
        let path = format!("{SERVICES}/a/status");
        assert_eq!(request(&state, "PUT", &path, json!({"metadata": {"name": "a"}})).await.0, 422);
        let body = json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}});
        assert_eq!(request(&state, "PUT", &path, body).await.0, 201);
        let (_, made) = send(&state, "GET", &format!("{SERVICES}/a"), "", Vec::new()).await.unwrap();
        assert_eq!(made["spec"]["clusterIP"], Value::Null);
        assert_eq!(request(&state, "PATCH", &format!("{SERVICES}/b/status"), json!({})).await.0, 404);
    }
}
