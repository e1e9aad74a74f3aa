//! Create and update: the steps of every write.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::fields::{self, Writer};
use crate::go_text;
use crate::http::respond::Object;
use crate::resources::{self, WriteCx, meta};
use crate::status::{ApiError, ApiResult, Named};
use crate::store::{Draft, Expect, Stored, WriteError};
use crate::value::Json;

/// Why an update failed.
#[derive(Debug)]
pub(crate) enum UpdateError {
    /// Another client modified the object: read it again and retry.
    Conflict,
    Rejected(ApiError),
}

impl From<ApiError> for UpdateError {
    fn from(error: ApiError) -> UpdateError {
        UpdateError::Rejected(error)
    }
}

/// The current time in API format.
pub(crate) fn now() -> String {
    time_text(Timestamp::now())
}

/// A time in API format: UTC with second precision.
pub(super) fn time_text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl WriteCx<'_> {
    fn invalid(&self, name: &str, errors: &[crate::field_error::FieldError]) -> ApiError {
        // upstream: validation errors name the stored kind, regardless of the API version of the request.
        ApiError::invalid(resources::find_storage(self.resource.storage).named_kind(), name, errors)
    }

    pub(crate) fn writer<'a>(&'a self, now: &'a str) -> Writer<'a> {
        Writer { manager: self.manager, resource: self.resource, subresource: self.subresource, now }
    }

    /// Serialises the object in its stored version.
    fn draft(&self, object: &Value) -> Draft {
        let storage = resources::find_storage(self.resource.storage);
        match self.resource.view {
            Some(view) => Draft::new(storage, &(view.to_stored)(object.clone())),
            None => Draft::new(storage, object),
        }
    }
}

// === Create ===

/// Creates a decoded object. `owned`: its managed fields are already set (server-side apply).
pub(crate) fn create_object(
    write: &WriteCx<'_>,
    mut obj: Value,
    owned: bool,
    warnings: &mut Vec<String>,
) -> ApiResult<Object> {
    let strategy = write.resource.strategy;
    strategy.apply_defaults(&mut obj);
    let given_version = obj.take_at("metadata.resourceVersion");
    set_server_metadata(write, &mut obj);
    if !owned {
        fields::record_update(write.writer(&now()), None, &mut obj)?;
    }
    check_namespace(write, name_for_errors(&obj))?;
    strategy.admit_create(write, &mut obj)?;
    let generated = name_from_prefix(&mut obj);
    let reservation = strategy.begin_create(write, &mut obj)?;
    strategy.prepare_create(write, &mut obj);
    warnings.extend(meta::dedup_owner_references(&mut obj));
    let errors = strategy.validate_new(write, &obj);
    if !errors.is_empty() {
        return Err(write.invalid(obj.text("metadata.name"), &errors));
    }
    warnings.extend(strategy.warnings(write, &obj, None));
    if let Some(version) = given_version {
        check_given_version(write, &mut obj, version)?;
    }
    let object = insert(write, obj, generated)?;
    if let Some(reservation) = reservation.filter(|_| !write.dry_run) {
        reservation.commit();
    }
    Ok(object)
}

/// Rejects a new object with a resourceVersion. 0 and values that are not numbers are ignored.
///
/// upstream: a dry run does not check the version and returns it.
fn check_given_version(write: &WriteCx<'_>, obj: &mut Value, version: Value) -> ApiResult<()> {
    let is_version = version.as_str().is_some_and(|text| matches!(go_text::parse_uint(text), Ok(1..)));
    if write.dry_run {
        obj.put("metadata.resourceVersion", version);
    } else if is_version {
        return Err(ApiError::plain("resourceVersion should not be set on objects to be created"));
    }
    Ok(())
}

/// Sets the metadata that the server owns.
fn set_server_metadata(write: &WriteCx<'_>, obj: &mut Value) {
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        obj.take_at(&format!("metadata.{field}"));
    }
    obj.put("metadata.uid", uuid::Uuid::new_v4().to_string());
    obj.put("metadata.creationTimestamp", now());
    if write.resource.namespaced {
        obj.put("metadata.namespace", write.namespace);
    } else {
        obj.take_at("metadata.namespace");
    }
}

/// Stores the new object; generates another name if a generated one exists.
fn insert(write: &WriteCx<'_>, mut obj: Value, generated: bool) -> ApiResult<Object> {
    const ATTEMPTS: usize = 8;
    for attempt in 0..ATTEMPTS {
        let error = match try_insert(write, &obj) {
            Ok(object) => return Ok(object),
            Err(error) => error,
        };
        if !generated || attempt + 1 == ATTEMPTS {
            return Err(error);
        }
        obj.take_at("metadata.name");
        name_from_prefix(&mut obj);
    }
    Err(ApiError::plain("no unique name could be generated"))
}

fn try_insert(write: &WriteCx<'_>, obj: &Value) -> ApiResult<Object> {
    let name = obj.text("metadata.name");
    let storage = write.resource.storage;
    if write.dry_run {
        return match write.state.store.get(storage, obj.text("metadata.namespace"), name) {
            Some(found) => Err(already_exists(write, obj, Some(&found))),
            None => Ok(Object::Value(obj.clone())),
        };
    }
    match write.state.store.put(storage, Expect::Absent, write.draft(obj)) {
        Ok(stored) => Ok(Object::Stored(stored)),
        Err(_) => {
            let found = write.state.store.get(storage, obj.text("metadata.namespace"), name);
            Err(already_exists(write, obj, found.as_deref()))
        }
    }
}

fn already_exists(write: &WriteCx<'_>, obj: &Value, found: Option<&Stored>) -> ApiError {
    let name = obj.text("metadata.name");
    // upstream: a generateName is enough for this, even if the client also set a name.
    let mut error = match obj.text("metadata.generateName") {
        "" => ApiError::already_exists(write.resource.named(), name),
        _ => ApiError::name_not_unique(resources::find_storage(write.resource.storage).named(), name),
    };
    if found.is_some_and(|found| found.deleting) {
        error.message = format!("object is being deleted: {}", error.message);
    }
    error
}

/// Generates a name from `generateName`; returns whether it did.
fn name_from_prefix(obj: &mut Value) -> bool {
    let prefix = obj.text("metadata.generateName");
    if prefix.is_empty() || !obj.text("metadata.name").is_empty() {
        return false;
    }
    let name = generate_name(prefix);
    obj.put("metadata.name", name);
    true
}

/// The truncated prefix and five random characters from an alphabet without vowels.
pub(crate) fn generate_name(prefix: &str) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    const MAX_PREFIX: usize = 58;
    let random = uuid::Uuid::new_v4().into_bytes();
    let head: String = prefix.chars().take(MAX_PREFIX).collect();
    let tail = random.iter().take(5).map(|b| char::from(ALPHABET[usize::from(*b) % ALPHABET.len()]));
    head.chars().chain(tail).collect()
}

/// The name for errors about an object that may not have a name yet.
fn name_for_errors(obj: &Value) -> &str {
    match (obj.text("metadata.name"), obj.text("metadata.generateName")) {
        ("", "") => "Unknown",
        ("", prefix) => prefix,
        (name, _) => name,
    }
}

/// Rejects new content in a namespace that does not exist or is terminating.
pub(super) fn check_namespace(write: &WriteCx<'_>, name: &str) -> ApiResult<()> {
    if !write.resource.namespaced {
        return Ok(());
    }
    let namespaces = Named { group: "", kind: "namespaces" };
    let Some(found) = write.state.store.get("namespaces", "", write.namespace) else {
        return Err(ApiError::not_found(namespaces, write.namespace));
    };
    let terminating = found.fields.iter().any(|(label, value)| *label == "status.phase" && value == "Terminating");
    if !terminating {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {} because it is being terminated", write.namespace);
    let cause = serde_json::json!({
        "reason": "NamespaceTerminating",
        "message": format!("namespace {} is being terminated", write.namespace),
        "field": "metadata.namespace",
    });
    Err(ApiError::forbidden(write.resource.named(), name, &why).with_cause(cause))
}

// === Update ===

/// Replaces `old`, which is `current` in the API version of this resource, with `new`. `owned`: its managed fields are already
/// set (server-side apply).
pub(crate) fn update_object(
    write: &WriteCx<'_>,
    current: &Arc<Stored>,
    old: &Value,
    mut new: Value,
    owned: bool,
    warnings: &mut Vec<String>,
) -> Result<Object, UpdateError> {
    let strategy = write.resource.strategy;
    strategy.apply_defaults(&mut new);
    if !write.resource.namespaced {
        new.take_at("metadata.namespace");
    }
    carry_over(&mut new, old);
    if !owned {
        fields::record_update(write.writer(&now()), Some(old), &mut new)?;
    }
    strategy.admit_update(write, &mut new, old)?;
    let reservation = strategy.begin_update(write, &mut new, old)?;
    match write.subresource {
        Some("status") => strategy.prepare_status_update(write, &mut new, old),
        _ => strategy.prepare_update(write, &mut new, old),
    }
    warnings.extend(meta::dedup_owner_references(&mut new));
    validate_update(write, &new, old)?;
    warnings.extend(strategy.warnings(write, &new, Some(old)));
    let object = replace(write, current, old, new)?;
    if let Some(reservation) = reservation.filter(|_| !write.dry_run) {
        reservation.commit();
    }
    Ok(object)
}

/// Copies metadata that an update cannot change and may omit.
fn carry_over(new: &mut Value, old: &Value) {
    for field in ["creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        let path = format!("metadata.{field}");
        // Validation rejects a changed grace period.
        let keeps_new = match field {
            "deletionTimestamp" => !old.has(&path),
            "deletionGracePeriodSeconds" => new.has(&path),
            _ => false,
        };
        match old.at(&path) {
            _ if keeps_new => {}
            Value::Null => {
                new.take_at(&path);
            }
            value => new.put(&path, value.clone()),
        }
    }
    for field in ["uid", "namespace"] {
        let path = format!("metadata.{field}");
        if !new.has(&path) && old.has(&path) {
            new.put(&path, old.at(&path).clone());
        }
    }
    new.put("metadata.resourceVersion", old.at("metadata.resourceVersion").clone());
}

fn validate_update(write: &WriteCx<'_>, new: &Value, old: &Value) -> ApiResult<()> {
    let mut errors = meta::validate_update(write, new, old);
    errors.extend(match write.subresource {
        Some("status") => write.resource.strategy.validate_status_update(write, new, old),
        _ => write.resource.strategy.validate_update(write, new, old),
    });
    match errors.is_empty() {
        true => Ok(()),
        false => Err(write.invalid(old.text("metadata.name"), &errors)),
    }
}

/// Stores the new state, or deletes the object if nothing holds it; does nothing if the state is unchanged.
pub(super) fn replace(
    write: &WriteCx<'_>,
    current: &Arc<Stored>,
    old: &Value,
    new: Value,
) -> Result<Object, UpdateError> {
    if can_be_deleted(write, &new) {
        return delete_finished(write, current, new);
    }
    let draft = write.draft(&new);
    if draft.equals(current) || fields::equal_ignoring_times(old, &new) {
        return Ok(Object::Stored(current.clone()));
    }
    if write.dry_run {
        return Ok(Object::Value(new));
    }
    match write.state.store.put(write.resource.storage, Expect::Revision(current.revision), draft) {
        Ok(stored) => Ok(Object::Stored(stored)),
        Err(WriteError::Missing) => Err(ApiError::not_found(write.resource.named(), new.text("metadata.name")).into()),
        Err(_) => Err(UpdateError::Conflict),
    }
}

/// Whether the object is being deleted and nothing holds it any more.
fn can_be_deleted(write: &WriteCx<'_>, obj: &Value) -> bool {
    obj.has("metadata.deletionTimestamp")
        && obj.list("metadata.finalizers").is_empty()
        && obj.int("metadata.deletionGracePeriodSeconds").unwrap_or(0) == 0
        && !write.resource.strategy.has_spec_finalizers(obj)
}

/// Deletes an object whose last finalizer was removed; returns its last state.
fn delete_finished(write: &WriteCx<'_>, current: &Arc<Stored>, new: Value) -> Result<Object, UpdateError> {
    if write.dry_run {
        return Ok(Object::Value(new));
    }
    match write.state.store.delete(write.resource.storage, &current.key, current.revision) {
        Ok(_) => {
            write.resource.strategy.after_delete(write.state, &new);
            Ok(Object::Value(new))
        }
        Err(WriteError::Missing) => Err(ApiError::not_found(write.resource.named(), new.text("metadata.name")).into()),
        Err(_) => Err(UpdateError::Conflict),
    }
}
